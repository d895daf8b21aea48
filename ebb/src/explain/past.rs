//! A workload in what was recorded: in which incidents it was decided on, what was known of it then, and how that ended.

use crate::Failure;
use crate::records::{self, Place, Recorded};
use anyhow::Context as _;
use ebb_agent::cluster::Eviction;
use ebb_agent::store::OutboxFile;
use ebb_journal::Moment;
use ebb_journal::incident::{Decision, Incident};
use ebb_policy::Signal;
use ebb_policy::plan::{Evict, Handled, Ranked, SkipReason, Subject};
use ebb_policy::snapshot::{Stats, WorkloadKey};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What is recorded of a workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Past {
    pub(super) directory: PathBuf,
    /// Records that are there and can be read.
    pub(super) records: usize,
    /// Those that cannot, and why.
    pub(super) unreadable: Vec<String>,
    /// Where it was decided on, the newest first.
    pub(super) incidents: Vec<Found>,
}

/// A workload in one incident.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Found {
    /// The file.
    pub(super) incident: String,
    pub(super) signal: Option<Signal>,
    /// The cgroup that was under memory pressure, where that was it.
    pub(super) memory_pressure: Option<String>,
    pub(super) crossed_at: u64,
    /// When it was decided on, first of all or to evict it: milliseconds since the Unix epoch.
    pub(super) decided_at: u64,
    pub(super) workload: WorkloadKey,
    pub(super) handled: Option<Handled>,
    /// Its place in the ranking; absent where it had none.
    pub(super) ranked: Option<Ranked>,
    pub(super) candidates: usize,
    /// What was measured of it.
    pub(super) observed: Option<Stats>,
    /// How it was evicted; absent where it was not.
    pub(super) evicted: Option<Box<Evict>>,
    /// Why it was not, where the plan says so.
    pub(super) skipped: Option<SkipReason>,
    /// Who was evicted by this decision.
    pub(super) victims: Vec<String>,
    /// What happened to it then.
    pub(super) timeline: Vec<Moment>,
}

/// An eviction that the API server has not been told of yet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Untold {
    pub(super) uid: String,
    pub(super) decided_at: u64,
    pub(super) message: String,
}

/// Reads what was recorded of a workload by one of these names.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn read(place: &Place, names: &[&str]) -> Result<Past, Failure> {
    let (recorded, unreadable) = records::all(place)?;
    let mut past = Past {
        directory: place.directory().to_owned(),
        records: recorded.len(),
        unreadable,
        incidents: Vec::new(),
    };
    for Recorded { file, incident } in recorded {
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let knows =
            |name: &&&str| incident.decisions.iter().any(|decision| key(decision, name).is_some());
        let name = names.iter().find(knows);
        past.incidents.extend(name.and_then(|name| find(incident, file, name)));
    }
    past.incidents.sort_by_key(|found| std::cmp::Reverse(found.decided_at));
    Ok(past)
}

/// What of the pod of this name the API server has not been told yet.
pub(super) fn untold(state: &Path, name: &str) -> anyhow::Result<Vec<Untold>> {
    let waiting: Vec<Eviction> = OutboxFile::in_dir(state).look().with_context(|| {
        format!("{}: what the API server is still to be told cannot be read", state.display())
    })?;
    let own = waiting.into_iter().filter(|e| format!("{}/{}", e.namespace, e.name) == name);
    Ok(own.map(|e| Untold { uid: e.uid, decided_at: e.at, message: e.message }).collect())
}

/// The decision of an incident that matters most for a workload: the one that evicted it, else the first that knew it.
fn find(incident: Incident, file: String, name: &str) -> Option<Found> {
    let knows = |decision: &&Decision| key(decision, name).is_some();
    let evicts = |decision: &&Decision| evict(decision, name).is_some();
    let decisions = || incident.decisions.iter();
    let decision = decisions().find(evicts).or_else(|| decisions().find(knows))?;
    let workload = key(decision, name)?.clone();
    let plan = &decision.plan;
    let own = decision.snapshot.workloads.iter().find(|own| own.key == workload);
    let skipped = plan.skipped.iter().find(
        |kept| matches!(&kept.subject, Subject::Workload { workload: kept } if *kept == workload),
    );
    let evicted = evict(decision, name);
    let timeline = incident.timeline.iter().filter(|entry| is_about(entry, name));
    Some(Found {
        incident: file,
        signal: incident.signal,
        memory_pressure: incident.memory_pressure.clone(),
        crossed_at: incident.crossed_at,
        decided_at: plan.decided_at.0,
        handled: plan.handled.clone(),
        ranked: plan.ranking.iter().find(|ranked| ranked.workload == workload).cloned(),
        candidates: plan.ranking.len(),
        observed: own.and_then(|workload| workload.stats.clone()),
        evicted: evicted.cloned().map(Box::new),
        skipped: skipped.map(|kept| kept.reason.clone()).filter(|_| evicted.is_none()),
        victims: plan.evictions().map(|evict| evict.workload.name.clone()).collect(),
        timeline: timeline.cloned().collect(),
        workload,
    })
}

fn key<'a>(decision: &'a Decision, name: &str) -> Option<&'a WorkloadKey> {
    let mut keys = decision.snapshot.workloads.iter().map(|workload| &workload.key);
    keys.find(|key| key.name == name)
}

fn evict<'a>(decision: &'a Decision, name: &str) -> Option<&'a Evict> {
    decision.plan.evictions().find(|evict| evict.workload.name == name)
}

/// Whether a moment concerns the workload of this name: it is its detail, one of several there, or before what is said of it.
fn is_about(entry: &Moment, name: &str) -> bool {
    let Some(detail) = &entry.detail else { return false };
    let rest = detail.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with([':', ',']))
        || detail.split(", ").any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_about_whom_it_names_and_not_about_a_longer_name() {
        let entry = |detail: &str| Moment {
            what: "killed".into(),
            after_ms: 1.0,
            detail: Some(detail.to_owned()),
        };
        for detail in ["ns/web", "ns/db, ns/web", "ns/web: refused: no", "ns/web, with 3 left"] {
            assert!(is_about(&entry(detail), "ns/web"), "{detail}");
        }
        for detail in ["ns/web-1", "ns/web-1: no", "other", ""] {
            assert!(!is_about(&entry(detail), "ns/web"), "{detail}");
        }
    }
}
