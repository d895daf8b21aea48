//! A fake node beside a container runtime in the test's own process.

use crate::{Agent, ebb, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, state_dir};
use ebb_tests::runtime::{FakeRuntime, Flavour, World};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
imageMinimumGCAge: 0s
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
";

/// The same without a kubelet: ebb sees to the end of what it evicts.
pub(crate) const STANDALONE: &str = "\
evictionHard:
  memory.available: 100Mi
imageMinimumGCAge: 0s
ebb:
  mode: standalone
  containerGCPeriod: 60s
  memoryAvailable: memAvailable
";

/// A runtime with its own directories for images, logs and what ebb remembers.
pub(crate) struct Lab {
    pub(crate) node: FakeNode,
    pub(crate) runtime: FakeRuntime,
    /// Where the kubelet's directory is and, in `log`, the pods' logs; both are the runtime's unless told.
    node_fs: Option<std::path::PathBuf>,
    /// What ebb remembers.
    state: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new(flavour: Flavour) -> Self {
        let runtime = FakeRuntime::start(flavour).unwrap();
        for dir in ["images", "pods", "containers"] {
            std::fs::create_dir(runtime.dir().join(dir)).unwrap();
        }
        runtime.world().image_fs = path(&runtime, "images");
        Self { node: FakeNode::new(), runtime, node_fs: None, state: state_dir() }
    }

    /// Puts the kubelet's directory and the pods' logs on another filesystem.
    pub(crate) fn put_node_fs(&mut self, dir: &Path) {
        std::fs::create_dir(dir.join("log")).unwrap();
        self.node_fs = Some(dir.to_owned());
    }

    pub(crate) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.runtime.world()
    }

    pub(crate) fn dir(&self, name: &str) -> std::path::PathBuf {
        match name {
            "state" => self.state.path().to_owned(),
            _ => self.runtime.dir().join(name),
        }
    }

    /// A directory with a manifest for each of these pods.
    pub(crate) fn manifests(&self, pods: &[&str]) -> std::path::PathBuf {
        let manifests = self.dir("manifests");
        std::fs::create_dir(&manifests).unwrap();
        for name in pods {
            let text = format!(
                "kind: Pod\nmetadata: {{name: {name}, namespace: ns, uid: uid-{name}}}\nspec: {{containers: [{{name: main}}]}}\n"
            );
            std::fs::write(manifests.join(format!("{name}.yaml")), text).unwrap();
        }
        manifests
    }

    fn args(&self) -> Vec<String> {
        let socket = self.runtime.socket().display().to_string();
        let dir = |name: &str| path(&self.runtime, name);
        let on_node = |below: &str, otherwise: &str| match &self.node_fs {
            Some(node) => node.join(below).display().to_string(),
            None => dir(otherwise),
        };
        let pairs = [
            ("--cri", socket),
            ("--node-fs", on_node("", "images")),
            ("--pod-logs", on_node("log", "pods")),
            ("--container-logs", dir("containers")),
            ("--state", self.dir("state").display().to_string()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    pub(crate) fn start(&self, config: &Path, extra: &[&str]) -> Agent {
        let args = self.args();
        let all: Vec<&str> = args.iter().map(String::as_str).chain(extra.iter().copied()).collect();
        start(&self.node, config, &all)
    }

    /// A command that looks once, with its output.
    pub(crate) fn run(&self, command: &[&str]) -> Output {
        self.run_as(ebb(), command)
    }

    /// The same with another command that becomes ebb.
    pub(crate) fn run_as(&self, mut ebb: Command, command: &[&str]) -> Output {
        ebb.args(command)
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

    /// What the kernel does once everything in the pod's container has been killed, and the runtime's shim sees it.
    pub(crate) fn is_dead(&self, pod: &Pod) {
        pod.payload.empty();
        self.world().exit(&pod.container, 137);
    }

    /// What the kubelet does with a pod that is to run always: it stops the sandbox and makes another, with another container, under the same UID.
    pub(crate) fn start_again(&mut self, name: &str, old: &Pod, mib: u64) -> Pod {
        let image = {
            let mut world = self.world();
            world.sandboxes.get_mut(&old.sandbox).unwrap().ready = false;
            world.containers[&old.container].image.clone()
        };
        self.node.remove(&old.payload);
        self.node.remove(&old.pause);
        self.pod(name, &image, mib)
    }

    /// The same where the sandbox still runs: another container in it.
    pub(crate) fn start_again_in_its_sandbox(&mut self, old: Pod, mib: u64) -> Pod {
        let container = {
            let mut world = self.world();
            let image = world.containers[&old.container].image.clone();
            world.add_container(&old.sandbox, "main", &image)
        };
        let payload = self.node.add(&format!("kubepods/burstable/pod{}/{container}", old.uid), mib);
        self.node.remove(&old.payload);
        Pod { container, payload, ..old }
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

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}
