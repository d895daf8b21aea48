//! The whole agent with a container runtime in the test's own process: who is ended and how, and that memory never waits for the runtime.

use crate::lab::{CONFIG, Lab, Pod, STANDALONE};
use crate::{Agent, config, kinds};
use ebb_agent::pods::Evicted;
use ebb_agent::store::ImageStore;
use ebb_tests::fake_node::wait_for;
use ebb_tests::runtime::{Fault, Flavour};

/// A soft threshold at 100 MiB, and so many seconds for a pod to end.
fn with_grace(seconds: u32) -> tempfile::NamedTempFile {
    config(&format!(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 100ms\nevictionMaxPodGracePeriod: {seconds}\nebb:\n  mode: standalone\n  containerGCPeriod: 60s\n  memoryAvailable: memAvailable\n"
    ))
}

#[test]
fn a_runtime_that_hangs_delays_no_decision_about_memory() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let web = lab.pod("web", &image, 100);
    let config = config(CONFIG);
    // So near that it is looked at every few milliseconds.
    lab.node.set_available(120);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("runtime");
    wait_for("the pods to be known", || lab.world().count("ContainerStatus") >= 2);
    lab.world().faults.insert("*".into(), Fault::Hang);
    // It is asked for a list that it never gives; that it hangs is known when the question's deadline has passed.
    let asked = lab.world().calls.len();
    wait_for("a question that is not answered", || {
        lab.world().add_container(&web.sandbox, "another", &image);
        lab.world().calls.len() > asked
    });
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let waited = records.iter().take_while(|record| record["event"] != "evicted");
    let away = waited.filter(|record| record["event"] == "runtime" && record["up"] == false);
    assert_eq!(away.count(), 0, "the decision waited for the runtime: {records:#?}");
    assert!(!web.payload.is_killed());
    assert!(!hog.pause.is_killed() && !web.pause.is_killed(), "a sandbox is never killed");
}

/// A container that the runtime has not told of may be a critical pod's, or a sandbox.
#[test]
fn nobody_is_ended_before_the_runtime_has_told_who_is_who() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let config = config(CONFIG);
    lab.runtime.stop();
    let mut agent = lab.start(config.path(), &["--enforce"]);
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    let holding = agent.wait("evictionDeferred");
    let why = holding["notes"][0].as_str().unwrap();
    assert!(why.contains("waiting for the runtime's pod list"), "{holding}");
    assert!(!hog.payload.is_killed() && !hog.pause.is_killed());
    lab.runtime.resume().unwrap();
    wait_for("the kill once it has told", || hog.payload.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.pause.is_killed(), "a sandbox is never killed");
}

/// There is nothing of it that could be ended: to choose it again and again would help nobody.
#[test]
fn a_pod_whose_cgroups_the_runtime_does_not_tell_is_not_chosen() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let refusal = Fault::Refuse(13, "not now".into());
    lab.world().faults.insert("ContainerStatus".into(), refusal);
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    agent.wait("evictionDeferred");
    lab.world().faults.clear();
    wait_for("the kill once its cgroup is known", || hog.payload.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let times = kinds(&records).iter().filter(|kind| **kind == "decided").count();
    assert_eq!(times, 1, "it was chosen before: {records:#?}");
}

#[test]
fn beside_other_workloads_no_container_is_ended_before_the_runtime_has_told() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let service = lab.node.add("system.slice/batch.service", 500);
    let config = config(&CONFIG.replace("mode: kubernetes", "mode: standalone"));
    lab.runtime.stop();
    let mut agent = lab.start(config.path(), &["--enforce"]);
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    wait_for("the kill of the service", || service.is_killed());
    service.empty();
    agent.wait("evictionDeferred");
    assert!(!hog.payload.is_killed() && !hog.pause.is_killed());
    lab.runtime.resume().unwrap();
    wait_for("the kill once it has told", || hog.payload.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.pause.is_killed(), "a sandbox is never killed");
}

/// Below a threshold the kubelet ends pods without statistics first. One that is known by its manifest alone, or of which only the sandbox is left, has none because there is nothing to end.
#[test]
fn pods_of_which_nothing_runs_are_not_ended_in_place_of_the_one_that_takes_the_memory() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let crashed = lab.pod("crashed", &image, 10);
    lab.world().exit(&crashed.container, 1);
    std::fs::remove_dir_all(&crashed.payload.path).unwrap();
    let manifests = lab.manifests(&["absent", "crashed", "hog"]);
    let config = config(CONFIG);
    let dir = manifests.display().to_string();
    let mut agent = lab.start(config.path(), &["--enforce", "--pod-manifests", &dir]);
    agent.wait("inventory");
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    wait_for("the kill of the hog", || hog.payload.is_killed());
    agent.wait("pressureRelieved");
    for record in agent.stop().iter().filter(|record| record["event"] == "decided") {
        assert_eq!(record["evict"][0]["workload"]["name"], "ns/hog", "{record}");
    }
}

