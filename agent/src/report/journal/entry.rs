//! What an entry of the journal says of a record or a line of the log: its text and its fields. The operating guide lists them.

use crate::act::{Method, Need, Target};
use crate::report::incident::About;
use crate::report::{Done, Outcome, Output, Record, line, plain, text};
use ebb_policy::Signal;
use ebb_policy::snapshot::WorkloadKey;
use serde::Serialize;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use tracing::{Level, Metadata};

/// Importance as syslog(3) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Priority {
    Critical = 2,
    Error = 3,
    Warning = 4,
    Notice = 5,
    #[default]
    Info = 6,
    Debug = 7,
}

/// The field of the text, which every entry begins with.
const MESSAGE: &[u8] = b"MESSAGE\n";

/// What an entry says beside its record.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// What paths of cgroups are told without.
    cgroup_root: PathBuf,
    /// Episodes of pressure that are going on, by the names of their incident records.
    pub(in crate::report) episodes: Vec<(About, String)>,
}

impl Around {
    /// Without an episode, on a node whose cgroups are below `cgroup_root`.
    #[must_use]
    pub fn below(cgroup_root: &Path) -> Self {
        Self { cgroup_root: cgroup_root.to_owned(), episodes: Vec::new() }
    }
}

/// An entry for a record.
#[must_use]
pub fn of_record(output: Output, at_ms: u64, record: &Record<'_>, around: &Around) -> Vec<u8> {
    let message = match output {
        Output::Text => {
            let (_, lines) = text::lines(record);
            // A name with a line break in it stays on its line.
            let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| plain(line)).collect();
            lines.join("\n").into_bytes()
        }
        Output::Json => line(output, at_ms, record, false),
    };
    let mut entry = Entry::new(&message, priority(record));
    entry.push("EBB_EVENT", &word(record, Some("event")));
    entry.push_some("MESSAGE_ID", message_id(record));
    for (_, episode) in &around.episodes {
        entry.push("EBB_EPISODE", episode);
    }
    entry.push_some("EBB_SIGNAL", signal(record).map(Signal::name));
    for workload in workloads(record) {
        entry.push("EBB_WORKLOAD", &workload.name);
        entry.push_some("EBB_POD_UID", workload.uid.as_deref());
        entry.push_some("EBB_CGROUP_ID", workload.cgroup.map(|id| id.0.to_string()).as_deref());
        entry.push_some("EBB_PID", workload.process.map(|id| id.pid.to_string()).as_deref());
    }
    for path in cgroups(record) {
        let path = path.strip_prefix(&around.cgroup_root).unwrap_or(path);
        entry.push("EBB_CGROUP", &Path::new("/").join(path).to_string_lossy());
    }
    if let Record::Evicted(Done { method, .. }) | Record::StepTaken(Done { method, .. }) = record {
        entry.push("EBB_METHOD", &word(method, None));
    }
    if let Record::NotDone { why, .. } = record {
        entry.push("EBB_WHY", why);
    }
    if let Record::OomKill { comm, pid, cgroup, .. } = record {
        entry.push("EBB_COMM", comm);
        entry.push("EBB_PID", &pid.to_string());
        entry.push_some("EBB_CGROUP_ID", cgroup.map(|id| id.to_string()).as_deref());
    }
    entry.0
}

/// An entry for a line of the log.
#[must_use]
pub fn of_log(line: &[u8], origin: &Origin) -> Vec<u8> {
    let mut entry = Entry::new(line, origin.priority);
    entry.push_some("TARGET", origin.target.as_deref());
    entry.push_some("CODE_FILE", origin.file.as_deref());
    entry.push_some("CODE_LINE", origin.line.map(|line| line.to_string()).as_deref());
    entry.0
}

