//! The whole agent with a container runtime in the test's own process: what is collected.

use crate::fake_node::{FakeCgroup, FakeNode, wait_for};
use crate::{Agent, config, ebb, kinds, start};
use ebb_cri::wire::runtime::ContainerState;
use ebb_tests::runtime::{FakeRuntime, Fault, Flavour, World, short_digest};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

pub(crate) const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
imageMinimumGCAge: 0s
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
";

/// A runtime with its own directories for images, logs and what ebb remembers.
pub(crate) struct Lab {
    pub(crate) node: FakeNode,
    pub(crate) runtime: FakeRuntime,
}

impl Lab {
    pub(crate) fn new(flavour: Flavour) -> Self {
        let runtime = FakeRuntime::start(flavour).unwrap();
        for dir in ["images", "pods", "containers", "state"] {
            std::fs::create_dir(runtime.dir().join(dir)).unwrap();
        }
        runtime.world().image_fs = path(&runtime, "images");
        Self { node: FakeNode::new(), runtime }
    }

    pub(crate) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.runtime.world()
    }

    pub(crate) fn dir(&self, name: &str) -> std::path::PathBuf {
        self.runtime.dir().join(name)
    }

    /// A directory with a manifest for each of these pods.
    pub(crate) fn manifests(&self, pods: &[&str]) -> std::path::PathBuf {
        let manifests = self.dir("manifests");
        std::fs::create_dir(&manifests).unwrap();
        for name in pods {
            let text = format!(
                "kind: Pod\nmetadata: {{name: {name}, namespace: ns, uid: uid-{name}}}\nspec: {{}}\n"
            );
            std::fs::write(manifests.join(format!("{name}.yaml")), text).unwrap();
        }
        manifests
    }

    fn args(&self) -> Vec<String> {
        let socket = self.runtime.socket().display().to_string();
        let dir = |name| path(&self.runtime, name);
        let pairs = [
            ("--cri", socket),
            ("--node-fs", dir("images")),
            ("--pod-logs", dir("pods")),
            ("--container-logs", dir("containers")),
            ("--state", dir("state")),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    pub(crate) fn start(&self, config: &Path, extra: &[&str]) -> Agent {
        let args = self.args();
        let all: Vec<&str> = args.iter().map(String::as_str).chain(extra.iter().copied()).collect();
        start(&self.node, config, &all)
    }

    /// A command that looks once, with its output.
    fn run(&self, command: &[&str]) -> Output {
        ebb()
            .args(command)
            .args(self.args())
            .arg("--proc-root")
            .arg(self.node.proc())
            .arg("--cgroup-root")
            .arg(self.node.cgroups())
            .output()
            .unwrap()
    }

    /// A pod with one running container of `mib` MiB, whose sandbox has a cgroup beside it.
    pub(crate) fn pod(&mut self, name: &str, image: &str, mib: u64) -> Pod {
        let uid = format!("uid-{name}");
        let (sandbox, container) = {
            let mut world = self.world();
            let sandbox = world.add_pod("ns", name, &uid);
            let container = world.add_container(&sandbox, "main", image);
            (sandbox, container)
        };
        let parent = format!("kubepods/burstable/pod{uid}");
        let payload = self.node.add(&format!("{parent}/{container}"), mib);
        let pause = self.node.add(&format!("{parent}/{sandbox}"), 1);
        Pod { uid, sandbox, container, payload, pause }
    }
}

pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) sandbox: String,
    pub(crate) container: String,
    pub(crate) payload: FakeCgroup,
    pub(crate) pause: FakeCgroup,
}

