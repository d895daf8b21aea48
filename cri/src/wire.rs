//! Generated code, by package. Made by `cargo xtask proto` from `cri/proto`; what it means is said there.
//!
//! Public for the runtime that tests fake; the agent uses the types of this crate's root.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::all,
    reason = "generated code is judged by what it is generated from"
)]

/// `runtime.v1`: CRI.
pub mod runtime {
    include!("generated/runtime.v1.rs");
}

/// containerd's own services, on the same socket.
pub mod containerd {
    /// `containerd.events`.
    pub mod events {
        include!("generated/containerd.events.rs");
    }
    /// `containerd.types`.
    pub mod types {
        include!("generated/containerd.types.rs");
    }
    /// `containerd.services`: the nesting is the packages', because generated code refers to its neighbours by it.
    pub mod services {
        pub mod content {
            pub mod v1 {
                include!("generated/containerd.services.content.v1.rs");
            }
        }
        pub mod events {
            pub mod v1 {
                include!("generated/containerd.services.events.v1.rs");
            }
        }
        pub mod images {
            pub mod v1 {
                include!("generated/containerd.services.images.v1.rs");
            }
        }
        pub mod snapshots {
            pub mod v1 {
                include!("generated/containerd.services.snapshots.v1.rs");
            }
        }
    }
}
