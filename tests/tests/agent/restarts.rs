//! The whole agent beside a kubelet that starts its pods again: who is evicted when the same pod leaks again, and what is left for the kubelet to read.

use crate::lab::{CONFIG, Lab, Pod};
use crate::{Agent, config, kinds};
use ebb_tests::fake_node::{FakeCgroup, is_read, wait_for};
use ebb_tests::runtime::{Fault, Flavour};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The names of those who were evicted, in order.
fn evicted(records: &[Value]) -> Vec<&str> {
    let planned = records.iter().filter(|record| record["event"] == "decided");
    planned.filter_map(|record| record["evict"][0]["workload"]["name"].as_str()).collect()
}

/// A leak beside three idle pods, and an agent that knows them.
fn beside_idle_pods() -> (Lab, Pod, Vec<Pod>, Agent, tempfile::NamedTempFile) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let leak = lab.pod("leak", &image, 1400);
    let idle = ["a", "b", "c"].map(|name| lab.pod(name, &image, 1));
    let config = config(&CONFIG.replace("100Mi", "400Mi"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    (lab, leak, idle.into(), agent, config)
}

/// Has the node fall just below its threshold, as a leak does, until `pod` is killed; then its memory comes back.
fn play(lab: &Lab, agent: &mut Agent, pod: &Pod, round: usize) {
    lab.node.gives_back_when_killed(&pod.payload, 1800);
    lab.node.set_available(397);
    wait_for(&format!("the kill of the leak, round {round}"), || pod.payload.is_killed());
    lab.world().exit(&pod.container, 137);
    agent.wait("pressureRelieved");
}

#[test]
fn a_pod_that_is_started_again_and_leaks_again_is_evicted_again_and_nobody_else() {
    let (mut lab, mut leak, idle, mut agent, _config) = beside_idle_pods();
    for round in 1..=4 {
        play(&lab, &mut agent, &leak, round);
        leak = lab.start_again("leak", &leak, 1400);
    }
    let records = agent.stop();
    assert!(idle.iter().all(|pod| !pod.payload.is_killed()));
    assert_eq!(evicted(&records), ["ns/leak"; 4]);
}

#[test]
fn a_pod_that_is_started_again_in_its_sandbox_is_evicted_again_and_nobody_else() {
    let (mut lab, mut leak, idle, mut agent, _config) = beside_idle_pods();
    for round in 1..=4 {
        play(&lab, &mut agent, &leak, round);
        leak = lab.start_again_in_its_sandbox(leak, 1400);
    }
    let records = agent.stop();
    assert!(idle.iter().all(|pod| !pod.payload.is_killed()));
    assert_eq!(evicted(&records), ["ns/leak"; 4]);
}

/// The threshold is still met when it comes back: its kubelet was quicker than the memory.
#[test]
fn a_pod_that_is_back_while_the_node_is_still_short_is_evicted_and_nobody_else() {
    let (mut lab, leak, idle, mut agent, _config) = beside_idle_pods();
    lab.node.set_available(397);
    wait_for("the first kill", || leak.payload.is_killed());
    lab.is_dead(&leak);
    let again = lab.start_again("leak", &leak, 1400);
    wait_for("the second kill", || again.payload.is_killed());
    lab.is_dead(&again);
    lab.node.set_available(1800);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert!(idle.iter().all(|pod| !pod.payload.is_killed()));
    assert_eq!(evicted(&records), ["ns/leak"; 2]);
}

const UID: &str = "770a2805-2357-495f-adcc-80291e4d7da7";
const NEW: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A pod of which the runtime has listed the sandbox, and from then on lists nothing; in the pod's cgroup there is another with 1400 MiB.
fn beside_a_runtime_that_hangs() -> (Lab, [FakeCgroup; 2], Vec<Pod>, Agent, NamedTempFile) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let sandbox = lab.world().add_pod("ns", "leak", UID);
    let parent = format!("kubepods/burstable/pod{UID}");
    let pause = lab.node.add(&format!("{parent}/{sandbox}"), 1);
    let idle = ["a", "b", "c"].map(|name| lab.pod(name, &image, 1));
    let config = config(&CONFIG.replace("100Mi", "400Mi"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.world().faults.insert("*".into(), Fault::Hang);
    let new = lab.node.add(&format!("{parent}/{NEW}"), 1400);
    (lab, [new, pause], idle.into(), agent, config)
}

/// A runtime that is short of memory itself tells of a start seconds after it, and a list may take as long.
#[test]
fn a_container_that_no_list_names_yet_is_evicted_as_the_pods_whose_sandbox_runs_beside_it() {
    let (lab, [new, pause], idle, mut agent, _config) = beside_a_runtime_that_hangs();
    lab.node.gives_back_when_killed(&new, 1800);
    lab.node.set_available(397);
    wait_for("the kill", || new.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert!(!pause.is_killed() && idle.iter().all(|pod| !pod.payload.is_killed()));
    assert_eq!(evicted(&records), ["ns/leak"]);
}

/// Its sandbox has ended: what is new may be the next.
#[test]
fn what_no_list_names_is_left_alone_where_no_sandbox_runs_beside_it() {
    let (lab, [new, pause], idle, mut agent, _config) = beside_a_runtime_that_hangs();
    pause.empty();
    lab.node.set_available(397);
    agent.wait("evictionDeferred");
    is_read(&new.path.join("memory.current"), 5);
    agent.stop();
    assert!(!new.is_killed() && idle.iter().all(|pod| !pod.payload.is_killed()));
}

#[test]
fn idle_pods_are_not_evicted_for_one_that_may_not_be() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let leak = lab.pod("leak", &image, 1400);
    let idle = ["a", "b", "c"].map(|name| lab.pod(name, &image, 1));
    let text = format!("{}  protected: ['ns/leak']\n", CONFIG.replace("100Mi", "400Mi"));
    let config = config(&text.replace("'ns/leak'", "'kubepods/burstable/poduid-leak/*'"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.node.set_available(397);
    let holding = agent.wait("evictionDeferred");
    let notes = holding["notes"].as_array().unwrap();
    let says = |what: &str| notes.iter().any(|note| note.as_str().unwrap().contains(what));
    assert!(says("all eviction candidates together free 0 B of 3.0 MiB"), "{holding}");
    lab.node.set_available(1800);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert!(!leak.payload.is_killed() && idle.iter().all(|pod| !pod.payload.is_killed()));
    assert!(!kinds(&records).contains(&"decided"));
}

/// The kubelet reads there how it ended: exit code, reason, logs.
#[test]
fn beside_a_kubelet_the_dead_container_and_the_sandbox_of_an_evicted_pod_stay() {
    let (mut lab, leak, _idle, mut agent, _config) = beside_idle_pods();
    play(&lab, &mut agent, &leak, 1);
    let image = lab.world().containers[&leak.container].image.clone();
    let other = lab.pod("other", &image, 1);
    let next = lab.world().add_container(&other.sandbox, "main", &image);
    for container in [&other.container, &next] {
        lab.world().exit(container, 0);
    }
    // A call is counted before it is carried out.
    wait_for("a collection", || !lab.world().containers.contains_key(&other.container));
    {
        let world = lab.world();
        assert!(world.containers.contains_key(&leak.container));
        assert!(world.sandboxes[&leak.sandbox].ready, "its sandbox is the kubelet's to stop");
        assert_eq!(world.count("RemoveContainer"), 1);
    }
    let again = lab.start_again_in_its_sandbox(leak, 1400);
    play(&lab, &mut agent, &again, 2);
    let older = |lab: &Lab| lab.world().count("RemoveContainer") == 2;
    wait_for("the older dead one to go", || older(&lab));
    assert!(lab.world().containers.contains_key(&again.container), "the newest stays");
    agent.stop();
    assert_eq!(lab.world().count("StopPodSandbox"), 0);
}
