//! `ebb status` and `ebb watch`, as commands.

use super::Served;
use crate::ebb;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

fn status(served: &Served, extra: &[&str]) -> String {
    let mut command = ebb();
    let Output { status, stdout, stderr } =
        command.arg("status").arg("--api").arg(&served.api.path).args(extra).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn status_tells_thresholds_and_who_would_go_first() {
    let served = Served::new(&[]);
    let text = status(&served, &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("dry run, 2 workloads"), "{text}");
    let row: Vec<&str> = lines[2].split_whitespace().collect();
    let expected = ["memory.available", "hard", "100.0", "MiB", "2.0", "GiB", "clear", "-"];
    assert_eq!(row, expected, "{text}");
    assert!(text.contains("  1. /apps/hog\n  2. /apps/web\n"), "{text}");
    let json: Value = serde_json::from_str(&status(&served, &["--output", "json"])).unwrap();
    assert_eq!(json["thresholds"][0]["limit"], 100 << 20, "{json}");
    assert_eq!(json["ranking"]["candidates"][0]["workload"], "/apps/hog", "{json}");
    served.agent.stop();
}

#[test]
fn watch_goes_on_with_the_next_agent_and_says_that_it_is_another() {
    let Served { node, mut agent, config, dir: _dir, api, .. } = Served::new(&[]);
    let mut command = ebb();
    command.args(["watch", "--since", "0", "-n", "4", "--output", "json", "--api"]);
    let mut watch = command.arg(&api.path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let started = next();
    assert_eq!((&started["seq"], &started["event"]), (&1.into(), &"started".into()));
    agent.take_in();
    agent.stop();
    assert_eq!(next()["event"], "stopping");
    let agent = api.start(&node, config.path(), &[]);
    assert_eq!(next()["gap"]["reason"], "anotherRun");
    let again = next();
    assert_eq!((&again["seq"], &again["event"]), (&1.into(), &"started".into()));
    agent.signal(nix::sys::signal::Signal::SIGHUP);
    assert_eq!(next()["event"], "reloaded");
    assert!(watch.wait().unwrap().success(), "it ends after four");
    agent.stop();
}

/// The session and its `notify-send` are files: what a desktop makes of it is the desktop's.
#[test]
fn an_eviction_is_shown_on_the_desktop_and_nothing_else_is() {
    let mut served = Served::new(&["--enforce"]);
    let session = tempfile::tempdir().unwrap();
    let (shown, send) = (session.path().join("shown"), session.path().join("notify-send"));
    let script = format!("#!/bin/sh\nprintf '%s|' \"$@\" >> {0}\necho >> {0}\n", shown.display());
    std::fs::write(&send, script).unwrap();
    std::fs::set_permissions(&send, std::fs::Permissions::from_mode(0o755)).unwrap();
    let notify = |count: &str| {
        let mut command = ebb();
        command.args(["watch", "--notify", "--since", "0", "-n", count, "--api"]);
        command.arg(&served.api.path).env("PATH", session.path());
        command.env("XDG_RUNTIME_DIR", session.path()).env_remove("DBUS_SESSION_BUS_ADDRESS");
        command
    };
    let refused = notify("1").output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(3) && told.contains("no session bus"), "{told}");
    std::fs::write(session.path().join("bus"), "").unwrap();
    served.runs_short();
    served.agent.wait("pressureRelieved");
    let output = notify(&served.agent.seen.len().to_string()).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let shown = std::fs::read_to_string(shown).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "--version|");
    assert!(lines[1].contains("|--|ebb|killed /apps/hog via "), "{shown}");
    assert_eq!(lines.len(), 2, "{shown}");
    served.agent.stop();
}

#[test]
fn without_an_agent_both_say_what_would_serve_them() {
    for command in ["status", "watch"] {
        let output = ebb().args([command, "--api", "/nonexistent/api.sock"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(told.contains("`ebb run --api /nonexistent/api.sock` serves one"), "{told}");
    }
}
