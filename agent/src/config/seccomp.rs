//! The filter of system calls, as the configuration asks for it.

use serde::Serialize;

/// What becomes of a system call that is not on the list; the kernel's log (or the audit log) names it unless there is no filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Seccomp {
    /// Nothing: there is no filter.
    Off,
    /// It is made.
    Log,
    /// It fails with `ENOSYS`.
    #[default]
    Enforce,
}

impl Seccomp {
    /// The mode by the word of the configuration.
    pub const WORDS: [(&str, Self); 3] =
        [("off", Self::Off), ("log", Self::Log), ("enforce", Self::Enforce)];

    /// The word of the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Log => "log",
            Self::Enforce => "enforce",
        }
    }
}
