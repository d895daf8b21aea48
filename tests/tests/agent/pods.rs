//! The whole agent with a container runtime in the test's own process: which containers, sandboxes and logs are collected.

use crate::lab::{CONFIG, Lab, Pod, json};
use crate::{Agent, config, ebb, kinds};
use ebb_cri::wire::runtime::ContainerState;
use ebb_tests::fake_node::wait_for;
use ebb_tests::runtime::{Fault, Flavour};
use serde_json::Value;
use std::process::Output;

/// A pod that runs, beside an agent that knows it and keeps no dead container. The configuration is there as long as its file is held.
fn with_none_kept(flavour: Flavour) -> (Lab, Pod, Agent, tempfile::NamedTempFile) {
    let mut lab = Lab::new(flavour);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    let config = config(&format!("maximumDeadContainersPerContainer: 0\n{CONFIG}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    (lab, pod, agent, config)
}

#[test]
fn a_dead_container_is_collected_when_it_is_told_and_the_newest_of_its_name_stays() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    // Nothing else than the event makes it look: the period is longer than anybody waits.
    let config = config(&format!("{CONFIG}  containerGCPeriod: 1h\n"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("runtime");
    let mut last = pod.container.clone();
    for round in 0..20 {
        let next = lab.world().add_container(&pod.sandbox, "main", &image);
        lab.world().exit(&last, 1);
        if round == 0 {
            // The only dead one of its name is the newest.
            last = next;
            continue;
        }
        wait_for("the removal of the older dead one", || lab.world().containers.len() == 2);
        assert!(lab.world().containers.contains_key(&next), "the running one stays");
        assert!(lab.world().containers.contains_key(&last), "the newest dead one stays");
        last = next;
    }
    agent.stop();
    assert_eq!(lab.world().count("StopPodSandbox"), 0);
}

#[test]
fn with_nothing_to_be_kept_every_dead_container_goes_and_a_dry_run_removes_none() {
    for enforce in [false, true] {
        let mut lab = Lab::new(Flavour::Containerd16);
        let image = lab.world().add_image("app:1", &[("base", 10)]);
        let pod = lab.pod("web", &image, 10);
        let config = config(&format!("maximumDeadContainersPerContainer: 0\n{CONFIG}"));
        let mut agent = lab.start(config.path(), if enforce { &["--enforce"] } else { &[] });
        agent.wait("runtime");
        lab.world().exit(&pod.container, 0);
        let removed = agent.wait("removed");
        assert_eq!(removed["work"]["id"], pod.container.as_str());
        agent.wait("collected");
        agent.stop();
        assert_eq!(lab.world().containers.is_empty(), enforce);
        assert_eq!(lab.world().count("RemoveContainer"), usize::from(enforce));
    }
}

/// containerd's events come from below its CRI half, which lists a container as running for a moment longer.
#[test]
fn an_end_that_is_told_before_the_list_shows_it_is_not_forgotten() {
    let (lab, pod, agent, _config) = with_none_kept(Flavour::Containerd2);
    let before = lab.world().count("ListContainers");
    lab.world().tell_of_exit(&pod.container);
    wait_for("it to be listed some times", || lab.world().count("ListContainers") >= before + 3);
    lab.world().list_as_exited(&pod.container, 0);
    wait_for("the removal", || lab.world().containers.is_empty());
    agent.stop();
}

/// While a filesystem is near its threshold disk usage is measured all the time, and the runtime may take its time to say it.
#[test]
fn a_dead_container_does_not_wait_for_the_statistics_of_disk() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    let short = CONFIG.replace("evictionHard:\n", "evictionHard:\n  nodefs.available: \"99%\"\n");
    let config = config(&format!("maximumDeadContainersPerContainer: 0\n{short}"));
    lab.world().faults.insert("ListContainerStats".into(), Fault::Hang);
    let agent = lab.start(config.path(), &[]);
    wait_for("the statistics to be asked for", || lab.world().count("ListContainerStats") > 0);
    let other = lab.world().add_container(&pod.sandbox, "other", &image);
    let before = lab.world().count("ListContainers");
    lab.world().exit(&other, 0);
    wait_for("a listing", || lab.world().count("ListContainers") > before);
    assert_eq!(lab.world().count("ListContainerStats"), 1, "the first is still not answered");
    agent.stop();
}

#[test]
fn a_removal_that_the_runtime_refuses_is_asked_for_again() {
    let (lab, pod, agent, _config) = with_none_kept(Flavour::Containerd16);
    let refusal = Fault::Refuse(13, "failed to forcibly stop container".into());
    lab.world().faults.insert("RemoveContainer".into(), refusal);
    lab.world().exit(&pod.container, 0);
    wait_for("a second attempt", || lab.world().count("RemoveContainer") >= 2);
    lab.world().faults.clear();
    wait_for("the removal", || lab.world().containers.is_empty());
    agent.stop();
}

#[test]
fn a_container_that_was_only_just_made_is_left_to_be_started() {
    let (lab, pod, mut agent, _config) = with_none_kept(Flavour::Containerd2);
    let made = {
        let mut world = lab.world();
        let image = world.containers[&pod.container].image.clone();
        let made = world.add_container(&pod.sandbox, "main", &image);
        world.containers.get_mut(&made).unwrap().state = ContainerState::ContainerCreated;
        world.exit(&pod.container, 0);
        made
    };
    let left = agent.wait("notRemoved");
    assert_eq!(left["work"]["id"], made.as_str(), "{left}");
    wait_for("the dead one to be removed", || lab.world().containers.len() == 1);
    agent.stop();
    assert!(lab.world().containers.contains_key(&made));
}

#[test]
fn what_is_left_of_a_pod_goes_when_its_manifest_is_seen_to_be_gone() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let over = lab.pod("over", &image, 10);
    let manifests = lab.manifests(&["over", "web"]);
    {
        let mut world = lab.world();
        world.exit(&over.container, 0);
        world.sandboxes.get_mut(&over.sandbox).unwrap().ready = false;
    }
    let config = config(CONFIG);
    let dir = manifests.display().to_string();
    let mut agent = lab.start(config.path(), &["--enforce", "--pod-manifests", &dir]);
    agent.wait("inventory");
    std::fs::remove_file(manifests.join("over.yaml")).unwrap();
    // Nothing ends: any news of the runtime has the manifests read again.
    let web = lab.pod("web", &image, 10);
    wait_for("the container to go", || !lab.world().containers.contains_key(&over.container));
    wait_for("the sandbox to go", || !lab.world().sandboxes.contains_key(&over.sandbox));
    agent.stop();
    assert!(lab.world().containers.contains_key(&web.container));
}

/// A mistake in an editor must not cost what a crashed pod has left to be read.
#[test]
fn nothing_of_a_pod_goes_while_its_manifest_cannot_be_read() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let (over, gone) = (lab.pod("over", &image, 10), lab.pod("gone", &image, 10));
    let manifests = lab.manifests(&["over", "gone", "web"]);
    for pod in [&over, &gone] {
        let mut world = lab.world();
        world.exit(&pod.container, 0);
        world.sandboxes.get_mut(&pod.sandbox).unwrap().ready = false;
    }
    let config = config(CONFIG);
    let dir = manifests.display().to_string();
    let mut agent = lab.start(config.path(), &["--enforce", "--pod-manifests", &dir]);
    agent.wait("inventory");
    let file = manifests.join("over.yaml");
    let right = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, right.replace("kind: Pod", "kind Pod")).unwrap();
    std::fs::remove_file(manifests.join("gone.yaml")).unwrap();
    // Any news of the runtime has the manifests read again.
    let web = lab.pod("web", &image, 10);
    let told = agent.wait("degraded");
    assert!(told["what"].as_str().unwrap().contains("over.yaml"), "{told}");
    // What would have gone is decided on the list that follows; with the next one it would have been seen to go.
    let listed = |lab: &Lab| lab.world().count("ListContainers");
    for name in ["next", "one-more"] {
        let before = listed(&lab);
        lab.pod(name, &image, 10);
        wait_for("another list", || listed(&lab) > before);
    }
    assert!(lab.world().containers.contains_key(&gone.container), "its manifest may be the other");
    std::fs::write(&file, right).unwrap();
    lab.pod("last", &image, 10);
    wait_for("the other one to go", || !lab.world().containers.contains_key(&gone.container));
    agent.stop();
    for pod in [&over, &web] {
        assert!(lab.world().containers.contains_key(&pod.container));
    }
}

