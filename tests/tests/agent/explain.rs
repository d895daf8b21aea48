//! `ebb explain` on a node: why a pod or a cgroup is safe, whether it goes next, and what was recorded of its eviction; why an image stays.

use crate::lab::{CONFIG, Lab, Pod, json};
use crate::{config, ebb};
use ebb_tests::api_server::{ApiServer, Fault};
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::runtime::Flavour;
use serde_json::{Value, json as value};
use std::process::Output;

/// A node whose API server has `ns/hog` and `ns/web`, with what it takes to look at it.
struct Place {
    lab: Lab,
    api: ApiServer,
    hog: Pod,
    kubeconfig: String,
    config: String,
}

impl Place {
    fn new() -> Self {
        let mut lab = Lab::new(Flavour::Containerd2);
        let image = lab.world().add_image("app:1", &[("base", 10)]);
        let api = ApiServer::start("n1").unwrap();
        let [hog, _] = [("hog", 1500), ("web", 100)].map(|(name, mib)| {
            let pod = lab.pod(name, &image, mib);
            api.add_pod("ns", name, &pod.uid);
            pod
        });
        let kubeconfig = lab.dir("state").join("kubeconfig");
        std::fs::write(&kubeconfig, api.kubeconfig()).unwrap();
        let file = lab.dir("state").join("config.yaml");
        std::fs::write(&file, CONFIG).unwrap();
        let shown = |path: &std::path::Path| path.display().to_string();
        Self { kubeconfig: shown(&kubeconfig), config: shown(&file), lab, api, hog }
    }

    fn beside(&self) -> Vec<&str> {
        vec!["--kubernetes", "--node-name", "n1", "--kubeconfig", &self.kubeconfig]
    }

    fn explain(&self, pod: &str, extra: &[&str]) -> Output {
        let own = ["explain", pod, "-n", "ns", "-c", &self.config];
        self.lab.run(&[&own, &self.beside()[..], extra].concat())
    }

    /// Gives the object of a pod other fields.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = format!("/api/v1/namespaces/ns/pods/{name}");
        let mut object = self.api.get(&path).unwrap();
        change(&mut object);
        self.api.put(&path, object);
    }
}

fn said(output: &Output) -> (Option<i32>, String) {
    let both = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(both).unwrap())
}

fn of_memory(found: &Value) -> &Value {
    let signals = found["live"]["signals"].as_array().unwrap();
    signals.iter().find(|of| of["signal"] == "memory.available").unwrap()
}

