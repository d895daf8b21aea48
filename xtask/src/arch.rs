//! The processor architectures that ebb is built for, by Debian's names.

use serde::Deserialize;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// That of this machine.
    pub(crate) const HOST: Self =
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// As Debian calls it.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target of rustc; named also for this machine, because a static build must not be applied to build scripts.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// As the kernel calls it (`uname -m`), and rpm.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// As compilers and directories of libraries call it.
    pub(crate) const fn gnu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }
}

impl Default for Arch {
    fn default() -> Self {
        Self::HOST
    }
}
