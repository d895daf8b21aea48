//! The local API of ebb: what a running agent tells clients on its own node, by gRPC on a Unix socket.
//!
//! ```text
//!  whoever reports ─► RecordSink ──bounded queue──► server ─► recent records ─► a Watch for each client
//!                      (never waits, counts)          │
//!  the loop ◄── asked by a function that is given ────┴── GetNode · ListWorkloads · GetDecision · ListIncidents · GetIncident
//! ```
//! The server has a thread to itself, and shares with the agent nothing but two bounded queues: nobody who reports, decides or kills ever waits for it, or for a client.
//! [`wire`] is the protocol, made from `proto/ebb/v1/ebb.proto`, where its rules are said; `socket` and `peer` say who may speak it, `connection` how many and for how long; [`client`] speaks it from the other side.
//! Elsewhere: what a record says is the journal's, how the node stands is the agent's; nothing here reads or changes the node.

pub mod client;
mod connection;
mod events;
mod incidents;
mod pace;
mod peer;
mod recent;
mod refusals;
mod server;
mod service;
mod sink;
mod socket;
mod watch;
pub mod wire;
mod workloads;

pub use peer::Allowed;
pub use server::{Server, Stop, Stopped, stop};
pub use service::{Ask, Questions};
pub use sink::{RecordSink, Records, records};
pub use socket::{Bound, NotBound, SocketFile, bind};

/// Where the API is, for whoever is not told otherwise.
pub const USUAL: &str = "/run/ebb/api.sock";
