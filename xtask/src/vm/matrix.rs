//! `vm-tests/matrix.toml`: which kernels, which machines, which skips are accepted.
use crate::arch::Arch;
use crate::sh;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matrix {
    #[serde(rename = "kernel")]
    pub(crate) kernels: Vec<Kernel>,
    #[serde(rename = "machine")]
    machines: BTreeMap<String, Machine>,
    #[serde(rename = "userland")]
    userlands: BTreeMap<String, Userland>,
    /// Whether machines are tried with as many kernels only as `cargo xtask test` has time for.
    #[serde(skip)]
    pub(crate) is_check: bool,
}

/// A kernel by suite and pattern; what it resolves to today is [`super::kernel::Image`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) suite: String,
    pub(crate) package: String,
    /// Tests that this kernel lacks a feature for.
    #[serde(default)]
    pub(crate) may_skip: Vec<String>,
    /// BPF programs that must attach here.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// The containerd that nodes with this kernel have.
    pub(crate) containerd: String,
    #[serde(default = "amd64")]
    pub(crate) arch: Arch,
    /// The only machines that are tried with it; all that are for it when none is named.
    #[serde(default)]
    pub(crate) machines: Vec<String>,
    /// Whether `cargo xtask test` leaves it to `cargo xtask vm`.
    #[serde(default)]
    pub(crate) only_vm: bool,
}

fn amd64() -> Arch {
    Arch::Amd64
}

/// The shape of a virtual machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    /// MiB.
    pub(crate) memory: u32,
    pub(crate) cpus: u32,
    /// More kernel parameters.
    #[serde(default)]
    pub(crate) cmdline: String,
    /// More devices, as QEMU's `-device` takes them.
    #[serde(default)]
    pub(crate) devices: Vec<String>,
    /// What is on its root disk; with `containerd` and `kubelet`, the kernel says beside which containerd.
    pub(crate) userland: String,
    /// Whether it is given ebb's image and the manifests of `deploy/`.
    #[serde(default)]
    pub(crate) deploys: bool,
    /// Whether it is given ebb as packages of Debian.
    #[serde(default)]
    pub(crate) installs: bool,
    /// The only kernels that it is tried with; all when none is named.
    #[serde(default)]
    kernels: Vec<String>,
    /// Those of them that it is tried with by `cargo xtask test`; all when none is named.
    #[serde(default)]
    check: Vec<String>,
}

impl Machine {
    /// The userland of this machine with that kernel.
    pub(crate) fn userland_on(&self, kernel: &Kernel) -> String {
        match self.userland.as_str() {
            name @ ("containerd" | "kubelet") => format!("{name}-{}", kernel.containerd),
            name => name.to_owned(),
        }
    }

    /// The version of containerd on it, `None` when it has none.
    pub(crate) fn containerd_on(&self, kernel: &Kernel) -> Option<String> {
        let userland = self.userland_on(kernel);
        let version =
            ["containerd-", "kubelet-"].iter().find_map(|kind| userland.strip_prefix(kind));
        version.map(str::to_owned)
    }
}

/// What a root disk holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Userland {
    /// Debian packages; what they depend on comes along.
    pub(crate) packages: Vec<String>,
    /// More packages, each with the suite it comes from; what they depend on must be there already.
    #[serde(default)]
    pub(crate) more: BTreeMap<String, String>,
    /// Whether the test images are on it.
    #[serde(default)]
    pub(crate) images: bool,
    /// Whether the programs of a Kubernetes are on it.
    #[serde(default)]
    pub(crate) kubernetes: bool,
}

/// Whether a kernel is among those named, or none is.
fn has(only: &[String], kernel: &Kernel) -> bool {
    only.is_empty() || only.contains(&kernel.name)
}

