//! The whole agent on a forecast: before a hard threshold is reached, who is to go is asked to end and has the time that is left.

use crate::lab::Lab;
use crate::{Agent, config, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::runtime::Flavour;
use serde_json::Value;

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  mode: standalone
  memoryAvailable: memAvailable
  forecast: {enabled: true, gracePeriod: 10s}
";

/// Memory falls so that the threshold, which is never reached, is always some seconds away: from MiB, to MiB, MiB a second.
pub(crate) const FALL: (u64, u64, u64) = (2048, 140, 150);

/// The first of these records, if there is one by now.
fn first(agent: &mut Agent, event: &str) -> Option<Value> {
    agent.take_in();
    agent.seen.iter().find(|record| record["event"] == event).cloned()
}

#[test]
fn a_pod_is_asked_to_end_before_a_hard_threshold_is_reached() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let leak = lab.pod("leak", &image, 1500);
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    let is_asked = || lab.world().count("StopContainer") > 0;
    lab.node.falls_until("the runtime to be asked", FALL, &[(&leak.payload, 1500)], is_asked);
    lab.node.gives_back(&leak.payload, 1500);
    lab.world().exit(&leak.container, 0);
    wait_for("its sandbox to be stopped", || lab.world().count("StopPodSandbox") > 0);
    let evict = agent.told("decided");
    let grace = evict["evict"][0]["grace"].as_u64();
    assert!(grace.is_some_and(|seconds| (1..10).contains(&seconds)), "{evict}");
    agent.stop();
    assert!(!leak.payload.is_killed() && !leak.pause.is_killed());
}

#[test]
fn a_cgroup_is_asked_to_end_before_a_hard_threshold_is_reached() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let is_asked = || first(&mut agent, "evicted").is_some();
    node.falls_until("the end that is asked for", FALL, &[(&leak, 1500)], is_asked);
    let asked = first(&mut agent, "evicted").unwrap();
    assert_eq!(asked["method"], "terminate", "{asked}");
    assert!(!leak.is_killed(), "its grace has only begun");
    // It does not end, and the node runs out before its grace is over.
    node.gives_back_when_killed(&leak, 1500);
    node.set_available(60);
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(leak.is_killed());
}

#[test]
fn a_dry_run_asks_nobody() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let leak = lab.pod("leak", &image, 1500);
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &[]);
    agent.wait("inventory");
    let is_said = || first(&mut agent, "evicted").is_some();
    lab.node.falls_until("what it would do", FALL, &[(&leak.payload, 1500)], is_said);
    agent.stop();
    assert_eq!(lab.world().count("StopContainer"), 0);
    assert!(!leak.payload.is_killed());
}
