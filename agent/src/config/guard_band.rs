//! How far ebb stays above the kubelet beside it, threshold by threshold: it must act first, and leave the kubelet the last word.
//!
//! ```text
//!  KubeletConfiguration ─► Kubelet ─┐
//!  ebb's limits, capacities ────────┴─► GuardBand: for each of the kubelet's thresholds whether there is room, else what to write
//! ```
//! Pure but for [`Kubelet::load`]. Thresholds on memory want the larger of twice the kubelet's and 2 % of the node; all others must be above the kubelet's.

use super::{Capacities, Config, Mode, kubelet, source};
use ebb_journal::{Band, GuardBand};
use ebb_policy::Signal;
use ebb_policy::limits::{Limits, RawEviction, Threshold, ThresholdValue};
use ebb_policy::plan::Strength;
use std::path::{Path, PathBuf};

const MIB: i128 = 1 << 20;

/// How much of its memory a node needs between ebb and the kubelet at least: time to act in.
const LEAST_SHARE: f32 = 0.02;

/// How far above the kubelet's a percentage is proposed, points.
const POINTS: f64 = 2.0;

/// The kubelet's thresholds, and where they were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubelet {
    /// The file; `None` when the kubelet's defaults are assumed.
    pub file: Option<PathBuf>,
    /// Why they were not read, with file, key and value.
    pub errors: Vec<String>,
    /// The thresholds.
    pub thresholds: Vec<Threshold>,
}

impl Kubelet {
    /// Reads a KubeletConfiguration; one that cannot be read is told, and the kubelet's defaults are assumed.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        let limits = source::read(path).and_then(|text| kubelet::limits(&text));
        match limits {
            Ok(limits) => Self {
                file: Some(path.to_owned()),
                errors: Vec::new(),
                thresholds: limits.thresholds().to_vec(),
            },
            Err(mut errors) => {
                errors.file = Some(path.to_owned());
                let errors = errors.to_string().lines().map(str::to_owned).collect();
                Self { errors, ..Self::defaults() }
            }
        }
    }

    /// A kubelet whose configuration says nothing of eviction.
    #[must_use]
    pub fn defaults() -> Self {
        // A test holds that nothing is wrong with what says nothing.
        let limits = Limits::new(&RawEviction::default());
        let thresholds = limits.map(|limits| limits.thresholds().to_vec()).unwrap_or_default();
        Self { file: None, errors: Vec::new(), thresholds }
    }

    /// Those that can be set, which ebb can set too.
    fn compared(&self) -> impl Iterator<Item = &Threshold> {
        self.thresholds.iter().filter(|threshold| is_compared(threshold.signal))
    }
}

impl Config {
    /// The same with hard thresholds that stay above the kubelet's, where the file leaves them to their defaults.
    #[must_use]
    pub fn above(mut self, kubelet: &Kubelet, capacities: &Capacities) -> Self {
        let merges = self.eviction.merge_default_eviction_settings == Some(true);
        if self.mode != Mode::Kubernetes || self.eviction.eviction_hard.is_some() && !merges {
            return self;
        }
        let mut hard = self.eviction.eviction_hard.clone().unwrap_or_default();
        let is_hard = |threshold: &&Threshold| threshold.list == Strength::Hard;
        for threshold in kubelet.compared().filter(is_hard) {
            let capacity = known(capacities, threshold.signal);
            if let Some(text) = proposed(threshold, capacity) {
                hard.entry(threshold.signal.name().to_owned()).or_insert(text);
            }
        }
        let own = self.limits.thresholds().iter().filter(is_hard);
        for threshold in own.filter(|threshold| is_compared(threshold.signal)) {
            let name = threshold.signal.name().to_owned();
            hard.entry(name).or_insert_with(|| threshold.written());
        }
        let eviction = RawEviction { eviction_hard: Some(hard), ..self.eviction.clone() };
        if let Ok(limits) = Limits::new(&eviction) {
            self.eviction = eviction;
            self.limits = limits;
        }
        self
    }

    /// The same, held against the thresholds of the kubelet beside it.
    #[must_use]
    pub fn held_against(self, kubelet: &Kubelet, capacities: &Capacities) -> Self {
        let guard_band = Some(guard_band(&self.limits, kubelet, capacities));
        Self { guard_band, ..self }
    }
}

/// Each of the kubelet's thresholds, and whether one of ebb's acts well before it.
///
/// One that also wants swap to be short does not count, nor one with a longer grace period than the kubelet's: the kubelet waits for neither.
#[must_use]
pub fn guard_band(limits: &Limits, kubelet: &Kubelet, capacities: &Capacities) -> GuardBand {
    let thresholds = kubelet.compared().map(|threshold| {
        let capacity = known(capacities, threshold.signal);
        band(limits.thresholds(), threshold, capacity)
    });
    GuardBand {
        thresholds: thresholds.collect(),
        file: kubelet.file.clone(),
        errors: kubelet.errors.clone(),
    }
}

fn band(ebbs: &[Threshold], kubelet: &Threshold, capacity: Option<u64>) -> Band {
    let signal = kubelet.signal;
    let in_time = ebbs
        .iter()
        .filter(|ebb| ebb.signal == signal && ebb.also.is_none() && ebb.grace <= kubelet.grace);
    let in_time: Vec<&Threshold> = in_time.collect();
    let rooms: Vec<Option<bool>> =
        in_time.iter().map(|ebb| has_room(ebb.value, kubelet, capacity)).collect();
    // Enough of one is enough; what is unknown of one might be.
    let has_room = if rooms.contains(&Some(true)) {
        Some(true)
    } else if rooms.contains(&None) {
        None
    } else {
        Some(false)
    };
    let highest = in_time.into_iter().max_by_key(|ebb| ebb.value.resolve(capacity));
    let value = (has_room == Some(false)).then(|| proposed(kubelet, capacity)).flatten();
    Band {
        signal,
        strength: kubelet.strength(),
        kubelet: shown(kubelet),
        ebb: highest.map(shown),
        needed: needed(kubelet, capacity),
        has_room,
        change: value.map(|value| change(kubelet, &value)),
    }
}

