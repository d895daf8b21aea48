//! What is packed: name, version and the time that every file in a package is of.
use crate::arch::Arch;
use crate::sh;
use anyhow::{Context, Result};
use std::process::Command;

/// Who answers for a package, unless `--maintainer` names somebody else: whoever publishes one should.
pub(crate) const MAINTAINER: &str = "ebb maintainers <maintainers@ebb.dev>";

/// In one line.
pub(crate) const SUMMARY: &str = "node reclaimer: evicts the right workload before memory runs out";

/// At more length: paragraphs.
pub(crate) const DESCRIPTION: [&str; 2] = [
    "ebb watches memory, task ids, disk and inodes of a node through eBPF and files, and evicts a \
     workload within milliseconds when a threshold is met, before the kernel's OOM killer does. It \
     decides by the rules of Kubernetes' kubelet, says why it chose that workload and not another, \
     and records every decision so that it can be decided again offline.",
    "As installed it observes: it says in the journal whom it would evict, and kills nobody.",
];

/// A version of ebb as a package.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    /// Upstream's.
    pub(crate) version: &'static str,
    /// Of the package, among those of one upstream version.
    pub(crate) revision: u32,
    pub(crate) maintainer: String,
    pub(crate) arch: Arch,
    /// Seconds since the Unix epoch.
    pub(crate) time: u64,
}

impl Release {
    /// Of the commit that is checked out.
    pub(crate) fn of_commit(revision: u32, maintainer: &str, arch: Arch) -> Result<Self> {
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            revision,
            maintainer: maintainer.to_owned(),
            arch,
            time: time()?,
        })
    }

    /// As dpkg has it.
    pub(crate) fn full(&self) -> String {
        format!("{}-{}", self.version, self.revision)
    }

    /// The time by date(1), in UTC.
    pub(crate) fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").args(["--utc", "--date", &format!("@{}", self.time), format]);
        sh::read(&mut date)
    }
}

/// `$SOURCE_DATE_EPOCH`, as all who build reproducibly have it, else when the commit that is checked out was made.
fn time() -> Result<u64> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if let Ok(text) = std::env::var(VARIABLE) {
        return text.parse().with_context(|| format!("{VARIABLE}={text:?} is no time"));
    }
    let mut git = Command::new("git");
    git.current_dir(sh::root()).args(["log", "-1", "--format=%ct"]);
    let text = sh::read(&mut git).with_context(|| format!("set {VARIABLE}"))?;
    text.parse().with_context(|| format!("{text:?} is no time of a commit"))
}

#[cfg(test)]
pub(crate) fn sample() -> Release {
    Release {
        version: "0.1.0",
        revision: 1,
        maintainer: MAINTAINER.to_owned(),
        arch: Arch::Amd64,
        time: 1_700_000_000,
    }
}
