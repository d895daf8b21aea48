//! What things take, as the runtime measures it. Every number carries its own moment, because runtimes answer from caches.

use crate::pod::PodName;
use crate::time::moment;
use crate::wire::runtime as v1;
use std::time::SystemTime;

/// Use of a filesystem, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsUsage {
    /// When it was measured.
    pub at: Option<SystemTime>,
    /// A directory on that filesystem; may be empty.
    pub mountpoint: String,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Inodes.
    pub inodes: Option<u64>,
}

impl FsUsage {
    pub(crate) fn new(from: v1::FilesystemUsage) -> Self {
        Self {
            at: moment(from.timestamp),
            mountpoint: from.fs_id.map(|id| id.mountpoint).unwrap_or_default(),
            bytes: from.used_bytes.map(|v| v.value),
            inodes: from.inodes_used.map(|v| v.value),
        }
    }
}

/// Where images and writable layers live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFs {
    /// Filesystems of images. containerd counts its snapshots there but not the content they were unpacked from, and
    /// says zero until its first measurement, ten seconds after its start.
    pub images: Vec<FsUsage>,
    /// Filesystems of writable layers; empty when the runtime does not tell them apart.
    pub containers: Vec<FsUsage>,
}

impl ImageFs {
    pub(crate) fn new(from: v1::ImageFsInfoResponse) -> Self {
        let each = |list: Vec<v1::FilesystemUsage>| list.into_iter().map(FsUsage::new).collect();
        Self { images: each(from.image_filesystems), containers: each(from.container_filesystems) }
    }
}

/// Use by one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Id.
    pub id: String,
    /// Name in its pod.
    pub name: String,
    /// What it has written to its own layer.
    pub writable_layer: Option<FsUsage>,
    /// Memory that it uses and cannot give back by reclaim, bytes.
    pub working_set: Option<u64>,
}

impl ContainerUsage {
    pub(crate) fn new(from: v1::ContainerStats) -> Self {
        let attributes = from.attributes.unwrap_or_default();
        Self {
            id: attributes.id,
            name: attributes.metadata.map(|metadata| metadata.name).unwrap_or_default(),
            writable_layer: from.writable_layer.map(FsUsage::new),
            working_set: from.memory.and_then(|memory| memory.working_set_bytes).map(|v| v.value),
        }
    }
}

/// Use by one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// Id of the sandbox.
    pub sandbox: String,
    /// The pod.
    pub pod: PodName,
    /// Memory that it uses and cannot give back by reclaim, bytes.
    pub working_set: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
    /// Its containers.
    pub containers: Vec<ContainerUsage>,
}

impl PodUsage {
    pub(crate) fn new(from: v1::PodSandboxStats) -> Self {
        let attributes = from.attributes.unwrap_or_default();
        let linux = from.linux.unwrap_or_default();
        Self {
            sandbox: attributes.id,
            pod: attributes.metadata.map(PodName::from_metadata).unwrap_or_default(),
            working_set: linux.memory.and_then(|m| m.working_set_bytes).map(|v| v.value),
            processes: linux.process.and_then(|p| p.process_count).map(|v| v.value),
            containers: linux.containers.into_iter().map(ContainerUsage::new).collect(),
        }
    }
}
