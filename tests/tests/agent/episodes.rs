//! The whole agent: an episode's record says how everything ended that was done in it.

use crate::{CONFIG, config, ebb, kinds, start, start_as};
use ebb_journal::Moment;
use ebb_journal::incident::Incident;
use ebb_tests::fake_node::{FakeNode, wait_for};
use std::os::unix::fs::MetadataExt as _;

#[test]
fn an_episode_whose_memory_is_back_waits_to_tell_the_end_of_its_victim() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    // Its processes do not go, though its memory does: nobody empties it here.
    node.set_available(1500);
    let recovered = agent.wait("pressureRelieved");
    let what: Vec<_> =
        recovered["timeline"].as_array().unwrap().iter().map(|moment| &moment["what"]).collect();
    let has = |what_is: &str| what.iter().any(|what| *what == what_is);
    assert!(has("killed") && has("termination timed out"), "{what:?}");
    agent.stop();
}

#[test]
fn the_time_of_a_record_is_when_it_happened_and_not_when_it_was_told() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let of = |event: &str| records.iter().find(|record| record["event"] == event).unwrap();
    let crossed = of("thresholdCrossed")["at"].as_u64().unwrap();
    for event in ["decided", "evicted"] {
        let record = of(event);
        let after = record["at"].as_f64().unwrap() - crossed as f64;
        // Each is told to the millisecond.
        let since = record["afterMs"].as_f64().unwrap();
        assert!((after - since).abs() <= 1.0, "{after} ms after the crossing: {record}");
    }
}

#[test]
fn every_record_of_an_eviction_names_the_decision_that_its_incident_has() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let incidents = tempfile::tempdir().unwrap();
    let dir = incidents.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", dir]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let of = |event: &str| records.iter().find(|record| record["event"] == event).unwrap();
    let decision = &of("decided")["decision"];
    assert_eq!(&of("evicted")["job"]["decision"], decision);
    assert_eq!(&of("terminated")["decision"], decision);
    let file = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let incident: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let made = incident["decisions"].as_array().unwrap().iter();
    let is_it = |made: &&serde_json::Value| &made["plan"]["decidedAt"] == decision;
    let found = made.clone().find(is_it).expect("the incident has the decision");
    assert_eq!(found["plan"]["actions"][0]["workload"]["name"], "/apps/hog", "{found}");
}

/// It runs into its own limit all the time while the threshold's grace period passes.
#[test]
fn a_pod_that_the_kernel_kills_again_and_again_does_not_erase_the_decision_from_the_timeline() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let crashes = node.add("apps/crashes", 10);
    let config = config(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 2s\nebb:\n  memoryAvailable: memAvailable\n",
    );
    let incidents = tempfile::tempdir().unwrap();
    let mut command = ebb();
    let id = crashes.path.metadata().unwrap().ino().to_string();
    command.env("EBB_TEST_OOM_STORM", id);
    let dir = incidents.path().to_str().unwrap();
    let agent = start_as(command, &node, config.path(), &["--enforce", "--incidents", dir]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    // Among so many records that of its end may be one of those that are dropped.
    let is_json = |file: &std::path::PathBuf| file.extension().is_some_and(|end| end == "json");
    let stored = || std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).find(is_json);
    wait_for("the incident to be stored", || stored().is_some());
    let records = agent.stop();
    let incident = std::fs::read(stored().unwrap()).unwrap();
    let incident: Incident = serde_json::from_slice(&incident).unwrap();
    let knew = incident.decisions.iter().any(|made| !made.snapshot.oom_kills.is_empty());
    assert!(knew, "a decision knows whom the kernel has killed before it");
    let told = incident.timeline;
    let times = |what: &str| -> u64 {
        told.iter().filter(|moment| moment.what.contains(what)).map(Moment::times).sum()
    };
    assert!(times("killed by the kernel's OOM killer") > 300, "no storm: {told:#?}");
    for what in ["decided", "killed", "terminated", "back above the threshold"] {
        assert!(told.iter().any(|moment| moment.what == what), "{what} is missing in {told:#?}");
    }
    assert!(told.len() < 100, "{}", told.len());
    // Ten of them alone, and those of the whole minute together.
    let kills = records.iter().filter(|record| record["event"] == "oomKill");
    let more = kills.clone().filter_map(|record| record["notTold"].as_u64()).sum::<u64>();
    assert!(kills.count() <= 22 && more > 300, "{more}");
    assert!(kinds(&records).contains(&"pressureRelieved"), "{records:#?}");
}

/// A user makes any number of cgroups in the tree that he was handed, each with a limit that it runs into all the time.
#[test]
fn limits_of_any_number_in_a_users_tree_are_few_records_and_hide_no_other() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let other = node.add("apps/other", 10);
    let of_user = |n| format!("user.slice/user-7.slice/user@7.service/{n}");
    let mut storm: Vec<_> = (0..100).map(|n| node.add(&of_user(n), 1)).collect();
    storm.push(other);
    let ids: Vec<_> =
        storm.iter().map(|one| one.path.metadata().unwrap().ino().to_string()).collect();
    let config = config(CONFIG);
    let mut command = ebb();
    command.env("EBB_TEST_OOM_STORM", ids.join(","));
    let mut agent = start_as(command, &node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let told = kinds(&records);
    assert!(told.contains(&"evicted") && !told.contains(&"dropped"), "{told:?}");
    let is_kill = |record: &serde_json::Value| record["event"] == "oomKill";
    let kills: Vec<_> = records.into_iter().filter(is_kill).collect();
    let (of_user, others): (Vec<&serde_json::Value>, Vec<_>) =
        kills.iter().partition(|record| record["path"].as_str().unwrap().contains("user@7"));
    // Ten alone and the rest together, and once more for each minute that a busy machine may take.
    assert!((11..=33).contains(&of_user.len()), "{}", of_user.len());
    assert!((11..=33).contains(&others.len()), "{}", others.len());
    let rest = of_user.last().unwrap()["notTold"].as_u64().unwrap();
    assert!(rest > 1000, "no storm: {rest}");
    assert!(kills.iter().all(|record| record["limit"]["path"].is_string()), "{kills:#?}");
}

/// As after a restart in the middle of a shortage: what the first look decides has its crossing and its record.
#[test]
fn a_node_that_is_short_when_ebb_starts_has_an_incident_with_what_was_decided_at_once() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    let config = config(CONFIG);
    let incidents = tempfile::tempdir().unwrap();
    let dir = incidents.path().to_str().unwrap();
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", dir]);
    agent.told("pressureRelieved");
    let records = agent.stop();
    let place = |event: &str| records.iter().position(|record| record["event"] == event).unwrap();
    assert!(place("thresholdCrossed") < place("decided"), "{records:#?}");
    let decided = &records[place("decided")];
    assert!(decided["afterMs"].is_number(), "{decided}");
    let stored = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let incident: Incident = serde_json::from_slice(&std::fs::read(stored).unwrap()).unwrap();
    assert_eq!(incident.decisions.len(), 1);
    let what = |what: &str| incident.timeline.iter().any(|moment| moment.what == what);
    assert!(what("decided") && what("killed"), "{:#?}", incident.timeline);
}
