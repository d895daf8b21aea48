//! What people read: names that speak to a terminal are written out by every command, and an incident is decided again as it was.

use crate::lab::Lab;
use crate::{config, ebb, start};
use ebb_tests::fake_node::{FakeNode, PATIENCE, wait_for};
use ebb_tests::runtime::Flavour;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc::channel;

/// Turns the terminal red, moves up a line, rings, and writes backwards.
const HOSTILE: &str = "evil\x1b[31m\x1b[1A\u{7}\u{9b}2J\u{202e}\nforged";

/// Nothing of what was said speaks to a terminal; returns it.
fn plain(command: &str, output: &Output) -> String {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let speaks = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!said.chars().any(speaks), "{command}: {said:?}");
    assert!(!said.lines().any(|line| line.starts_with("forged")), "{command}: {said}");
    said
}

#[test]
fn no_command_lets_a_name_speak_to_the_terminal() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let tag = format!("registry/{HOSTILE}:1");
    let image = lab.world().add_image(&tag, &[("base", 10)]);
    lab.world().add_image(&format!("{tag}-unused"), &[("other", 10)]);
    lab.pod("web", &image, 10);
    let name = |pod: &str| format!("{HOSTILE}{pod}");
    {
        let mut world = lab.world();
        let sandbox = world.add_pod(HOSTILE, &name("pod"), "uid-evil");
        world.add_container(&sandbox, &name("container"), &image);
    }
    let hostile = lab.node.add(&format!("apps/{HOSTILE}"), 1500);
    let standalone =
        config("evictionHard: {memory.available: 100Mi}\nebb: {memoryAvailable: memAvailable}\n");
    let file = standalone.path().display().to_string();
    let mut seen = Vec::new();
    let mut look = |command: &str, output: &Output| {
        seen.push((command.to_owned(), plain(command, output)));
    };
    for command in [
        &["pods"][..],
        &["images"],
        &["gc", "images", "--down-to", "0"],
        &["gc", "containers"],
        &["rank", "-c", &file],
        &["snapshot", "-o", "text", "-c", &file],
        &["explain", &format!("pod/{}", name("pod")), "-n", HOSTILE],
        &["explain", &format!("pod/{}", name("pot")), "-n", HOSTILE],
    ] {
        look(&command.join(" "), &lab.run(command));
    }
    lab.node.set_available(60);
    let snapshot = lab.dir("snapshot.json");
    let taken = lab.run(&["snapshot", "-c", &file]);
    std::fs::write(&snapshot, &taken.stdout).unwrap();
    let path = snapshot.display().to_string();
    let alone = |args: &[&str]| ebb().args(args).output().unwrap();
    look("plan", &alone(&["plan", "-c", &file, "--snapshot", &path]));
    look("rank --snapshot", &alone(&["rank", "-c", &file, "--snapshot", &path]));
    // A name in an error: of a file, of a key, of a value.
    look("error", &alone(&["plan", "--snapshot", HOSTILE]));
    let keys = config(
        &format!("{:?}: 1\n", HOSTILE.replace('\u{202e}', ""))
            .replace("\\u{7}", "\\a")
            .replace("\\u{1b}", "\\e")
            .replace("\\u{9b}", "\\x9b"),
    );
    look("key", &alone(&["plan", "-c", &keys.path().display().to_string(), "--snapshot", "-"]));
    let key = serde_json::json!({ "schemaVersion": 1, "takenAt": 1, HOSTILE: 1 }).to_string();
    std::fs::write(&snapshot, key).unwrap();
    look("field", &alone(&["plan", "--snapshot", &path]));
    let manifest = serde_json::json!({
        "kind": "Pod",
        "metadata": { "name": HOSTILE, "namespace": "ns", "uid": HOSTILE, "annotations": { HOSTILE: HOSTILE } },
        "spec": { "containers": [{ "name": HOSTILE, "resources": { "requests": { HOSTILE: HOSTILE } } }] },
    });
    let manifest = config(&manifest.to_string());
    let pods = manifest.path().display().to_string();
    for command in ["plan", "audit", "tree"] {
        let output = ebb()
            .args(["cgroups", command, "--pods", &pods, "--proc-root"])
            .arg(lab.node.proc())
            .arg("--cgroup-root")
            .arg(lab.node.cgroups())
            .output()
            .unwrap();
        look("cgroups", &output);
    }
    // The agent itself, in a dry run, short of memory; what it answers, and what it leaves behind.
    let socket = lab.dir("api.sock").display().to_string();
    let incidents = lab.dir("incidents").display().to_string();
    let mut agent = ebb()
        .args(["run", "--leave-out", "all", "-c", &file, "--api", &socket])
        .args(["--incidents", &incidents, "--proc-root"])
        .arg(lab.node.proc())
        .arg("--cgroup-root")
        .arg(lab.node.cgroups())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let records = BufReader::new(agent.stdout.take().unwrap());
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in records.lines().map_while(Result::ok) {
            let _ = send.send(line + "\n");
        }
    });
    let mut stdout = String::new();
    while !stdout.contains("evil") {
        stdout += &lines.recv_timeout(PATIENCE).expect("a record that names it");
    }
    look("status", &alone(&["status", "--api", &socket]));
    // All records until one has named it are there by now.
    let told = stdout.lines().filter(|line| !line.starts_with(' ')).count().to_string();
    look("watch", &alone(&["watch", "--since", "0", "-n", &told, "--api", &socket]));
    let pid = nix::unistd::Pid::from_raw(agent.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = agent.wait_with_output().unwrap();
    stdout.extend(lines.iter());
    look("run", &Output { stdout: stdout.into_bytes(), ..ended });
    look("incident list", &alone(&["incident", "list", &incidents]));
    let stored = std::fs::read_dir(&incidents).unwrap().flatten().next().unwrap().path();
    let stored = stored.display().to_string();
    look("incident show", &alone(&["incident", "show", &stored]));
    look("replay", &alone(&["replay", &stored]));
    for (command, said) in &seen {
        let names_nobody = command.starts_with("gc") || command == "cgroups";
        assert!(names_nobody || said.contains("evil\\u{1b}[31m"), "{command}: {said}");
    }
    assert!(!hostile.is_killed());
}

