//! Pods on the real runtime: run through ebb's own client, in the cgroups the kubelet would give them.
use super::Containerd;
use super::daemon::{cgroup_path, pod_cgroup};
use crate::cgroup::Cgroup;
use anyhow::{Context, Result};
use ebb_cri::PodName;
use ebb_cri::launch::{ContainerSpec, PodSpec};
use std::path::PathBuf;
use std::time::Duration;

/// A running pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) spec: PodSpec,
    /// Id of its sandbox.
    pub(crate) sandbox: String,
}

impl Pod {
    /// The cgroup that holds its sandbox and containers.
    pub(crate) fn cgroup(&self) -> PathBuf {
        PathBuf::from(cgroup_path(&self.spec.cgroup_parent))
    }
}

impl Containerd {
    /// Run a pod in the cgroup of its class (`burstable` or `besteffort`); its UID is `uid-NAME`.
    pub(crate) fn pod(&self, class: &str, name: &str) -> Result<Pod> {
        let uid = format!("uid-{name}");
        let cgroup_parent = pod_cgroup(class, &uid);
        // With the controllers that a kubelet would enable.
        Cgroup::create(cgroup_parent.trim_start_matches('/'))?;
        let spec = PodSpec {
            log_directory: format!("/var/log/pods/default_{name}_{uid}"),
            pod: PodName { uid, namespace: "default".to_owned(), name: name.to_owned() },
            cgroup_parent,
            ..PodSpec::default()
        };
        let sandbox = self.wait(self.cri.run_sandbox(&spec));
        let sandbox = sandbox.with_context(|| format!("cannot run the pod {name}"))?;
        Ok(Pod { spec, sandbox })
    }

    /// Make and start a container; returns its id.
    pub(crate) fn container(&self, pod: &Pod, container: &ContainerSpec) -> Result<String> {
        let start = async {
            let id = self.cri.create_container(&pod.sandbox, &pod.spec, container).await?;
            self.cri.start_container(&id).await?;
            Ok::<_, ebb_cri::Error>(id)
        };
        self.wait(start).with_context(|| format!("cannot run the container {}", container.name))
    }

    /// A container of an image of busybox that runs these words.
    pub(crate) fn busybox(
        &self,
        pod: &Pod,
        image: &str,
        name: &str,
        words: &[&str],
    ) -> Result<String> {
        let container = ContainerSpec {
            name: name.to_owned(),
            image: image.to_owned(),
            command: vec!["/bin/busybox".to_owned()],
            args: words.iter().map(|&word| word.to_owned()).collect(),
            log_path: format!("{name}/0.log"),
            ..ContainerSpec::default()
        };
        self.container(pod, &container)
    }

    /// Stop and remove a pod; what is gone already is no error.
    pub(crate) fn remove_pod(&self, pod: &Pod) -> Result<()> {
        let remove = async {
            for container in self.cri.containers().await? {
                if container.sandbox == pod.sandbox {
                    self.cri.remove_container(&container.id).await?;
                }
            }
            self.cri.stop_sandbox(&pod.sandbox).await?;
            self.cri.remove_sandbox(&pod.sandbox).await?;
            Ok::<_, ebb_cri::Error>(())
        };
        self.wait(remove).context("cannot remove a pod")
    }

    /// Stop and remove every pod.
    pub(crate) fn remove_all_pods(&self) -> Result<()> {
        let remove = async {
            for container in self.cri.containers().await? {
                self.cri.stop_container(&container.id, Duration::ZERO).await?;
                self.cri.remove_container(&container.id).await?;
            }
            for sandbox in self.cri.sandboxes().await? {
                self.cri.stop_sandbox(&sandbox.id).await?;
                self.cri.remove_sandbox(&sandbox.id).await?;
            }
            Ok::<_, ebb_cri::Error>(())
        };
        self.wait(remove).context("cannot remove all pods")
    }
}
