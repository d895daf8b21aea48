//! The systemd journal, for what this process writes to it: entries with fields, by the native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).
//!
//! ```text
//!  record ─► Entries ─► queue ─► writer's thread ─► JournalSink ─┐ waits a second at most
//!  tracing, in any thread ─────────────────────────► LogLines ────┴─► Journal ─► one datagram an entry
//! ```
//! systemd names the stream that it has connected to the journal in `JOURNAL_STREAM`; what is redirected elsewhere stays as it is.
//! What an entry holds is in [`entry`]; here is how it gets there.

pub mod entry;
mod log;

pub use log::LogLines;

use crate::output::Output;
use crate::record::Record;
use crate::sink::{Entry, Sink};
use ebb_policy::Time;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg, sendto};
use nix::sys::stat::fstat;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// How long an entry waits for a journal that takes none in. Those after it do not wait until one is taken again: the end of the process waits for all of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether an entry may wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For a second at most.
    Await,
    /// Not at all.
    OrDrop,
}

/// What tells the time, for what the journal has to say of itself.
pub struct Now(Box<dyn Fn() -> Time + Send + Sync>);

impl Now {
    /// The time is what `now` says.
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Box::new(now))
    }

    fn time(&self) -> Time {
        (self.0)()
    }
}

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Now").field(&self.time()).finish()
    }
}

/// The way into the journal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The stream that systemd has connected to the journal, as device and inode.
    stream: (u64, u64),
    socket: UnixDatagram,
    /// By name each time: a journald that was started again may listen on a new socket.
    address: UnixAddr,
    output: Output,
    now: Now,
    /// Entries that found no room and were not told yet.
    dropped: AtomicU64,
    /// The last entry found no room.
    is_stuck: AtomicBool,
}

impl Journal {
    /// The journal that systemd has connected a stream of this process to; `None` where it has not.
    ///
    /// # Errors
    /// When there should be one and its socket cannot be used, for people.
    pub fn from_environment(output: Output, now: Now) -> Result<Option<Self>, String> {
        let Some(stream) = std::env::var_os("JOURNAL_STREAM").and_then(|named| stream(&named))
        else {
            return Ok(None);
        };
        let path = socket_path();
        let journal = Self::open(stream, &path, output, now);
        journal.map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn open(stream: (u64, u64), path: &Path, output: Output, now: Now) -> io::Result<Self> {
        UnixDatagram::unbound()?.connect(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(Arc::new(Inner {
            stream,
            socket,
            address: UnixAddr::new(path)?,
            output,
            now,
            dropped: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
        })))
    }

    /// Whether what is written to `output` ends up in the journal.
    pub fn is_behind(&self, output: impl AsFd) -> bool {
        fstat(output).is_ok_and(|about| (about.st_dev, about.st_ino) == self.0.stream)
    }

    /// Sends an entry. One that finds no room is dropped and counted, and the number is told (`dropped`) with the next entry that finds some.
    ///
    /// # Errors
    /// When the journal cannot be had at all: the entry is to be written elsewhere.
    pub fn send(&self, entry: &[u8], room: Room) -> io::Result<()> {
        let inner = &*self.0;
        let room = if inner.is_stuck.load(Ordering::Relaxed) { Room::OrDrop } else { room };
        match inner.send(entry, room) {
            Ok(()) => {
                inner.is_stuck.store(false, Ordering::Relaxed);
                inner.tell_of_dropped();
                Ok(())
            }
            Err(Errno::EAGAIN) => {
                inner.dropped.fetch_add(1, Ordering::Relaxed);
                // What does not wait says nothing of how long the journal takes.
                if room == Room::Await {
                    inner.is_stuck.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an entry at once or not at all; returns whether it was sent.
    pub fn last_word(&self, entry: &Entry) -> bool {
        let entry = entry::of_record(self.0.output, entry, Path::new(""));
        self.0.send(&entry, Room::OrDrop).is_ok()
    }
}

impl Inner {
    fn send(&self, entry: &[u8], room: Room) -> nix::Result<()> {
        let mut flags = MsgFlags::MSG_NOSIGNAL;
        if room == Room::OrDrop {
            flags |= MsgFlags::MSG_DONTWAIT;
        }
        loop {
            match sendto(self.socket.as_raw_fd(), entry, &self.address, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                // Larger than a datagram may be.
                Err(Errno::EMSGSIZE | Errno::ENOBUFS) => return self.send_as_file(entry, flags),
                Err(error) => return Err(error),
            }
        }
    }

    /// As a sealed file in memory, whose descriptor goes in place of the entry.
    fn send_as_file(&self, entry: &[u8], flags: MsgFlags) -> nix::Result<()> {
        let name = c"ebb-journal-entry";
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(entry)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
        let descriptors = [file.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        loop {
            match sendmsg(self.socket.as_raw_fd(), &[], &rights, flags, Some(&self.address)) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn tell_of_dropped(&self) {
        let records = self.dropped.swap(0, Ordering::Relaxed);
        if records == 0 {
            return;
        }
        let entry = Entry::new(self.now.time(), Record::Dropped { records });
        let entry = entry::of_record(self.output, &entry, Path::new(""));
        if self.send(&entry, Room::OrDrop).is_err() {
            self.dropped.fetch_add(records, Ordering::Relaxed);
        }
    }
}

/// Where entries go: in builds for development tests name another place.
fn socket_path() -> PathBuf {
    let other: Option<OsString> = match cfg!(debug_assertions) {
        true => std::env::var_os("EBB_TEST_JOURNAL"),
        false => None,
    };
    other.map_or_else(|| SOCKET.into(), PathBuf::from)
}

/// `device:inode`, as systemd.exec(5) has it.
fn stream(named: &std::ffi::OsStr) -> Option<(u64, u64)> {
    let (device, inode) = named.to_str()?.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// Makes entries of records, for a writer that sends each on ([`JournalSink`]).
#[derive(Debug)]
pub struct Entries<W> {
    output: Output,
    cgroup_root: PathBuf,
    to: W,
}

impl<W: Write> Entries<W> {
    /// Entries with their text in the form `output`, for a node whose cgroups are below `cgroup_root`, go to `to`, each with one call of `write`.
    pub fn new(output: Output, cgroup_root: &Path, to: W) -> Self {
        Self { output, cgroup_root: cgroup_root.to_owned(), to }
    }
}

impl<W: Write> Sink for Entries<W> {
    fn take(&mut self, entry: &Entry) {
        let entry = entry::of_record(self.output, entry, &self.cgroup_root);
        if let Err(error) = self.to.write_all(&entry) {
            tracing::debug!(%error, "a record could not be written");
        }
    }
}

/// Sends entries to the journal, each call of `write` one; the text of one that the journal cannot be given goes to another place.
#[derive(Debug)]
pub struct JournalSink<W> {
    journal: Journal,
    otherwise: W,
}

impl<W: Write> JournalSink<W> {
    /// Entries go to `journal`, or their text to `otherwise`.
    pub fn new(journal: Journal, otherwise: W) -> Self {
        Self { journal, otherwise }
    }
}

impl<W: Write> Write for JournalSink<W> {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        if self.journal.send(entry, Room::Await).is_err() {
            self.otherwise.write_all(entry::message(entry))?;
            self.otherwise.write_all(b"\n")?;
        }
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.otherwise.flush()
    }
}

#[cfg(test)]
mod tests;
