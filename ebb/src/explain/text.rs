//! What is known of a workload on its node, as lines for people.

use super::Answer;
use super::asked::Asked;
use super::live::{Live, Object, OfSignal, Standing};
use super::past::{Found, Past, Untold};
use super::what_if::WhatIf;
use crate::plan;
use ebb_journal::text::{amount, bytes, plain, rank_keys, reason};
use ebb_kube::{Time, timestamp};
use ebb_policy::plan::{Evict, Strength};
use ebb_policy::snapshot::{Preference, Stats};

/// The answer for people; no name in it speaks to the terminal.
pub(super) fn describe(answer: &Answer<'_>) -> String {
    let mut lines = Vec::new();
    match &answer.live {
        Some(found) => live(answer.asked, found, &mut lines),
        None => lines.push(format!(
            "{} {}: not on this node now",
            answer.asked.word(),
            answer.asked.name()
        )),
    }
    lines.extend(answer.untold.iter().map(untold));
    if let Some(found) = &answer.past {
        past(found, &mut lines);
    }
    lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
}

fn live(asked: &Asked, live: &Live<'_>, lines: &mut Vec<String>) {
    let (word, name) = (live.word(), &live.workload.name);
    if *name != asked.name() {
        lines.push(format!("{} {}: lies in {word} {name}", asked.word(), asked.name()));
    }
    let uid = live.workload.uid.as_deref().map(|uid| format!(" (uid {uid})")).unwrap_or_default();
    let standing = match &live.standing {
        Standing::Candidate => "may be evicted".to_owned(),
        Standing::Safe { skipped } => format!("is not evicted: {}", reason(skipped)),
        Standing::Finished => "nothing of it runs any more".to_owned(),
    };
    lines.push(format!("{word} {name}{uid}: {standing}"));
    let mut about = vec![format!("priority {}", live.priority)];
    match live.preference {
        Preference::Prefer => about.push("ebb.dev/evict: prefer".to_owned()),
        Preference::Avoid => about.push("ebb.dev/evict: avoid".to_owned()),
        Preference::Neutral => {}
    }
    about.extend(live.owner.map(|owner| format!("owner {} {}", owner.kind, owner.name)));
    about.extend(live.disruption_budget.as_ref().map(|budget| {
        format!("disruption budget {} allows {}", budget.name, budget.disruptions_allowed)
    }));
    lines.push(format!("  {}", about.join(", ")));
    lines.extend(live.object.iter().flat_map(of_object));
    if let Some(evict) = &live.evicted_now {
        lines.push(format!("  is evicted now: {}", evict.message.trim_end()));
    }
    lines.extend(live.signals.iter().flat_map(|of| of_signal(live, of)));
}

fn of_object(object: &Object) -> Vec<String> {
    let mut lines = Vec::new();
    if object.is_deleting {
        lines.push("  the API server is deleting it".to_owned());
    }
    if object.is_mirror {
        lines.push("  mirrors a static pod".to_owned());
    }
    lines.extend(object.problems.iter().map(|problem| format!("  {problem}")));
    lines
}

fn of_signal(live: &Live<'_>, of: &OfSignal) -> Vec<String> {
    let mut lines: Vec<String> =
        of.thresholds.iter().map(|status| format!("  {}", plan::threshold(status))).collect();
    if live.standing != Standing::Candidate {
        return lines;
    }
    // A signal that nobody observes evicts nobody.
    if let Some(ranked) = of.ranked.as_ref().filter(|_| of.if_short.is_some()) {
        lines.push(format!(
            "    ranked {} of {}: {}",
            ranked.place,
            of.candidates,
            rank_keys(ranked)
        ));
    }
    lines.extend(of.if_short.as_ref().map(|of| format!("    {}", if_short(of))));
    lines
}

