//! What an entry of the journal says of a record or a line of the log: its text and its fields. The operating guide lists them.

use crate::job::Method;
use crate::json;
use crate::output::Output;
use crate::record::{Done, Record};
use crate::severity::Severity;
use crate::sink::Entry;
use crate::text;
use ebb_policy::Signal;
use serde::Serialize;
use std::path::Path;
use tracing::{Level, Metadata};

/// The field of the text, which every entry begins with.
const MESSAGE: &[u8] = b"MESSAGE\n";

/// The entry of the journal that `entry` makes, with its text in the form `output` and paths of cgroups told without `cgroup_root`.
#[must_use]
pub fn of_record(output: Output, entry: &Entry, cgroup_root: &Path) -> Vec<u8> {
    let record = &entry.record;
    let message = match output {
        Output::Text => text::message(record).into_bytes(),
        Output::Json => output.line(entry),
    };
    let mut fields = Fields::new(&message, Severity::of(record));
    fields.push("EBB_EVENT", &json::kind(record));
    fields.push_some("MESSAGE_ID", message_id(record));
    for episode in &entry.episodes {
        fields.push("EBB_EPISODE", episode);
    }
    fields.push_some("EBB_DECISION", record.decision().map(|at| at.0.to_string()).as_deref());
    fields.push_some("EBB_SIGNAL", record.signal().map(Signal::name));
    for workload in record.workloads() {
        fields.push("EBB_WORKLOAD", &workload.name);
        fields.push_some("EBB_POD_UID", workload.uid.as_deref());
        fields.push_some("EBB_CGROUP_ID", workload.cgroup.map(|id| id.0.to_string()).as_deref());
        fields.push_some("EBB_PID", workload.process.map(|id| id.pid.to_string()).as_deref());
    }
    for path in record.cgroups() {
        let path = path.strip_prefix(cgroup_root).unwrap_or(path);
        fields.push("EBB_CGROUP", &Path::new("/").join(path).to_string_lossy());
    }
    if let Record::Evicted(Done { method, .. }) | Record::StepTaken(Done { method, .. }) = record {
        fields.push("EBB_METHOD", &word(method));
    }
    if let Record::NotDone { why, .. } = record {
        fields.push("EBB_WHY", &why.to_string());
    }
    if let Record::Degraded { part, .. } = record {
        fields.push("EBB_PART", part.word());
    }
    if let Record::OomKill { comm, pid, cgroup, .. } = record {
        fields.push("EBB_COMM", comm);
        fields.push("EBB_PID", &pid.to_string());
        fields.push_some("EBB_CGROUP_ID", cgroup.map(|id| id.to_string()).as_deref());
    }
    fields.0
}

/// An entry for a line of the log.
#[must_use]
pub fn of_log(line: &[u8], origin: &Origin) -> Vec<u8> {
    let mut fields = Fields::new(line, origin.severity);
    fields.push_some("TARGET", origin.target.as_deref());
    fields.push_some("CODE_FILE", origin.file.as_deref());
    fields.push_some("CODE_LINE", origin.line.map(|line| line.to_string()).as_deref());
    fields.0
}

/// Where a line of the log comes from.
#[derive(Debug, Default)]
pub struct Origin {
    severity: Severity,
    target: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

impl Origin {
    /// As the event itself says.
    #[must_use]
    pub fn of(about: &Metadata<'_>) -> Self {
        let severity = match *about.level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            Level::INFO => Severity::Info,
            Level::DEBUG | Level::TRACE => Severity::Debug,
        };
        Self {
            severity,
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
struct Fields(Vec<u8>);

impl Fields {
    fn new(message: &[u8], severity: Severity) -> Self {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let mut fields = Self(Vec::with_capacity(message.len() + 512));
        fields.0.extend(MESSAGE);
        fields.push_sized(message);
        fields.push("PRIORITY", &(severity as u8).to_string());
        fields.push("SYSLOG_IDENTIFIER", "ebb");
        // LOG_DAEMON
        fields.push("SYSLOG_FACILITY", "3");
        fields
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

/// The word that JSON has for a value.
fn word(of: &impl Serialize) -> String {
    let value = serde_json::to_value(of).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// The kind of message, for what an operator may want to wait for; each was made with `systemd-id128 new` and stays as it is.
fn message_id(record: &Record) -> Option<&'static str> {
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
        Record::ReflexFired { killed, .. } if !killed.is_empty() => {
            Some("cd246e2c54084f3c8ed202fbdbefd01a")
        }
        Record::OomKill { .. } => Some("8cf55c81c5eb4910b483480f9ac8dc15"),
        Record::Panicked { .. } => Some("f8a0e4528ce7449fbdd437b17be7a136"),
        _ => None,
    }
}
