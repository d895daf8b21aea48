//! The whole agent when nobody reads what it writes, or it cannot be written: it lives, acts, and ends when it is told to.

use crate::lab::{self, Lab};
use crate::trouble::{add_trap, is_in_open};
use crate::{CONFIG, arguments, config, ebb, start, start_as};
use ebb_agent::store::ImageStore;
use ebb_policy::Time;
use ebb_tests::fake_node::{FakeCgroup, FakeNode, PATIENCE, wait_for};
use ebb_tests::runtime::Flavour;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// An agent has 12 s for its end, whatever hangs; what hangs here does so for ever. The rest is for a machine that is busy.
const STOPPED_WITHIN: Duration = Duration::from_secs(40);

/// A meminfo that does not say what is available.
const UNREADABLE: &str = "MemFree: 1024 kB\n";

/// A pipe that takes nothing more in.
fn full_pipe() -> (OwnedFd, File) {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let mut writer = File::from(writer);
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(b"full\n").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// A node of which the loop cannot read the memory, and warns of it again and again, until it finds it short.
fn warns_and_is_short(node: &FakeNode, hog: &FakeCgroup) {
    node.is_looked_at(UNREADABLE, 20);
    node.gives_back_when_killed(hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
}

/// An agent whose streams say nothing, once it is ready.
struct Silent(Child);

impl Silent {
    fn start(mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manager = dir.path().join("notify");
        let ready = UnixDatagram::bind(&manager).unwrap();
        ready.set_read_timeout(Some(PATIENCE)).unwrap();
        let agent = Self(command.env("NOTIFY_SOCKET", &manager).spawn().unwrap());
        ready.recv(&mut [0; 256]).unwrap();
        agent
    }

    fn signal(&self, signal: Signal) {
        kill(nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }

    /// How it ends, and how long that takes.
    fn ends(&mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        let mut ended = None;
        wait_for("the end", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        (ended.unwrap(), begun.elapsed())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Already ended when the test has stopped it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ebb that enforces on `node`, for a test that has its streams.
fn enforcing(node: &FakeNode, config: &Path) -> Command {
    let mut command = ebb();
    arguments(&mut command, node, config).args(["--output", "json", "--enforce", "--state"]);
    command.arg(node.state());
    command
}

fn acts_though_it_warns_to(stderr: impl Into<Stdio>) {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    // So near that it is looked at every few milliseconds.
    node.set_available(120);
    let mut command = ebb();
    command.stderr(stderr);
    let mut agent = start_as(command, &node, config.path(), &["--enforce"]);
    warns_and_is_short(&node, &hog);
    agent.wait("pressureRelieved");
    agent.stop();
}

#[test]
fn warnings_that_cannot_be_written_because_the_disk_is_full_end_nobody() {
    acts_though_it_warns_to(File::options().write(true).open("/dev/full").unwrap());
}

#[test]
fn warnings_whose_reader_has_died_end_nobody() {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    acts_though_it_warns_to(writer);
}

#[test]
fn warnings_that_nobody_reads_hold_up_no_kill_and_are_told_of_once_they_are_read() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    node.set_available(120);
    let (reader, writer) = full_pipe();
    let mut command = ebb();
    command.stderr(writer);
    let mut agent = start_as(command, &node, config.path(), &["--enforce"]);
    // More than wait.
    node.is_looked_at(UNREADABLE, 400);
    warns_and_is_short(&node, &hog);
    agent.wait("pressureRelieved");
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        File::from(reader).read_to_string(&mut told).unwrap();
        told
    });
    node.is_looked_at(UNREADABLE, 5);
    agent.stop();
    let told = told.join().unwrap();
    assert!(told.contains("the node could not be read"), "{told}");
    assert!(told.contains(" lines of diagnostics were lost: "), "{told}");
}

#[test]
fn a_warning_right_before_the_end_is_written() {
    let node = FakeNode::new();
    let config = config(CONFIG);
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let mut command = ebb();
    command.stderr(stderr.reopen().unwrap());
    // Nobody listens there, and the log says so.
    command.env("NOTIFY_SOCKET", node.proc().join("nobody"));
    start_as(command, &node, config.path(), &["--enforce"]).stop();
    let said = std::fs::read_to_string(stderr.path()).unwrap();
    assert!(said.contains("was not told: Stopping"), "{said}");
}

#[test]
fn an_agent_whose_streams_nobody_reads_kills_ends_in_time_and_leaves_the_node_to_the_next() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    node.set_available(120);
    let (reader, writer) = full_pipe();
    let mut command = enforcing(&node, config.path());
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut agent = Silent::start(command);
    warns_and_is_short(&node, &hog);
    agent.signal(Signal::SIGTERM);
    let (ended, took) = agent.ends();
    assert_eq!(ended.code(), Some(1), "records are lost: {ended:?}");
    assert!(took < STOPPED_WITHIN, "{took:?}");
    start(&node, config.path(), &["--enforce"]).stop();
    drop(reader);
}

#[test]
fn what_was_lost_at_the_end_is_said_where_somebody_reads() {
    let node = FakeNode::new();
    let config = config(CONFIG);
    let (reader, writer) = full_pipe();
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let mut command = enforcing(&node, config.path());
    command.stdout(writer).stderr(stderr.reopen().unwrap());
    let mut agent = Silent::start(command);
    agent.signal(Signal::SIGINT);
    assert_eq!(agent.ends().0.code(), Some(1));
    let said = std::fs::read_to_string(stderr.path()).unwrap();
    assert!(said.contains("ebb: stopped: ") && said.contains("records were not written"), "{said}");
    drop(reader);
}

/// An agent of which the loop hangs, as on a file of a mount that does.
fn hangs_in_its_loop(
    node: &mut FakeNode,
    config: &Path,
    stderr: &tempfile::NamedTempFile,
) -> Silent {
    // So near that workloads are read every few milliseconds.
    node.set_available(120);
    let mut command = enforcing(node, config);
    command.stdout(Stdio::null()).stderr(stderr.reopen().unwrap());
    let agent = Silent::start(command);
    let pipe = add_trap(node);
    wait_for("the loop to open it", || is_in_open(agent.0.id(), &pipe));
    agent
}

#[test]
fn a_loop_that_hangs_does_not_keep_ebb_from_its_end() {
    let (mut node, config) = (FakeNode::new(), config(CONFIG));
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let mut agent = hangs_in_its_loop(&mut node, config.path(), &stderr);
    agent.signal(Signal::SIGTERM);
    let (ended, took) = agent.ends();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(took < STOPPED_WITHIN, "{took:?}");
    let said = std::fs::read_to_string(stderr.path()).unwrap();
    assert!(said.contains("its end took too long"), "{said}");
}

#[test]
fn who_tells_it_a_second_time_waits_no_longer() {
    let (mut node, config) = (FakeNode::new(), config(CONFIG));
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let mut agent = hangs_in_its_loop(&mut node, config.path(), &stderr);
    agent.signal(Signal::SIGTERM);
    // Two of the same that come at once are one.
    agent.signal(Signal::SIGINT);
    let (ended, _) = agent.ends();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let said = std::fs::read_to_string(stderr.path()).unwrap();
    assert!(said.contains("told to stop a second time"), "it did not wait for the first: {said}");
}

#[test]
fn a_state_directory_that_hangs_does_not_keep_ebb_from_its_end() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    lab.pod("web", &image, 100);
    let config = config(lab::CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    let in_use = lab.dir("state").join("images.redb.attempts");
    // Written once the inventory was taken in, and then closed.
    wait_for("what is remembered", || {
        std::thread::sleep(Duration::from_millis(50));
        let images = ImageStore::open(&lab.dir("state")).and_then(|store| store.load(Time(0)));
        images.is_ok_and(|images| images.is_some()) && !in_use.exists()
    });
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&in_use, mode).unwrap();
    agent.signal(Signal::SIGTERM);
    let mut ended = None;
    let begun = Instant::now();
    wait_for("the end", || {
        ended = agent.child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
    assert!(begun.elapsed() < STOPPED_WITHIN, "{:?}", begun.elapsed());
    std::fs::remove_file(&in_use).unwrap();
    lab.start(config.path(), &["--enforce"]).stop();
}

/// The directory is no directory for a while, as one on a disk that is full takes nothing in: root may write to any other.
#[test]
fn an_incident_that_cannot_be_stored_is_told_and_stored_once_it_can_be() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let dir = tempfile::tempdir().unwrap();
    let incidents = dir.path().join("incidents");
    let at = incidents.to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", at]);
    std::fs::remove_dir(&incidents).unwrap();
    std::fs::write(&incidents, "no directory").unwrap();
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    let told = agent.wait("degraded");
    assert_eq!(told["part"], "incidents", "{told}");
    assert!(told["what"].as_str().unwrap().contains("memory.available is not stored: "), "{told}");
    std::fs::remove_file(&incidents).unwrap();
    std::fs::create_dir(&incidents).unwrap();
    wait_for("the record", || {
        let mut files = std::fs::read_dir(&incidents).unwrap().flatten();
        files.any(|file| file.file_name().to_string_lossy().ends_with(".json"))
    });
    agent.stop();
}