/// Whether `ebb` is so far above the kubelet's that it acts first; `None` when that is not known.
fn has_room(ebb: ThresholdValue, kubelet: &Threshold, capacity: Option<u64>) -> Option<bool> {
    if is_memory_at_once(kubelet) {
        let capacity = capacity?;
        return Some(ebb.resolve(Some(capacity)).ceil() >= least_memory(kubelet.value, capacity));
    }
    match (ebb, kubelet.value) {
        (ThresholdValue::Amount(ebb), ThresholdValue::Amount(kubelet)) => Some(ebb > kubelet),
        (
            ThresholdValue::Share { share: ebb, at_most: None },
            ThresholdValue::Share { share: kubelet, .. },
        ) => Some(ebb > kubelet),
        (ebb, kubelet) => {
            let capacity = Some(capacity?);
            Some(ebb.resolve(capacity) > kubelet.resolve(capacity))
        }
    }
}

/// What ebb's hard threshold on memory must be at least: twice the kubelet's and 2 % of the node, but where the kubelet's is so high that there is no room for that, half of what is above it.
fn least_memory(kubelet: ThresholdValue, capacity: u64) -> i128 {
    let share = ThresholdValue::Share { share: LEAST_SHARE, at_most: None };
    let kubelet = kubelet.resolve(Some(capacity)).ceil();
    let wanted = kubelet.saturating_mul(2).max(share.resolve(Some(capacity)).ceil());
    wanted.min(half_way(kubelet, capacity))
}

/// Half way from the kubelet's to all that there is.
fn half_way(kubelet: i128, capacity: u64) -> i128 {
    kubelet + (i128::from(capacity) - kubelet).max(0) / 2
}

/// What ebb's is to be, for people.
fn needed(kubelet: &Threshold, capacity: Option<u64>) -> Option<String> {
    if is_memory_at_once(kubelet) {
        let least = least_memory(kubelet.value, capacity?);
        return Some(format!("at least {}", in_unit(kubelet.signal, least)));
    }
    let for_at_most = match kubelet.strength() {
        Strength::Hard => String::new(),
        Strength::Soft => format!(" after at most {}", kubelet.grace),
    };
    Some(format!("more than {}{for_at_most}", kubelet.written()))
}

/// A value for ebb's file that leaves room; `None` when there is none, or it is not known.
fn proposed(kubelet: &Threshold, capacity: Option<u64>) -> Option<String> {
    let signal = kubelet.signal;
    if is_memory_at_once(kubelet) {
        if let Some(capacity) = capacity {
            let least = least_memory(kubelet.value, capacity);
            return (least < i128::from(capacity)).then(|| in_unit(signal, least));
        }
        // The part of the rule that is known.
        if let ThresholdValue::Amount(amount) = kubelet.value {
            return Some(in_unit(signal, amount.ceil().saturating_mul(2)));
        }
    }
    match kubelet.value {
        ThresholdValue::Share { share, .. } => {
            let percent = f64::from(share) * 100.0;
            let above = (percent + POINTS).min(f64::midpoint(percent, 100.0));
            let text = format!("{above:.5}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            (above > percent && above < 100.0).then(|| format!("{text}%"))
        }
        ThresholdValue::Amount(amount) => {
            let amount = amount.ceil();
            let above = amount.saturating_add((amount / 5).max(1));
            let above = capacity.map_or(above, |all| above.min(half_way(amount, all)));
            (above > amount).then(|| in_unit(signal, above))
        }
    }
}

/// Where to write what.
fn change(kubelet: &Threshold, value: &str) -> String {
    let signal = kubelet.signal;
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let value = if is_number { format!("\"{value}\"") } else { value.to_owned() };
    match kubelet.strength() {
        Strength::Hard => format!("write `{signal}: {value}` below `evictionHard:`"),
        Strength::Soft => format!(
            "write `{signal}: {value}` below `evictionSoft:` and `{signal}: {}` below `evictionSoftGracePeriod:`",
            kubelet.grace
        ),
    }
}

/// A threshold as it would be written, with its grace period.
fn shown(threshold: &Threshold) -> String {
    match threshold.strength() {
        Strength::Hard => threshold.written(),
        Strength::Soft => format!("{} after {}", threshold.written(), threshold.grace),
    }
}

/// An amount as it is written in a file; bytes in whole MiB, rounded up.
fn in_unit(signal: Signal, amount: i128) -> String {
    let is_bytes = signal.name().ends_with(".available") && signal != Signal::PidAvailable;
    if is_bytes {
        let whole = amount / MIB + i128::from(amount % MIB > 0);
        format!("{whole}Mi")
    } else {
        amount.to_string()
    }
}

fn is_memory_at_once(threshold: &Threshold) -> bool {
    threshold.signal == Signal::MemoryAvailable && threshold.strength() == Strength::Hard
}

/// Those that follow from others are named by them.
fn is_compared(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::MemoryAvailable
            | Signal::NodeFsAvailable
            | Signal::NodeFsInodesFree
            | Signal::ImageFsAvailable
            | Signal::ImageFsInodesFree
            | Signal::PidAvailable
    )
}

/// What is 0 was not measured.
fn known(capacities: &Capacities, signal: Signal) -> Option<u64> {
    capacities.get(&signal).copied().filter(|capacity| *capacity > 0)
}

#[cfg(test)]
mod tests;
