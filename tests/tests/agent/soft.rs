//! The whole agent on its steps below ending a workload: the first candidate is warned, reclaimed from, slowed down and stopped while memory falls, and let go again.

use crate::{Agent, config, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, wait_for};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;

/// Every step is due as soon as memory falls at all; a stop lasts for as long as anybody waits.
const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
  ladder: {enabled: true, warn: 10h, reclaim: 9h, throttle: 8h, freeze: 7h, maxFreeze: 1h}
";

/// What the leak's own limit was before, with as many digits as what is written in its place: this is a file and no kernel.
const HIGH: &str = "2147483648";

/// A node with a leak that has page cache and a limit of its own, and an innocent beside it.
fn node() -> (FakeNode, FakeCgroup, FakeCgroup) {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 1500);
    let web = node.add("apps/web", 100);
    for cgroup in [&leak, &web] {
        for (file, text) in [("memory.high", "max"), ("memory.reclaim", ""), ("cgroup.freeze", "0")]
        {
            fs::write(cgroup.path.join(file), text).unwrap();
        }
    }
    leak.set("memory.high", HIGH);
    let cache = 600 * MIB;
    leak.set(
        "memory.stat",
        &format!("anon {}\nfile {cache}\ninactive_file 0\nshmem 0\n", 900 * MIB),
    );
    (node, leak, web)
}

/// Memory falls, never below the threshold, until all this was done; what was done, in order.
fn done_while_memory_falls(node: &FakeNode, agent: &mut Agent, steps: &[&str]) -> Vec<Value> {
    // So near that every look is followed by a decision.
    let mut left = 124 * 1024;
    wait_for(&format!("{steps:?}"), || {
        left = if left > 102 * 1024 { left - 8 } else { 124 * 1024 };
        node.set_available_kib(left);
        agent.take_in();
        steps.iter().all(|step| agent.seen.iter().any(|record| is_step(record, step)))
    });
    let all = agent
        .seen
        .iter()
        .filter(|r| matches!(r["event"].as_str(), Some("warned" | "evicted" | "stepTaken")));
    all.cloned().collect()
}

fn is_step(record: &Value, step: &str) -> bool {
    record["event"] == step || record["event"] == "stepTaken" && record["method"] == step
}

fn read(cgroup: &FakeCgroup, file: &str) -> String {
    fs::read_to_string(cgroup.path.join(file)).unwrap().trim().to_owned()
}

const STEPS: [&str; 4] = ["warned", "reclaim", "throttle", "freeze"];

#[test]
fn the_first_candidate_is_warned_reclaimed_from_slowed_down_and_stopped_and_let_go_at_the_end() {
    let (node, leak, web) = node();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let done = done_while_memory_falls(&node, &mut agent, &STEPS);
    for record in &done {
        assert_eq!(record["workload"]["name"], "/apps/leak", "{record}");
    }
    let nth = |step: &str| done.iter().position(|record| is_step(record, step)).unwrap();
    let places = STEPS.map(nth);
    assert!(places.is_sorted(), "{places:?}: {done:#?}");
    let asked: u64 = read(&leak, "memory.reclaim").parse().unwrap();
    assert!((1..=600 * MIB).contains(&asked), "{asked}: no more than its page cache");
    assert_eq!(read(&leak, "memory.high"), (1500 * MIB).to_string());
    assert_eq!(read(&leak, "cgroup.freeze"), "1");
    // None outlives the agent.
    agent.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(agent.child.wait().unwrap().success());
    assert_eq!(
        (read(&leak, "memory.high"), read(&leak, "cgroup.freeze")),
        (HIGH.into(), "0".into())
    );
    let untouched =
        [read(&web, "memory.high"), read(&web, "memory.reclaim"), read(&web, "cgroup.freeze")];
    assert_eq!(untouched, ["max", "", "0"]);
    assert!(!leak.is_killed() && !web.is_killed());
}

#[test]
fn what_was_slowed_down_and_stopped_is_let_go_when_memory_falls_no_more() {
    let (node, leak, _) = node();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    done_while_memory_falls(&node, &mut agent, &STEPS);
    // Rising and rising, near enough that it is looked at all the time.
    let mut now = 110 * 1024;
    wait_for("the release", || {
        now = if now < 120 * 1024 { now + 16 } else { now };
        node.set_available_kib(now);
        agent.take_in();
        agent.seen.iter().any(|record| is_step(record, "release"))
    });
    wait_for("the way it was", || {
        (read(&leak, "memory.high"), read(&leak, "cgroup.freeze")) == (HIGH.into(), "0".into())
    });
    agent.stop();
    assert!(!leak.is_killed());
}

#[test]
fn what_an_agent_that_died_had_slowed_down_and_stopped_is_let_go_by_the_next() {
    let (node, leak, _) = node();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    done_while_memory_falls(&node, &mut agent, &STEPS);
    agent.kill();
    assert_eq!(read(&leak, "cgroup.freeze"), "1", "nobody was there to undo it");
    node.set_available(2048);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    wait_for("the way it was", || {
        (read(&leak, "memory.high"), read(&leak, "cgroup.freeze")) == (HIGH.into(), "0".into())
    });
    agent.take_in();
    let told = agent.stop();
    let what = told.iter().filter_map(|record| record["what"].as_str());
    assert!(what.into_iter().any(|what| what.contains("an earlier run left it")), "{told:#?}");
}

#[test]
fn a_dry_run_takes_no_step() {
    let (node, leak, _) = node();
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    done_while_memory_falls(&node, &mut agent, &["warned", "dryRun"]);
    agent.stop();
    let left =
        [read(&leak, "memory.high"), read(&leak, "memory.reclaim"), read(&leak, "cgroup.freeze")];
    assert_eq!(left, [HIGH, "", "0"]);
}
