//! Records as lines for people: what happened first, then why.

use super::{Done, Moment, OomConstraint, Outcome, Record, plain};
use crate::act::runtime::Work;
use crate::act::{Method, Mode, Need, Rung, Step};
use crate::config::GuardBand;
use crate::human::{amount, bytes};
use ebb_policy::Signal;
use ebb_policy::plan::{Note, RankKey, Ranked};
use ebb_policy::snapshot::Preference;
use std::fmt::Write as _;
use std::io::{self, Write};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Candidates of a ranking that are shown.
const SHOWN: usize = 5;

/// Writes one record as one line, followed by indented ones where there is more to say.
pub(super) fn write(
    sink: &mut dyn Write,
    at_ms: u64,
    record: &Record<'_>,
    colour: bool,
) -> io::Result<()> {
    let (tint, lines) = lines(record);
    let clock = time_of_day(at_ms);
    let (dim, tint, reset) = if colour { (DIM, tint, RESET) } else { ("", "", "") };
    let mut rest = lines.into_iter();
    let first = rest.next().unwrap_or_default();
    writeln!(sink, "{dim}{clock}{reset} {tint}{}{reset}", plain(&first))?;
    for line in rest {
        writeln!(sink, "{:14}{}", "", plain(&line))?;
    }
    Ok(())
}

