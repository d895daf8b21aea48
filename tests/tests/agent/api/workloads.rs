//! The workloads that a client is told of: what each uses, and where it stands.

use super::{Api, Served, wait_for};
use crate::config;
use ebb_api::wire::{ListWorkloadsResponse, Standing, Workload, WorkloadKind};
use ebb_tests::fake_node::FakeNode;

/// Nobody would guess it: it turns the order around, and protects.
pub(super) const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
  protected: [\"apps/database\"]
  priorities:
    - {match: \"apps/batch\", priority: -10}
";

fn listed(api: &Api) -> ListWorkloadsResponse {
    api.runtime.block_on(api.client().workloads(0)).unwrap()
}

fn named<'a>(told: &'a ListWorkloadsResponse, name: &str) -> &'a Workload {
    told.workloads.iter().find(|workload| workload.name == name).unwrap()
}

#[test]
fn workloads_are_listed_with_what_they_use_where_they_stand_and_why() {
    let mut node = FakeNode::new();
    node.add("apps/database", 700);
    node.add("apps/batch", 20);
    node.add("apps/hog", 1500);
    node.add("apps/idle", 0);
    let (config, dir) = (config(CONFIG), tempfile::tempdir().unwrap());
    let api = Api::new(dir.path().join("api.sock"));
    let agent = api.start(&node, config.path(), &[]);
    let told = listed(&api);
    let order: Vec<&str> = told.workloads.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(order, ["/apps/batch", "/apps/hog", "/apps/database", "/apps/idle"]);
    assert_eq!((told.signal.as_str(), told.left_out), ("memory.available", 0));
    assert!(told.seen_at_ms.is_some());
    let batch = named(&told, "/apps/batch");
    assert_eq!((batch.kind(), batch.place), (WorkloadKind::Cgroup, Some(1)));
    assert_eq!((batch.memory, batch.priority), (Some(20 << 20), Some(-10)));
    assert_eq!((batch.standing(), batch.reason.as_str()), (Standing::Candidate, "priority -10"));
    assert_eq!(batch.cgroup.as_deref(), Some("/apps/batch"));
    // It was read once: nobody knows how it grows.
    assert_eq!((batch.growth, batch.stall), (None, None));
    let hog = named(&told, "/apps/hog");
    assert_eq!((hog.place, hog.priority), (Some(2), None));
    assert!(hog.keys.contains("uses 1.5 GiB above its request of 0 B"), "{hog:?}");
    let database = named(&told, "/apps/database");
    assert_eq!((database.standing(), database.place), (Standing::Protected, None));
    assert!(database.reason.starts_with("protected: the configuration"), "{database:?}");
    assert_eq!(named(&told, "/apps/idle").standing(), Standing::Spared);
    let ranked = api.runtime.block_on(api.client().node()).unwrap();
    let first: Vec<String> =
        ranked.ranking.unwrap().candidates.into_iter().map(|c| c.workload).collect();
    assert_eq!(first, ["/apps/batch", "/apps/hog"], "the same as `GetNode` has it");
    let one = api.runtime.block_on(api.client().workloads(1)).unwrap();
    assert_eq!((one.workloads.len(), one.left_out), (1, 3));
    agent.stop();
}

#[test]
fn growth_and_stall_are_told_near_a_threshold_and_a_victim_is_on_its_way_out() {
    let served = Served::new(&[]);
    let mut held = 1500;
    // Near the threshold the workloads are followed.
    served.node.set_available(105);
    wait_for("growth and stall", || {
        held += 2;
        served.hog.holds(held);
        served.hog.stalls(50);
        let told = listed(&served.api);
        let hog = named(&told, "/apps/hog");
        hog.growth.is_some_and(|rate| rate > 0) && hog.stall.is_some_and(|us| us > 0)
    });
    let node = served.api.runtime.block_on(served.api.client().node()).unwrap();
    let memory = node.thresholds.iter().find(|t| t.signal == "memory.available").unwrap();
    assert_eq!(memory.capacity, Some(4096 << 20));
    // In a dry run it stays, and counts as evicted for as long as it runs.
    served.node.set_available(60);
    wait_for("the eviction", || {
        named(&listed(&served.api), "/apps/hog").standing() == Standing::DryRunVictim
    });
    served.agent.stop();
}
