//! How ebb's thresholds stand to those of the kubelet beside it: what was compared, and what to write where ebb does not act first.

use ebb_policy::Signal;
use ebb_policy::plan::Strength;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How ebb's thresholds stand to the kubelet's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardBand {
    /// The file that the kubelet's were read from; absent when its defaults are assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Why they were not read, with file, key and value.
    pub errors: Vec<String>,
    /// Each of the kubelet's thresholds.
    pub thresholds: Vec<Band>,
}

/// One threshold of the kubelet, and whether ebb acts before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Band {
    /// Its signal.
    pub signal: Signal,
    /// How it acts.
    pub strength: Strength,
    /// Its value, as it would be written.
    pub kubelet: String,
    /// The highest of ebb's that acts no later; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebb: Option<String>,
    /// What ebb's is to be; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<String>,
    /// Whether it is; null when that is not known.
    pub has_room: Option<bool>,
    /// What to write in ebb's file, where there is no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl GuardBand {
    /// The kubelet's thresholds that ebb does not act well before.
    pub fn overlaps(&self) -> impl Iterator<Item = &Band> {
        self.thresholds.iter().filter(|band| band.has_room == Some(false))
    }

    /// Whether the kubelet's thresholds were read, and ebb acts before each.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.errors.is_empty() && self.overlaps().next().is_none()
    }

    /// Where the kubelet's thresholds come from, for people.
    #[must_use]
    pub fn source(&self) -> String {
        self.file.as_ref().map_or_else(
            || "the kubelet's defaults are assumed".to_owned(),
            |file| format!("read from {}", file.display()),
        )
    }
}

impl Band {
    /// How the two stand, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let Self { signal, kubelet, ebb, needed, .. } = self;
        let ebb = ebb.as_ref().map_or_else(
            || "ebb has no threshold that acts in time".to_owned(),
            |ebb| format!("ebb acts below {ebb}"),
        );
        let needed = needed.as_ref().map(|needed| format!("; {needed} is needed"));
        format!("{signal}: the kubelet acts below {kubelet}, {ebb}{}", needed.unwrap_or_default())
    }
}