/// Where a line of the log comes from.
#[derive(Debug, Default)]
pub struct Origin {
    priority: Priority,
    target: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

impl Origin {
    /// As the event itself says.
    #[must_use]
    pub fn of(about: &Metadata<'_>) -> Self {
        let priority = match *about.level() {
            Level::ERROR => Priority::Error,
            Level::WARN => Priority::Warning,
            Level::INFO => Priority::Info,
            Level::DEBUG | Level::TRACE => Priority::Debug,
        };
        Self {
            priority,
            target: Some(about.target().to_owned()),
            file: about.file().map(str::to_owned),
            line: about.line(),
        }
    }
}

/// The text of an entry that was made here.
#[must_use]
pub fn message(entry: &[u8]) -> &[u8] {
    let after = entry.strip_prefix(MESSAGE).and_then(|rest| rest.split_first_chunk());
    let Some((length, rest)) = after else { return entry };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.get(..length).unwrap_or(rest)
}

/// Fields, as the protocol has them.
struct Entry(Vec<u8>);

impl Entry {
    fn new(message: &[u8], priority: Priority) -> Self {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let mut entry = Self(Vec::with_capacity(message.len() + 512));
        entry.0.extend(MESSAGE);
        entry.push_sized(message);
        entry.push("PRIORITY", &(priority as u8).to_string());
        entry.push("SYSLOG_IDENTIFIER", "ebb");
        // LOG_DAEMON
        entry.push("SYSLOG_FACILITY", "3");
        entry
    }

    fn push(&mut self, field: &str, value: &str) {
        self.0.extend(field.as_bytes());
        // Names are others' choice: a line break in one must not begin a field.
        if value.contains('\n') {
            self.0.push(b'\n');
            self.push_sized(value.as_bytes());
        } else {
            self.0.push(b'=');
            self.0.extend(value.as_bytes());
            self.0.push(b'\n');
        }
    }

    fn push_some(&mut self, field: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(field, value);
        }
    }

    /// A value with its length before it, in which every byte may stand.
    fn push_sized(&mut self, value: &[u8]) {
        self.0.extend((value.len() as u64).to_le_bytes());
        self.0.extend(value);
        self.0.push(b'\n');
    }
}