fn path(runtime: &FakeRuntime, name: &str) -> String {
    runtime.dir().join(name).display().to_string()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// How full the filesystem of a directory is, percent, as the policy rounds it.
fn full(dir: &Path) -> u64 {
    let fs = nix::sys::statvfs::statvfs(dir).unwrap();
    100 - fs.blocks_available() * 100 / fs.blocks()
}

/// A configuration under which images go from one percent below the present fullness on, down to two.
fn tight(lab: &Lab, extra: &str) -> tempfile::NamedTempFile {
    let full = full(&lab.dir("images")).max(3);
    let (high, low) = (full - 1, full - 2);
    config(&format!(
        "imageGCHighThresholdPercent: {high}\nimageGCLowThresholdPercent: {low}\n{CONFIG}{extra}"
    ))
}

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
fn a_dead_container_is_collected_within_a_second_and_the_newest_of_its_name_stays() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 10);
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("runtime");
    let mut last = pod.container.clone();
    for round in 0..20 {
        let next = lab.world().add_container(&pod.sandbox, "main", &image);
        let began = Instant::now();
        lab.world().exit(&last, 1);
        if round == 0 {
            // The only dead one of its name is the newest.
            last = next;
            continue;
        }
        wait_for("the removal of the older dead one", || lab.world().containers.len() == 2);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
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
fn unused_images_go_and_those_in_use_pinned_or_of_dead_containers_stay() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (used, dead, pinned, old) = {
        let mut world = lab.world();
        let used = world.add_image("used:1", &[("base", 1 << 20), ("u", 5)]);
        let dead = world.add_image("dead:1", &[("base", 1 << 20), ("d", 5)]);
        let pinned = world.add_image("pause:3", &[("p", 1)]);
        let old = world.add_image("old:1", &[("base", 1 << 20), ("o", 5)]);
        world.images.get_mut(&pinned).unwrap().pinned = true;
        (used, dead, pinned, old)
    };
    lab.pod("web", &used, 10);
    let ended = lab.pod("job", &dead, 10);
    lab.world().exit(&ended.container, 0);
    let config = tight(&lab, "");
    let mut agent = lab.start(config.path(), &["--enforce"]);
    let removed = agent.wait("removed");
    assert_eq!(removed["work"]["id"], old.as_str());
    // By layers: the base stays, so only what is its own can go.
    let expected = removed["work"]["expected"].as_u64().unwrap();
    let base_packed_and_unpacked = 3 << 20;
    assert!((1..base_packed_and_unpacked).contains(&expected), "{expected}");
    let collected = agent.wait("collected");
    assert!(collected["measured"].is_i64(), "{collected}");
    agent.stop();
    let world = lab.world();
    assert!(!world.images.contains_key(&old));
    for kept in [used, dead, pinned] {
        assert!(world.images.contains_key(&kept));
    }
}

