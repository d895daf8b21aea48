//! The whole agent in a dry run: it names who would be evicted, touches nobody, and goes by what that would have freed.

use crate::lab::{self, Lab};
use crate::{Agent, CONFIG, config, ebb, start};
use ebb_agent::store::ImageStore;
use ebb_tests::fake_node::{FakeNode, is_read};
use ebb_tests::runtime::Flavour;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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
    is_read(&node.proc().join("meminfo"), 5);
    agent.take_in();
    assert_eq!(evicted(&agent.seen).len(), 1, "{:#?}", agent.seen);
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

/// Every file of a directory with what is in it.
fn all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
}

/// An agent that acts may run beside it, or have run before: what it recorded is what operators look for.
#[test]
fn a_dry_run_lets_no_record_of_an_agent_that_acts_go_and_its_own_are_marked() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 1500);
    let incidents = tempfile::tempdir().unwrap();
    let at = incidents.path().to_str().unwrap();
    for n in 0..4 {
        let name = format!("170000000000{n}-memory.available.json");
        fs::write(incidents.path().join(name), "{}").unwrap();
    }
    let before = all(incidents.path());
    let text = format!("{CONFIG}  incidents: {{directory: {at}, keep: 2}}\n");
    let config = config(&text);
    // Each takes the leak for evicted once and for all.
    for _ in 0..3 {
        let mut agent = start(&node, config.path(), &[]);
        node.set_available(60);
        agent.wait("evicted");
        node.set_available(1500);
        agent.wait("pressureRelieved");
        agent.stop();
    }
    assert!(!leak.is_killed());
    let (rehearsed, real): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all(incidents.path()).into_iter().partition(|(name, _)| name.contains("_dryRun"));
    assert_eq!(real, before);
    // What goes beyond `keep` of its own are the oldest of its own.
    assert_eq!(rehearsed.len(), 2, "{:?}", rehearsed.keys());
    let list = ebb().args(["incident", "list", at]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("(dry run)") && list.contains("memory.available_dryRun"), "{list}");
    let shown = ebb().args(["incident", "show", "latest", "--incidents", at]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("_dryRun") && shown.contains("dry run: /apps/leak would be"), "{shown}");
}

#[test]
fn a_dry_run_reads_what_another_agent_remembers_and_changes_none_of_it() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let (state, config) = (lab.dir("state"), config(lab::CONFIG));
    let rehearse = |lab: &Lab| {
        let mut agent = lab.start(config.path(), &[]);
        agent.wait("inventory");
        lab.node.set_available(60);
        assert_eq!(agent.wait("evicted")["method"], "dryRun");
        lab.node.set_available(1500);
        agent.wait("pressureRelieved");
        agent.stop();
    };
    rehearse(&lab);
    assert!(all(&state).is_empty(), "{:?}", all(&state).keys());
    let ended = [("uid-gone".to_owned(), ["sandbox".to_owned()].into())].into();
    ImageStore::open(&state).unwrap().save_evicted(&ended).unwrap();
    // An agent that acts died at it each time: it would put it aside, once more.
    fs::write(state.join("images.redb.attempts"), "5").unwrap();
    let before = all(&state);
    rehearse(&lab);
    assert!(all(&state) == before, "{:?} of {:?}", all(&state).keys(), before.keys());
    assert!(!hog.payload.is_killed());
}
