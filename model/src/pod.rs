//! A pod: who it is, what its containers may use, and what of that counts for the pod as a whole.
//!
//! Sums follow the kubelet: regular containers and sidecars together, or an init container beside the sidecars before it, whichever is more; a pod's own amounts replace the sum; overhead comes on top.
use crate::amounts::{self, Amounts, CPU, MEMORY};
use crate::priority::{NODE_CRITICAL, is_critical};
use crate::{Quantity, Secs, VolumeSpec};
use alloc::{
    string::{String, ToString},
    vec::Vec,
};

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// What is set aside.
    pub requests: Amounts,
    /// What may not be exceeded.
    pub limits: Amounts,
}

/// Quality of service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum Qos {
    /// No request and no limit at all.
    BestEffort,
    /// Some requests or limits.
    Burstable,
    /// Limits equal to requests everywhere.
    Guaranteed,
}

impl core::fmt::Display for Qos {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        })
    }
}

/// The part that a container plays in its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ContainerKind {
    /// Runs for as long as the pod does.
    #[default]
    Regular,
    /// Runs to its end before the regular ones start.
    Init,
    /// An init container that keeps running (restart policy `Always`).
    Sidecar,
    /// Added to a running pod; it cannot ask for resources.
    Ephemeral,
}

/// A container's identity at its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerId {
    /// Scheme of the id: `containerd`, `cri-o`, …
    pub runtime: String,
    /// The id itself.
    pub id: String,
}

/// The controller that owns a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct OwnerRef {
    /// Kind, such as `ReplicaSet`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    #[cfg_attr(feature = "json", serde(default))]
    pub uid: Option<String>,
}

/// Where what is known of a pod comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Its manifest: everything that it asks for is known.
    #[default]
    Manifest,
    /// The container runtime: that the pod is there, its class by the place of its cgroup, and what the runtime was asked to give each container. What the pod asks for is unknown.
    Runtime,
}

/// What a runtime was asked to give a container; `None` for what it does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// CPU shares.
    pub shares: Option<u64>,
    /// CPU time in microseconds, and the period that it is for.
    pub quota: Option<(u64, u64)>,
    /// Most memory, bytes.
    pub memory: Option<u64>,
    /// `oom_score_adj` of its processes.
    pub oom_score_adj: Option<i64>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Name, unique in the pod.
    pub name: String,
    /// The part that it plays.
    pub kind: ContainerKind,
    /// What it asks for.
    pub resources: Resources,
    /// Who it is at the runtime, once it has been made.
    pub id: Option<ContainerId>,
    /// What the runtime says that it was asked for; only of a pod that the runtime alone knows.
    pub asked: Asked,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Where what follows comes from.
    pub source: Source,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The UID under which the kubelet runs it: of a mirror pod that of the static pod behind it.
    pub uid: String,
    /// The class that its status names, which wins.
    pub qos: Option<Qos>,
    /// Priority; `None` where neither it nor a class that every cluster has is given.
    pub priority: Option<i32>,
    /// Name of the priority class.
    pub priority_class: Option<String>,
    /// It comes from a file of the node, directly or as a mirror.
    pub is_static: bool,
    /// What is asked for by the pod as a whole.
    pub resources: Option<Resources>,
    /// What running it costs on top.
    pub overhead: Amounts,
    /// Containers; init containers and sidecars in the order in which they start.
    pub containers: Vec<Container>,
    /// Volumes.
    pub volumes: Vec<VolumeSpec>,
    /// Seconds that it asks for to terminate by itself; `None` where it does not say, and Kubernetes takes 30.
    pub termination_grace: Option<Secs>,
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        alloc::format!("{}/{}", self.namespace, self.name)
    }

    /// Fills in what the API server's defaults fill in: a limit without a request is also the request, and a pod's requests follow from its containers' or from its limits.
    pub fn apply_defaults(&mut self) {
        for container in &mut self.containers {
            let Resources { requests, limits } = &mut container.resources;
            for (name, limit) in limits.iter() {
                if requests.get(name).is_none() {
                    requests.set(name, limit);
                }
            }
        }
        let sums = self.sum(|resources| &resources.requests, |_| {});
        let all_limits = self.sum(|resources| &resources.limits, |_| {});
        let Some(Resources { requests, limits }) = &mut self.resources else { return };
        // Huge pages of containers are the pod's limit too, where it says anything but nothing of them.
        if !requests.is_empty() || !limits.is_empty() {
            for (name, sum) in all_limits.iter().filter(|(name, _)| amounts::is_huge_page(name)) {
                if requests.get(name).is_none() && limits.get(name).is_none() {
                    limits.set(name, sum);
                }
            }
        }
        if limits.is_empty() {
            return;
        }
        for (name, sum) in sums.iter().filter(|(name, _)| matches!(*name, CPU | MEMORY)) {
            if requests.get(name).is_none() {
                requests.set(name, sum);
            }
        }
        for (name, limit) in limits.iter().filter(|(name, _)| counts_for_pod(name)) {
            if requests.get(name).is_none() {
                requests.set(name, limit);
            }
        }
    }

    /// What the pod asks for as a whole.
    #[must_use]
    pub fn requests(&self) -> Amounts {
        let mut sums = self.sum(|resources| &resources.requests, |_| {});
        self.replace(&mut sums, |resources| &resources.requests);
        sums.add(&self.overhead);
        sums
    }

    /// What the pod may use as a whole, and of which resources every part of it has a limit.
    #[must_use]
    pub fn limits(&self) -> PodLimits {
        let (mut all_cpu, mut all_memory) = (true, true);
        let mut amounts = self.sum(
            |resources| &resources.limits,
            |limits| {
                all_cpu &= limits.has(CPU);
                all_memory &= limits.has(MEMORY);
            },
        );
        if let Some(whole) = &self.resources {
            all_cpu |= whole.limits.has(CPU);
            all_memory |= whole.limits.has(MEMORY);
        }
        self.replace(&mut amounts, |resources| &resources.limits);
        for (name, overhead) in self.overhead.iter() {
            if let Some(limit) = amounts.get(name).filter(|limit| !limit.is_zero()) {
                amounts.set(name, limit.plus(overhead));
            }
        }
        PodLimits { amounts, all_cpu, all_memory }
    }

    /// The pod's class of service.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.qos.unwrap_or_else(|| self.computed_qos())
    }

    /// Whether all that it asks for is known. A BestEffort pod asks for nothing.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.source == Source::Manifest || self.qos() == Qos::BestEffort
    }

    /// Whether the kubelet would never evict it.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        is_critical(self.is_static, false, self.priority)
    }

    /// Whether the node cannot do without it.
    #[must_use]
    pub fn is_node_critical(&self) -> bool {
        self.is_critical() && self.priority_class.as_deref() == Some(NODE_CRITICAL)
    }

    /// The class by requests and limits; sums are compared, as the kubelet does, not container by container.
    fn computed_qos(&self) -> Qos {
        let (mut requests, mut limits) = (Amounts::none(), Amounts::none());
        let mut all_limited = true;
        let mut take = |resources: &Resources| {
            requests.add(&positive(&resources.requests));
            let found = positive(&resources.limits);
            all_limited &= found.has(CPU) && found.has(MEMORY);
            limits.add(&found);
        };
        match &self.resources {
            // Without limits there is nothing that could equal the requests.
            Some(whole) => take(whole),
            None => {
                let counted = self.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral);
                counted.for_each(|container| take(&container.resources));
            }
        }
        if requests.is_empty() && limits.is_empty() {
            return Qos::BestEffort;
        }
        let is_equal = requests.iter().all(|(name, request)| limits.get(name) == Some(request))
            && requests.iter().count() == limits.iter().count();
        if all_limited && is_equal { Qos::Guaranteed } else { Qos::Burstable }
    }

    /// The containers' amounts together; `see` is shown what counts for each of them.
    fn sum(&self, pick: impl Fn(&Resources) -> &Amounts, mut see: impl FnMut(&Amounts)) -> Amounts {
        let (mut sum, mut sidecars, mut starting) =
            (Amounts::none(), Amounts::none(), Amounts::none());
        for container in &self.containers {
            let own = pick(&container.resources);
            match container.kind {
                ContainerKind::Regular => {
                    see(own);
                    sum.add(own);
                }
                ContainerKind::Sidecar => {
                    sum.add(own);
                    sidecars.add(own);
                    see(&sidecars);
                    starting.raise_to(&sidecars);
                }
                ContainerKind::Init => {
                    let mut beside = own.clone();
                    beside.add(&sidecars);
                    see(&beside);
                    starting.raise_to(&beside);
                }
                ContainerKind::Ephemeral => {}
            }
        }
        sum.raise_to(&starting);
        sum
    }

    /// Lets the pod's own amounts replace the containers'.
    fn replace(&self, sums: &mut Amounts, pick: impl Fn(&Resources) -> &Amounts) {
        let Some(whole) = &self.resources else { return };
        for (name, amount) in pick(whole).iter().filter(|(name, _)| counts_for_pod(name)) {
            sums.set(name, amount);
        }
    }

    /// Requests of all containers together, without the pod's own.
    #[must_use]
    pub fn container_requests(&self) -> Amounts {
        self.sum(|resources| &resources.requests, |_| {})
    }
}

