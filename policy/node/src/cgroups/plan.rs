//! The expected tree as values: each cgroup with what its files are to say, and why.
use super::names::Driver;
use crate::snapshot::Qos;
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

/// The version of the plan's JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that the rules demand of the tree.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct Plan {
    /// Version of this form; 1.
    pub schema_version: u32,
    /// How cgroups are named and made.
    pub driver: Driver,
    /// The cgroups: the node's first, then classes, then each pod followed by its containers.
    pub cgroups: Vec<Cgroup>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Which part of the tree a cgroup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Level {
    /// All pods together.
    Kubepods,
    /// Kubernetes' own daemons.
    KubeReserved,
    /// The system's daemons.
    SystemReserved,
    /// The pods of a class of service.
    Class,
    /// A pod.
    Pod,
    /// A container.
    Container,
}

/// A pod by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The UID in the cgroup's name.
    pub uid: String,
}

/// What a file is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct Value {
    /// The value, as it is written to the file.
    pub value: String,
    /// The rule that it follows from.
    pub rule: String,
    /// What can be set at once where the value cannot: a memory limit below what is in use.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub at_once: Option<String>,
    /// What the file may say as well: a runtime's configuration decides between the two.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub or: Option<String>,
    /// Only where the kernel has the file.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub if_present: bool,
}

/// A systemd property's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(untagged)
)]
pub enum Property {
    /// Yes or no.
    Flag(bool),
    /// A number; the largest one means no limit.
    Number(u64),
    /// A set of CPUs, one bit each, the lowest first.
    Cpus(Vec<u8>),
}

/// The score by which the kernel's OOM killer chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct OomScore {
    /// `oom_score_adj` of each of its processes.
    pub value: i64,
    /// The rule that it follows from.
    pub rule: String,
}

/// A cgroup of the expected tree.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct Cgroup {
    /// Path below the cgroup mount; absent for a container whose id is not known.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub path: Option<String>,
    /// Which part of the tree it is.
    pub level: Level,
    /// The class of a class, a pod or a container.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub qos: Option<Qos>,
    /// The pod of a pod or a container.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pod: Option<PodRef>,
    /// The container's name.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub container: Option<String>,
    /// The systemd unit, where the driver is systemd and the cgroup is one that the kubelet makes.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub unit: Option<String>,
    /// What each file is to say.
    pub values: BTreeMap<String, Value>,
    /// Files that stay as the kernel made them, and why.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub unset: BTreeMap<String, String>,
    /// What the unit is to be given, under the systemd driver.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub properties: BTreeMap<String, Property>,
    /// How the OOM killer is to see its processes; only for containers.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub oom_score_adj: Option<OomScore>,
}

impl Cgroup {
    /// A cgroup of which nothing is demanded yet.
    #[must_use]
    pub fn new(path: Option<String>, level: Level) -> Cgroup {
        Cgroup {
            path,
            level,
            qos: None,
            pod: None,
            container: None,
            unit: None,
            values: BTreeMap::new(),
            unset: BTreeMap::new(),
            properties: BTreeMap::new(),
            oom_score_adj: None,
        }
    }

    /// Demands a value.
    pub(super) fn set(&mut self, file: &str, value: impl ToString, rule: impl Into<String>) {
        let value = value.to_string();
        let value = Value { value, rule: rule.into(), at_once: None, or: None, if_present: false };
        self.values.insert(file.into(), value);
    }

    /// Lets a file say something else as well.
    pub(super) fn or(&mut self, file: &str, other: impl ToString) {
        if let Some(value) = self.values.get_mut(file) {
            value.or = Some(other.to_string()).filter(|other| *other != value.value);
        }
    }

    /// Notes why a file is left alone.
    pub(super) fn leave(&mut self, file: &str, why: impl Into<String>) {
        self.unset.insert(file.into(), why.into());
    }
}
