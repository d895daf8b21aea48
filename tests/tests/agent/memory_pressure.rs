//! The whole agent on nodes with a cgroup that stalls for memory: what systemd-oomd does with `ManagedOOMMemoryPressure=kill`.

use crate::{Agent, config, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, wait_for};
use serde_json::Value;
use std::fs;

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
  memoryPressure:
    - {cgroup: /apps, limit: 60%, duration: 1s}
";

/// What the kernel does meanwhile: tasks wait for memory, and it reclaims from one all the time, and hardly from the other.
fn thrashing(node: &FakeNode, hog: &FakeCgroup, web: &FakeCgroup) -> impl FnMut() {
    let (slice, hog, web) = (node.slice("apps"), hog.clone(), web.clone());
    let mut n = 0;
    move || {
        n += 1;
        slice.stalls(80);
        slice.has_scanned(n * 1001);
        hog.has_scanned(n * 1000);
        web.has_scanned(n);
    }
}

/// The first record of that kind, past or to come, while something is done again and again.
fn told(agent: &mut Agent, event: &str, mut nudge: impl FnMut()) -> Value {
    let is_it = |record: &&Value| record["event"] == event;
    wait_for(event, || {
        nudge();
        agent.take_in();
        agent.seen.iter().any(|record| is_it(&record))
    });
    agent.seen.iter().find(is_it).unwrap().clone()
}

fn evicted(records: &[Value]) -> Vec<&str> {
    let planned = records.iter().filter(|record| record["event"] == "decided");
    planned.filter_map(|record| record["evict"][0]["workload"]["name"].as_str()).collect()
}

fn says(records: &[Value], what: &str) -> bool {
    records.iter().any(|record| record.to_string().contains(what))
}

#[test]
fn whoever_reclaims_most_below_a_stalled_cgroup_is_evicted_and_its_neighbour_is_not() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 500);
    // It uses more, which is no reason.
    let web = node.add("apps/web", 900);
    let other = node.add("system/other", 900);
    node.slice("apps").stalls(10);
    let incidents = tempfile::tempdir().unwrap();
    let dir = incidents.path().to_str().unwrap().to_owned();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", &dir]);
    assert!(says(&agent.seen, "memory pressure of /apps: full avg10 > 60% for 1s"));
    assert!(says(&agent.seen, "memory pressure trigger of /apps"), "it has none here");
    let mut goes_on = thrashing(&node, &hog, &web);
    let above = told(&mut agent, "memoryPressureAboveLimit", &mut goes_on);
    assert_eq!((&above["cgroup"], &above["fullAvg10"]), (&"/apps".into(), &8000.into()));
    let planned = told(&mut agent, "decided", &mut goes_on);
    wait_for("the kill", || hog.is_killed());
    let evict = &planned["evict"][0];
    assert_eq!(
        (&evict["workload"]["name"], &evict["cause"]),
        (&"/apps/hog".into(), &"memoryPressure".into())
    );
    let pressure = serde_json::json!({"cgroup": "/apps", "limit": 6000, "fullAvg10": 8000});
    assert_eq!(evict["memoryPressure"], pressure);
    let acted = told(&mut agent, "evicted", || ());
    assert_eq!(acted["job"]["need"]["signal"], "memoryPressureAbove", "{acted}");
    node.slice("apps").stalls(20);
    hog.empty();
    let relieved = told(&mut agent, "memoryPressureRelieved", || ());
    let timeline = relieved["timeline"].to_string();
    for what in
        ["seen above the limit", "decided", "killed", "terminated", "no longer above the limit"]
    {
        assert!(timeline.contains(what), "{what}: {timeline}");
    }
    agent.stop();
    assert!(!web.is_killed() && !other.is_killed());
    let stored = fs::read_dir(&dir).unwrap().flatten().next().unwrap().path();
    assert!(stored.to_string_lossy().ends_with("-memoryPressure-apps.json"), "{stored:?}");
    let replayed = crate::ebb().arg("replay").arg(&stored).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success() && said.contains("evicts /apps/hog"), "{said}");
}

/// It is found to be protected just before the kill; asked again after the wait that follows an eviction, it would be refused again.
#[test]
fn a_victim_that_turns_out_protected_gives_its_turn_to_the_next() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 500);
    let web = node.add("apps/web", 900);
    // Beyond the first ones, which are looked at when it is found.
    let list: String = (0..9).map(|n| format!("{}\n", hog.pid() + n)).collect();
    hog.lists(&list);
    node.add_process(hog.pid() + 8, &[("oom_score_adj", "-1000\n")]);
    let slice = node.slice("apps");
    slice.stalls(80);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    let mut n = 0;
    wait_for("the kill of the next", || {
        n += 1;
        slice.stalls(80);
        slice.has_scanned(n * 1500);
        hog.has_scanned(n * 1000);
        web.has_scanned(n * 500);
        web.is_killed()
    });
    slice.stalls(20);
    let records = agent.stop();
    assert_eq!(evicted(&records)[..2], ["/apps/hog", "/apps/web"]);
    assert!(says(&records, "-1000") && !hog.is_killed());
}

#[test]
fn a_dry_run_names_one_for_the_pressure_and_touches_nobody() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 500);
    let web = node.add("apps/web", 900);
    node.slice("apps").stalls(80);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    let mut goes_on = thrashing(&node, &hog, &web);
    let acted = told(&mut agent, "evicted", &mut goes_on);
    assert_eq!(acted["method"], "dryRun");
    assert_eq!(acted["workload"]["name"], "/apps/hog");
    // It stalls on, because nothing was done.
    let holding = told(&mut agent, "evictionDeferred", &mut goes_on);
    let assumes = "dry run: assumes memory pressure of /apps relieved by the eviction of /apps/hog";
    assert!(holding.to_string().contains(assumes), "{holding}");
    let records = agent.stop();
    assert_eq!(evicted(&records), ["/apps/hog"]);
    assert!(!hog.is_killed() && !web.is_killed());
}
