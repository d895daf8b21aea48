//! ebb as this workspace builds it, for tests that run it.

use crate::fake_node::FakeNode;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Builds it, optimised or as tests are, unless it is built already; returns where it is.
///
/// # Errors
/// With what cargo said.
pub fn build(is_optimised: bool) -> Result<PathBuf, String> {
    let cargo = escargot::CargoBuild::new().package("ebb").bin("ebb");
    let cargo = if is_optimised { cargo.release() } else { cargo };
    // What cargo tells this program of its own package: build scripts that read it would run again, and half of the build with them.
    let names = std::env::vars_os().map(|(name, _)| name);
    let of_a_package = names.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    let cargo = of_a_package.fold(cargo, escargot::CargoBuild::env_remove);
    let built = cargo.run().map_err(|error| error.to_string())?;
    Ok(built.path().to_owned())
}

/// `ebb run` of the program `ebb` on a node made of files: a dry run with records as JSON.
#[must_use]
pub fn run_on(ebb: &Path, node: &FakeNode) -> Command {
    let mut command = Command::new(ebb);
    command.args(["run", "--output", "json"]);
    command.arg("--proc-root").arg(node.proc()).arg("--cgroup-root").arg(node.cgroups());
    command.arg("--host-root").arg(node.proc()).arg("--state").arg(node.state());
    command
}

/// Nanoseconds that the threads of a process were on a processor, and how often they slept.
///
/// # Panics
/// When it is there no more.
#[must_use]
pub fn used(process: &Child) -> [u64; 2] {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("its threads");
    let of = |task: std::io::Result<std::fs::DirEntry>| -> Option<[u64; 2]> {
        let task = task.ok()?.path();
        let schedstat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some([schedstat.split(' ').next()?.parse().ok()?, slept?.trim().parse().ok()?])
    };
    tasks.filter_map(of).fold([0, 0], |[ns, slept], [n, s]| [ns + n, slept + s])
}
