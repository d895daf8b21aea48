//! ebb, the node reclaimer: see `ARCHITECTURE.md` for the loop that these modules form.
//!
//! Read in this order: [`sense`] reads the node, [`pods`] says which pods there are, [`state`] keeps what was read, the crate `ebb-policy` decides, `act` changes the node, `report` says what happened, and `run` is the one place that waits.

pub mod act;
pub mod cadence;
pub mod cgroups;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod hook;
pub mod lock;
pub mod pods;
pub mod privileges;
pub mod report;
pub mod run;
pub mod sense;
pub mod state;
mod stop;
pub mod store;
mod testing;
pub mod threads;
pub mod yaml;