/// A colour, and what a record says, line by line.
pub(super) fn lines(record: &Record<'_>) -> (&'static str, Vec<String>) {
    match record {
        Record::Started { version, mode, sources, unavailable, thresholds, workloads } => {
            let mode = match mode {
                Mode::DryRun => "dry run (evicts nothing; --enforce acts)",
                Mode::Enforce => "enforcing",
            };
            let mut lines = vec![format!("ebb {version} started, {mode}, {workloads} workloads")];
            lines.push(format!("thresholds: {}", thresholds.join(", ")));
            lines.extend(sources.iter().map(|s| format!("source: {s}")));
            lines.extend(unavailable.iter().map(|u| format!("unavailable: {u}")));
            (GREEN, lines)
        }
        Record::ThresholdCrossed { signal, threshold, available, seen_after_ms } => (
            YELLOW,
            vec![format!(
                "{signal} crossed its threshold: {} < {}, seen {seen_after_ms:.1} ms later",
                amount(*signal, *available),
                amount(*signal, *threshold)
            )],
        ),
        Record::MemoryPressureAboveLimit { cgroup, full_avg10, limit, duration } => (
            YELLOW,
            vec![format!(
                "memory pressure of {cgroup} is above its limit: full avg10 {full_avg10} > {limit}; after {duration} a workload below it is evicted"
            )],
        ),
        Record::MemoryPressureRelieved { cgroup, full_avg10, timeline } => {
            let now = full_avg10.map_or("unavailable".to_owned(), |now| format!("{now}"));
            let mut lines = vec![format!("memory pressure of {cgroup} relieved: full avg10 {now}")];
            lines.extend(timeline.iter().map(moment));
            (GREEN, lines)
        }
        Record::Decided { after_ms, evict, ranking, candidates, notes } => {
            let mut lines = Vec::new();
            for evict in evict {
                let memory = evict.memory_pressure.as_ref().map(|_| Signal::MemoryAvailable);
                let free = match (evict.signal.or(memory), evict.expected_free) {
                    (Some(signal), Some(free)) => {
                        format!(", expected to free {}", amount(signal, free))
                    }
                    _ => String::new(),
                };
                lines.push(format!(
                    "decided to evict {}{}{free}",
                    evict.workload.name,
                    after_crossing(*after_ms)
                ));
                if evict.memory_pressure.is_some() {
                    lines.push(evict.message.trim_end().to_owned());
                }
            }
            lines.push(format!("ranking of {candidates}:"));
            lines.extend(ranking.iter().take(SHOWN).map(ranked));
            lines.extend(notes.iter().map(|n| format!("note: {n}")));
            (YELLOW, lines)
        }
        Record::EvictionDeferred { signal, notes } => {
            let signal = signal.map(|s| format!(" on {s}")).unwrap_or_default();
            (YELLOW, vec![format!("eviction{signal} deferred: {}", notes.join("; "))])
        }
        Record::Evicted(Done {
            job,
            workload,
            method: Method::DryRun,
            after_ms,
            assumes_freed,
            ..
        }) => {
            let name = workload.map_or_else(|| job.target.to_string(), |key| key.name.clone());
            let signal = match &job.need {
                Some(Need::PidsBelow { .. }) => Signal::PidAvailable,
                Some(Need::SwapBelow { .. }) => Signal::SwapAvailable,
                _ => Signal::MemoryAvailable,
            };
            let freed = assumes_freed.map_or_else(
                || "what it holds".to_owned(),
                |freed| format!("{}, or what it holds later,", amount(signal, freed)),
            );
            let assumed = format!("assumes {freed} freed for as long as it runs");
            let after = after_crossing(*after_ms);
            (YELLOW, vec![format!("dry run: would evict {name}{after}; {assumed}")])
        }
        Record::StepTaken(Done { job, workload, method: Method::DryRun, after_ms, .. }) => {
            let name = workload.map_or_else(|| job.target.to_string(), |key| key.name.clone());
            let step = step_of(job.step);
            (YELLOW, vec![format!("dry run: would {step} {name}{}", after_crossing(*after_ms))])
        }
        Record::Evicted(done) | Record::StepTaken(done) => {
            let Done { job, workload, method, after_ms, took_us, by_watchdog, .. } = done;
            let name = workload.map_or_else(|| job.target.to_string(), |key| key.name.clone());
            let (verb, via) = means(*method);
            let by = if *by_watchdog { "the watchdog " } else { "" };
            let after = after_crossing(*after_ms);
            (RED, vec![format!("{by}{verb} {name} via {via}{after}, in {took_us} µs")])
        }
        Record::ReflexArmed { workload } => {
            ("", vec![format!("reflex armed: the kernel kills {} at the threshold", workload.name)])
        }
        Record::ReflexFired {
            workload,
            killed,
            skipped,
            available,
            took_us,
            seen_after_ms,
            ..
        } => {
            let left = amount(Signal::MemoryAvailable, *available);
            let seen = format!("with {left} left, seen {seen_after_ms:.1} ms later");
            let what = match (killed.len(), skipped.len()) {
                (0, _) => {
                    format!("killed nothing of {}: its processes had changed", workload.name)
                }
                (killed, 0) => {
                    format!("killed {killed} processes of {} in {took_us} µs", workload.name)
                }
                (killed, skipped) => {
                    format!("killed {killed} processes of {}, skipped {skipped}", workload.name)
                }
            };
            (RED, vec![format!("reflex fired: {what}, {seen}")])
        }
        Record::Warned { workload, message } => {
            (YELLOW, vec![format!("warned {}: {message}", workload.name)])
        }
        Record::NotDone { job, workload, why } => {
            let name = workload.map_or_else(|| job.target.to_string(), |key| key.name.clone());
            (YELLOW, vec![format!("skipped {name}: {why}")])
        }
        Record::Terminated { workload, outcome, after_ms } => match outcome {
            Outcome::Exited => {
                (GREEN, vec![format!("{} terminated within {after_ms:.1} ms", workload.name)])
            }
            Outcome::TimedOut => (
                RED,
                vec![format!(
                    "termination of {} timed out after {after_ms:.0} ms: another may be evicted",
                    workload.name
                )],
            ),
        },
        Record::PressureRelieved { signal, available, timeline } => {
            let mut lines = vec![format!(
                "pressure on {signal} relieved: {} left",
                amount(*signal, *available)
            )];
            lines.extend(timeline.iter().map(moment));
            (GREEN, lines)
        }
        Record::Cgroups {
            written,
            created,
            remaining,
            would_write,
            would_create,
            errors,
            after_ms,
        } => {
            let mut lines = super::cgroups::round(written, created, remaining, errors, *after_ms);
            lines.extend(super::cgroups::rehearsed(would_write, would_create));
            (YELLOW, lines)
        }
        Record::OrphanedPodCgroups {
            found,
            cleaned_up,
            would_clean_up,
            empty,
            dying,
            reclaimed,
            errors,
        } => {
            let mut lines = super::cgroups::orphaned(found, cleaned_up, dying, errors);
            lines.extend(would_clean_up.iter().map(|path| format!("dry run: would remove {path}")));
            let empty = empty.iter().map(|path| format!("{path}: empty, and of no container"));
            lines.extend(empty);
            if *reclaimed > 0 {
                lines.push(format!("{} reclaimed from removed cgroups", bytes(*reclaimed)));
            }
            (YELLOW, lines)
        }
        Record::OomKill { comm, pid, cgroup, path, limit, oom_score_adj, .. } => {
            let place = path.clone().or(cgroup.map(|id| format!("cgroup {id}")));
            let place = place.unwrap_or_else(|| "an unknown cgroup".into());
            let limit = match (limit, limit.for_policy()) {
                (OomConstraint::Node, _) => "the node was out of memory".to_owned(),
                (_, Some(cgroup)) => format!("{cgroup} was at its limit"),
                (_, None) => "whose limit was hit is not known".to_owned(),
            };
            let who = format!("{comm} (pid {pid}, oom_score_adj {oom_score_adj})");
            (RED, vec![format!("the kernel's OOM killer killed {who} in {place}: {limit}")])
        }
        Record::LocalPressure { workloads } => {
            let names: Vec<_> = workloads.iter().map(|key| key.name.as_str()).collect();
            ("", vec![format!("at their own limit, not the node's concern: {}", names.join(", "))])
        }
        Record::Lost { records, kinds } => (
            YELLOW,
            vec![format!("{records} kernel records were lost ({kinds}); the node was read again")],
        ),
        Record::Dropped { records } => {
            (YELLOW, vec![format!("{records} records were dropped: their reader did not keep up")])
        }
        Record::Runtime { up: true, what } => (GREEN, vec![format!("runtime: {what}")]),
        Record::Runtime { up: false, what } => (YELLOW, vec![format!("no runtime: {what}")]),
        Record::KubeletThresholds(guard_band) => kubelet_thresholds(guard_band),
        Record::ApiServer { up: true, what } => (GREEN, vec![format!("API server: {what}")]),
        Record::ApiServer { up: false, what } => {
            (YELLOW, vec![format!("API server does not tell of {what}")])
        }
        Record::EvictionTold { workload, was_gone, refused, took_ms } => {
            let name = &workload.name;
            let what =
                if *was_gone { "it was gone by then" } else { "deleted, and an Event written" };
            let told =
                format!("API server told of the eviction of pod {name}: {what} ({took_ms:.0} ms)");
            let refused = refused.iter().map(|why| format!("not taken: {why}"));
            let colour = if refused.len() == 0 { "" } else { YELLOW };
            (colour, std::iter::once(told).chain(refused).collect())
        }
        Record::EvictionRefused { workload, why } => {
            (YELLOW, vec![format!("pod {} is not evicted: {why}", workload.name)])
        }
        Record::Inventory { sandboxes, containers } => {
            ("", vec![format!("runtime has {sandboxes} sandboxes and {containers} containers")])
        }
        Record::Collecting { containers, sandboxes, images, logs, expected } => {
            let what = [
                (*containers, "containers"),
                (*sandboxes, "sandboxes"),
                (*images, "images"),
                (*logs, "logs"),
            ];
            let parts = what.iter().filter(|(count, _)| *count > 0);
            let list: Vec<_> = parts.map(|(count, name)| format!("{count} {name}")).collect();
            let expected = expected.map(|e| format!(", expected to free {}", bytes(e)));
            let expected = expected.unwrap_or_default();
            ("", vec![format!("removing {}{expected}", list.join(", "))])
        }
        Record::Removed { work, took_ms } => {
            (DIM, vec![format!("removed {} in {took_ms:.0} ms", piece(work))])
        }
        Record::NotRemoved { work, why } => {
            (YELLOW, vec![format!("not removed: {}: {why}", piece(work))])
        }
        Record::Collected { removed, skipped, expected, measured, took_ms } => {
            let not = if *skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
            let freed = match (expected, measured) {
                (Some(expected), Some(measured)) => format!(
                    "; freed {}{} where {} were expected",
                    if *measured < 0 { "-" } else { "" },
                    bytes(measured.unsigned_abs()),
                    bytes(*expected)
                ),
                _ => String::new(),
            };
            (GREEN, vec![format!("removed {removed}{not} in {took_ms:.0} ms{freed}")])
        }
        Record::Reloaded { accepted: true, thresholds, .. } => {
            (GREEN, vec![format!("configuration reloaded, thresholds: {}", thresholds.join(", "))])
        }
        Record::Reloaded { accepted: false, errors, thresholds } => {
            let mut lines = vec!["configuration refused, the old one stays:".to_owned()];
            lines.extend(errors.iter().cloned());
            lines.push(format!("thresholds: {}", thresholds.join(", ")));
            (RED, lines)
        }
        Record::Degraded { what } => (YELLOW, vec![what.clone()]),
        Record::Panicked { thread, what, place } => {
            (RED, vec![format!("thread {thread} panicked at {place}: {what}; ebb ends")])
        }
        Record::Stopping { why } => ("", vec![format!("stopping: {why}")]),
    }
}

