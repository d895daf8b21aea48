//! How a call of the hook before an eviction ended.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a call of the hook before an eviction ended. Whichever it was, the eviction goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookOutcome {
    /// It answered with a line.
    Answered,
    /// It closed the connection without one.
    Closed,
    /// It did neither before the deadline.
    TimedOut,
    /// Nobody listens on the socket, or ebb may not connect.
    Refused,
    /// There is no such socket.
    Absent,
    /// Anything else.
    Failed,
}

impl HookOutcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Answered, Self::Closed, Self::TimedOut, Self::Refused, Self::Absent, Self::Failed];

    /// The word that JSON and metrics have for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Closed => "closed",
            Self::TimedOut => "timedOut",
            Self::Refused => "refused",
            Self::Absent => "absent",
            Self::Failed => "failed",
        }
    }

    /// Whether the other side had its say.
    #[must_use]
    pub fn is_fine(self) -> bool {
        matches!(self, Self::Answered | Self::Closed)
    }
}

/// For people: what follows the hook.
impl fmt::Display for HookOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered => "answered",
            Self::Closed => "closed the connection",
            Self::TimedOut => "did not answer in time",
            Self::Refused => "cannot be connected to",
            Self::Absent => "is not there",
            Self::Failed => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_word_is_that_of_json() {
        for outcome in HookOutcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.word());
        }
    }
}