/// An incident that the agent itself has recorded.
fn recorded() -> (tempfile::TempDir, PathBuf) {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    node.add("apps/web", 100);
    let dir = tempfile::tempdir().unwrap();
    let config = config(crate::CONFIG);
    let at = dir.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", at]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    let stored = std::fs::read_dir(dir.path()).unwrap().flatten().next().unwrap().path();
    (dir, stored)
}

fn replay(incident: &std::path::Path, more: &[&str]) -> (Option<i32>, String) {
    let output = ebb().arg("replay").arg(incident).args(more).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn an_incident_is_decided_again_as_it_was_and_any_other_plan_is_told_with_its_differences() {
    let (_dir, incident) = recorded();
    let (code, said) = replay(&incident, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("decision 1: the same"), "{said}");
    assert!(said.contains("evicts /apps/hog"), "{said}");

    // Another configuration that evicts the same one, for another threshold: names alone would not tell.
    let other =
        config("evictionHard: {memory.available: 90Mi}\nebb: {memoryAvailable: memAvailable}\n");
    let (code, said) = replay(&incident, &["-c", other.path().to_str().unwrap()]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("decision 1: different"), "{said}");
    assert!(said.contains("differs at actions[0].threshold: 100Mi then, 90Mi now"), "{said}");

    // A record whose plan was changed: grace, and why another was skipped.
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&incident).unwrap()).unwrap();
    changed["decisions"][0]["plan"]["actions"][0]["grace"] = 7.into();
    changed["decisions"][0]["plan"]["skipped"] = serde_json::json!([]);
    let file = config(&changed.to_string());
    let (code, said) = replay(file.path(), &[]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("differs at actions[0].grace: 7 then, "), "{said}");
    assert!(said.contains("differs at skipped: 0 then, "), "{said}");
}

#[test]
fn a_record_that_cannot_be_decided_again_is_refused_with_exit_code_2_and_what_is_wrong() {
    let (dir, incident) = recorded();
    let text = std::fs::read_to_string(&incident).unwrap();
    let other: Value = serde_json::from_str(&text).unwrap();
    let with = |key: &str, value: Value| {
        let mut changed = other.clone();
        changed[key] = value;
        changed.to_string()
    };
    let cases = [
        (text[..text.len() / 2].to_owned(), "JSON"),
        (with("schemaVersion", 99.into()), "schemaVersion = 99"),
        (with("config", "evictionHard: {memory.availble: 1Mi}\n".into()), "memory.availble"),
        (with("unheardOf", 1.into()), "unheardOf"),
    ];
    for (text, said) in cases {
        let file = config(&text);
        let (code, told) = replay(file.path(), &[]);
        assert_eq!(code, Some(2), "{said}: {told}");
        let name = file.path().to_str().unwrap();
        assert!(told.contains(said) && told.contains(name), "{said} of {name}: {told}");
    }
    let (code, told) = replay(&dir.path().join("none.json"), &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("none.json"), "{told}");
}
