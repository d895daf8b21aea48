//! The whole agent, as its own process, on a fake node.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod beside_kubelet;
mod cluster;
mod disk;
mod documented;
mod dry_runs;
mod episodes;
mod evictions;
mod explain;
mod forecasts;
mod hooks;
mod hostile;
mod images;
mod incidents;
mod journal;
mod lab;
mod listen;
mod memory_pressure;
mod one_node;
mod people;
mod pods;
#[cfg(feature = "prometheus")]
mod prometheus;
mod reloading;
mod restarts;
mod service;
mod set_aside;
mod soft;
mod swap;
mod telling;
mod top;
mod trouble;
mod unread;

use ebb_journal::Entry;
use ebb_tests::fake_node::{FakeNode, PATIENCE, wait_for};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
";

/// The running agent, with the records that it has written so far.
struct Agent {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

fn ebb() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BUILT.get_or_init(|| ebb_tests::program::build(false).unwrap()));
    // On a busy machine it is late, and that is one record more.
    command.env("EBB_TEST_BUSY_MACHINE", "1");
    command
}

fn start(node: &FakeNode, config: &Path, extra: &[&str]) -> Agent {
    start_as(ebb(), node, config, extra)
}

/// The same with another command that becomes ebb.
fn start_as(mut command: Command, node: &FakeNode, config: &Path, extra: &[&str]) -> Agent {
    arguments(&mut command, node, config).args(["--output", "json"]).args(extra);
    if !extra.contains(&"--state") {
        command.arg("--state").arg(node.state());
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (send, lines) = channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let _ = send.send(read_back(&line));
        }
    });
    let mut agent = Agent { child, lines, seen: Vec::new() };
    agent.wait("started");
    agent
}

/// A line of records, which clients read as a record and lose nothing of.
fn read_back(line: &str) -> Value {
    let told: Value = serde_json::from_str(line).unwrap();
    let entry: Entry = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    assert_eq!(serde_json::to_value(entry).unwrap(), told);
    told
}

/// What every run on a fake node is told.
fn arguments<'a>(command: &'a mut Command, node: &FakeNode, config: &Path) -> &'a mut Command {
    command
        .args(["run", "--leave-out", "all", "--proc-root"])
        .arg(node.proc())
        .arg("--cgroup-root")
        .arg(node.cgroups())
        .arg("--config")
        .arg(config)
        // No runtime of the host that runs the test is found.
        .arg("--host-root")
        .arg(node.proc())
}

impl Agent {
    /// Waits for a record of that kind.
    fn wait(&mut self, event: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {event} among {:#?}", self.seen));
            self.seen.push(line.clone());
            if line["event"] == event {
                return line;
            }
        }
    }

    /// The first record of that kind, which may have come before others that were waited for.
    fn told(&mut self, event: &str) -> Value {
        let earlier = self.seen.iter().find(|record| record["event"] == event).cloned();
        earlier.unwrap_or_else(|| self.wait(event))
    }

    /// Waits for a record of that kind, and does something again and again until it comes.
    fn wait_while(&mut self, event: &str, mut nudge: impl FnMut()) -> Value {
        let mut found = None;
        wait_for(event, || {
            nudge();
            let told: Vec<Value> = self.lines.try_iter().collect();
            found = found.take().or_else(|| told.iter().find(|l| l["event"] == event).cloned());
            self.seen.extend(told);
            found.is_some()
        });
        found.unwrap()
    }

    /// Takes in what it has told by now.
    fn take_in(&mut self) {
        self.seen.extend(self.lines.try_iter());
    }

    /// Sends the agent a signal.
    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Ends the agent without giving it time for anything.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the agent in order and returns everything it has written.
    fn stop(mut self) -> Vec<Value> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.seen.extend(self.lines.iter());
        assert_eq!(self.seen.last().unwrap()["event"], "stopping");
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Already ended when the test has stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|r| r["event"].as_str()).collect()
}

/// Something is told every few milliseconds, on a busy node by the kernel: when to look again counts from the last look.
#[test]
fn what_is_told_all_the_time_does_not_put_off_the_next_look() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    let pid = nix::unistd::Pid::from_raw(agent.child.id().try_into().unwrap());
    node.set_available(60);
    wait_for("the kill", || {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
        hog.is_killed()
    });
    hog.empty();
    agent.stop();
}

