//! Records as lines for people: what happened first, then why.

mod amount;
pub mod cgroups;
mod notes;
mod plain;
mod ranking;
mod skipped;
mod thresholds;

pub use amount::{amount, bytes, is_in_bytes};
pub use plain::plain;
pub use ranking::{rank_keys, ranked};
pub use skipped::{protection, reason, skipped};

use crate::guard_band::GuardBand;
use crate::job::{Method, Mode, Need, Rung, Step};
use crate::record::{Done, Moment, OomConstraint, Outcome, Record};
use crate::removal::Work;
use crate::sink::{Entry, Sink};
use crate::target::Target;
use ebb_policy::Signal;
use ebb_policy::snapshot::WorkloadKey;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Candidates of a ranking that are shown.
const SHOWN: usize = 5;

/// Writes entries as lines for people.
#[derive(Debug)]
pub struct Text<W> {
    to: W,
    colour: bool,
}

impl<W: Write> Text<W> {
    /// Lines go to `to`, all of an entry with one call of `write`; `colour` only where people look.
    pub fn new(to: W, colour: bool) -> Self {
        Self { to, colour }
    }
}

impl<W: Write> Sink for Text<W> {
    fn take(&mut self, entry: &Entry) {
        if let Err(error) = self.to.write_all(&line(entry, self.colour)) {
            tracing::debug!(%error, "a record could not be written");
        }
    }
}

/// An entry as one line, followed by indented ones where there is more to say; each ends with a line break.
#[must_use]
pub fn line(entry: &Entry, colour: bool) -> Vec<u8> {
    let (tint, lines) = lines(&entry.record);
    let clock = time_of_day(entry.at.0);
    let (dim, tint, reset) = if colour { (DIM, tint, RESET) } else { ("", "", "") };
    let mut rest = lines.into_iter();
    let first = rest.next().unwrap_or_default();
    let mut line = format!("{dim}{clock}{reset} {tint}{}{reset}\n", plain(&first));
    for more in rest {
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{:14}{}", "", plain(&more));
    }
    line.into_bytes()
}

/// What a record says, without the time; lines are joined by line breaks, and a name with a line break in it stays on its line.
#[must_use]
pub fn message(record: &Record) -> String {
    let (_, lines) = lines(record);
    let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| plain(line)).collect();
    lines.join("\n")
}