/// Where the kubelet's thresholds were read, and on which of them ebb does not act first.
fn kubelet_thresholds(guard_band: &GuardBand) -> (&'static str, Vec<String>) {
    let mut lines = vec![format!("kubelet's thresholds: {}", guard_band.source())];
    lines.extend(guard_band.errors.iter().map(|error| format!("not read: {error}")));
    let overlaps = guard_band.overlaps().map(|band| {
        let change = band.change.as_ref().map(|change| format!("; {change}"));
        format!("ebb does not act first: {}{}", band.shown(), change.unwrap_or_default())
    });
    lines.extend(overlaps);
    let unknown = guard_band.thresholds.iter().filter(|band| band.has_room.is_none());
    lines.extend(
        unknown
            .map(|band| format!("not compared, how much there is is not known: {}", band.shown())),
    );
    let colour = if guard_band.is_fine() { "" } else { YELLOW };
    (colour, lines)
}

/// When it was, for people: after the crossing that it answers, where there was one.
fn after_crossing(after_ms: Option<f64>) -> String {
    after_ms.map(|ms| format!(" {ms:.1} ms after the crossing")).unwrap_or_default()
}

/// What a job does to its workload.
fn step_of(step: Step) -> &'static str {
    match step {
        Step::Kill => "kill",
        Step::Terminate => "terminate",
        Step::Rung(Rung::Reclaim { .. }) => "reclaim from",
        Step::Rung(Rung::Throttle { .. }) => "throttle",
        Step::Rung(Rung::Freeze { .. }) => "freeze",
        Step::Rung(Rung::Release) => "release",
    }
}

