//! What the service manager hears of the whole agent.

use crate::{CONFIG, config, ebb, start_as};
use ebb_tests::fake_node::{FakeNode, PATIENCE, wait_for};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

/// A service manager's socket.
struct Manager {
    _dir: tempfile::TempDir,
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { _dir: dir, socket, path }
    }

    fn hear(&self) -> String {
        let mut buffer = [0; 1024];
        let read = loop {
            match self.socket.recv(&mut buffer) {
                // This process was stopped meanwhile.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.unwrap(),
            }
        };
        String::from_utf8(buffer[..read].to_vec()).unwrap()
    }

    /// ebb as this manager starts it, with a sign of life every half second: ten that nobody has taken in yet leave no room for another word.
    fn ebb(&self) -> Command {
        let mut command = ebb();
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "1000000");
        command
    }
}

#[test]
fn the_service_manager_hears_ready_signs_of_life_and_the_stop() {
    let manager = Manager::new();
    let node = FakeNode::new();
    let config = config(CONFIG);
    let agent = start_as(manager.ebb(), &node, config.path(), &[]);
    let ready = manager.hear();
    assert!(ready.starts_with("READY=1\nSTATUS=dry run, "), "{ready}");
    for _ in 0..3 {
        assert_eq!(manager.hear(), "WATCHDOG=1\n");
    }
    agent.stop();
    let last = loop {
        let word = manager.hear();
        if word != "WATCHDOG=1\n" {
            break word;
        }
    };
    assert_eq!(last, "STOPPING=1\n");
}

#[test]
fn a_service_manager_that_takes_nothing_in_holds_up_no_kill() {
    let manager = Manager::new();
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send_to(b"STATUS=full\n", &manager.path).is_ok() {}
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let agent = start_as(manager.ebb(), &node, config.path(), &["--enforce"]);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    hog.empty();
    agent.stop();
}
