//! A node with a real runtime, pods with manifests, and ebb on it: what the tests of collection and eviction share.
//!
//! ```text
//! Wanted ─► manifest in /run/manifests ─► sandbox and container through CRI      the test plays the kubelet
//! Site::agent ─► ebb run --cri … --pod-manifests …                               and ebb the reclaimer
//! ```
use super::{Containerd, Pod, SOCKET, Store};
use crate::agent::{Agent, Settings, is};
use crate::registry::Context as TestContext;
use crate::wait;
use anyhow::{Context, Result};
use ebb_cri::launch::ContainerSpec;
use ebb_vm_protocol::images::APP;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For what must happen, on a loaded host under TCG.
pub(crate) const SOON: Duration = Duration::from_secs(90);
const MANIFESTS: &str = "/run/manifests";
const STATE: &str = "/var/lib/ebb";
/// Files by which tests tell containers to go on, as containers see them.
pub(crate) const GATE: &str = "/gate";
pub(crate) const GATES: &str = "/run/gates";

/// A pod with one container, `main`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) priority: i32,
    /// Resources of the container, as YAML in braces; empty for none.
    pub(crate) resources: &'a str,
    /// Volumes that are mounted at `/NAME`: name, and the `emptyDir` as YAML.
    pub(crate) volumes: &'a [(&'a str, &'a str)],
    /// What a shell is told to do.
    pub(crate) script: &'a str,
}

/// The node.
pub(crate) struct Site {
    pub(crate) containerd: Containerd,
    /// Whether images are on a filesystem of their own, as ebb is told.
    apart: bool,
}

impl Site {
    /// A runtime without pods, with all images; ebb is to see images and node on one filesystem, or `apart`.
    pub(crate) fn new(apart: bool) -> Result<Self> {
        Store::mount()?;
        let containerd = Containerd::ensure()?;
        Store::drop_ballast()?;
        for dir in [Path::new(MANIFESTS), Path::new(STATE), Path::new(GATES), &Store::kubelet()] {
            // What an earlier test left, if there was one.
            let _ = fs::remove_dir_all(dir);
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(Self { containerd, apart })
    }

    /// Run a pod.
    pub(crate) fn run(&self, wanted: &Wanted<'_>) -> Result<(Pod, String)> {
        let Wanted { name, priority, resources, volumes, script } = *wanted;
        let resources = if resources.is_empty() { "{}" } else { resources };
        let list: Vec<String> = volumes
            .iter()
            .map(|(name, volume)| format!("{{name: {name}, emptyDir: {volume}}}"))
            .collect();
        let manifest = format!(
            "kind: Pod\nmetadata: {{name: {name}, namespace: default, uid: uid-{name}}}\nspec:\n  priority: {priority}\n  terminationGracePeriodSeconds: 30\n  volumes: [{}]\n  containers: [{{name: main, resources: {resources}}}]\n",
            list.join(", ")
        );
        fs::write(manifest_of(name), manifest).context("cannot write a manifest")?;
        let pod = self.containerd.pod("burstable", name)?;
        let mut mounts = vec![(GATES.to_owned(), GATE.to_owned())];
        for (volume, _) in volumes {
            let dir = volume_of(name, volume);
            fs::create_dir_all(&dir).context("cannot create a volume")?;
            mounts.push((dir.display().to_string(), format!("/{volume}")));
        }
        let container = ContainerSpec {
            name: "main".to_owned(),
            image: APP.to_owned(),
            command: vec!["/bin/sh".to_owned(), "-c".to_owned()],
            args: vec![script.to_owned()],
            log_path: "main/0.log".to_owned(),
            mounts,
            ..ContainerSpec::default()
        };
        let id = self.containerd.container(&pod, &container)?;
        Ok((pod, id))
    }

    /// Take a pod's manifest away: it counts as deleted.
    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        fs::remove_file(manifest_of(name)).context("cannot remove a manifest")
    }

    /// Start ebb on this node, and wait until it knows what the runtime has. `fields` are of the configuration's top
    /// level, `own` of its section `ebb:`, each line with its line break.
    pub(crate) fn agent(&self, test: &TestContext, fields: &str, own: &str) -> Result<Agent> {
        let mut agent = self.agent_at_once(test, fields, own)?;
        agent.wait_for(SOON, "the inventory is known", |record| is(record, "inventory"))?;
        Ok(agent)
    }

