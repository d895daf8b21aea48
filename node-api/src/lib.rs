//! The API server for the agent of a node: follows what it has of the node, and tells it of evictions, conditions and taints.
//!
//! ```text
//!  API server ── follow: pods of the node, the Node, budgets ─► session ─► ClusterNews ─► the agent's loop
//!             ◄─ tell: status, delete, Event · evict · node: conditions, taints ◄─ Order ◄─┘
//!                        │
//!                        └─ outbox on disk: what could not be told yet
//! ```
//! Commands that explain a pod `look` once instead.
//! The loop knows none of this: it is built without a client of Kubernetes, and no kill waits for an API server (decision 0032).
//! What others read in the API stands in `words` alone.

mod executor;
mod look;
mod node;
mod outbox;
mod queue;
mod session;
mod tell;
mod words;

pub use look::{Look, look};
pub use session::{Setup, connect};
