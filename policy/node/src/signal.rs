//! What can run short on a node: the kubelet's eviction signals and two on swap, and what each one maps to.
use core::fmt;

/// An eviction signal, by the kubelet's name where the kubelet has it. The operator is always "less than".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum Signal {
    /// Bytes of memory that workloads could still take on the node.
    #[cfg_attr(feature = "json", serde(rename = "memory.available"))]
    MemoryAvailable,
    /// Bytes of memory left below the limit of all pods together; never set by a user.
    #[cfg_attr(feature = "json", serde(rename = "allocatableMemory.available"))]
    AllocatableMemoryAvailable,
    /// Bytes that swap can still take off memory; unknown on a node without swap. Not the kubelet's.
    #[cfg_attr(feature = "json", serde(rename = "swap.available"))]
    SwapAvailable,
    /// `memory.available` and `swap.available` together, bytes. Not the kubelet's.
    #[cfg_attr(feature = "json", serde(rename = "memoryWithSwap.available"))]
    MemoryWithSwapAvailable,
    /// Bytes free on the filesystem of the kubelet's root directory.
    #[cfg_attr(feature = "json", serde(rename = "nodefs.available"))]
    NodeFsAvailable,
    /// Inodes free on the filesystem of the kubelet's root directory.
    #[cfg_attr(feature = "json", serde(rename = "nodefs.inodesFree"))]
    NodeFsInodesFree,
    /// Bytes free on the filesystem of the image store.
    #[cfg_attr(feature = "json", serde(rename = "imagefs.available"))]
    ImageFsAvailable,
    /// Inodes free on the filesystem of the image store.
    #[cfg_attr(feature = "json", serde(rename = "imagefs.inodesFree"))]
    ImageFsInodesFree,
    /// Bytes free on the filesystem of the containers' writable layers.
    #[cfg_attr(feature = "json", serde(rename = "containerfs.available"))]
    ContainerFsAvailable,
    /// Inodes free on the filesystem of the containers' writable layers.
    #[cfg_attr(feature = "json", serde(rename = "containerfs.inodesFree"))]
    ContainerFsInodesFree,
    /// Tasks (threads) that the node could still start.
    #[cfg_attr(feature = "json", serde(rename = "pid.available"))]
    PidAvailable,
}

/// The resource behind a signal, by the name that messages and annotations show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum Resource {
    /// Memory, in bytes.
    Memory,
    /// Swap space, in bytes.
    Swap,
    /// Local disk, in bytes.
    EphemeralStorage,
    /// Filesystem inodes, a count.
    Inodes,
    /// Processes, a count.
    Pids,
}

/// A node condition that pressure raises. The order is that of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum NodeConditionType {
    /// A filesystem is short of bytes or inodes.
    DiskPressure,
    /// The node or the pods together are short of memory.
    MemoryPressure,
    /// The node is short of task ids.
    #[cfg_attr(feature = "json", serde(rename = "PIDPressure"))]
    PidPressure,
}

impl Signal {
    /// Every signal, in the order in which ebb handles those that the kubelet leaves unordered.
    pub const ALL: [Signal; 11] = [
        Signal::MemoryAvailable,
        Signal::AllocatableMemoryAvailable,
        Signal::SwapAvailable,
        Signal::MemoryWithSwapAvailable,
        Signal::NodeFsAvailable,
        Signal::NodeFsInodesFree,
        Signal::ImageFsAvailable,
        Signal::ImageFsInodesFree,
        Signal::ContainerFsAvailable,
        Signal::ContainerFsInodesFree,
        Signal::PidAvailable,
    ];

    /// The name of the signal, the kubelet's where it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::AllocatableMemoryAvailable => "allocatableMemory.available",
            Signal::SwapAvailable => "swap.available",
            Signal::MemoryWithSwapAvailable => "memoryWithSwap.available",
            Signal::NodeFsAvailable => "nodefs.available",
            Signal::NodeFsInodesFree => "nodefs.inodesFree",
            Signal::ImageFsAvailable => "imagefs.available",
            Signal::ImageFsInodesFree => "imagefs.inodesFree",
            Signal::ContainerFsAvailable => "containerfs.available",
            Signal::ContainerFsInodesFree => "containerfs.inodesFree",
            Signal::PidAvailable => "pid.available",
        }
    }

    /// The signal of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The resource that is short when the signal is low.
    pub const fn resource(self) -> Resource {
        match self {
            Signal::MemoryAvailable
            | Signal::AllocatableMemoryAvailable
            | Signal::MemoryWithSwapAvailable => Resource::Memory,
            Signal::SwapAvailable => Resource::Swap,
            Signal::NodeFsAvailable | Signal::ImageFsAvailable | Signal::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Signal::NodeFsInodesFree
            | Signal::ImageFsInodesFree
            | Signal::ContainerFsInodesFree => Resource::Inodes,
            Signal::PidAvailable => Resource::Pids,
        }
    }

    /// The node condition that the signal raises.
    pub const fn condition(self) -> NodeConditionType {
        match self.resource() {
            Resource::Memory | Resource::Swap => NodeConditionType::MemoryPressure,
            Resource::EphemeralStorage | Resource::Inodes => NodeConditionType::DiskPressure,
            Resource::Pids => NodeConditionType::PidPressure,
        }
    }

    /// Whether the signal is about memory or swap; such signals are handled before all others.
    pub const fn is_memory(self) -> bool {
        matches!(self.resource(), Resource::Memory | Resource::Swap)
    }

    /// Whether the kubelet has no such signal.
    pub const fn is_beyond_kubelet(self) -> bool {
        matches!(self, Signal::SwapAvailable | Signal::MemoryWithSwapAvailable)
    }

    /// Whether the signal is about a filesystem, its bytes or its inodes.
    pub const fn is_disk(self) -> bool {
        matches!(self.resource(), Resource::EphemeralStorage | Resource::Inodes)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Resource {
    /// The name that messages, events and annotations show.
    pub const fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Swap => "swap",
            Resource::EphemeralStorage => "ephemeral-storage",
            Resource::Inodes => "inodes",
            Resource::Pids => "pids",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl NodeConditionType {
    /// The three conditions, in the order of their names.
    pub const ALL: [NodeConditionType; 3] = [
        NodeConditionType::DiskPressure,
        NodeConditionType::MemoryPressure,
        NodeConditionType::PidPressure,
    ];

    /// The name of the condition in a node's status.
    pub const fn name(self) -> &'static str {
        match self {
            NodeConditionType::DiskPressure => "DiskPressure",
            NodeConditionType::MemoryPressure => "MemoryPressure",
            NodeConditionType::PidPressure => "PIDPressure",
        }
    }
}

impl fmt::Display for NodeConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
