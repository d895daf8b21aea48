//! The whole agent when nobody reads what it writes, or it cannot be written: it lives and acts.

use crate::{CONFIG, config, ebb, start_as};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, wait_for};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;

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