    /// The same without manifests: the runtime is all that tells of pods.
    pub(crate) fn agent_without_manifests(
        &self,
        test: &TestContext,
        fields: &str,
        own: &str,
    ) -> Result<Agent> {
        let mut agent = self.start_agent(test, fields, own, &["--enforce"], &[])?;
        agent.wait_for(SOON, "the inventory is known", |record| is(record, "inventory"))?;
        Ok(agent)
    }

    /// The same without waiting.
    pub(crate) fn agent_at_once(
        &self,
        test: &TestContext,
        fields: &str,
        own: &str,
    ) -> Result<Agent> {
        self.start_agent(test, fields, own, &["--enforce", "--pod-manifests", MANIFESTS], &[])
    }

    /// A dry run, from which these capabilities are withheld.
    pub(crate) fn rehearsal(
        &self,
        test: &TestContext,
        fields: &str,
        without: &[u32],
    ) -> Result<Agent> {
        let mut agent =
            self.start_agent(test, fields, "", &["--pod-manifests", MANIFESTS], without)?;
        agent.wait_for(SOON, "the inventory is known", |record| is(record, "inventory"))?;
        Ok(agent)
    }

    /// What stands in the section `ebb:` of every agent's configuration here, and `more`: whoever has an agent read another gives it that too.
    pub(crate) fn section(more: &str) -> String {
        format!("  mode: kubernetes\n  memoryAvailable: memAvailable\n{more}")
    }

    fn start_agent(
        &self,
        test: &TestContext,
        fields: &str,
        own: &str,
        more: &[&str],
        without: &[u32],
    ) -> Result<Agent> {
        let kubelet = if self.apart { PathBuf::from("/var/lib") } else { Store::kubelet() };
        let kubelet = kubelet.display().to_string();
        let arguments = [["--cri", SOCKET], ["--node-fs", &kubelet], ["--state", STATE]];
        let arguments: Vec<&str> =
            arguments.concat().into_iter().chain(more.iter().copied()).collect();
        let own = Self::section(own);
        let settings = Settings {
            thresholds: fields,
            arguments: &arguments,
            own: &own,
            config: None,
            without_bpf: false,
            without,
        };
        Agent::start(test, &settings)
    }

    /// Wait until the container runs no more.
    pub(crate) fn until_ended(&self, id: &str) -> Result<()> {
        let what = format!("the container {id} has ended");
        wait::seldom(SOON, &what, || self.runs(id).is_ok_and(|runs| !runs))
    }

    /// Wait until the runtime has no container of this id.
    pub(crate) fn until_removed(&self, id: &str, limit: Duration) -> Result<()> {
        wait::seldom(limit, &format!("the container {id} is removed"), || {
            self.containers().is_ok_and(|ids| !ids.iter().any(|other| other == id))
        })
    }

    /// Ids of all containers.
    pub(crate) fn containers(&self) -> Result<Vec<String>> {
        let list = self.containerd.wait(self.containerd.cri.containers());
        Ok(list.context("cannot list containers")?.into_iter().map(|c| c.id).collect())
    }

    /// Ids of all sandboxes.
    pub(crate) fn sandboxes(&self) -> Result<Vec<String>> {
        let list = self.containerd.wait(self.containerd.cri.sandboxes());
        Ok(list.context("cannot list sandboxes")?.into_iter().map(|s| s.id).collect())
    }

    /// Whether the container runs.
    pub(crate) fn runs(&self, id: &str) -> Result<bool> {
        let status = self.containerd.wait(self.containerd.cri.container(id));
        Ok(status.is_ok_and(|status| status.state == ebb_cri::ContainerState::Running))
    }
}

impl Drop for Site {
    /// The runtime ends what it has started: behind a test everything in the pods' cgroups is killed.
    fn drop(&mut self) {
        // What could not be removed is removed by the next test, or fails it.
        let _ = self.containerd.remove_all_pods();
    }
}

/// Let containers that wait for this gate go on.
pub(crate) fn open_gate(name: &str) -> Result<()> {
    fs::write(Path::new(GATES).join(name), "").with_context(|| format!("cannot open gate {name}"))
}

/// Wait until a container has opened this gate.
pub(crate) fn until_gate(name: &str) -> Result<()> {
    let path = Path::new(GATES).join(name);
    wait::until(SOON, &format!("gate {name} is open"), || path.exists())
}

fn manifest_of(pod: &str) -> PathBuf {
    Path::new(MANIFESTS).join(format!("{pod}.yaml"))
}

/// Where a volume is on the node.
pub(crate) fn volume_of(pod: &str, volume: &str) -> PathBuf {
    let dir = Store::kubelet().join(format!("pods/uid-{pod}/volumes/kubernetes.io~empty-dir"));
    dir.join(volume)
}