impl Matrix {
    pub(crate) fn load() -> Result<Self> {
        let path = sh::root().join("vm-tests/matrix.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    /// A machine that a test asks for.
    pub(crate) fn machine(&self, name: &str) -> Result<&Machine> {
        self.machines.get(name).with_context(|| format!("matrix.toml has no machine {name}"))
    }

    /// Whether a machine, which must exist, is tried with a kernel here.
    pub(crate) fn tries(&self, machine: &str, kernel: &Kernel) -> bool {
        self.on(machine, kernel).is_some() && !self.leaves_out(machine, kernel)
    }

    /// Whether the check is what is run, and leaves a machine to `cargo xtask vm` with a kernel that it is tried with there.
    pub(crate) fn leaves_out(&self, machine: &str, kernel: &Kernel) -> bool {
        let leaves = |it: &Machine| kernel.only_vm || !has(&it.check, kernel);
        self.is_check && self.on(machine, kernel).is_some_and(leaves)
    }

    /// A machine, if it is for this kernel.
    fn on(&self, machine: &str, kernel: &Kernel) -> Option<&Machine> {
        let is_tried = kernel.machines.is_empty() || kernel.machines.iter().any(|m| m == machine);
        let machine = self.machines.get(machine).filter(|machine| has(&machine.kernels, kernel));
        machine.filter(|_| is_tried)
    }

    /// A userland that a machine asks for.
    pub(crate) fn userland(&self, name: &str) -> Result<&Userland> {
        self.userlands.get(name).with_context(|| format!("matrix.toml has no userland {name}"))
    }

    /// The kernels a person named, or all of them when none was named.
    pub(crate) fn select(&self, names: &[String]) -> Result<Vec<Kernel>> {
        if names.is_empty() {
            return Ok(self.kernels.clone());
        }
        let find = |name: &String| {
            let known =
                || self.kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>();
            match self.kernels.iter().find(|kernel| kernel.name == *name) {
                Some(kernel) => Ok(kernel.clone()),
                None => bail!("the matrix has no kernel {name}; it has {}", known().join(", ")),
            }
        };
        names.iter().map(find).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_understood_and_names_six_kernels() {
        let matrix = Matrix::load().unwrap();
        assert_eq!(matrix.kernels.len(), 6);
        for machine in matrix.kernels.iter().flat_map(|kernel| &kernel.machines) {
            assert!(matrix.machine(machine).is_ok(), "{machine}");
        }
        assert!(matrix.select(&["6.12".into()]).is_ok());
        assert!(matrix.select(&["4.19".into()]).is_err());
        for (name, machine) in &matrix.machines {
            for kernel in matrix.kernels.iter().filter(|kernel| matrix.tries(name, kernel)) {
                let userland = machine.userland_on(kernel);
                assert!(matrix.userland(&userland).is_ok(), "{userland}");
            }
            assert!(matrix.select(&machine.kernels).is_ok(), "{:?}", machine.kernels);
            assert!(matrix.select(&machine.check).is_ok(), "{:?}", machine.check);
        }
    }

    #[test]
    fn what_the_check_leaves_out_is_tried_otherwise() {
        let mut matrix = Matrix::load().unwrap();
        let [kernel] = <[Kernel; 1]>::try_from(matrix.select(&["6.1".into()]).unwrap()).unwrap();
        assert!(matrix.tries("crowd", &kernel) && !matrix.leaves_out("crowd", &kernel));
        matrix.is_check = true;
        assert!(!matrix.tries("crowd", &kernel) && matrix.leaves_out("crowd", &kernel));
        assert!(!matrix.leaves_out("small", &kernel), "it is tried with every kernel");
        assert!(!matrix.leaves_out("hostile", &kernel), "it is not for this kernel");
        let [arm] =
            <[Kernel; 1]>::try_from(matrix.select(&["6.12-arm64".into()]).unwrap()).unwrap();
        assert!(matrix.leaves_out("small", &arm), "it is left out as a whole");
        assert!(!matrix.leaves_out("containerd", &arm), "it is not tried with it at all");
    }
}
