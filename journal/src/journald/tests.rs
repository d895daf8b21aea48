//! What entries of the journal hold, how they are framed, and what becomes of those that find no room.
use super::*;
use crate::diagnostics::Diagnostics;
use crate::job::{Job, Method, Need, Step};
use crate::record::Done;
use crate::target::Target;
use ebb_policy::snapshot::{CgroupId, WorkloadKey};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// A journal's socket, and the way into it.
struct Fake {
    dir: tempfile::TempDir,
    socket: UnixDatagram,
    journal: Journal,
}

fn fake() -> Fake {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let journal = Journal::open((0, 0), &path, Output::Text, Now::new(|| Time(0))).unwrap();
    Fake { dir, socket, journal }
}

impl Fake {
    fn take(&self) -> Option<BTreeMap<String, String>> {
        let mut entry = vec![0; 1 << 20];
        let length = self.socket.recv(&mut entry).ok()?;
        Some(fields(&entry[..length]))
    }

    /// Entries until there is no more room.
    fn fill(&self) {
        while self.journal.0.dropped.load(Ordering::Relaxed) == 0 {
            self.journal.send(&degraded("before"), Room::OrDrop).unwrap();
        }
    }
}

/// An entry as journald reads it; values of a field that is there more than once are joined by commas.
fn fields(mut entry: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::<String, String>::new();
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| matches!(byte, b'=' | b'\n')).unwrap();
        let (name, rest) = entry.split_at(end);
        let length = if rest[0] == b'=' {
            entry = &rest[1..];
            entry.iter().position(|byte| *byte == b'\n').unwrap()
        } else {
            let (length, rest) = rest[1..].split_first_chunk().unwrap();
            entry = rest;
            usize::try_from(u64::from_le_bytes(*length)).unwrap()
        };
        let value = str::from_utf8(&entry[..length]).unwrap();
        assert_eq!(entry[length], b'\n');
        entry = &entry[length + 1..];
        let before = fields.entry(str::from_utf8(name).unwrap().to_owned()).or_default();
        let comma = if before.is_empty() { "" } else { "," };
        *before = format!("{before}{comma}{value}");
    }
    fields
}

/// An entry of a record outside every episode.
fn of_record(output: Output, record: Record) -> Vec<u8> {
    entry::of_record(output, &Entry::new(Time(0), record), Path::new(""))
}

fn degraded(what: &str) -> Vec<u8> {
    of_record(Output::Text, Record::Degraded { part: crate::Part::Loop, what: what.into() })
}

#[test]
fn a_kill_is_an_entry_with_fields_of_its_own() {
    let workload = WorkloadKey {
        name: "shop/web".into(),
        uid: Some("11-22".into()),
        cgroup: Some(CgroupId(7)),
        process: None,
    };
    let target = Target::Cgroup { id: 7, path: "/sys/fs/cgroup/kubepods.slice/a.scope".into() };
    let need = Some(Need::MemoryBelow { bytes: 1 });
    let job = Job { number: 1, target, step: Step::Kill, need, decision: Some(Time(16)) };
    let record = |method| {
        Record::Evicted(Done {
            job: job.clone(),
            workload: Some(workload.clone()),
            method,
            after_ms: Some(1.0),
            took_us: 2,
            by_watchdog: false,
            assumes_freed: None,
        })
    };
    let mut entry = Entry::new(Time(0), record(Method::CgroupKill));
    entry.episodes.push("17-memory.available".into());
    let entry = entry::of_record(Output::Text, &entry, Path::new("/sys/fs/cgroup"));
    let mut told = fields(&entry);
    let id = told.remove("MESSAGE_ID").unwrap();
    let expected = [
        ("EBB_CGROUP", "/kubepods.slice/a.scope"),
        ("EBB_CGROUP_ID", "7"),
        ("EBB_DECISION", "16"),
        ("EBB_EPISODE", "17-memory.available"),
        ("EBB_EVENT", "evicted"),
        ("EBB_METHOD", "cgroupKill"),
        ("EBB_POD_UID", "11-22"),
        ("EBB_SIGNAL", "memory.available"),
        ("EBB_WORKLOAD", "shop/web"),
        ("MESSAGE", "killed shop/web via cgroup.kill 1.0 ms after the crossing, in 2 µs"),
        ("PRIORITY", "4"),
        ("SYSLOG_FACILITY", "3"),
        ("SYSLOG_IDENTIFIER", "ebb"),
    ];
    let expected: BTreeMap<_, _> =
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(told, expected);
    let guide = include_str!("../../../docs/operating.md");
    assert!(guide.contains(&id), "the guide does not name the MESSAGE_ID of evictions, {id}");
    let dry = of_record(Output::Json, record(Method::DryRun));
    let dry = fields(&dry);
    assert_eq!((&*dry["EBB_METHOD"], dry.get("MESSAGE_ID")), ("dryRun", None));
    let json: serde_json::Value = serde_json::from_str(&dry["MESSAGE"]).unwrap();
    assert_eq!(json["event"], "evicted", "the text has the form that was asked for");
}

