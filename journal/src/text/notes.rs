//! The notes of a plan, as sentences.

use super::amount::{amount, bytes};
use super::skipped::protection;
use super::time_of_day;
use crate::note::PlanNote;
use ebb_policy::Signal;
use ebb_policy::plan::Note;
use std::fmt;

impl fmt::Display for PlanNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&note(&self.note, self.signal))?;
        if let (Note::NoEvictionCandidates, Some(list)) = (&self.note, self.awaited) {
            write!(f, "; {}", protection(list))?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more like this"),
        }
    }
}

/// A note, as a sentence, of a plan that handles `signal`.
fn note(note: &Note, signal: Signal) -> String {
    match note {
        Note::LocalPressure { workload } => format!("{} is at its own limit", workload.name),
        Note::Suffers { workload, stall_us } => {
            format!("{} waits for memory, {} ms a second", workload.name, stall_us / 1000)
        }
        Note::Causes { workload, per_second, reclaims } => {
            let reclaims = reclaims.map(|n| format!(" ({n} direct reclaims a second)"));
            format!(
                "{} grows by {}/s meanwhile{}",
                workload.name,
                bytes(per_second.unsigned_abs()),
                reclaims.unwrap_or_default()
            )
        }
        Note::NotShortOfBoth { signal, also, available, threshold } => format!(
            "{signal} is below its threshold, and {also} is not: {} left of {threshold} that it would have to be below",
            amount(*also, *available)
        ),
        Note::StallWithoutShortage => "tasks wait although nothing is short".into(),
        Note::NoActiveWorkloads => "no eviction candidates: no workload is active".into(),
        Note::NoEvictionCandidates => "no eviction candidates: every workload is skipped".into(),
        Note::TerminatingCovers { expected, need } => {
            format!(
                "terminating workloads should free {} of {} needed",
                amount(signal, *expected),
                amount(signal, *need)
            )
        }
        Note::DryRunFreed { freed, need } => {
            format!(
                "dry run: assumes {} freed by evictions that were not carried out, {} needed",
                amount(signal, *freed),
                amount(signal, *need)
            )
        }
        Note::CannotSuffice { wanted, reclaimable } => {
            format!(
                "all eviction candidates together free {} of {} needed: only those go that bring the node closer",
                amount(signal, *reclaimable),
                amount(signal, *wanted)
            )
        }
        Note::ThresholdOutOfReach { threshold, capacity } => {
            format!(
                "the threshold of {} is above the capacity of {}: no eviction can resolve it",
                amount(signal, *threshold),
                amount(signal, *capacity)
            )
        }
        Note::EvictionRate { evictions, per_minute } => {
            format!(
                "{evictions} evictions within a minute, {per_minute} allowed: only the first candidate of a hard threshold goes"
            )
        }
        Note::Forecast { signal, time_left, error } => {
            format!("{signal} reaches its threshold in {time_left} (± {error})")
        }
        Note::NotEnough { wanted, expected } => {
            format!(
                "all eviction candidates together free {} of {} wanted",
                amount(signal, *expected),
                amount(signal, *wanted)
            )
        }
        Note::ActiveCacheReclaimable { bytes: n } => {
            format!("{} of page cache in use is counted as available", bytes(*n))
        }
        Note::ActiveCacheNeeded => "page cache in use comes back when reclaimed".into(),
        Note::ReclaimFirst => "reclaim on the node comes first".into(),
        Note::ReclaimSufficed => "reclaim on the node was enough".into(),
        Note::LayersUnknown { images } => {
            format!("the layers of {images} images are not known; each counts with its full size")
        }
        Note::FullSoon { signal, time_left } => format!(
            "{} is full in {time_left} at the present rate: no reclaim is waited for",
            filesystem(*signal)
        ),
        Note::UsageAwaited { unknown, until } => format!(
            "eviction deferred: the disk usage of {unknown} candidates has not been measured since the threshold was crossed, and nobody is known to fill {}; waited for until {}",
            filesystem(signal),
            time_of_day(until.0)
        ),
        Note::UsageNotMeasured { unknown } => format!(
            "the disk usage of {unknown} candidates could not be measured in time: the last known figures decide"
        ),
        Note::PressureAwaitsTermination { cgroup, workload, dry_run: false } => format!(
            "memory pressure of {cgroup}: eviction deferred until {} has terminated",
            workload.name
        ),
        Note::PressureAwaitsTermination { cgroup, workload, dry_run: true } => format!(
            "dry run: assumes memory pressure of {cgroup} relieved by the eviction of {}, which was not carried out",
            workload.name
        ),
        Note::PressureWithoutCandidate { cgroup } => format!(
            "memory pressure of {cgroup}: no eviction candidate below it from which enough memory is reclaimed to matter"
        ),
        Note::NoObservation { signal } => format!("{signal} is unavailable"),
        Note::LayoutUnknown { error } => format!(
            "the layout of the filesystems is unavailable{}: thresholds on disk are not compared",
            error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default()
        ),
        Note::ContainerFsOverridden { signal } => {
            format!("the threshold on {signal} follows from that of the filesystem it shares")
        }
        Note::MoreCandidates { candidates, listed } => {
            format!("{listed} of {candidates} candidates are listed")
        }
        Note::WaitingForVictims { until } => {
            format!("waiting for terminating workloads until {}", time_of_day(until.0))
        }
        Note::ImageFsFigures { what } => format!("image filesystem: {what}"),
    }
}

/// The filesystem behind a signal on disk, as the kubelet calls it.
pub(super) fn filesystem(signal: Signal) -> &'static str {
    signal.name().split_once('.').map_or(signal.name(), |(filesystem, _)| filesystem)
}