/// What was done, and by which means of the kernel.
fn means(method: Method) -> (&'static str, &'static str) {
    match method {
        Method::CgroupKill => ("killed", "cgroup.kill"),
        Method::FreezeAndSignal => ("killed", "cgroup.freeze and SIGKILL"),
        Method::Signal => ("killed", "SIGKILL"),
        Method::Terminate => ("terminated", "SIGTERM"),
        Method::Reclaim => ("reclaimed from", "memory.reclaim"),
        Method::Throttle => ("throttled", "memory.high"),
        Method::Freeze => ("froze", "cgroup.freeze"),
        Method::Release => ("released", "memory.high and cgroup.freeze"),
        Method::DryRun => ("would evict", "a dry run"),
    }
}

fn moment(moment: &Moment) -> String {
    let detail = moment.detail.as_deref().map(|d| format!("  {d}")).unwrap_or_default();
    format!("{:>10.1} ms  {}{detail}", moment.after_ms, moment.what)
}

/// A piece of work for people.
#[must_use]
pub fn piece(work: &Work) -> String {
    match work {
        Work::RemoveContainer { id, .. } => format!("container {id}"),
        Work::RemoveSandbox { id } => format!("sandbox {id}"),
        Work::RemoveImage { id, expected } => format!("image {id} ({})", bytes(*expected)),
        Work::RemoveLogDir { path } | Work::RemoveLogLink { path } => path.clone(),
    }
}