/// A pod's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLimits {
    /// By resource.
    pub amounts: Amounts,
    /// Every part of the pod has a CPU limit.
    pub all_cpu: bool,
    /// Every part of the pod has a memory limit.
    pub all_memory: bool,
}

/// Whether a pod as a whole can ask for the resource.
fn counts_for_pod(name: &str) -> bool {
    matches!(name, CPU | MEMORY) || amounts::huge_page_size(name).is_some()
}

/// CPU and memory, where they are above zero.
fn positive(amounts: &Amounts) -> Amounts {
    let counts =
        |(name, amount): &(&str, Quantity)| matches!(*name, CPU | MEMORY) && amount.is_positive();
    amounts.iter().filter(counts).collect()
}

impl core::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}://{}", self.runtime, self.id)
    }
}

impl ContainerId {
    /// Both parts become parts of a cgroup's path and of a unit's name.
    ///
    /// # Errors
    /// Which part is not a plain name.
    pub fn new(runtime: &str, id: &str) -> Result<ContainerId, &'static str> {
        let is_plain = |text: &str| {
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            !text.is_empty()
                && text.len() <= LONGEST
                && !text.starts_with('.')
                && text.bytes().all(is_plain)
        };
        if !is_plain(runtime) {
            return Err(
                "the runtime before `://` may only have letters, digits, `-`, `_` and `.`, at most 128: it becomes part of a path; write one such as `containerd`",
            );
        }
        if !is_plain(id) {
            return Err(
                "the id after `://` may only have letters, digits, `-`, `_` and `.`, at most 128: it becomes part of a path",
            );
        }
        Ok(ContainerId { runtime: runtime.to_string(), id: id.to_string() })
    }
}

/// Bytes of a name that becomes part of a path.
const LONGEST: usize = 128;

impl core::str::FromStr for ContainerId {
    type Err = &'static str;

    /// Reads `containerd://<id>`.
    fn from_str(text: &str) -> Result<ContainerId, &'static str> {
        let (runtime, id) = text.split_once("://").ok_or("it is not `runtime://id`")?;
        ContainerId::new(runtime, id)
    }
}
