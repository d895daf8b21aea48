//! `ebb snapshot` and `ebb run` see the same node: what the agent decided on is what the command shows of the same node right after.

use crate::config;
use crate::lab::{CONFIG, Lab, json};
use crate::{Agent, ebb, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::runtime::Flavour;
use nix::sys::statvfs::statvfs;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What differs between two looks at one node, and says nothing of what was seen: when each was, and what only an agent that runs on can know, rates and how far its work is.
const OF_THE_LOOK: [&str; 9] = [
    "takenAt",
    "agentStartedAt",
    "tasks",
    "pressure",
    "observedAt",
    "memoryObservedAt",
    "diskObservedAt",
    "fall",
    "diskGrowth",
];

/// Takes out what belongs to the look.
fn seen(mut snapshot: Value) -> Value {
    strip(&mut snapshot);
    snapshot
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !OF_THE_LOOK.contains(&key.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Everything that two values differ in.
fn differences(at: &str, agent: &Value, command: &Value, found: &mut Vec<String>) {
    match (agent, command) {
        (Value::Object(a), Value::Object(c)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(c.keys()).collect();
            for key in keys {
                let (a, c) =
                    (a.get(key).unwrap_or(&Value::Null), c.get(key).unwrap_or(&Value::Null));
                differences(&format!("{at}.{key}"), a, c, found);
            }
        }
        (Value::Array(a), Value::Array(c)) if a.len() == c.len() => {
            for (nth, (a, c)) in a.iter().zip(c).enumerate() {
                differences(&format!("{at}[{nth}]"), a, c, found);
            }
        }
        (a, c) if a != c => found.push(format!("{at}: the agent {a}, the command {c}")),
        _ => {}
    }
}

fn are_the_same(agent: &Value, command: Value) {
    let mut found = Vec::new();
    differences("", &seen(agent.clone()), &seen(command), &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What the agent decided on first, as it stores it when it is stopped.
fn decided_on(mut agent: Agent, incidents: &Path) -> Value {
    agent.wait("decided");
    agent.stop();
    let stored = fs::read_dir(incidents).unwrap().flatten().next().unwrap().path();
    let incident: Value = serde_json::from_slice(&fs::read(&stored).unwrap()).unwrap();
    fs::remove_file(stored).unwrap();
    incident["decisions"][0]["snapshot"].clone()
}

/// Takes what others do to the same filesystem out of what two looks saw of it: how full it is.
fn without_fill(mut snapshot: Value) -> Value {
    for (signal, seen) in snapshot["signals"].as_object_mut().unwrap() {
        if signal.contains("fs.") {
            assert!(seen["available"].is_u64(), "{signal}");
            seen["available"] = Value::Null;
        }
    }
    for filesystem in ["nodeFs", "imageFs", "containerFs"] {
        for free in ["available", "inodesFree"] {
            assert!(snapshot["node"][filesystem][free].is_u64(), "{filesystem}");
            snapshot["node"][filesystem][free] = Value::Null;
        }
    }
    snapshot
}

#[test]
fn with_a_runtime_both_see_the_same_pods_logs_volumes_and_filesystems() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    for (name, mib) in [("hog", 1500), ("web", 10)] {
        let pod = lab.pod(name, &image, mib);
        let volume = format!("images/pods/{}/volumes/kubernetes.io~empty-dir/data", pod.uid);
        let log = format!("pods/ns_{name}_{}/main", pod.uid);
        for (place, size) in [(volume, 12 << 10), (log, 8 << 10)] {
            fs::create_dir_all(lab.dir(&place)).unwrap();
            fs::write(lab.dir(&place).join("file"), vec![b'x'; size]).unwrap();
        }
    }
    let manifests = lab.manifests(&["hog", "web"]).display().to_string();
    // So near its threshold that it is measured who uses it; then short, which is decided on with everything that is known.
    let fs = statvfs(&lab.dir("images")).unwrap();
    let available = fs.blocks_available() * fs.fragment_size();
    let with = |threshold: &str| {
        let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
        let disk = format!("evictionHard:\n  nodefs.available: \"{threshold}\"\n");
        let own = "  diskAttribution: false\n  minFreedOfNeed: 0\n  minFreedOfThreshold: 0\n";
        format!("{never}{}{own}", CONFIG.replace("evictionHard:\n", &disk))
    };
    let file = config(&with(&(available / 10 * 9).to_string()));
    let by = file.path().display().to_string();
    let incidents = tempfile::tempdir().unwrap();
    let stored = incidents.path().display().to_string();
    let agent = lab.start(file.path(), &["--incidents", &stored, "--pod-manifests", &manifests]);
    // The second time it is asked what they use, the first answer has been taken in.
    wait_for("it to be measured", || lab.world().count("ListContainerStats") > 1);
    fs::write(file.path(), with("99%")).unwrap();
    agent.signal(nix::sys::signal::Signal::SIGHUP);
    let agents = decided_on(agent, incidents.path());
    let args = ["snapshot", "--config", &by, "--pod-manifests", &manifests];
    let commands = json(&lab.run(&args));
    assert!(agents["workloads"].to_string().contains("volumes"), "{agents:#}");
    assert!(!agents["logDirs"].as_array().unwrap().is_empty(), "{agents:#}");
    are_the_same(&without_fill(agents), without_fill(commands));
}

/// Of disk a decision about memory knows nothing, and is made without it.
#[test]
fn without_a_runtime_both_see_the_same_cgroups() {
    let mut node = FakeNode::new();
    node.add("apps/hog", 1500);
    node.add("apps/web", 100);
    node.add("user.slice/user-1000.slice/user@1000.service/app", 20);
    let file = config(crate::CONFIG);
    let incidents = tempfile::tempdir().unwrap();
    let agent = start(&node, file.path(), &["--incidents", incidents.path().to_str().unwrap()]);
    node.set_available(60);
    let agents = decided_on(agent, incidents.path());
    let mut command = ebb();
    command.args(["snapshot", "--proc-root"]).arg(node.proc()).arg("--cgroup-root");
    command.arg(node.cgroups()).arg("--config").arg(file.path());
    let mut commands = json(&command.output().unwrap());
    commands["layoutFacts"] = Value::Null;
    commands["node"]["nodeFs"] = Value::Null;
    are_the_same(&agents, commands);
}