#[test]
fn logs_of_pods_that_are_gone_go_and_names_that_do_not_parse_stay() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    let manifests = lab.manifests(&["web"]);
    for name in [format!("ns_web_{}", pod.uid), "ns_gone_0a1b".into(), "what is this".into()] {
        std::fs::create_dir_all(lab.dir("pods").join(name).join("main")).unwrap();
    }
    let link = format!("gone_ns_main-{}.log", "0".repeat(64));
    std::os::unix::fs::symlink("/nowhere", lab.dir("containers").join(&link)).unwrap();
    let manifests = manifests.display().to_string();
    let dry = lab.run(&["gc", "logs", "--pod-manifests", &manifests]);
    assert!(String::from_utf8_lossy(&dry.stdout).contains("would remove"), "{dry:?}");
    assert!(lab.dir("pods").join("ns_gone_0a1b").exists());
    let done = lab.run(&["gc", "logs", "--enforce", "--pod-manifests", &manifests]);
    assert!(done.status.success(), "{done:?}");
    assert!(!lab.dir("pods").join("ns_gone_0a1b").exists());
    assert!(lab.dir("containers").join(&link).symlink_metadata().is_err());
    assert!(lab.dir("pods").join("what is this").exists());
    assert!(lab.dir("pods").join(format!("ns_web_{}", pod.uid)).exists());
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("1 log entries are nobody's"), "{said}");
}

