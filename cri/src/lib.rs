//! ebb's view of a container runtime: what it has, what happens in it, and the few things ebb asks of it.
//!
//! ```text
//!  caller ── async call ──► Runtime ── borrows ──► Link (a channel, or why there is none)
//!                              │                     ▲ published by
//!                              └─ trouble ─────────► supervisor: dial ► negotiate ► watch ► back off      one task
//!  caller ◄── RuntimeEvents ◄── streams: CRI's, containerd's own                                     one task each
//! ```
//! No call waits longer than its deadline, none waits for a runtime that is known to be away, and how many may wait is
//! bounded. Nothing is retried: whoever asked decides that, on a fresh view.
//!
//! The types here are ebb's. Those of the wire are in [`wire`], and only this crate names tonic's client.
//! Choosing what to remove is elsewhere (`ebb-policy`), and so is protecting what must stay: a runtime removes an image
//! that is in use without a word.

mod call;
mod container;
mod dial;
mod endpoint;
mod error;
mod events;
mod image;
mod layers;
mod pod;
mod runtime;
mod status;
mod supervisor;
mod time;
mod usage;
mod verbose;

#[cfg(feature = "fuzz")]
pub mod fuzz;
#[cfg(feature = "launch")]
pub mod launch;
pub mod wire;

pub use call::Deadlines;
pub use container::{Container, ContainerState, ContainerStatus, ImageUse, Resources};
pub use dial::Identity;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{DialError, Error};
pub use events::{Change, Feed, RuntimeEvent, RuntimeEvents, What};
pub use image::Image;
pub use layers::{Layers, Piece, PieceKind};
pub use pod::{PodName, Sandbox, SandboxStatus};
pub use runtime::{CgroupDriver, Runtime};
pub use supervisor::Link;
pub use usage::{ContainerUsage, FsUsage, ImageFs, PodUsage};
