//! ebb as this workspace builds it, for tests that run it.

use std::path::PathBuf;

/// What cargo tells the programs that it runs of their package.
const OF_A_PACKAGE: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Builds it, optimised or as tests are, unless it is built already; returns where it is.
///
/// # Errors
/// With what cargo said.
pub fn build(is_optimised: bool) -> Result<PathBuf, String> {
    let cargo = escargot::CargoBuild::new().package("ebb").bin("ebb");
    let cargo = if is_optimised { cargo.release() } else { cargo };
    // Build scripts that read these would run again, and half of the build with them.
    let cargo = OF_A_PACKAGE.into_iter().fold(cargo, escargot::CargoBuild::env_remove);
    let built = cargo.run().map_err(|error| error.to_string())?;
    Ok(built.path().to_owned())
}