/// One line of a ranking: the place, the name, and the keys in the order in which they were compared.
#[must_use]
pub fn ranked(ranked: &Ranked) -> String {
    format!("{:>3}. {}  {}", ranked.place, ranked.workload.name, rank_keys(ranked))
}

/// The keys that placed a candidate, in the order in which they were compared.
#[must_use]
pub fn rank_keys(ranked: &Ranked) -> String {
    let signal = ranked.signal.unwrap_or(Signal::MemoryAvailable);
    let keys: Vec<_> = ranked.keys.iter().map(|k| rank_key(signal, k)).collect();
    keys.join(", ")
}

fn rank_key(signal: Signal, key: &RankKey) -> String {
    match key {
        RankKey::Stats { found } => if *found { "measured" } else { "not measured" }.into(),
        RankKey::ExceedsRequest { exceeds, usage, request } => format!(
            "uses {} {} its request of {}",
            amount(signal, *usage),
            if *exceeds { "above" } else { "within" },
            amount(signal, *request)
        ),
        RankKey::Priority { priority } => format!("priority {priority}"),
        RankKey::Preference { preference } => match preference {
            Preference::Prefer => "preferred victim",
            Preference::Neutral => "no preference",
            Preference::Avoid => "avoided",
        }
        .into(),
        RankKey::Growth { per_second } => {
            let sign = if *per_second < 0 { "-" } else { "+" };
            format!("growth {sign}{}/s", amount(signal, per_second.unsigned_abs()))
        }
        RankKey::Filled { added, over, percent } => format!(
            "wrote {} in the last {over}, {percent} % of what {} lost",
            amount(signal, *added),
            filesystem(signal)
        ),
        RankKey::Swapped { bytes } => format!("{} swapped out", amount(signal, *bytes)),
        RankKey::AboveRequest { above } => {
            let sign = if *above < 0 { "-" } else { "+" };
            format!("{sign}{} to its request", amount(signal, above.unsigned_abs()))
        }
        RankKey::PagesScanned { per_second, percent } => {
            format!("{per_second} pages scanned a second, {percent} % of those below the cgroup")
        }
        RankKey::Processes { count } => format!("{count} processes"),
        RankKey::Restarted { .. } => "restarted after its eviction".into(),
    }
}

/// The filesystem behind a signal on disk, as the kubelet calls it.
fn filesystem(signal: Signal) -> &'static str {
    signal.name().split_once('.').map_or(signal.name(), |(filesystem, _)| filesystem)
}

