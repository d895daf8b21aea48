//! The whole agent in a dry run: it names who would be evicted, touches nobody, and goes by what that would have freed.

use crate::{Agent, CONFIG, config, start};
use ebb_tests::fake_node::FakeNode;
use serde_json::Value;

fn evicted(records: &[Value]) -> Vec<&str> {
    let planned = records.iter().filter(|record| record["event"] == "decided");
    planned.filter_map(|record| record["evict"][0]["workload"]["name"].as_str()).collect()
}

/// Waits until the dry run says that it assumes so many MiB freed.
fn wait_for_assumed(agent: &mut Agent, mib: u64) {
    loop {
        let holding = agent.wait("evictionDeferred");
        let notes = holding["notes"].as_array().unwrap();
        let assumes = format!("dry run: assumes {mib}.0 MiB freed");
        if notes.iter().any(|note| note.as_str().unwrap().contains(&assumes)) {
            return;
        }
    }
}

#[test]
fn a_rehearsal_names_no_second_victim_for_a_need_that_the_first_would_have_covered() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 50);
    let web = node.add("apps/web", 30);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    node.set_available(60);
    let acted = agent.wait("evicted");
    assert_eq!(acted["method"], "dryRun");
    assert_eq!(acted["workload"]["name"], "/apps/leak");
    assert_eq!(acted["assumesFreed"], 50 << 20, "{acted}");
    wait_for_assumed(&mut agent, 50);
    // Nobody has ended it, so it goes on: what is short and what its end would have freed grow alike.
    leak.holds(95);
    node.set_available(15);
    let told = |agent: &Agent| evicted(&agent.seen).len();
    assert_eq!(told(&agent), 1);
    // It gives most of it back by itself, and another takes that: now the other is needed too.
    leak.holds(10);
    web.holds(115);
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["workload"]["name"], "/apps/web");
    let notes = planned["notes"].as_array().unwrap();
    let says = |what: &str| notes.iter().any(|note| note.as_str().unwrap().contains(what));
    assert!(says("dry run: assumes 10.0 MiB freed"), "{planned}");
    node.set_available(1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(evicted(&records), ["/apps/leak", "/apps/web"]);
    assert!(!leak.is_killed() && !web.is_killed());
}

#[test]
fn a_would_be_victim_that_exits_by_itself_counts_no_more() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 900);
    node.add("apps/web", 500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &[]);
    node.set_available(60);
    agent.wait("evicted");
    wait_for_assumed(&mut agent, 900);
    leak.empty();
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["workload"]["name"], "/apps/web", "{planned}");
    agent.stop();
}
