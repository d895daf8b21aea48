//! The whole agent in a virtual machine that tells its host which pages are free: memory is off the free lists for a moment, and in nobody's hands.

use crate::{Agent, config, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, is_read, wait_for};
use std::io::Write as _;
use std::time::{Duration, Instant};

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
";

/// Well within the half second after which memory that shows nowhere counts as gone.
const A_MOMENT: Duration = Duration::from_millis(300);

/// For so long it is tried until this test comes round within [`A_MOMENT`].
const TRIED_FOR: Duration = Duration::from_secs(60);

/// An agent on a node with 40 MiB above the threshold, the one workload there, and its configuration, which goes with this.
fn start_near() -> (FakeNode, FakeCgroup, Agent, tempfile::NamedTempFile) {
    let mut node = FakeNode::new();
    let web = node.add("apps/web", 900);
    node.set_available_beside(140, 0);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    is_read(&node.proc().join("meminfo"), 2);
    (node, web, agent, config)
}

#[test]
fn memory_that_is_set_aside_for_a_moment_costs_nobody_his_life() {
    let has_lasted_a_moment = || {
        let (node, web, agent, _config) = start_near();
        let begun = Instant::now();
        node.set_available_beside(76, 64);
        // The first of them may have begun before.
        is_read(&node.proc().join("meminfo"), 2);
        node.set_available_beside(140, 0);
        let lasted = begun.elapsed();
        is_read(&node.proc().join("meminfo"), 2);
        let records = agent.stop();
        let is_told = records.iter().any(|record| record["event"] == "thresholdCrossed");
        if lasted < A_MOMENT {
            assert!(!is_told && !web.is_killed(), "{records:#?}");
        }
        lasted < A_MOMENT
    };
    let begun = Instant::now();
    while !has_lasted_a_moment() {
        if begun.elapsed() > TRIED_FOR {
            // What is decided of such readings is tested where they are taken in.
            // Past what is kept of a test's output, where nobody would see it.
            let why = format!("skipped: this machine has no moment shorter than {A_MOMENT:?}\n");
            return std::io::stderr().write_all(why.as_bytes()).unwrap();
        }
    }
}

#[test]
fn memory_that_stays_away_is_gone() {
    let (node, web, agent, _config) = start_near();
    node.set_available_beside(76, 64);
    wait_for("the kill", || web.is_killed());
    web.empty();
    agent.stop();
}
