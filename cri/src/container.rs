//! Containers as a runtime lists them, and the longer story of one.

use crate::image::Image;
use crate::pod::PodName;
use crate::time::moment;
use crate::verbose::Verbose;
use crate::wire::runtime as v1;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime lost track of it.
    Unknown,
}

impl ContainerState {
    /// From CRI's number; one that CRI does not have yet is unknown.
    fn new(number: i32) -> Self {
        match v1::ContainerState::try_from(number) {
            Ok(v1::ContainerState::ContainerCreated) => Self::Created,
            Ok(v1::ContainerState::ContainerRunning) => Self::Running,
            Ok(v1::ContainerState::ContainerExited) => Self::Exited,
            Ok(v1::ContainerState::ContainerUnknown) | Err(_) => Self::Unknown,
        }
    }
}

/// How a container names its image. Runtimes differ in which of these they give, and in their form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUse {
    /// Id, from runtimes that say it.
    pub id: Option<String>,
    /// What the runtime resolved the image to: an id (containerd) or a name with digest (CRI-O); may be empty.
    pub reference: String,
    /// What the container was asked to run; may be empty.
    pub wanted: String,
}

impl ImageUse {
    fn new(spec: Option<v1::ImageSpec>, reference: String, id: String) -> Self {
        let wanted = spec.map(|spec| spec.image).unwrap_or_default();
        Self { id: Some(id).filter(|id| !id.is_empty()), reference, wanted }
    }

    /// Whether this is that image, by any name that either has.
    #[must_use]
    pub fn is(&self, image: &Image) -> bool {
        let names = [self.id.as_deref().unwrap_or(""), &self.reference, &self.wanted];
        names.iter().any(|name| image.is_called(name))
    }
}

/// A container in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Id.
    pub id: String,
    /// Id of the sandbox it is in.
    pub sandbox: String,
    /// Name in its pod; empty when the runtime gave no metadata.
    pub name: String,
    /// How many of this name came before it in the pod.
    pub attempt: u32,
    /// State.
    pub state: ContainerState,
    /// When it was made.
    pub created: Option<SystemTime>,
    /// Its image.
    pub image: ImageUse,
    /// The pod, from the kubelet's labels; unknown without them (the sandbox knows then).
    pub pod: Option<PodName>,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Container {
    pub(crate) fn new(from: v1::Container) -> Self {
        let metadata = from.metadata.unwrap_or_default();
        Self {
            id: from.id,
            sandbox: from.pod_sandbox_id,
            name: metadata.name,
            attempt: metadata.attempt,
            state: ContainerState::new(from.state),
            created: moment(from.created_at),
            image: ImageUse::new(from.image, from.image_ref, from.image_id),
            pod: PodName::from_labels(&from.labels),
            labels: from.labels,
            annotations: from.annotations,
        }
    }
}

/// What a runtime was asked to give a container; `None` for what it does not tell, or was not asked for: CRI has one number for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU shares.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time, and the period that they are for.
    pub cpu_quota: Option<(u64, u64)>,
    /// Most memory in bytes.
    pub memory_limit: Option<u64>,
    /// `oom_score_adj` of its processes.
    pub oom_score_adj: Option<i64>,
}

impl Resources {
    fn new(from: Option<v1::ContainerResources>) -> Self {
        let Some(linux) = from.and_then(|resources| resources.linux) else {
            return Self::default();
        };
        let above_zero = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
        Self {
            cpu_shares: above_zero(linux.cpu_shares),
            cpu_quota: above_zero(linux.cpu_quota).zip(above_zero(linux.cpu_period)),
            memory_limit: above_zero(linux.memory_limit_in_bytes),
            oom_score_adj: Some(linux.oom_score_adj).filter(|score| *score != 0),
        }
    }
}