#[test]
fn who_goes_next_is_told_by_each_signal_with_the_place_and_the_keys() {
    let place = Place::new();
    let (code, text) = said(&place.explain("pod/hog", &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("pod ns/hog (uid uid-hog): may be evicted\n"), "{text}");
    assert!(text.contains("    ranked 1 of 2: measured, uses 1.5 GiB above"), "{text}");
    assert!(text.contains("    below it, it is evicted next\n"), "{text}");
    let web = json(&place.explain("pods/web", &["-o", "json"]));
    let memory = of_memory(&web);
    assert_eq!(memory["ranked"]["place"], 2, "{web:#}");
    assert_eq!(memory["candidates"], 2);
    assert_eq!(memory["ifShort"]["victims"], value!(["ns/hog"]));
    assert_eq!(memory["ifShort"]["skipped"]["why"], "notNeeded");
    assert_eq!(web["live"]["standing"], "candidate");
    assert_eq!(memory["thresholds"][0]["state"], "clear");
    // The same when it is short now.
    place.lab.node.set_available(60);
    let hog = json(&place.explain("pod/hog", &["-o", "json"]));
    assert_eq!(hog["live"]["evictedNow"]["workload"]["name"], "ns/hog", "{hog:#}");
    let (_, text) = said(&place.explain("pod/hog", &[]));
    assert!(text.contains("  is evicted now: The node was low on resource: memory."), "{text}");
}

/// What the node reclaims first is no answer: what is asked for is who goes when that is not enough.
#[test]
fn for_disk_the_pod_is_named_that_goes_after_the_nodes_own_reclaim() {
    let place = Place::new();
    place.lab.world().add_image("unused:1", &[("waste", 10)]);
    let config = CONFIG.replace("memory.available: 100Mi", "nodefs.available: 1Mi");
    std::fs::write(&place.config, config).unwrap();
    for (name, written) in [("hog", 9 << 20), ("web", 4096)] {
        let logs = place.lab.dir("pods").join(format!("ns_{name}_uid-{name}/main"));
        std::fs::create_dir_all(logs).unwrap();
        let volumes = place.lab.dir("images").join(format!("pods/uid-{name}/volumes"));
        std::fs::create_dir_all(volumes).unwrap();
        let mut world = place.lab.world();
        let sandbox = world.sandboxes.values().find(|s| s.uid == format!("uid-{name}")).unwrap();
        let sandbox = sandbox.id.clone();
        let mut own = world.containers.values_mut().filter(|c| c.sandbox == sandbox);
        own.next().unwrap().written = (written, 10);
    }
    let hog = json(&place.explain("pod/hog", &["-o", "json"]));
    let disk = &hog["live"]["signals"][0];
    assert_eq!(disk["signal"], "nodefs.available", "{hog:#}");
    assert_eq!(disk["ifShort"]["victims"], value!(["ns/hog"]), "{hog:#}");
    // Nothing was removed for the question.
    assert_eq!(place.lab.world().images.len(), 2);
}

#[test]
fn what_the_api_server_tells_of_a_pod_decides_its_place() {
    let place = Place::new();
    place.change("hog", |pod| pod["spec"]["priority"] = 1000.into());
    let hog = json(&place.explain("pod/hog", &["-o", "json"]));
    assert_eq!(of_memory(&hog)["ranked"]["place"], 2, "{hog:#}");
    assert_eq!(of_memory(&hog)["ifShort"]["victims"], value!(["ns/web"]));
    place.change("hog", |pod| pod["spec"]["priority"] = 2_000_000_000.into());
    let (_, text) = said(&place.explain("pod/hog", &[]));
    assert!(text.starts_with("pod ns/hog (uid uid-hog): is not evicted: critical"), "{text}");
    assert!(!text.contains("ranked"), "{text}");
    // A budget spares it only while somebody else is left.
    place.change("hog", |pod| {
        pod["spec"]["priority"] = 0.into();
        pod["metadata"]["labels"] = value!({ "app": "hog" });
    });
    place.api.put(
        "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/hog",
        value!({
            "apiVersion": "policy/v1",
            "metadata": { "name": "hog", "namespace": "ns", "uid": "b" },
            "spec": { "selector": { "matchLabels": { "app": "hog" } } },
            "status": { "disruptionsAllowed": 0 },
        }),
    );
    let (_, text) = said(&place.explain("pod/hog", &[]));
    assert!(text.contains("disruption budget ns/hog allows 0"), "{text}");
    assert!(
        text.contains("below it, ns/web goes next; it is skipped: its disruption budget ns/hog"),
        "{text}"
    );
}

#[test]
fn an_eviction_is_explained_from_its_record_with_its_grounds_and_how_it_was_told() {
    let place = Place::new();
    let incidents = place.lab.dir("incidents");
    let dir = incidents.to_str().unwrap();
    let args = [&place.beside()[..], &["--enforce", "--incidents", dir]].concat();
    let mut agent = place.lab.start(place.config.as_ref(), &args);
    agent.wait("inventory");
    place.lab.node.gives_back_when_killed(&place.hog.payload, 1500);
    place.lab.node.set_available(60);
    agent.wait("evictionTold");
    agent.told("pressureRelieved");
    agent.stop();
    let found = json(&place.explain("pod/hog", &["--incidents", dir, "-o", "json"]));
    let own = &found["past"]["incidents"][0];
    assert_eq!(found["past"]["records"], 1, "{found:#}");
    assert_eq!(own["workload"]["uid"], "uid-hog");
    assert_eq!(own["handled"]["signal"], "memory.available");
    assert_eq!(own["ranked"]["place"], 1);
    assert!(own["observed"]["memory"]["anon"].as_u64() > Some(0), "{own:#}");
    let steps: Vec<&str> =
        own["timeline"].as_array().unwrap().iter().map(|m| m["what"].as_str().unwrap()).collect();
    for step in ["decided", "killed", "the API server was told", "terminated"] {
        assert!(steps.contains(&step), "{step} is not in {steps:?}");
    }
    let (_, text) = said(&place.explain("pod/hog", &["--incidents", dir]));
    assert!(text.contains(" evicted: memory.available 60.0 MiB < 100Mi (hard)\n"), "{text}");
    assert!(text.contains("    The node was low on resource: memory."), "{text}");
    assert!(text.contains(" ms  the API server was told\n"), "{text}");
    // Who was spared then, and why.
    let (_, text) = said(&place.explain("pod/web", &["--incidents", dir]));
    assert!(
        text.contains(
            " not evicted: memory.available 60.0 MiB < 100Mi (hard): ns/hog was evicted; skipped: not needed"
        ),
        "{text}"
    );
    // A record needs no node: it may be read elsewhere.
    let alone = |pod: &str| {
        let args = ["explain", pod, "-n", "ns", "--cri", "none", "--incidents", dir];
        said(&ebb().args(args).env_remove("NODE_NAME").output().unwrap())
    };
    let (code, text) = alone("pod/hog");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("pod ns/hog: not on this node now\n"), "{text}");
    let (code, text) = alone("pod/other");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("pod ns/other: it is not among the records of incidents (1)"), "{text}");
    // By itself, from the crossing to the relief.
    let eviction = |id: &str, extra: &[&str]| {
        let object = format!("eviction/{id}");
        let args = [&["explain", &object, "--incidents", dir], extra].concat();
        said(&ebb().args(args).env_remove("NODE_NAME").output().unwrap())
    };
    let (code, text) = eviction("latest", &[]);
    assert_eq!(code, Some(0), "{text}");
    let words = ["threshold crossed\n", "killed  ns/hog\n", "back above the threshold"];
    for word in words.into_iter().chain(["1. ns/hog  (evicted)", "decided again by ebb"]) {
        assert!(text.contains(word), "without {word:?}: {text}");
    }
    let file = found["past"]["incidents"][0]["incident"].as_str().unwrap();
    assert_eq!(eviction(file.strip_suffix(".json").unwrap(), &[]).1, text);
    let (_, record) = eviction("latest", &["-o", "json"]);
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["decisions"][0]["plan"]["ranking"][0]["workload"]["name"], "ns/hog");
    for (id, extra, word) in [
        ("9", &[][..], "no such record in"),
        ("", &[], "give the id of a record"),
        ("latest", &["--cri", "none"], "leave out --kubernetes, --node-name, --api and --cri"),
    ] {
        let (code, text) = eviction(id, extra);
        assert!(code == Some(2) && text.contains(word), "{id}: {text}");
    }
    // One that is no record is named, and the others are read.
    std::fs::write(incidents.join("0-bad.json"), "{").unwrap();
    let (code, text) = alone("pod/hog");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("0-bad.json") && text.contains(" evicted: "), "{text}");
}