/// A colour, and what a record says, line by line.
fn lines(record: &Record) -> (&'static str, Vec<String>) {
    match record {
        Record::Started { version, mode, sources, unavailable, thresholds, workloads } => {
            let mode = match mode {
                Mode::DryRun => "dry run (evicts nothing; --enforce acts)",
                Mode::Enforce => "enforcing",
            };
            let mut lines = vec![format!("ebb {version} started, {mode}, {workloads} workloads")];
            lines.push(format!("thresholds: {}", joined(thresholds, ", ")));
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
        Record::Decided { after_ms, evict, ranking, candidates, notes, .. } => {
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
            lines.extend(notes.iter().map(|note| format!("note: {note}")));
            (YELLOW, lines)
        }
        Record::EvictionDeferred { signal, notes } => {
            let signal = signal.map(|s| format!(" on {s}")).unwrap_or_default();
            (YELLOW, vec![format!("eviction{signal} deferred: {}", joined(notes, "; "))])
        }
        Record::Evicted(Done {
            job,
            workload,
            method: Method::DryRun,
            after_ms,
            assumes_freed,
            ..
        }) => {
            let name = name_of(workload.as_ref(), &job.target);
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
            let name = name_of(workload.as_ref(), &job.target);
            let step = step_of(job.step);
            (YELLOW, vec![format!("dry run: would {step} {name}{}", after_crossing(*after_ms))])
        }
        Record::Evicted(done) | Record::StepTaken(done) => {
            let Done { job, workload, method, after_ms, took_us, by_watchdog, .. } = done;
            let name = name_of(workload.as_ref(), &job.target);
            let (verb, via) = means(*method);
            let by = if *by_watchdog { "the watchdog " } else { "" };
            let after = after_crossing(*after_ms);
            (RED, vec![format!("{by}{verb} {name} via {via}{after}, in {took_us} µs")])
        }
        Record::HookCalled { workload, deadline_ms, .. } => {
            let name = &workload.name;
            (
                "",
                vec![format!(
                    "hook called before the eviction of {name}: it has {deadline_ms:.0} ms"
                )],
            )
        }
        Record::HookEnded { workload, outcome, took_ms, why, .. } => {
            let name = &workload.name;
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let said =
                format!("hook before the eviction of {name} {outcome} ({took_ms:.0} ms){why}");
            (if outcome.is_fine() { "" } else { YELLOW }, vec![said])
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
            let name = name_of(workload.as_ref(), &job.target);
            (YELLOW, vec![format!("skipped {name}: {why}")])
        }
        Record::Terminated { workload, outcome, after_ms, .. } => match outcome {
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
            let mut lines = cgroups::round(written, created, remaining, errors, *after_ms);
            lines.extend(cgroups::rehearsed(would_write, would_create));
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
            let mut lines = cgroups::orphaned(found, cleaned_up, dying, errors);
            lines.extend(would_clean_up.iter().map(|path| format!("dry run: would remove {path}")));
            let empty = empty.iter().map(|path| format!("{path}: empty, and of no container"));
            lines.extend(empty);
            if *reclaimed > 0 {
                lines.push(format!("{} reclaimed from removed cgroups", bytes(*reclaimed)));
            }
            (YELLOW, lines)
        }
        Record::OomKill { comm, pid, cgroup, path, limit, oom_score_adj, not_told, .. } => {
            let place = path.clone().or(cgroup.map(|id| format!("cgroup {id}")));
            let place = place.unwrap_or_else(|| "an unknown cgroup".into());
            let limit = match (limit, limit.for_policy()) {
                (OomConstraint::Node, _) => "the node was out of memory".to_owned(),
                (_, Some(cgroup)) => format!("{cgroup} was at its limit"),
                (_, None) => "whose limit was hit is not known".to_owned(),
            };
            let who = format!("{comm} (pid {pid}, oom_score_adj {oom_score_adj})");
            let before = match not_told {
                0 => String::new(),
                n => format!("; {n} more before it, which are not told one by one"),
            };
            let what = format!("the kernel's OOM killer killed {who} in {place}: {limit}{before}");
            (RED, vec![what])
        }
        Record::LocalPressure { workloads, more } => {
            let names: Vec<_> = workloads.iter().map(|key| key.name.as_str()).collect();
            let names = names.join(", ");
            let more = if *more == 0 { String::new() } else { format!(" and {more} more") };
            ("", vec![format!("at their own limit, not the node's concern: {names}{more}")])
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
        Record::EvictionTold { workload, was_gone, refused, took_ms, .. } => {
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
        Record::Reloaded { accepted: true, thresholds, .. } => (
            GREEN,
            vec![format!("configuration reloaded, thresholds: {}", joined(thresholds, ", "))],
        ),
        Record::Reloaded { accepted: false, errors, thresholds } => {
            let mut lines = vec!["configuration refused, the old one stays:".to_owned()];
            lines.extend(errors.iter().cloned());
            lines.push(format!("thresholds: {}", joined(thresholds, ", ")));
            (RED, lines)
        }
        Record::ApiClientRefused { uid, pid, why, others } => {
            let process = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            let more = match others {
                0 => String::new(),
                others => format!("; {others} more since that was told last"),
            };
            (YELLOW, vec![format!("API client of uid {uid}{process} {why}{more}")])
        }
        Record::Degraded { what, .. } => (YELLOW, vec![what.clone()]),
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

/// What a target is called: its workload, where that is known.
fn name_of(workload: Option<&WorkloadKey>, target: &Target) -> String {
    workload.map_or_else(|| target.to_string(), |key| key.name.clone())
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

/// All of them in one line, with `between` between them.
fn joined(all: &[impl ToString], between: &str) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(between)
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
mod tests;
