//! Scenario, conformance and property tests of ebb, seen from outside: files in, plans out.
//!
//! [`conformance`] reads the scenario folders and holds plans against them ([`cgroups`] those of cgroups), [`subset`] compares an expectation with an answer,
//! [`document`] writes `docs/conformance.md`, [`options`] `docs/options.md`, [`schemas`] the JSON Schemas of the black-box seam.
//! [`runtime`] is a container runtime in this process.
//! The tests themselves are in `tests/tests`.

pub mod cgroups;
pub mod conformance;
pub mod document;
pub mod options;
pub mod runtime;
pub mod schemas;
pub mod subset;

use std::path::PathBuf;

/// The root of the checkout.
#[must_use]
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), std::path::Path::to_owned)
}