/// What a runtime knows about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Id.
    pub id: String,
    /// Name in its pod.
    pub name: String,
    /// How many of this name came before it in the pod.
    pub attempt: u32,
    /// State.
    pub state: ContainerState,
    /// When it was made.
    pub created: Option<SystemTime>,
    /// When it was started; `None` when it never was.
    pub started: Option<SystemTime>,
    /// When it ended; `None` when it has not.
    pub finished: Option<SystemTime>,
    /// Exit code; `None` unless it has ended.
    pub exit_code: Option<i32>,
    /// The runtime's word for why, such as `OOMKilled`; may be empty.
    pub reason: String,
    /// The runtime's sentence for why; may be empty.
    pub message: String,
    /// Its image.
    pub image: ImageUse,
    /// Images mounted into it as volumes, as they were asked for.
    pub image_volumes: Vec<String>,
    /// The file its output goes to; empty when it is not kept.
    pub log_path: String,
    /// The pod, from the kubelet's labels.
    pub pod: Option<PodName>,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Process id of its first process, where the runtime tells; `None` when it has none.
    pub pid: Option<u32>,
    /// Its cgroup below the cgroup root, where the runtime tells, as `/kubepods/…/ID`.
    pub cgroup: Option<String>,
    /// What it was asked to give it.
    pub resources: Resources,
}

impl ContainerStatus {
    /// `None` when the answer has no status.
    pub(crate) fn new(from: v1::ContainerStatusResponse) -> Option<Self> {
        let status = from.status?;
        let metadata = status.metadata.unwrap_or_default();
        let state = ContainerState::new(status.state);
        let verbose = Verbose::read(&from.info);
        let volumes = status.mounts.into_iter().filter_map(|mount| mount.image);
        Some(Self {
            name: metadata.name,
            attempt: metadata.attempt,
            state,
            created: moment(status.created_at),
            started: moment(status.started_at),
            finished: moment(status.finished_at),
            exit_code: (state == ContainerState::Exited).then_some(status.exit_code),
            reason: status.reason,
            message: status.message,
            image: ImageUse::new(status.image, status.image_ref, status.image_id),
            image_volumes: volumes.map(|spec| spec.image).filter(|i| !i.is_empty()).collect(),
            log_path: status.log_path,
            pod: PodName::from_labels(&status.labels),
            labels: status.labels,
            annotations: status.annotations,
            pid: verbose.pid,
            cgroup: verbose.cgroup(),
            resources: Resources::new(status.resources),
            id: status.id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_runs_has_no_exit_code() {
        let status = |state: v1::ContainerState| {
            let status = v1::ContainerStatus { state: state.into(), ..Default::default() };
            let status = v1::ContainerStatusResponse { status: Some(status), ..Default::default() };
            ContainerStatus::new(status).unwrap()
        };
        assert_eq!(status(v1::ContainerState::ContainerRunning).exit_code, None);
        assert_eq!(status(v1::ContainerState::ContainerExited).exit_code, Some(0));
    }

    #[test]
    fn zero_is_what_was_not_told() {
        let resources = |linux| {
            let resources = Some(v1::ContainerResources { linux: Some(linux) });
            Resources::new(resources)
        };
        assert_eq!(resources(v1::LinuxContainerResources::default()), Resources::default());
        let told = resources(v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: -1,
            cpu_shares: 102,
            memory_limit_in_bytes: 1 << 30,
            oom_score_adj: -997,
        });
        let expected = Resources {
            cpu_shares: Some(102),
            cpu_quota: None,
            memory_limit: Some(1 << 30),
            oom_score_adj: Some(-997),
        };
        assert_eq!(told, expected);
        assert_eq!(Resources::new(None), Resources::default());
    }

    #[test]
    fn an_image_is_in_use_by_whichever_name_the_runtime_gives() {
        let image = Image {
            id: "sha256:aa".into(),
            tags: vec!["r/app:1".into()],
            digests: vec!["r/app@sha256:bb".into()],
            bytes: 1,
            pinned: false,
            runtime_handler: None,
        };
        let by = |id: Option<&str>, reference: &str, wanted: &str| ImageUse {
            id: id.map(Into::into),
            reference: reference.into(),
            wanted: wanted.into(),
        };
        assert!(by(Some("sha256:aa"), "", "").is(&image));
        assert!(by(None, "aa", "").is(&image));
        assert!(by(None, "r/app@sha256:bb", "").is(&image));
        assert!(by(None, "sha256:cc", "r/app:1").is(&image));
        assert!(!by(None, "sha256:cc", "r/app:2").is(&image));
        assert!(!by(None, "", "").is(&image));
    }
}