fn if_short(of: &WhatIf) -> String {
    let WhatIf { strength, victims, is_victim, skipped } = of;
    let when = match strength {
        Strength::Hard => "below it",
        Strength::Soft => "below it for its grace period",
    };
    let others = || victims.join(", ");
    match (is_victim, skipped) {
        (true, _) if victims.len() == 1 => format!("{when}, it is evicted next"),
        (true, _) => format!("{when}, it is evicted next, of {}", others()),
        (false, Some(why)) if victims.is_empty() => {
            format!("{when}, nobody is evicted; it is skipped: {}", reason(why))
        }
        (false, None) if victims.is_empty() => format!("{when}, nobody is evicted"),
        (false, Some(why)) => {
            format!("{when}, {} goes next; it is skipped: {}", others(), reason(why))
        }
        (false, None) => format!("{when}, {} goes next", others()),
    }
}

fn untold(of: &Untold) -> String {
    format!(
        "evicted {} (uid {}), and the API server has not been told of it yet: {}",
        at(of.decided_at),
        of.uid,
        of.message.trim_end()
    )
}

fn past(past: &Past, lines: &mut Vec<String>) {
    lines.push(format!(
        "incidents recorded in {}: {}, with this workload: {}",
        past.directory.display(),
        past.records,
        past.incidents.len()
    ));
    lines.extend(past.incidents.iter().flat_map(of_incident));
}

fn of_incident(found: &Found) -> Vec<String> {
    let what = match (&found.signal, &found.memory_pressure) {
        (Some(signal), _) => signal.name().to_owned(),
        (None, cgroup) => format!("memory pressure of {}", cgroup.as_deref().unwrap_or_default()),
    };
    let short = found.handled.as_ref().map(|handled| {
        let left = amount(handled.signal, handled.available);
        let strength = match handled.strength {
            Strength::Hard => "hard",
            Strength::Soft => "soft",
        };
        format!(" {left} < {} ({strength})", handled.threshold)
    });
    let what = format!("{what}{}", short.unwrap_or_default());
    let mut lines = Vec::new();
    let when = at(found.decided_at);
    match &found.evicted {
        Some(evict) => {
            lines.push(format!("  {when} evicted: {what}"));
            lines.push(format!("    {}", grounds(evict)));
        }
        None => {
            let why = found.skipped.as_ref().map(|why| format!("; skipped: {}", reason(why)));
            let instead = if found.victims.is_empty() {
                "nobody was evicted".to_owned()
            } else {
                format!("{} was evicted", found.victims.join(", "))
            };
            lines.push(format!(
                "  {when} not evicted: {what}: {instead}{}",
                why.unwrap_or_default()
            ));
        }
    }
    if let Some(ranked) = &found.ranked {
        lines.push(format!(
            "    ranked {} of {}: {}",
            ranked.place,
            found.candidates,
            rank_keys(ranked)
        ));
    }
    lines.extend(found.observed.as_ref().map(|stats| format!("    {}", observed(stats))));
    for moment in &found.timeline {
        let own = &found.workload.name;
        let detail = moment.detail.as_deref().filter(|detail| detail != own);
        let detail = detail.map(|detail| format!("  {detail}")).unwrap_or_default();
        lines.push(format!("    {:>10.1} ms  {}{detail}", moment.after_ms, moment.what));
    }
    let uid = found.workload.uid.as_deref().map(|uid| format!("uid {uid}, ")).unwrap_or_default();
    lines.push(format!("    {uid}record {}", found.incident));
    lines
}

fn grounds(evict: &Evict) -> String {
    let expected = evict.expected_free.zip(evict.signal);
    let frees = expected.map(|(free, signal)| format!(", to free {}", amount(signal, free)));
    format!("{} (grace {} s{})", evict.message.trim_end(), evict.grace.0, frees.unwrap_or_default())
}

fn observed(stats: &Stats) -> String {
    let known = |what: &str, value: Option<String>| value.map(|value| format!("{what} {value}"));
    let parts = [
        known("memory", stats.memory.and_then(|m| m.working_set()).map(bytes)),
        known("swap", stats.memory.and_then(|m| m.swap).map(bytes)),
        known("processes", stats.process_count.map(|n| n.to_string())),
        known("disk", stats.ephemeral_storage.map(bytes)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "nothing was measured of it".to_owned()
    } else {
        format!("observed: {}", parts.join(", "))
    }
}

fn at(unix_ms: u64) -> String {
    let text = timestamp(Time(unix_ms));
    // To the millisecond.
    text.strip_suffix("000Z").map_or_else(|| text.clone(), |short| format!("{short}Z"))
}