#[test]
fn images_are_listed_again_before_any_is_removed() {
    let lab = Lab::new(Flavour::Containerd2);
    let old = lab.world().add_image("old:1", &[("base", 1 << 20), ("o", 5)]);
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let period = "  imageGCPeriod: 1s\n";
    let config = config(&format!("{never}{CONFIG}{period}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    {
        // One that has been unpacked meanwhile has the base as well, and no event said so.
        let mut world = lab.world();
        let mut other = world.images[&old].clone();
        other.id = format!("sha256:{}", short_digest("other"));
        other.tags = vec!["other:1".to_owned()];
        other.digests.clear();
        other.layers.truncate(1);
        other.pinned = true;
        world.images.insert(other.id.clone(), other);
    }
    let full = std::fs::read(tight(&lab, period).path()).unwrap();
    std::fs::write(config.path(), full).unwrap();
    let pid = nix::unistd::Pid::from_raw(agent.child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    let removed = agent.wait("removed");
    assert_eq!(removed["work"]["id"], old.as_str());
    let expected = removed["work"]["expected"].as_u64().unwrap();
    assert!((1..1 << 20).contains(&expected), "{expected}: the base stays");
    agent.stop();
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

#[test]
fn when_an_image_was_last_in_use_outlives_the_agent() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (first, second) = {
        let mut world = lab.world();
        (world.add_image("a:1", &[("a", 1)]), world.add_image("b:1", &[("b", 1)]))
    };
    let pod = lab.pod("web", &second, 10);
    // However full the disk of the machine is that runs this test.
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let quiet = config(&format!("maximumDeadContainersPerContainer: 0\n{never}{CONFIG}"));
    let mut agent = lab.start(quiet.path(), &["--enforce"]);
    agent.wait("runtime");
    // What follows a death shows that the images have been looked at.
    let other = lab.world().add_container(&pod.sandbox, "other", &second);
    lab.world().exit(&other, 0);
    agent.wait("collected");
    agent.stop();
    lab.world().containers.remove(&pod.container);
    // The one that was in use is the younger by that alone.
    let shown = json(&lab.run(&["images", "--output", "json"]));
    let of = |id: &str| {
        shown.as_array().unwrap().iter().find(|image| image["id"] == id).unwrap().clone()
    };
    assert_eq!((&of(&first)["fate"], &of(&first)["place"]), (&"unused".into(), &1.into()));
    assert_eq!((&of(&second)["fate"], &of(&second)["place"]), (&"unused".into(), &2.into()));
    assert!(of(&second)["lastUsed"].is_u64() && of(&first)["lastUsed"].is_null());
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
    lab.world().faults.insert("RemoveContainer".into(), Fault::Late(Duration::from_millis(100)));
    let config = config(CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("removed");
    agent.kill();
    let left = lab.world().containers.len();
    assert!(left > 2, "{left} left: it was not in the middle");
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
    lab.world().faults.insert("RemoveContainer".into(), Fault::Late(Duration::from_millis(100)));
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

/// While images are being removed only memory and task ids are decided on. That is no word about disk.
#[test]
fn a_disk_that_is_short_stays_so_while_images_are_being_removed() {
    let lab = Lab::new(Flavour::Containerd2);
    lab.world().add_image("a:1", &[("a", 1)]);
    lab.world().faults.insert("RemoveImage".into(), Fault::Late(Duration::from_secs(2)));
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let short = CONFIG.replace("evictionHard:\n", "evictionHard:\n  nodefs.available: \"99%\"\n");
    let config = config(&format!("{never}{short}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    assert_eq!(agent.wait("crossed")["signal"], "nodefs.available");
    agent.wait("removed");
    let records = agent.stop();
    assert!(!kinds(&records).contains(&"recovered"), "{:?}", kinds(&records));
}

#[test]
fn what_changed_since_the_plan_is_left_alone() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (first, second) = {
        let mut world = lab.world();
        (world.add_image("a:1", &[("a", 1)]), world.add_image("b:1", &[("b", 1)]))
    };
    lab.world().faults.insert("RemoveImage".into(), Fault::Late(Duration::from_millis(300)));
    let config = tight(&lab, "");
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("collecting");
    wait_for("the first removal to begin", || lab.world().count("RemoveImage") == 1);
    let (_, going) =
        lab.world().calls.iter().rev().find(|(c, _)| *c == "RemoveImage").cloned().unwrap();
    let other = if going == first { second } else { first };
    lab.pod("late", &other, 1);
    let left = agent.wait("notRemoved");
    assert!(left["why"].as_str().unwrap().contains("a container uses it"), "{left}");
    agent.wait("collected");
    agent.stop();
    assert!(lab.world().images.contains_key(&other));
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
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("--cri"), "{}", said(&none));
}

#[test]
fn cri_o_is_collected_by_the_same_rules() {
    for flavour in [Flavour::CriO, Flavour::CriOWithoutEvents] {
        let mut lab = Lab::new(flavour);
        let (used, old) = {
            let mut world = lab.world();
            (world.add_image("r/used:1", &[("u", 5)]), world.add_image("r/old:1", &[("o", 5)]))
        };
        let pod = lab.pod("web", &used, 10);
        let next = lab.world().add_container(&pod.sandbox, "main", &used);
        lab.world().exit(&pod.container, 1);
        lab.world().exit(&next, 1);
        let running = lab.world().add_container(&pod.sandbox, "main", &used);
        let config = tight(&lab, "  imageOrder: leastToPullAgain\n");
        let agent = lab.start(config.path(), &["--enforce"]);
        wait_for("the unused image to go", || !lab.world().images.contains_key(&old));
        wait_for("the older dead container to go", || lab.world().containers.len() == 2);
        agent.stop();
        assert!(lab.world().images.contains_key(&used));
        assert!(lab.world().containers.contains_key(&running));
    }
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
