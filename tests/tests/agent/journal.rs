//! What the systemd journal is given by the whole agent; a socket stands in its place, and a file for the stream that systemd connects.

use crate::{CONFIG, arguments, config, ebb};
use ebb_tests::fake_node::{FakeNode, PATIENCE, wait_for};
use nix::sys::signal::{Signal, kill};
use std::collections::BTreeMap;
use std::fs::{File, read_to_string};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

type Entry = BTreeMap<String, String>;

struct Journal {
    dir: tempfile::TempDir,
    socket: UnixDatagram,
    seen: Vec<Entry>,
}

impl Journal {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        File::create(dir.path().join("stream")).unwrap();
        Self { dir, socket, seen: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// What was written to the stream, as every line was before there were fields.
    fn lines(&self) -> String {
        read_to_string(self.dir.path().join("stream")).unwrap()
    }

    /// ebb as systemd starts it, with this journal behind both of its streams.
    fn ebb(&self, node: &FakeNode, config: &Path) -> Command {
        let stream = File::options().append(true).open(self.dir.path().join("stream")).unwrap();
        let about = stream.metadata().unwrap();
        let mut command = ebb();
        arguments(&mut command, node, config)
            .arg("--enforce")
            .arg("--state")
            .arg(node.state())
            .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
            .env("EBB_TEST_JOURNAL", self.path())
            .stdout(stream.try_clone().unwrap())
            .stderr(stream);
        command
    }

    /// Waits for an entry with that value.
    fn wait(&mut self, field: &str, value: &str) -> Entry {
        let mut datagram = vec![0; 1 << 20];
        loop {
            let read = self.socket.recv(&mut datagram);
            let length = read.unwrap_or_else(|_| panic!("no {field}={value} in {:#?}", self.seen));
            let entry = fields(&datagram[..length]);
            self.seen.push(entry.clone());
            if entry.get(field).is_some_and(|is| is == value) {
                return entry;
            }
        }
    }
}

/// An entry as journald reads it: `NAME=value`, or a name, a length and that many bytes.
fn fields(mut entry: &[u8]) -> Entry {
    let mut fields = Entry::new();
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| b"=\n".contains(byte)).unwrap();
        let (name, rest) = entry.split_at(end);
        let (value, rest) = match rest.split_first().unwrap() {
            (b'=', rest) => rest.split_at(rest.iter().position(|byte| *byte == b'\n').unwrap()),
            (_, rest) => {
                let (length, rest) = rest.split_first_chunk().unwrap();
                rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap())
            }
        };
        entry = rest.strip_prefix(b"\n").unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.insert(text(name), text(value));
    }
    fields
}

/// An agent whose records are in the journal alone.
struct Service(Child);

impl Service {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already ended when the test has stopped it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Privileges are given up by then, and the filter of system calls is in force.
#[test]
fn a_kill_is_in_the_journal_with_fields_and_nothing_is_written_twice() {
    let mut journal = Journal::new();
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let incidents = tempfile::tempdir().unwrap();
    let config = config(CONFIG);
    let mut command = journal.ebb(&node, config.path());
    command.arg("--incidents").arg(incidents.path());
    // Nobody listens there, and the log says so.
    command.env("NOTIFY_SOCKET", incidents.path().join("nobody"));
    let agent = Service::start(command);
    let started = journal.wait("EBB_EVENT", "started");
    assert!(started["MESSAGE"].contains("(enforce)"), "it runs without a filter: {started:?}");
    node.set_available(60);
    let acted = journal.wait("EBB_EVENT", "evicted");
    wait_for("the kill", || hog.is_killed());
    node.gives_back(&hog, 1500);
    let recovered = journal.wait("EBB_EVENT", "pressureRelieved");
    agent.stop();
    let stopping = journal.wait("EBB_EVENT", "stopping");
    let id = hog.path.metadata().unwrap().ino().to_string();
    let value = |field: &str| acted.get(field).map(String::as_str);
    assert_eq!(value("EBB_WORKLOAD"), Some("/apps/hog"));
    assert_eq!(value("EBB_CGROUP"), Some("/apps/hog"));
    assert_eq!(value("EBB_CGROUP_ID"), Some(&*id));
    assert_eq!(value("EBB_SIGNAL"), Some("memory.available"));
    assert_eq!(value("EBB_METHOD"), Some("cgroupKill"));
    assert_eq!(value("PRIORITY"), Some("4"));
    assert_eq!(value("SYSLOG_IDENTIFIER"), Some("ebb"));
    assert!(acted["MESSAGE"].starts_with("killed /apps/hog via cgroup.kill "), "{acted:?}");
    assert!(acted.contains_key("MESSAGE_ID"), "{acted:?}");
    let episode = format!("{}.json", acted["EBB_EPISODE"]);
    assert!(incidents.path().join(&episode).exists(), "no incident record {episode}");
    assert_eq!(recovered["EBB_EPISODE"], acted["EBB_EPISODE"]);
    assert_eq!((started.get("EBB_EPISODE"), stopping.get("EBB_EPISODE")), (None, None));
    let of_log = journal.seen.iter().find(|entry| entry.contains_key("TARGET"));
    let of_log = of_log.expect("no line of the log");
    assert!(of_log["MESSAGE"].contains("(NOTIFY_SOCKET) was not told"), "{of_log:?}");
    assert_eq!((&*of_log["PRIORITY"], &*of_log["TARGET"]), ("4", "ebb_agent::report::service"));
    assert_eq!(journal.lines(), "");
}

#[test]
fn a_journal_that_takes_nothing_in_holds_up_no_kill() {
    let mut journal = Journal::new();
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send_to(b"MESSAGE=full\n", journal.path()).is_ok() {}
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let manager = journal.dir.path().join("notify");
    let ready = UnixDatagram::bind(&manager).unwrap();
    ready.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = journal.ebb(&node, config.path());
    command.env("NOTIFY_SOCKET", &manager);
    let agent = Service::start(command);
    ready.recv(&mut [0; 256]).unwrap();
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    journal.socket.set_nonblocking(true).unwrap();
    while journal.socket.recv(&mut [0; 64]).is_ok() {}
    journal.socket.set_nonblocking(false).unwrap();
    node.gives_back(&hog, 1500);
    journal.wait("EBB_EVENT", "pressureRelieved");
    agent.stop();
}

#[test]
fn without_its_socket_the_journal_gets_lines_as_ever_and_is_told_why() {
    let journal = Journal::new();
    std::fs::remove_file(journal.path()).unwrap();
    let node = FakeNode::new();
    let config = config(CONFIG);
    let agent = Service::start(journal.ebb(&node, config.path()));
    wait_for("a record of the start", || journal.lines().contains("thresholds: "));
    agent.stop();
    let lines = journal.lines();
    assert!(lines.contains("unavailable: fields for entries in the journal: "), "{lines}");
    assert!(lines.lines().last().unwrap().contains("stopping: "), "{lines}");
}

#[test]
fn the_last_record_of_an_agent_that_panics_is_in_the_journal() {
    let mut journal = Journal::new();
    let node = FakeNode::new();
    let config = config(CONFIG);
    let mut command = journal.ebb(&node, config.path());
    let ended = command.env("EBB_TEST_PANIC", "ebb-act").status().unwrap();
    assert_eq!(ended.code(), Some(5), "{ended:?}");
    let last = journal.wait("EBB_EVENT", "panicked");
    assert_eq!(last["PRIORITY"], "2");
    assert!(last["MESSAGE"].contains("thread ebb-act panicked at"), "{last:?}");
}