#[test]
fn a_name_makes_no_field_of_its_own() {
    let workload = WorkloadKey { name: "web\nPRIORITY=0".into(), ..WorkloadKey::default() };
    let record = Record::Warned { workload, message: "it goes first".into() };
    let told = fields(&of_record(Output::Text, record));
    assert_eq!(told["EBB_WORKLOAD"], "web\nPRIORITY=0");
    assert_eq!(told["PRIORITY"], "4");
    assert_eq!(told["MESSAGE"], "warned web\\nPRIORITY=0: it goes first");
}

#[test]
fn an_entry_larger_than_a_datagram_goes_as_a_file() {
    let fake = fake();
    let text = "x".repeat(4 << 20);
    fake.journal.send(&degraded(&text), Room::Await).unwrap();
    let mut space = nix::cmsg_space!(std::os::fd::RawFd);
    let got = nix::sys::socket::recvmsg::<()>(
        fake.socket.as_raw_fd(),
        &mut [],
        Some(&mut space),
        MsgFlags::empty(),
    )
    .unwrap();
    let rights = got.cmsgs().unwrap().next().unwrap();
    let nix::sys::socket::ControlMessageOwned::ScmRights(fds) = rights else { panic!() };
    // SAFETY: the descriptor was made for this process by the message and is owned by nobody else.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fds[0]) });
    let seals = nix::fcntl::fcntl(&file, FcntlArg::F_GET_SEALS).unwrap();
    let needed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    assert_eq!(seals & needed.bits(), needed.bits(), "journald reads only what cannot change");
    let mut entry = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut entry).unwrap();
    assert_eq!(fields(&entry)["MESSAGE"], text);
}

#[test]
fn what_finds_no_room_is_dropped_and_told_with_the_next_that_does() {
    let fake = fake();
    fake.fill();
    // Nobody takes anything in: no entry waits again for one to be taken.
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        fake.journal.send(&degraded("lost"), Room::Await).unwrap();
    }
    assert!(begun.elapsed() < 100 * PATIENCE, "each of them waited");
    while fake.take().is_some() {}
    fake.journal.send(&degraded("after"), Room::Await).unwrap();
    assert_eq!(fake.take().unwrap()["MESSAGE"], "after");
    let told = fake.take().unwrap();
    assert_eq!(told["EBB_EVENT"], "dropped");
    assert_eq!(told["MESSAGE"], "101 records were dropped: their reader did not keep up");
    fake.journal.send(&degraded("last"), Room::Await).unwrap();
    assert_eq!(fake.take().unwrap()["MESSAGE"], "last");
    assert_eq!(fake.take(), None, "it is told once");
}

#[test]
fn what_the_journal_cannot_be_given_is_written_as_ever() {
    let Fake { dir, socket, journal } = fake();
    drop(socket);
    let mut sink = JournalSink::new(journal, Vec::new());
    sink.write_all(&degraded("a")).unwrap();
    drop(dir);
    sink.write_all(&degraded("b\nc")).unwrap();
    assert_eq!(str::from_utf8(&sink.otherwise).unwrap(), "a\nb\\nc\n");
}

#[test]
fn only_the_stream_that_systemd_names_is_the_journal() {
    let file = tempfile::tempfile().unwrap();
    let about = fstat(&file).unwrap();
    let named = format!("{}:{}", about.st_dev, about.st_ino);
    let mut fake = fake();
    let inner = Arc::get_mut(&mut fake.journal.0).unwrap();
    inner.stream = stream(named.as_ref()).unwrap();
    assert!(fake.journal.is_behind(&file));
    assert!(!fake.journal.is_behind(tempfile::tempfile().unwrap()), "it was redirected");
    assert_eq!(stream("12".as_ref()), None);
    assert_eq!(stream("a:b".as_ref()), None);
}

#[test]
fn a_line_of_the_log_is_an_entry_with_its_level_and_place() {
    let fake = fake();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_level(false)
        .with_target(false)
        .without_time()
        .with_writer(LogLines::new(fake.journal.clone(), Diagnostics::default()))
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(error = "no\nsuch file", "the store was not read");
    });
    let told = fake.take().unwrap();
    assert_eq!(told["MESSAGE"], "the store was not read error=\"no\\nsuch file\"");
    assert_eq!(told["PRIORITY"], "4");
    assert_eq!(told["TARGET"], module_path!());
    assert!(told["CODE_FILE"].ends_with("tests.rs") && told.contains_key("CODE_LINE"), "{told:?}");
}