/// A note, as a sentence, of a plan that handles `signal`.
pub(super) fn note(note: &Note, signal: Signal) -> String {
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

/// UTC time of day to the millisecond.
#[must_use]
pub fn time_of_day(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let mut text = String::with_capacity(13);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // Writing to a string cannot fail.
    let _ = write!(text, "{h:02}:{m:02}:{s:02}.{ms:03}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Band;
    use ebb_policy::plan::Strength;

    #[test]
    fn amounts_have_the_unit_of_their_signal() {
        assert_eq!(amount(Signal::MemoryAvailable, 1536 << 20), "1.5 GiB");
        assert_eq!(amount(Signal::MemoryAvailable, 12), "12 B");
        assert_eq!(amount(Signal::PidAvailable, 2048), "2048");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn what_a_note_counts_has_the_unit_of_the_signal() {
        let covers = Note::TerminatingCovers { expected: 1036, need: 116 };
        let said = |signal| note(&covers, signal);
        assert!(said(Signal::PidAvailable).ends_with("free 1036 of 116 needed"));
        assert!(said(Signal::MemoryAvailable).ends_with("free 1.0 KiB of 116 B needed"));
    }

    #[test]
    fn where_ebb_does_not_act_before_the_kubelet_is_told_with_what_to_write() {
        let band = |signal, has_room, change: Option<&str>| Band {
            signal,
            strength: Strength::Hard,
            kubelet: "10%".into(),
            ebb: change.map(|_| "9%".into()),
            needed: Some("more than 10%".into()),
            has_room,
            change: change.map(str::to_owned),
        };
        let mut guard_band = GuardBand {
            file: Some("/k.yaml".into()),
            errors: Vec::new(),
            thresholds: vec![band(Signal::PidAvailable, Some(true), None)],
        };
        let fine = lines(&Record::KubeletThresholds(&guard_band));
        assert_eq!(fine, ("", vec!["kubelet's thresholds: read from /k.yaml".to_owned()]));
        guard_band.thresholds.extend([
            band(Signal::NodeFsAvailable, Some(false), Some("write that")),
            band(Signal::ImageFsAvailable, None, None),
        ]);
        let (colour, said) = lines(&Record::KubeletThresholds(&guard_band));
        assert_eq!(
            (colour, &said[1..]),
            (
                YELLOW,
                &[
                    "ebb does not act first: nodefs.available: the kubelet acts below 10%, ebb acts below 9%; more than 10% is needed; write that".to_owned(),
                    "not compared, how much there is is not known: imagefs.available: the kubelet acts below 10%, ebb has no threshold that acts in time; more than 10% is needed".to_owned(),
                ][..]
            )
        );
        let assumed = GuardBand { errors: vec!["why".into()], ..GuardBand::default() };
        assert_eq!(
            lines(&Record::KubeletThresholds(&assumed)),
            (
                YELLOW,
                vec![
                    "kubelet's thresholds: the kubelet's defaults are assumed".to_owned(),
                    "not read: why".to_owned()
                ]
            )
        );
        let json = serde_json::to_value(Record::KubeletThresholds(&guard_band)).unwrap();
        assert_eq!(
            (&json["event"], &json["file"]),
            (&"kubeletThresholds".into(), &"/k.yaml".into())
        );
        assert!(json["thresholds"][2]["hasRoom"].is_null(), "{json}");
    }

    #[test]
    fn an_oom_kill_is_told_with_whose_limit_it_was_and_as_fields() {
        let kill = |limit| Record::OomKill {
            comm: "leak",
            pid: 7,
            cgroup: Some(42),
            path: Some("/apps/leak".into()),
            limit,
            killed_at: 2000,
            started_at: 1000,
            oom_score_adj: 300,
        };
        let said = |limit| lines(&kill(limit)).1.concat();
        let who = "the kernel's OOM killer killed leak (pid 7, oom_score_adj 300) in /apps/leak";
        assert_eq!(said(OomConstraint::Node), format!("{who}: the node was out of memory"));
        let limit = OomConstraint::Cgroup { id: 9, path: Some("/apps".into()) };
        assert_eq!(said(limit.clone()), format!("{who}: /apps was at its limit"));
        let json = serde_json::to_value(kill(limit)).unwrap();
        assert_eq!(json["limit"], serde_json::json!({"kind": "cgroup", "id": 9, "path": "/apps"}));
        assert_eq!((&json["killedAt"], &json["oomScoreAdj"]), (&2000.into(), &300.into()));
        assert_eq!(OomConstraint::Unknown.for_policy(), None);
    }

    #[test]
    fn without_colour_no_escape_is_written() {
        let mut out = Vec::new();
        write(&mut out, 3_723_004, &Record::Stopping { why: "SIGTERM" }, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "01:02:03.004 stopping: SIGTERM\n");
    }
}
