//! The whole agent on nodes with swap: memory alone is no shortage while swap is free, and what is on zram is memory all the same.

use crate::{Agent, config, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
";

const ON_SWAP: &str = "\
evictionHard:
  swap.available: 10%
ebb:
  memoryAvailable: memAvailable
";

/// Has the agent look at the node: a configuration that has changed has it do so once it was told of, and the second is told of after the first look.
pub(crate) fn look_again(agent: &mut Agent, file: &Path, text: &str) {
    for victims in [3, 4] {
        fs::write(file, format!("{text}  maxVictims: {victims}\n")).unwrap();
        agent.signal(Signal::SIGHUP);
        let answer = agent.wait("reloaded");
        assert_eq!(answer["accepted"], true, "{answer}");
    }
}

fn is_told(agent: &Agent, event: &str) -> bool {
    agent.seen.iter().any(|record| record["event"] == event)
}

#[test]
fn a_leak_is_not_evicted_while_swap_is_free_and_is_when_both_are_low() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 300);
    let web = node.add("apps/web", 900);
    leak.has_swapped(1800);
    web.has_swapped(50);
    node.set_available_with_swap(2048, 2048, 2048);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let began = agent.seen[0]["thresholds"].to_string();
    assert!(began.contains("memory.available < 100Mi while swap.available < "), "{began}");
    node.set_available_with_swap(60, 2048, 1500);
    look_again(&mut agent, config.path(), CONFIG);
    node.set_available_with_swap(50, 2048, 1400);
    look_again(&mut agent, config.path(), CONFIG);
    assert!(
        !is_told(&agent, "thresholdCrossed") && !is_told(&agent, "decided"),
        "{:?}",
        agent.seen
    );
    node.gives_back_with_swap_when_killed(&leak, 500, 2048, 1900);
    node.set_available_with_swap(50, 2048, 100);
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["expectedFree"], 2100_u64 << 20, "{planned}");
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(leak.is_killed() && !web.is_killed(), "what is resident is not all that counts");
}

#[test]
fn a_node_without_swap_goes_by_memory_alone() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    node.set_available_with_swap(2048, 0, 0);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    node.set_available_with_swap(60, 0, 0);
    wait_for("the kill", || hog.is_killed());
    hog.empty();
    agent.stop();
}

#[test]
fn a_threshold_on_swap_evicts_who_has_most_of_it_and_says_where_there_is_none() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let swapper = node.add("apps/swapper", 10);
    hog.has_swapped(100);
    swapper.has_swapped(800);
    node.set_available_with_swap(2048, 0, 0);
    let config = config(ON_SWAP);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let began = agent.seen[0]["thresholds"].to_string();
    assert!(began.contains("swap.available (hard) not observed: there is no swap"), "{began}");
    // Added late.
    node.set_available_with_swap(2048, 1024, 1000);
    look_again(&mut agent, config.path(), ON_SWAP);
    assert!(!swapper.is_killed());
    node.gives_back_with_swap_when_killed(&swapper, 2048, 1024, 900);
    node.set_available_with_swap(2048, 1024, 60);
    let planned = agent.wait("decided");
    assert_eq!(planned["evict"][0]["signal"], "swap.available", "{planned}");
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(swapper.is_killed() && !hog.is_killed());
}

#[test]
fn free_swap_on_zram_that_saves_no_memory_holds_nobody_back() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 900);
    leak.has_swapped(1000);
    node.swaps_to_zram(2048, 1000, 250);
    node.set_available_with_swap(2048, 2048, 1048);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available_with_swap(60, 2048, 1048);
    look_again(&mut agent, config.path(), CONFIG);
    assert!(!leak.is_killed(), "a page in four stays: there is room");
    // The same swap space, and nothing of it can be compressed.
    node.swaps_to_zram(2048, 1000, 990);
    wait_for("the kill", || leak.is_killed());
    leak.empty();
    agent.stop();
}
