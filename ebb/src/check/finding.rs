//! One line of what `ebb check` answers.

use serde::Serialize;

/// How it stands with one thing that ebb does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Status {
    /// The best way is live.
    Live,
    /// It works, by a lesser way.
    Degraded,
    /// It does not work here.
    Unavailable,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// What ebb does.
    pub(super) what: &'static str,
    pub(super) status: Status,
    /// The way that is live, or why none is.
    pub(super) source: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}
