//! The cluster collector, live: `ebb controller`.
//!
//! ```text
//! discovery ─► watches ─► Input ─► collector: Graph, pods ─► verdicts ─► fair queue ─► window ─► requests
//!                           ▲                                                                      │
//!                           └───────────────────────── answers ◄───────────────────────────────────┘
//! leader: may this process act?      record: what was done, and why      http: livez, readyz, metrics
//! ```
//! One task owns all that is known; everything else sends to it and waits for nothing of it.
//! What to do with an object is decided in `ebb-policy-cluster`, and how the API server is spoken to in `ebb-kube`.

mod collector;
mod config;
mod election;
mod fair;
mod http;
mod job;
mod leader;
mod name;
mod pods;
mod record;
mod recorder;
mod requests;
mod run;
mod status;
mod watches;
mod why;
mod window;

pub use config::{Collectors, Config, Mode, resources_named};
pub use leader::LEASE_NAME;
pub use record::{Act, Format, Named, Outcome, Record};
pub use run::run;
