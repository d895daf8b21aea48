//! A configuration that is read while the agent runs: obeyed whole, or refused whole with the field that cannot change.

use crate::{Agent, CONFIG, config, ebb, kinds, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;

/// Writes another configuration and has it read.
fn reload(agent: &mut Agent, file: &Path, text: &str) -> Value {
    std::fs::write(file, text).unwrap();
    ask(agent)
}

fn ask(agent: &mut Agent) -> Value {
    kill(Pid::from_raw(agent.child.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    agent.wait("reloaded")
}

#[test]
fn what_cannot_change_while_ebb_runs_refuses_the_whole_configuration_by_name() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    let incidents = tempfile::tempdir().unwrap();
    let dir = format!("ebb.incidents = \"{} (keep 100)\"", incidents.path().display());
    for (own, said) in [
        ("enforce: true", "ebb.enforce = \"true\": it cannot change while ebb runs, and is false"),
        ("memoryAvailable: workingSet", "ebb.memoryAvailable = \"workingSet\": it cannot change"),
        ("mode: kubernetes", "ebb.mode = \"kubernetes\": it cannot change"),
        (&format!("incidents: {{directory: {}}}", incidents.path().display()), &dir),
    ] {
        // The threshold changes with it, so that half a configuration would be seen.
        let own = if own.starts_with("memoryAvailable") {
            own.to_owned()
        } else {
            format!("memoryAvailable: memAvailable\n  {own}")
        };
        let text = format!("evictionHard:\n  memory.available: 3Gi\nebb:\n  {own}\n");
        let answer = reload(&mut agent, config.path(), &text);
        assert_eq!(answer["accepted"], false, "{answer}");
        let errors = answer["errors"].to_string().replace("\\\"", "\"");
        assert!(errors.contains(said), "{said} is not in {errors}");
        assert!(answer["thresholds"].to_string().contains("100Mi"), "the old ones stay: {answer}");
    }
    // Asked again, it is refused again: what stands in the file is still not what is obeyed.
    assert_eq!(ask(&mut agent)["accepted"], false);
    node.set_available(1000);
    // Back to what can be obeyed; only that is.
    let answer = reload(&mut agent, config.path(), &CONFIG.replace("100Mi", "200Mi"));
    assert_eq!(answer["accepted"], true, "{answer}");
    assert!(answer["thresholds"].to_string().contains("memory.available < 200Mi"), "{answer}");
    node.set_available(150);
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["workload"]["name"], "/apps/hog");
    let records = agent.stop();
    assert!(!hog.is_killed(), "a dry run stays one");
    let planned = records.iter().filter(|record| record["event"] == "decided").count();
    assert_eq!(planned, 1, "below 3 GiB nothing was decided: {records:#?}");
}

/// The threshold rises above what is available while the node runs short: one crossing, and after it one decision.
#[test]
fn a_threshold_that_is_raised_above_what_is_available_is_crossed_once() {
    let mut node = FakeNode::new();
    node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    node.set_available(1000);
    // It sees both at once.
    agent.signal(Signal::SIGSTOP);
    node.set_available(150);
    std::fs::write(config.path(), CONFIG.replace("100Mi", "200Mi")).unwrap();
    agent.signal(Signal::SIGHUP);
    agent.signal(Signal::SIGCONT);
    agent.wait("evicted");
    let records = agent.stop();
    let told = ["thresholdCrossed", "decided", "evicted"];
    let kinds: Vec<_> = kinds(&records).into_iter().filter(|kind| told.contains(kind)).collect();
    assert_eq!(kinds, told, "{records:#?}");
}

#[test]
fn what_is_refused_at_the_start_is_refused_while_running_too() {
    let node = FakeNode::new();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    for text in [
        "evictionHard: {memory.available: 900Gi}\nebb: {memoryAvailable: memAvailable}\n",
        "ebb: {memoryAvailable: memAvailable, spreadOwners: true}\n",
        // Nothing tells which pods there are: neither manifests nor a runtime.
        "ebb: {memoryAvailable: memAvailable, cgroups: {mode: audit}}\n",
    ] {
        let answer = reload(&mut agent, config.path(), text);
        assert_eq!(answer["accepted"], false, "{answer}");
    }
    agent.stop();
}

/// An episode may outlast the configuration that its decision was made by, and is replayed by that one.
#[test]
fn an_incident_is_replayed_by_the_configuration_that_decided_it() {
    let mut node = FakeNode::new();
    node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let incidents = tempfile::tempdir().unwrap();
    let dir = incidents.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--incidents", dir]);
    node.set_available(60);
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["workload"]["name"], "/apps/hog");
    let second = CONFIG.replace("100Mi", "200Mi");
    assert_eq!(reload(&mut agent, config.path(), &second)["accepted"], true);
    node.set_available(2000);
    agent.wait("pressureRelieved");
    agent.stop();
    let stored = std::fs::read_dir(dir).unwrap().flatten().next().unwrap().path();
    let replayed = ebb().arg("replay").arg(&stored).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success(), "{said}");
    assert!(said.contains("now:  evicts /apps/hog"), "{said}");
    let incident: Value = serde_json::from_slice(&std::fs::read(&stored).unwrap()).unwrap();
    let sets = |config: &Value, threshold: &str| config.as_str().unwrap().contains(threshold);
    assert!(sets(&incident["decisions"][0]["config"], "memory.available: 100Mi"), "{incident}");
    assert!(sets(&incident["config"], "memory.available: 200Mi"), "{incident}");
    let timeline = incident["timeline"].to_string();
    assert!(timeline.contains("configuration reloaded"), "{timeline}");
    // One given on the command line takes its place.
    let by = config.path().to_str().unwrap();
    let other = ebb().arg("replay").arg(&stored).args(["-c", by]).output().unwrap();
    assert_eq!(other.status.code(), Some(4), "{}", String::from_utf8_lossy(&other.stdout));
}

/// With `--enforce` on the command line, what the file says of it is no change.
#[test]
fn what_the_command_line_says_is_not_changed_by_the_file() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let text = format!("{}  enforce: true\n", CONFIG.replace("100Mi", "200Mi"));
    assert_eq!(reload(&mut agent, config.path(), &text)["accepted"], true);
    node.set_available(150);
    wait_for("the kill", || hog.is_killed());
    hog.empty();
    agent.stop();
}