/// The word that JSON has for a value, or for its field.
fn word(of: &impl Serialize, field: Option<&str>) -> String {
    let value = serde_json::to_value(of).unwrap_or_default();
    let word = field.map_or(Some(&value), |field| value.get(field));
    word.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

fn priority(record: &Record<'_>) -> Priority {
    match record {
        Record::KubeletThresholds(guard_band) if guard_band.is_fine() => Priority::Info,
        Record::KubeletThresholds(_) => Priority::Warning,
        Record::Panicked { .. } => Priority::Critical,
        Record::Reloaded { accepted: false, .. }
        | Record::Terminated { outcome: Outcome::TimedOut, .. } => Priority::Error,
        Record::ThresholdCrossed { .. }
        | Record::MemoryPressureAboveLimit { .. }
        | Record::Evicted(_)
        | Record::StepTaken(_)
        | Record::ReflexFired { .. }
        | Record::NotDone { .. }
        | Record::EvictionDeferred { .. }
        | Record::Warned { .. }
        | Record::OomKill { .. }
        | Record::Lost { .. }
        | Record::Dropped { .. }
        | Record::Runtime { up: false, .. }
        | Record::ApiServer { up: false, .. }
        | Record::EvictionRefused { .. }
        | Record::NotRemoved { .. }
        | Record::Degraded { .. } => Priority::Warning,
        Record::Started { .. }
        | Record::Decided { .. }
        | Record::PressureRelieved { .. }
        | Record::MemoryPressureRelieved { .. }
        | Record::Reloaded { accepted: true, .. }
        | Record::Stopping { .. } => Priority::Notice,
        Record::ReflexArmed { .. }
        | Record::Terminated { outcome: Outcome::Exited, .. }
        | Record::LocalPressure { .. }
        | Record::Runtime { up: true, .. }
        | Record::ApiServer { up: true, .. }
        | Record::EvictionTold { .. }
        | Record::Inventory { .. }
        | Record::Collecting { .. }
        | Record::Removed { .. }
        | Record::Collected { .. }
        | Record::Cgroups { .. }
        | Record::OrphanedPodCgroups { .. } => Priority::Info,
    }
}

/// The kind of message, for what an operator may want to wait for; each was made with `systemd-id128 new` and stays as it is.
fn message_id(record: &Record<'_>) -> Option<&'static str> {
    match record {
        Record::ThresholdCrossed { .. } => Some("cf6f7f38f7b94a9780cf0a7ba26502ea"),
        Record::PressureRelieved { .. } => Some("54580ce541184cf9b39b2cad97afe9f1"),
        Record::MemoryPressureAboveLimit { .. } => Some("c4a64e624ed2489685312acf0641e984"),
        Record::MemoryPressureRelieved { .. } => Some("f9d24e9b59fe49b1859b1b375eb50a44"),
        Record::Evicted(Done {
            method:
                Method::CgroupKill | Method::FreezeAndSignal | Method::Signal | Method::Terminate,
            ..
        }) => Some("239a2143d81246a5bd35f158b04f5c41"),
        Record::ReflexFired { killed: [_, ..], .. } => Some("cd246e2c54084f3c8ed202fbdbefd01a"),
        Record::OomKill { .. } => Some("8cf55c81c5eb4910b483480f9ac8dc15"),
        Record::Panicked { .. } => Some("f8a0e4528ce7449fbdd437b17be7a136"),
        _ => None,
    }
}

/// Of which signal a record speaks.
fn signal(record: &Record<'_>) -> Option<Signal> {
    match record {
        Record::ThresholdCrossed { signal, .. } | Record::PressureRelieved { signal, .. } => {
            Some(*signal)
        }
        Record::EvictionDeferred { signal, .. } => *signal,
        Record::Decided { evict, .. } => evict.iter().find_map(|evict| evict.signal),
        Record::Evicted(Done { job, .. })
        | Record::StepTaken(Done { job, .. })
        | Record::NotDone { job, .. } => job.need.as_ref().and_then(|need| match need {
            Need::MemoryBelow { .. } | Need::MemoryAndSwapBelow { .. } => {
                Some(Signal::MemoryAvailable)
            }
            Need::SwapBelow { .. } => Some(Signal::SwapAvailable),
            Need::MemoryWithSwapBelow { .. } => Some(Signal::MemoryWithSwapAvailable),
            Need::PidsBelow { .. } => Some(Signal::PidAvailable),
            Need::MemoryPressureAbove { .. } => None,
        }),
        Record::ReflexFired { .. } => Some(Signal::MemoryAvailable),
        _ => None,
    }
}

/// Of whom a record speaks.
fn workloads<'a>(record: &'a Record<'_>) -> Vec<&'a WorkloadKey> {
    match record {
        Record::Decided { evict, .. } => evict.iter().map(|evict| &evict.workload).collect(),
        Record::Evicted(Done { workload, .. })
        | Record::StepTaken(Done { workload, .. })
        | Record::NotDone { workload, .. } => workload.iter().copied().collect(),
        Record::Warned { workload, .. }
        | Record::ReflexArmed { workload }
        | Record::ReflexFired { workload, .. }
        | Record::Terminated { workload, .. } => vec![workload],
        Record::LocalPressure { workloads } => workloads.clone(),
        _ => Vec::new(),
    }
}

/// Paths of the cgroups that were acted on, or stall.
fn cgroups<'a>(record: &'a Record<'_>) -> Vec<&'a Path> {
    match record {
        Record::Evicted(Done { job, .. })
        | Record::StepTaken(Done { job, .. })
        | Record::NotDone { job, .. } => match &job.target {
            Target::Cgroup { path, .. } => vec![path],
            Target::Pod { payloads, .. } => payloads.iter().map(|one| &*one.path).collect(),
            Target::Process { .. } => Vec::new(),
        },
        Record::OomKill { path: Some(path), .. } => vec![Path::new(path)],
        Record::MemoryPressureAboveLimit { cgroup, .. }
        | Record::MemoryPressureRelieved { cgroup, .. } => {
            vec![Path::new(cgroup)]
        }
        _ => Vec::new(),
    }
}