#[test]
fn an_eviction_that_could_not_be_told_yet_is_said_to_be_one() {
    let place = Place::new();
    let args = [&place.beside()[..], &["--enforce"]].concat();
    let mut agent = place.lab.start(place.config.as_ref(), &args);
    agent.wait("inventory");
    wait_for("the pods to be watched", || {
        place.api.requests().iter().any(|r| r.path.contains("/pods?") && r.path.contains("watch=1"))
    });
    place.api.on_request(|r| (r.method != "GET").then_some(Fault::Refused(503, Some(60))));
    place.lab.node.set_available(60);
    agent.wait("evicted");
    let file = place.lab.dir("state").join("evictions-to-tell.json");
    wait_for("it to be kept", || file.exists());
    agent.kill();
    let (code, text) = said(&place.explain("pod/hog", &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("(uid uid-hog), and the API server has not been told of it yet: The node"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_explained_is_refused_in_words_that_say_what_to_do() {
    let place = Place::new();
    let nowhere = place.lab.dir("nowhere");
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "pod/wbe",
            &[],
            &["pod ns/wbe: it is not among the 2 pods of this node", "did you mean ns/web"],
        ),
        ("pod/zzzzzz", &[], &["among the 2 pods of this node\n"]),
        (
            "pod/web",
            &["--incidents", nowhere.to_str().unwrap()],
            &["incidents in ", "nowhere", "ebb run --incidents"],
        ),
        (
            "deployment/web",
            &[],
            &[
                "deployment/web: from its node only a pod, a cgroup, an image or an eviction is explained",
            ],
        ),
    ];
    for (pod, extra, words) in cases {
        let (code, text) = said(&place.explain(pod, extra));
        assert_eq!(code, Some(2), "{pod}: {text}");
        for word in *words {
            assert!(text.contains(word), "{pod} without {word:?}: {text}");
        }
    }
    let (code, text) = said(&place.lab.run(&["explain", "pod/web"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("pod/web: in which namespace? Give it with -n"), "{text}");
}

#[test]
fn without_rights_a_pod_is_explained_by_what_the_runtime_tells_and_that_is_said() {
    let place = Place::new();
    place.api.on_request(|r| r.path.contains("pods?").then_some(Fault::Refused(403, None)));
    let (code, text) = said(&place.explain("pod/hog", &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("note: the API server does not tell of this node's pods: 403"), "{text}");
    assert!(text.contains("below it, it is evicted next"), "{text}");
    // Nor is one asked that was not named.
    let (code, text) =
        said(&place.lab.run(&["explain", "pod/hog", "-n", "ns", "-c", &place.config]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("note: the API server is not asked (--kubernetes)"), "{text}");
    assert!(text.contains("note: no directory of incidents is known: name it"), "{text}");
}

/// In the DaemonSet the Node's name is in the environment; a saved cluster is asked for there all the same.
#[test]
fn in_the_daemon_set_a_pod_is_explained_from_its_node_and_a_file_from_the_file() {
    let place = Place::new();
    let config = config(CONFIG);
    let args = ["explain", "pod/hog", "-n", "ns", "--kubeconfig", &place.kubeconfig];
    let mut command = ebb();
    command.env("NODE_NAME", "n1").args(args).arg("-c").arg(config.path());
    command.arg("--cri").arg(place.lab.runtime.socket()).arg("--state").arg(place.lab.dir("state"));
    command.arg("--proc-root").arg(place.lab.node.proc());
    command.arg("--cgroup-root").arg(place.lab.node.cgroups());
    let (code, text) = said(&command.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("it is evicted next") && !text.contains("is not asked"), "{text}");
    let shop = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/shop.json");
    let saved = ["explain", "pod/web-7f9c-a", "-n", "shop", "--from", shop];
    let (code, text) = said(&ebb().env("NODE_NAME", "n1").args(saved).output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("owner ReplicaSet.apps web-7f9c: present"), "{text}");
}

/// Where cgroups are the workloads, and where they are those of pods.
#[test]
fn a_cgroup_is_explained_as_the_workload_that_it_lies_in() {
    let mut node = FakeNode::new();
    node.add("work.slice/hog.service", 1500);
    node.add("work.slice/web.service", 100);
    let config = config(&CONFIG.replace("mode: kubernetes", "mode: standalone"));
    let explain = |object: &str, extra: &[&str]| {
        let mut command = ebb();
        command.args(["explain", object]).args(extra).arg("-c").arg(config.path());
        command.arg("--proc-root").arg(node.proc()).arg("--cgroup-root").arg(node.cgroups());
        command.env_remove("NODE_NAME").output().unwrap()
    };
    let none = &["--cri", "none"];
    let (code, text) = said(&explain("cgroup/work.slice/hog.service", none));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("cgroup /work.slice/hog.service: may be evicted\n"), "{text}");
    assert!(text.contains("    ranked 1 of 2: "), "{text}");
    assert!(text.contains("    below it, it is evicted next\n"), "{text}");
    assert!(text.contains("note: one look does not show how fast anything grows"), "{text}");
    let inner =
        json(&explain("cgroup//work.slice/web.service/worker", &["--cri", "none", "-o", "json"]));
    assert_eq!(inner["asked"], "/work.slice/web.service/worker", "{inner:#}");
    assert_eq!(inner["live"]["workload"]["name"], "/work.slice/web.service");
    assert_eq!(inner["live"]["kind"], "cgroup");
    let (code, text) = said(&explain("cgroup/work.slice", none));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("did you mean /work.slice/hog.service"), "{text}");
    let pasted = json(&explain(
        "cgroups//sys/fs/cgroup/work.slice/hog.service/",
        &["--cri", "none", "-o", "json"],
    ));
    assert_eq!(pasted["asked"], "/work.slice/hog.service");
    // Nothing but pods may be evicted there, and nobody tells which there are.
    let file = crate::config(CONFIG);
    let mut command = ebb();
    command
        .args(["explain", "cgroup/work.slice/hog.service", "--cri", "none", "-c"])
        .arg(file.path());
    command.arg("--proc-root").arg(node.proc()).arg("--cgroup-root").arg(node.cgroups());
    let (code, text) = said(&command.env_remove("NODE_NAME").output().unwrap());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("it takes a container runtime to tell"), "{text}");

    let place = Place::new();
    let path = format!("cgroup/kubepods/burstable/poduid-hog/{}", place.hog.container);
    let args =
        [&["explain", path.as_str(), "-c", place.config.as_str()], &place.beside()[..]].concat();
    let (code, text) = said(&place.lab.run(&args));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(&format!(" /{}: lies in pod ns/hog\n", &path["cgroup/".len()..])),
        "{text}"
    );
    assert!(text.contains("pod ns/hog (uid uid-hog): may be evicted\n"), "{text}");
}

#[test]
fn an_image_is_explained_with_its_users_and_what_it_would_give() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (used, old) = {
        let mut world = lab.world();
        let used = world.add_image("registry.local/used:1", &[("base", 1 << 20), ("u", 5)]);
        (used, world.add_image("docker.io/library/old:latest", &[("base", 1 << 20), ("o", 5)]))
    };
    lab.pod("web", &used, 10);
    let (code, text) = said(&lab.run(&["explain", "image/registry.local/used:1"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("image registry.local/used:1 (") && text.contains("): kept: in use\n"),
        "{text}"
    );
    assert!(text.contains("  used by pod ns/web (container main)\n"), "{text}");
    assert!(text.contains("  shares layers with docker.io/library/old:latest\n"), "{text}");
    let found = json(&lab.run(&["explain", "image/old", "-o", "json"]));
    assert_eq!(found["image"]["id"], old.as_str(), "{found:#}");
    assert_eq!(found["containers"], value!([]));
    assert!(found["image"]["unique"].as_u64() < found["image"]["total"].as_u64(), "{found:#}");
    let (_, text) = said(&lab.run(&["explain", "image/old"]));
    assert!(
        text.contains("): unused, since when is not known: no ebb here has remembered it\n"),
        "{text}"
    );
    let (code, text) = said(&lab.run(&["explain", "image/odl"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("not among the 2 images")
            && text.contains("did you mean docker.io/library/old:latest?"),
        "{text}"
    );
}
