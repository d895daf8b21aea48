//! Scenario, conformance and property tests of ebb, seen from outside: files in, plans out.
//!
//! [`conformance`] reads the scenarios and holds plans against them,
//! [`options`] writes `docs/options.md`, [`schemas`] the JSON Schemas of the black-box seam.
//! [`fake_node`] is a node made of files; [`api_server`] and [`runtime`] are an API server and a container runtime in this process.
//! [`program`] builds the ebb that tests run.
//! The tests themselves are in `tests/tests`.

pub mod api_server;
pub mod conformance;
pub mod fake_node;
pub mod options;
pub mod program;
pub mod runtime;
pub mod schemas;

use std::path::PathBuf;

/// The root of the checkout.
#[must_use]
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), std::path::Path::to_owned)
}
