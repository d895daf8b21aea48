//! What all of ebb talks about: pods and their containers, amounts of resources, identities, times.
//!
//! Plain values that know how they are written and added up, as Kubernetes does it; nothing here reads, decides or acts.
//! The manifests' reader and the container runtime's put a [`Pod`] together; policy, the agent and the reconciler of cgroups read it.
//! What is measured of a pod is policy's `snapshot`, not here.
#![no_std]
extern crate alloc;

pub mod amounts;
mod identity;
pub mod pod;
pub mod priority;
pub mod quantity;
mod units;
mod volume;

pub use amounts::Amounts;
pub use identity::{CgroupId, ProcessId};
pub use pod::{Container, ContainerId, ContainerKind, Pod, Qos};
pub use priority::class_priority;
pub use quantity::Quantity;
pub use units::{Millis, Secs, StallShare, Time};
pub use volume::{VolumeSpec, VolumeType};
