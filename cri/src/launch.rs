//! Starting pods, for tests on a real runtime. The agent starts nothing, so this is behind the feature `launch`.

use crate::call::request;
use crate::error::Error;
use crate::pod::PodName;
use crate::runtime::Runtime;
use crate::wire::runtime as v1;
use std::collections::BTreeMap;

/// A pod in the host's network, so that no network plugin is needed.
#[derive(Clone, Debug, Default)]
pub struct PodSpec {
    /// Its name.
    pub pod: PodName,
    /// How many sandboxes of it came before.
    pub attempt: u32,
    /// Cgroup below which sandbox and containers are put, such as `/kubepods/burstable/podUID`.
    pub cgroup_parent: String,
    /// Where logs go; empty for nowhere.
    pub log_directory: String,
    /// More labels.
    pub labels: BTreeMap<String, String>,
}

/// A container in a pod.
#[derive(Clone, Debug, Default)]
pub struct ContainerSpec {
    /// Name.
    pub name: String,
    /// How many of this name came before.
    pub attempt: u32,
    /// Image, by any name.
    pub image: String,
    /// What is run in place of the image's entry point; empty for that.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Memory limit, bytes.
    pub memory_limit: Option<u64>,
    /// Log file below the pod's directory; empty for none.
    pub log_path: String,
    /// Host path and the path at which the container sees it, to write to.
    pub mounts: Vec<(String, String)>,
}

impl PodSpec {
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        let PodName { uid, namespace, name } = &self.pod;
        for (key, value) in [("uid", uid), ("namespace", namespace), ("name", name)] {
            labels.insert(format!("io.kubernetes.pod.{key}"), value.clone());
        }
        labels
    }

    fn config(&self) -> v1::PodSandboxConfig {
        let PodName { uid, namespace, name } = self.pod.clone();
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata { name, uid, namespace, attempt: self.attempt }),
            log_directory: self.log_directory.clone(),
            labels: self.labels(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                }),
            }),
            ..Default::default()
        }
    }
}

/// The node's network, which takes no setting up; processes to each container itself, as the kubelet asks for where a pod says nothing.
///
/// With the pod's instead, whatever a container leaves behind waits for the sandbox's first process to reap it.
fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption {
        network: v1::NamespaceMode::Node.into(),
        pid: v1::NamespaceMode::Container.into(),
        ..Default::default()
    }
}

impl Runtime {
    /// Start a pod's sandbox; returns its id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn run_sandbox(&self, pod: &PodSpec) -> Result<String, Error> {
        let call = self.change("RunPodSandbox", &pod.pod.name);
        let config = Some(pod.config());
        let ask = v1::RunPodSandboxRequest { config, runtime_handler: String::new() };
        let answer = self
            .ask(call, |mut c| async move { c.run_pod_sandbox(request(ask, call.limit)).await });
        Ok(answer.await?.pod_sandbox_id)
    }

    /// Make a container in a sandbox of that pod; returns its id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_container(
        &self,
        sandbox: &str,
        pod: &PodSpec,
        container: &ContainerSpec,
    ) -> Result<String, Error> {
        let call = self.change("CreateContainer", &container.name);
        let ContainerSpec { name, attempt, image, command, args, memory_limit, log_path, mounts } =
            container.clone();
        let mut labels = pod.labels();
        labels.insert("io.kubernetes.container.name".to_owned(), name.clone());
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name, attempt }),
            image: Some(v1::ImageSpec { image, ..Default::default() }),
            command,
            args,
            mounts: mounts.into_iter().map(mount).collect(),
            labels,
            log_path,
            linux: Some(v1::LinuxContainerConfig {
                resources: memory_limit.map(|bytes| v1::LinuxContainerResources {
                    memory_limit_in_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
                    ..Default::default()
                }),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                }),
            }),
            ..Default::default()
        };
        let ask = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod.config()),
        };
        let answer = self
            .ask(call, |mut c| async move { c.create_container(request(ask, call.limit)).await });
        Ok(answer.await?.container_id)
    }

    /// Start a container.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        let call = self.change("StartContainer", id);
        let ask = v1::StartContainerRequest { container_id: id.to_owned() };
        self.ask(call, |mut c| async move { c.start_container(request(ask, call.limit)).await })
            .await?;
        Ok(())
    }
}

fn mount((host_path, container_path): (String, String)) -> v1::Mount {
    v1::Mount { host_path, container_path, ..Default::default() }
}