#[test]
fn an_agent_killed_in_the_middle_of_a_collection_is_taken_over_by_the_next() {
    let mut lab = Lab::new(Flavour::Containerd17);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    for _ in 0..10 {
        let id = lab.world().add_container(&pod.sandbox, "main", &image);
        lab.world().exit(&id, 1);
    }
    lab.world().faults.insert("RemoveContainer".into(), Fault::HeldAfter(1));
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("removed");
    agent.kill();
    assert_eq!(lab.world().containers.len(), 10, "one is removed, of nine that are to go");
    lab.world().faults.clear();
    let agent = lab.start(config.path(), &["--enforce"]);
    wait_for("the rest to be removed", || lab.world().containers.len() == 2);
    agent.stop();
    assert!(lab.world().containers.contains_key(&pod.container), "the running one stays");
}

#[test]
fn a_runtime_killed_in_the_middle_of_a_collection_loses_nothing() {
    let mut lab = Lab::new(Flavour::Containerd17);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    for _ in 0..10 {
        let id = lab.world().add_container(&pod.sandbox, "main", &image);
        lab.world().exit(&id, 1);
    }
    lab.world().faults.insert("RemoveContainer".into(), Fault::HeldAfter(1));
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("removed");
    lab.runtime.stop();
    lab.world().faults.clear();
    lab.runtime.resume().unwrap();
    wait_for("the rest to be removed", || lab.world().containers.len() == 2);
    agent.wait("runtime");
    let records = agent.stop();
    assert!(kinds(&records).contains(&"notRemoved"), "{:?}", kinds(&records));
    assert!(lab.world().containers.contains_key(&pod.container), "the running one stays");
}

#[test]
fn a_socket_that_is_none_or_not_of_a_runtime_is_said_so_with_exit_code_3() {
    let lab = Lab::new(Flavour::Containerd14);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let old = lab.run(&["pods"]);
    assert_eq!(old.status.code(), Some(3), "{old:?}");
    assert!(said(&old).contains("v1alpha2"), "{}", said(&old));
    let missing = ebb().args(["images", "--cri", "/nowhere/at/all.sock"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(3));
    assert!(said(&missing).contains("/nowhere/at/all.sock"), "{}", said(&missing));
    let relative = ebb().args(["images", "--cri", "containerd.sock"]).output().unwrap();
    assert_eq!(relative.status.code(), Some(2));
    let none = ebb().args(["gc", "images"]).output().unwrap();
    assert_eq!(none.status.code(), Some(3), "none was named, and none is there");
    assert!(said(&none).contains("--cri"), "{}", said(&none));
}

#[test]
fn pods_are_ranked_by_what_their_containers_use() {
    let mut lab = Lab::new(Flavour::Containerd17);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    lab.pod("web", &image, 100);
    lab.pod("hog", &image, 1500);
    lab.node.add("system.slice/batch.service", 2000);
    let ranking = json(&lab.run(&["rank", "--output", "json"]));
    let names = ranking.as_array().unwrap().iter().map(|ranked| &ranked["workload"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["ns/hog", "ns/web"], "{ranking}");
}

#[test]
fn pods_of_one_uid_and_containers_without_labels_are_one_pod_and_nobody_is_lost() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    {
        let mut world = lab.world();
        world.add_pod("ns", "twin", "uid-web");
        let nameless = world.add_pod("", "", "");
        let lone = world.add_container(&nameless, "", &image);
        world.containers.get_mut(&lone).unwrap().labelled = false;
        world.containers.get_mut(&pod.container).unwrap().labelled = false;
    }
    let pods = json(&lab.run(&["pods", "--output", "json"]));
    assert_eq!(pods.as_array().unwrap().len(), 2, "{pods}");
    let text = lab.run(&["pods"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("CONTAINERS"));
    let dry = json(&lab.run(&["gc", "containers", "--output", "json"]));
    assert_eq!(dry["done"], Value::Array(Vec::new()), "{dry}");
}
