//! A real control plane on this host, the collectors that act on it, and the client that looks at what they did.
//!
//! ```text
//! Plane        etcd + kube-apiserver, one for a test binary
//!   ├─ Running     kube-controller-manager or `ebb controller`, one at a time
//!   ├─ NodeAgent   `ebb run`, where its cost is measured
//!   ├─ Proxy       between ebb and the server, where a fault is tested
//!   ├─ Api         plain JSON over HTTPS
//!   └─ Store       etcd itself, for what would take an API server minutes
//! ```
//! The programs are those of a directory: `cargo xtask cluster` makes it and names it in [`ASSETS`].
//! The cases are in `tests/cluster`, and what is measured in `benches`.

pub mod api;
mod children;
pub mod collector;
pub mod limits;
pub mod node_agent;
mod oracle;
pub mod plane;
pub mod proxy;
pub mod store;
pub mod usage;
pub mod wait;

/// The variable with the directory of `etcd`, `kube-apiserver` and `kube-controller-manager`.
pub const ASSETS: &str = "EBB_CLUSTER_ASSETS";
