//! A recorded incident as the screens of its decisions. Pure: what the record has is shown, and what it has not is unknown.

use super::model::Step;
use super::picture::Picture;
use crate::api;
use crate::incident::is_dry_run;
use crate::workloads::{Known, Stalls, lines};
use ebb_agent::config::Config;
use ebb_agent::run::ThresholdNow;
use ebb_api::wire::MemoryPressure;
use ebb_journal::Moment;
use ebb_journal::incident::{Decision, Incident};
use ebb_policy::history::Trend;
use ebb_policy::plan::{SkipReason, Subject, ThresholdStatus};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{History, Plan, Signal, Snapshot, decide, observed, rank};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The decisions of an incident, each as a screen.
pub(super) fn steps(id: &str, incident: &Incident) -> Vec<Step> {
    let mut stalls = Stalls::default();
    let mut steps = Vec::new();
    for (nth, decision) in incident.decisions.iter().enumerate() {
        let next = incident.decisions.get(nth + 1).map(|next| next.plan.decided_at.0);
        let until = next.map(|next| next.saturating_sub(incident.crossed_at));
        let happened = incident
            .timeline
            .iter()
            .filter(|moment| until.is_none_or(|until| moment.after_ms < until as f64));
        stalls.observe(&decision.snapshot);
        steps.push(Step {
            picture: picture(id, incident, decision, &stalls),
            records: happened.map(record).collect(),
        });
    }
    steps
}

/// A moment as a line.
fn record(moment: &Moment) -> String {
    let Moment { what, after_ms, detail } = moment;
    let detail = detail.as_ref().map(|detail| format!("  {detail}")).unwrap_or_default();
    format!("{after_ms:>10.1} ms  {what}{detail}")
}

fn picture(id: &str, incident: &Incident, decision: &Decision, stalls: &Stalls) -> Picture {
    let Decision { config, snapshot, history, plan } = decision;
    // By the configuration of then it follows what the decision remembered; where this ebb cannot read that, what was remembered before is all there is.
    let config = Config::parse(config.as_ref().unwrap_or(&incident.config)).ok();
    let limits = config.map(|config| config.limits);
    let after = limits.as_ref().map(|limits| decide(snapshot, limits, history).1);
    let after = after.as_ref().unwrap_or(history);
    let signal = plan.ranking.first().map_or(Some(Signal::MemoryAvailable), |first| first.signal);
    let ranking = match &limits {
        Some(limits) if plan.ranking.is_empty() => {
            Cow::Owned(rank(snapshot, limits, after, Signal::MemoryAvailable))
        }
        _ => Cow::Borrowed(&plan.ranking),
    };
    let skipped: BTreeMap<WorkloadKey, SkipReason> = plan
        .skipped
        .iter()
        .filter_map(|kept| match &kept.subject {
            Subject::Workload { workload } if kept.reason != SkipReason::NotNeeded => {
                Some((workload.clone(), kept.reason.clone()))
            }
            _ => None,
        })
        .collect();
    let victims: Vec<WorkloadKey> = plan.evictions().map(|evict| evict.workload.clone()).collect();
    let known = Known {
        growth: &after.growth,
        ranking: &ranking,
        skipped: &skipped,
        victims: &victims,
        pod_cgroups: &BTreeMap::new(),
    };
    let pressures = plan.memory_pressure.iter().map(|status| MemoryPressure {
        cgroup: status.cgroup.clone(),
        limit: status.limit.0,
        full_avg10: status.full_avg10.map(|share| share.0),
    });
    let threshold = |status| api::threshold(&now(status, snapshot, plan, after));
    Picture {
        version: incident.ebb_version.clone(),
        mode: "",
        at: Some(plan.decided_at.0),
        looked_at: None,
        workload_count: u32::try_from(snapshot.workloads.len()).ok(),
        incidents: vec![id.to_owned()],
        thresholds: plan.thresholds.iter().map(threshold).collect(),
        pressures: pressures.collect(),
        workloads: lines(snapshot, &known, stalls),
        seen_at: Some(snapshot.taken_at.0),
        left_out: 0,
        ranked_for: signal.map_or("memory pressure".to_owned(), |signal| signal.name().to_owned()),
        untold: None,
        decision: Some(evicts(incident, plan, &victims)),
    }
}

/// Whom a decision evicts, and when it was made.
fn evicts(incident: &Incident, plan: &Plan, victims: &[WorkloadKey]) -> String {
    let when = match plan.decided_at.0.checked_sub(incident.crossed_at) {
        Some(after) => format!("{after} ms after the crossing"),
        None => "before the crossing".to_owned(),
    };
    let verb = if is_dry_run(incident) { "would evict" } else { "evicts" };
    let names: Vec<&str> = victims.iter().map(|key| key.name.as_str()).collect();
    match names.as_slice() {
        [] => format!("{when}: {verb} nobody"),
        names => format!("{when}: {verb} {}", names.join(", ")),
    }
}

/// A threshold as it stood, with the forecast that followed from the trend of then.
fn now(
    status: &ThresholdStatus,
    snapshot: &Snapshot,
    plan: &Plan,
    history: &History,
) -> ThresholdNow {
    let capacity = observed(snapshot).get(&status.signal).and_then(|seen| seen.capacity);
    let handled = plan
        .handled
        .as_ref()
        .filter(|handled| (handled.signal, handled.strength) == (status.signal, status.strength));
    let foreseen = handled.and_then(|handled| handled.forecast);
    let foreseen = foreseen.map(|left| Duration::from_millis(left.0));
    let time_left = foreseen.or_else(|| {
        let trend = history.trends.get(&status.signal)?;
        let limit = u64::try_from(status.threshold?.ceil()).ok()?;
        time_left(trend, status.available?, limit)
    });
    ThresholdNow { status: status.clone(), time_left, capacity }
}

/// When what is left reaches the limit at the rate of the trend; `None` when it does not fall, or has reached it.
fn time_left(trend: &Trend, available: u64, limit: u64) -> Option<Duration> {
    let fall = trend.rate.filter(|rate| *rate < 0)?.unsigned_abs();
    let above = available.checked_sub(limit).filter(|above| *above > 0)?;
    Some(Duration::from_millis(above.saturating_mul(1000) / fall))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const LEAK: &str = include_str!("../../../tests/incidents/leak.json");

    #[test]
    fn what_a_dry_run_decided_is_what_would_have_been_done() {
        let mut incident: Incident = json::parse(LEAK).unwrap();
        let decision = |incident: &Incident| steps("id", incident)[0].picture.decision.clone();
        assert_eq!(
            decision(&incident).as_deref(),
            Some("2002 ms after the crossing: evicts /apps/batch-report")
        );
        incident.timeline.retain(|moment| !["terminating", "killed"].contains(&&*moment.what));
        for moment in incident.timeline.iter_mut().filter(|moment| moment.what == "decided") {
            moment.what = "would be evicted (dry run)".into();
        }
        assert_eq!(
            decision(&incident).as_deref(),
            Some("2002 ms after the crossing: would evict /apps/batch-report")
        );
    }
}