#[test]
fn the_hog_is_ended_the_innocent_lives_and_the_episode_is_told_and_stored() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let innocent = node.add("apps/web", 100);
    let incidents = tempfile::tempdir().unwrap();
    let config = config(CONFIG);
    let dir = incidents.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", dir]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    let recovered = agent.wait("pressureRelieved");
    let what: Vec<_> = recovered["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["what"].as_str().unwrap())
        .collect();
    for step in [
        "threshold crossed",
        "seen below it",
        "decided",
        "killed",
        "terminated",
        "back above the threshold",
    ] {
        assert!(what.contains(&step), "{step} is missing in {what:?}");
    }
    let records = agent.stop();
    assert!(!innocent.is_killed());
    assert_eq!(kinds(&records).iter().filter(|k| **k == "evicted").count(), 1);
    let stored: Vec<_> = std::fs::read_dir(incidents.path()).unwrap().flatten().collect();
    assert_eq!(stored.len(), 1);
    let stored: Value = serde_json::from_slice(&std::fs::read(stored[0].path()).unwrap()).unwrap();
    assert_eq!(stored["decisions"][0]["plan"]["actions"][0]["workload"]["name"], "/apps/hog");
}

#[test]
fn an_episode_that_is_open_when_ebb_is_stopped_is_stored() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let incidents = tempfile::tempdir().unwrap();
    let config = config(CONFIG);
    let dir = incidents.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", dir]);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("decided");
    let records = agent.stop();
    assert!(!kinds(&records).contains(&"pressureRelieved"), "it is not over");
    let stored: Vec<_> = std::fs::read_dir(incidents.path()).unwrap().flatten().collect();
    assert_eq!(stored.len(), 1);
    let stored: Value = serde_json::from_slice(&std::fs::read(stored[0].path()).unwrap()).unwrap();
    assert_eq!(stored["decisions"][0]["plan"]["actions"][0]["workload"]["name"], "/apps/hog");
    let timeline = stored["timeline"].as_array().unwrap();
    assert_eq!(timeline.last().unwrap()["what"], "ebb was stopped", "{timeline:?}");
}

#[test]
fn a_dry_run_decides_the_same_and_touches_nothing() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    node.add("apps/web", 100);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    node.set_available(60);
    let acted = agent.wait("evicted");
    assert_eq!(acted["method"], "dryRun");
    assert_eq!(acted["workload"]["name"], "/apps/hog");
    node.set_available(1500);
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.is_killed());
}

#[test]
fn what_is_already_dying_counts_before_anything_more_is_ended() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    // The memory stays away for a while, as it does when a large process exits.
    let holding = agent.wait("evictionDeferred");
    assert!(holding["notes"][0].as_str().unwrap().contains("terminating workloads"), "{holding}");
    node.gives_back(&hog, 1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    // On a machine that stands still for seconds the deadline of the hog passes; only then may another go.
    let later = records.iter().skip_while(|record| record["event"] != "terminated");
    let early = records.len() - later.count();
    let planned = records.iter().take(early).filter(|record| record["event"] == "decided");
    assert_eq!(planned.count(), 1, "{records:#?}");
    let is_stuck = records.iter().any(|record| record["outcome"] == "timedOut");
    assert!(is_stuck || !second.is_killed(), "{records:#?}");
}

#[test]
fn a_victim_that_does_not_go_is_given_up_and_another_is_ended() {
    let mut node = FakeNode::new();
    let stuck = node.add("apps/stuck", 1500);
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    wait_for("the first kill", || stuck.is_killed());
    let departed = agent.wait("terminated");
    assert_eq!(departed["outcome"], "timedOut");
    wait_for("the second kill", || second.is_killed());
    let records = agent.stop();
    let kills = kinds(&records).iter().filter(|k| **k == "evicted").count();
    assert_eq!(kills, 2, "no spinning: {:?}", kinds(&records));
}

/// Nothing tells this agent of the removal, and what it holds open of the hog still has the old figures.
#[test]
fn what_has_been_removed_is_not_chosen_again_and_again() {
    let mut node = FakeNode::new();
    let removed = node.add("apps/removed", 1500);
    let hog = node.add("apps/hog", 1000);
    let config = config(CONFIG);
    // So near that it is looked at every few milliseconds: long before the tree is read again.
    node.set_available(120);
    let agent = start(&node, config.path(), &["--enforce"]);
    std::fs::remove_dir_all(&removed.path).unwrap();
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    hog.empty();
    let records = agent.stop();
    let of_removed = |record: &&Value| {
        record["event"] == "decided" && record["evict"][0]["workload"]["name"] == "/apps/removed"
    };
    let chosen = records.iter().filter(of_removed).count();
    assert!(chosen <= 1, "{chosen}: {:?}", kinds(&records));
}

