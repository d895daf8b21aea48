//! The hook before an eviction: somebody who may prepare (drain, dump a heap) is told over a Unix socket, and waited for until a deadline.
//!
//! ```text
//!  loop ──Call──► thread ebb-hook: connect ─► one line of JSON ─► a line back, or the end of the connection ──Ended──► loop
//! ```
//! Nothing that comes back is understood: a line break says that the other side is done, and so does its closing.
//! Whether somebody is asked at all, and for how long the eviction is put off, is the loop's part; nothing is executed here.

use crate::act::Target;
use crate::clock::Boot;
use ebb_journal::HookOutcome;
use ebb_policy::plan::Evict;
use ebb_policy::{Signal, Time};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Version of what is said.
const VERSION: u32 = 1;

/// An answer is at most so long.
const LONGEST_ANSWER: usize = 4 << 10;

/// What the hook is told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    version: u32,
    event: &'static str,
    /// The node's time, in milliseconds since the Unix epoch.
    time: u64,
    workload: Subject<'a>,
    signal: Signal,
    /// In the unit of the signal, as what is available.
    threshold: Option<u64>,
    available: Option<u64>,
    /// What the workload has for its termination.
    grace_seconds: u64,
    /// How long the eviction waits.
    deadline_ms: u64,
    /// Nobody is called in a dry run: always false, for whoever tries a hook by hand.
    dry_run: bool,
}

/// Who would be evicted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<&'a str>,
    /// Absolute paths: that of the workload, or those of a pod's containers.
    cgroups: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

/// The line that the hook is told about `evict`.
#[must_use]
pub fn request(evict: &Evict, target: &Target, at: Time, deadline: Duration) -> Option<Vec<u8>> {
    let (cgroups, pid) = match target {
        Target::Cgroup { path, .. } => (vec![path.to_string_lossy()], None),
        Target::Pod { payloads, .. } => {
            (payloads.iter().map(|payload| payload.path.to_string_lossy()).collect(), None)
        }
        Target::Process { pid, .. } => (Vec::new(), Some(*pid)),
    };
    let name = &evict.workload.name;
    let request = Request {
        version: VERSION,
        event: "beforeEviction",
        time: at.0,
        workload: Subject { name, pod_uid: evict.workload.uid.as_deref(), cgroups, pid },
        signal: evict.signal?,
        threshold: evict.threshold_value,
        available: evict.available,
        grace_seconds: evict.grace.0,
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        dry_run: false,
    };
    let mut line = serde_json::to_vec(&request).ok()?;
    line.push(b'\n');
    Some(line)
}

/// One call of the hook.
#[derive(Clone, Debug)]
pub struct Call {
    /// By which its end is known.
    pub number: u64,
    /// Where the hook listens.
    pub socket: PathBuf,
    /// What it is told.
    pub line: Vec<u8>,
    /// For how long it is waited for.
    pub until: Boot,
}

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Which.
    pub number: u64,
    /// When.
    pub at: Boot,
    /// How.
    pub outcome: HookOutcome,
    /// What the kernel says of it; `None` where the outcome says all.
    pub why: Option<String>,
}

/// The way to the thread that calls the hook.
#[derive(Clone, Debug)]
pub struct Caller(SyncSender<Call>);

impl Caller {
    /// Starts the thread; it ends with the last of these.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(ended: Sender<Ended>) -> io::Result<Self> {
        let (calls, asked) = sync_channel::<Call>(1);
        crate::threads::spawn("ebb-hook", move || {
            while let Ok(call) = asked.recv() {
                if ended.blocking_send(perform(&call)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(calls))
    }

    /// Has the hook called; returns whether the thread will take it up (it does not while it is stuck in an earlier call).
    #[must_use]
    pub fn call(&self, call: Call) -> bool {
        self.0.try_send(call).is_ok()
    }
}

fn perform(call: &Call) -> Ended {
    let (outcome, why) = match exchange(call) {
        Ok(outcome) => (outcome, None),
        Err(error) => judge(&error),
    };
    Ended { number: call.number, at: Boot::now(), outcome, why }
}

/// What an error makes of a call.
fn judge(error: &io::Error) -> (HookOutcome, Option<String>) {
    let outcome = match error.kind() {
        // What a timeout of the socket is called.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => HookOutcome::TimedOut,
        // It closed without having read, or without having answered.
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => HookOutcome::Closed,
        ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied => HookOutcome::Refused,
        ErrorKind::NotFound => HookOutcome::Absent,
        _ => HookOutcome::Failed,
    };
    let is_said = matches!(outcome, HookOutcome::TimedOut | HookOutcome::Closed);
    (outcome, (!is_said).then(|| error.to_string()))
}

/// Says the line and waits for what comes back, no longer than the call has.
fn exchange(call: &Call) -> io::Result<HookOutcome> {
    let address = UnixAddr::new(&call.socket)?;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let mut stream = UnixStream::from(socket);
    // Where more wait to be accepted than the other side lets wait, connecting takes as long as sending may.
    stream.set_write_timeout(Some(left(call.until)?))?;
    while let Err(error) = connect(stream.as_raw_fd(), &address) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    let mut rest = call.line.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(call.until)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let (mut buffer, mut had) = ([0; 512], 0);
    while had < LONGEST_ANSWER {
        stream.set_read_timeout(Some(left(call.until)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(HookOutcome::Closed),
            Ok(read) if buffer.iter().take(read).any(|byte| *byte == b'\n') => {
                return Ok(HookOutcome::Answered);
            }
            Ok(read) => had += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("{LONGEST_ANSWER} bytes came back without a line break")))
}

/// What is left until then.
///
/// # Errors
/// `TimedOut` when nothing is: a timeout of zero is none to the kernel.
fn left(until: Boot) -> io::Result<Duration> {
    let left = until.since(Boot::now());
    // The kernel counts microseconds.
    if left < Duration::from_micros(1) { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests;