/// What is left of an ended pod may take its time to go; the next hog is not to profit by that.
#[test]
fn a_second_hog_goes_although_the_sandbox_of_the_first_is_still_there() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let first = lab.pod("first", &image, 1500);
    let second = lab.pod("second", &image, 1000);
    let config = config(STANDALONE);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.world().faults.insert("StopPodSandbox".into(), Fault::Hang);
    lab.node.gives_back_when_killed(&second.payload, 1500);
    lab.node.set_available(60);
    wait_for("the first kill", || first.payload.is_killed());
    first.payload.empty();
    lab.world().exit(&first.container, 137);
    wait_for("the second kill", || second.payload.is_killed());
    let recovered = agent.wait("pressureRelieved");
    assert_eq!(
        recovered["available"],
        1500_u64 << 20,
        "it is over when memory is back, not before"
    );
    agent.stop();
    assert!(lab.world().sandboxes.len() == 2 && !first.pause.is_killed());
}

#[test]
fn a_pod_is_stopped_by_the_runtime_then_its_sandbox_and_its_container_is_collected() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let config = with_grace(30);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    let known = agent.wait("inventory");
    assert_eq!(known["containers"], 1, "{known}");
    lab.node.set_available(60);
    wait_for("the runtime to be asked", || lab.world().count("StopContainer") == 1);
    lab.node.gives_back(&hog.payload, 1500);
    wait_for("the sandbox to be stopped", || lab.world().count("StopPodSandbox") >= 1);
    wait_for("its container to be removed", || lab.world().containers.is_empty());
    wait_for("its sandbox to be removed", || lab.world().sandboxes.is_empty());
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.payload.is_killed(), "it ended in time");
    assert!(!hog.pause.is_killed(), "a sandbox is never killed");
    assert_eq!(hog.uid, "uid-hog");
}

#[test]
fn a_pod_that_does_not_end_in_its_grace_has_its_containers_killed_and_not_its_sandbox() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let config = with_grace(1);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    let known = agent.wait("inventory");
    assert_eq!(known["containers"], 1, "{known}");
    lab.world().faults.insert("StopContainer".into(), Fault::Hang);
    lab.node.set_available(60);
    wait_for("the kill at the deadline", || hog.payload.is_killed());
    wait_for("the runtime to be asked", || lab.world().count("StopContainer") == 1);
    lab.node.gives_back(&hog.payload, 1500);
    wait_for("the sandbox to be stopped", || lab.world().count("StopPodSandbox") >= 1);
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.pause.is_killed());
}

/// An agent that has ended the only pod by its cgroup, because the runtime was away.
fn with_hog_killed_without_runtime() -> (Lab, Pod, Agent, tempfile::NamedTempFile) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let config = config(STANDALONE);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.runtime.stop();
    assert_eq!(agent.wait("runtime")["up"], false);
    lab.node.set_available(60);
    wait_for("the kill without the runtime", || hog.payload.is_killed());
    (lab, hog, agent, config)
}

/// Waits until the pods that are on disk as ended are such.
fn wait_for_ended(lab: &Lab, what: &str, are_such: impl Fn(&Evicted) -> bool) {
    wait_for(what, || {
        // While this has it open the agent cannot write.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ended = ImageStore::open(&lab.dir("state")).and_then(|store| store.load_evicted());
        ended.is_ok_and(|ended| are_such(&ended))
    });
}

#[test]
fn a_sandbox_that_was_left_while_the_runtime_was_away_is_stopped_and_collected_later() {
    let (mut lab, hog, mut agent, _config) = with_hog_killed_without_runtime();
    hog.payload.empty();
    lab.world().exit(&hog.container, 137);
    lab.node.set_available(1500);
    agent.wait("pressureRelieved");
    assert_eq!(lab.world().count("StopPodSandbox"), 0, "nobody was there to be asked");
    lab.runtime.resume().unwrap();
    wait_for("its sandbox to be removed", || lab.world().sandboxes.is_empty());
    assert!(lab.world().containers.is_empty());
    agent.stop();
    assert!(!hog.pause.is_killed(), "a sandbox is never killed");
}

#[test]
fn a_sandbox_that_an_agent_left_when_it_died_is_stopped_and_collected_by_the_next() {
    let (mut lab, hog, agent, config) = with_hog_killed_without_runtime();
    wait_for_ended(&lab, "the eviction to be on disk", |ended| ended.contains_key(&hog.uid));
    agent.kill();
    hog.payload.empty();
    lab.world().exit(&hog.container, 137);
    lab.node.set_available(1500);
    lab.runtime.resume().unwrap();
    let agent = lab.start(config.path(), &["--enforce"]);
    wait_for("its sandbox to be removed", || lab.world().sandboxes.is_empty());
    assert!(lab.world().containers.is_empty());
    wait_for_ended(&lab, "nothing to be remembered of it", Evicted::is_empty);
    agent.stop();
}

#[test]
fn a_pod_that_was_chosen_and_then_left_alone_does_not_count_as_ended() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &[]);
    agent.wait("inventory");
    lab.node.set_available(60);
    agent.wait("evicted");
    lab.node.set_available(1500);
    agent.wait("pressureRelieved");
    lab.world().exit(&hog.container, 1);
    agent.stop();
    let config = crate::config(&format!("maximumDeadContainersPerContainer: 0\n{CONFIG}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    assert_eq!(agent.wait("removed")["work"]["id"], hog.container.as_str());
    agent.wait("collected");
    agent.stop();
    assert_eq!(lab.world().count("StopPodSandbox"), 0, "its owner may start it again");
    assert_eq!(lab.world().sandboxes.len(), 1);
}