#[test]
fn with_every_candidate_protected_nothing_is_ended_and_it_is_said_once() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(&format!("{CONFIG}  protected: ['apps/*']\n"));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    agent.wait("evictionDeferred");
    node.set_available(1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert!(!hog.is_killed());
    assert_eq!(kinds(&records).iter().filter(|k| **k == "evictionDeferred").count(), 1);
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    std::fs::write(config.path(), "evictionHrad:\n  memory.available: 1Gi\n").unwrap();
    let pid = nix::unistd::Pid::from_raw(agent.child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    let reloaded = agent.wait("reloaded");
    assert_eq!(reloaded["accepted"], false);
    assert!(reloaded["errors"][0].as_str().unwrap().contains("evictionHard"), "{reloaded}");
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill under the old threshold", || hog.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
}

#[test]
fn cgroups_of_pods_are_kept_from_the_moment_the_configuration_says_so_until_it_says_no_more() {
    let node = FakeNode::new();
    let all = node.cgroups().join("kubepods");
    std::fs::create_dir_all(&all).unwrap();
    std::fs::write(node.cgroups().join("cpuset.cpus.effective"), "0-3\n").unwrap();
    std::fs::write(all.join("memory.max"), "max").unwrap();
    let pods = tempfile::tempdir().unwrap();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let configure = |agent: &mut Agent, mode: &str| {
        let pods = pods.path().display();
        let more = format!("  cgroups: {{mode: {mode}, podManifests: {pods}, period: 100ms}}\n");
        std::fs::write(config.path(), format!("{CONFIG}{more}")).unwrap();
        let pid = nix::unistd::Pid::from_raw(agent.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
        assert_eq!(agent.wait("reloaded")["accepted"], true);
    };
    let says = |wanted: &str| {
        std::fs::read_to_string(all.join("memory.max")).is_ok_and(|text| text == wanted)
    };
    let all_memory = (4096_u64 << 20).to_string();
    configure(&mut agent, "enforce");
    wait_for("the limit of all pods", || says(&all_memory));
    configure(&mut agent, "off");
    std::fs::write(all.join("memory.max"), "max").unwrap();
    configure(&mut agent, "audit");
    agent.wait("cgroups");
    assert!(says("max"), "it was written to while nobody wanted that");
    configure(&mut agent, "enforce");
    wait_for("the limit of all pods again", || says(&all_memory));
    agent.stop();
}

#[test]
fn cgroups_in_a_dry_run_are_told_of_and_left_as_they_are() {
    let node = FakeNode::new();
    let all = node.cgroups().join("kubepods");
    std::fs::create_dir_all(&all).unwrap();
    std::fs::write(node.cgroups().join("cpuset.cpus.effective"), "0-3\n").unwrap();
    std::fs::write(all.join("memory.max"), "max").unwrap();
    let pods = tempfile::tempdir().unwrap();
    let more = format!(
        "  cgroups: {{mode: enforce, podManifests: {}, period: 100ms}}\n",
        pods.path().display()
    );
    let config = config(&format!("{CONFIG}{more}"));
    let mut agent = start(&node, config.path(), &[]);
    // It may have been told before the agent said that it had started.
    let early = agent.seen.iter().find(|record| record["event"] == "cgroups").cloned();
    let told = early.unwrap_or_else(|| agent.wait("cgroups"));
    assert_eq!(told["written"], serde_json::json!([]), "{told}");
    assert_eq!(told["wouldWrite"][0]["file"], "memory.max", "{told}");
    agent.stop();
    assert_eq!(std::fs::read_to_string(all.join("memory.max")).unwrap(), "max");
}

#[test]
fn a_node_whose_memory_cannot_be_told_makes_nobody_die() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    // So near that it is looked at every few milliseconds.
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(120);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.is_looked_at("MemFree: 1024 kB\n", 10);
    assert!(!hog.is_killed());
    // It was the only reason: told again, the same memory costs the hog its life.
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(kinds(&records).iter().filter(|kind| **kind == "thresholdCrossed").count(), 1);
}

/// Before Linux 3.14 that line was missing; what is not there is not zero.
#[test]
fn memory_of_which_nothing_says_how_much_is_available_makes_nobody_die() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    node.set_available(120);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.says("MemTotal: 4194304 kB\nMemFree: 1024 kB\n");
    swap::look_again(&mut agent, config.path(), CONFIG);
    let records = agent.stop();
    assert!(!hog.is_killed() && !kinds(&records).contains(&"thresholdCrossed"), "{records:#?}");
}

#[test]
fn bad_input_is_refused_with_exit_code_2_and_the_reason() {
    let node = FakeNode::new();
    let refused = |args: &[&str]| {
        let mut child = ebb()
            .args(["run", "--leave-out", "all"])
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ended = None;
        wait_for(&format!("a refusal of {args:?}"), || {
            ended = child.try_wait().unwrap();
            // One that was not refused runs for ever.
            ended.is_some()
        });
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(ended.unwrap().code(), Some(2), "{args:?}: {said}");
        said
    };
    let proc = node.proc();
    let proc = proc.to_str().unwrap();
    let said = refused(&["--proc-root", proc, "--cgroup-root", "/nonexistent"]);
    assert!(said.contains("--cgroup-root /nonexistent"), "{said}");
    let said = refused(&["--proc-root", "/nonexistent"]);
    assert!(said.contains("meminfo"), "{said}");
    let bad = config("evictionHard:\n  memory.availble: 100Mi\n");
    let said = refused(&["--proc-root", proc, "--config", bad.path().to_str().unwrap()]);
    assert!(said.contains("memory.availble") && said.contains("memory.available"), "{said}");
    let contrary = config(
        "evictionHard:\n  memory.available: 500Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 30s\n",
    );
    let said = refused(&["--proc-root", proc, "--config", contrary.path().to_str().unwrap()]);
    assert!(said.contains("evictionSoft"), "{said}");
    let said = refused(&["--proc-root", proc, "--config", "/nonexistent/ebb.yaml"]);
    assert!(said.contains("/nonexistent/ebb.yaml"), "{said}");
}

#[test]
fn a_snapshot_of_this_node_is_what_plan_decides_on_and_half_of_one_is_refused() {
    let mut node = FakeNode::new();
    node.add("apps/hog", 1500);
    node.set_available(50);
    let config = config(CONFIG);
    let snapshot = |form: &str| {
        let mut command = ebb();
        command.args(["snapshot", "--output", form, "--proc-root"]).arg(node.proc());
        command.arg("--cgroup-root").arg(node.cgroups()).arg("--config").arg(config.path());
        let answer = command.output().unwrap();
        assert!(answer.status.success(), "{answer:?}");
        String::from_utf8(answer.stdout).unwrap()
    };
    let text = snapshot("text");
    assert!(text.contains("memory.available: 50.0 MiB"), "{text}");
    assert!(text.contains("1.5 GiB  /apps/hog"), "{text}");

    let saved = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(saved.path(), snapshot("json")).unwrap();
    let plan = || {
        let mut command = ebb();
        command.args(["plan", "--output", "json", "--config"]).arg(config.path());
        command.arg("--snapshot").arg(saved.path()).output().unwrap()
    };
    let decided = plan();
    assert!(decided.status.success(), "{decided:?}");
    let decided: Value = serde_json::from_slice(&decided.stdout).unwrap();
    assert_eq!(decided["plan"]["actions"][0]["workload"]["name"], "/apps/hog", "{decided:#}");

    let whole = std::fs::read(saved.path()).unwrap();
    std::fs::write(saved.path(), &whole[..whole.len() / 2]).unwrap();
    let refused = plan();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(saved.path().to_str().unwrap()) && said.contains("JSON"), "{said}");
}

#[test]
fn a_fall_that_is_seen_coming_ends_one_workload_and_only_below_the_threshold() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let quiet = node.add("apps/quiet", 20);
    node.set_available(1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    // 400 MiB a second, in steps that each look may catch one of; it turns just above the threshold.
    let fall_to = |mib: u64| {
        for available in (mib..400).rev().step_by(2) {
            if hog.is_killed() {
                return;
            }
            node.falls_to(available);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    fall_to(102);
    node.set_available(1500);
    assert!(!hog.is_killed(), "the threshold was not crossed");
    node.gives_back_when_killed(&hog, 1500);
    fall_to(60);
    let acted = agent.wait("evicted");
    assert_eq!(acted["workload"]["name"], "/apps/hog");
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let acted = kinds(&records).iter().filter(|kind| **kind == "evicted").count();
    assert_eq!(acted, 1, "{records:#?}");
    assert!(!quiet.is_killed());
}
