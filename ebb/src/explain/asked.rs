//! What is asked about on a node, and which of its workloads that is.

use crate::cluster::Target;
use anyhow::{anyhow, ensure};
use ebb_agent::sense::tree::pod_uid;
use ebb_policy::Snapshot;
use ebb_policy::snapshot::{Workload, WorkloadKind};
use serde::Serialize;
use std::collections::BTreeMap;

/// How like a name another has to be, at least, to be offered in its place.
const LIKENESS: f64 = 0.85;

/// Where cgroups are mounted as a rule: a path is pasted with that before it.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup/unified", "sys/fs/cgroup"];

/// Names that are offered at most.
const OFFERED: usize = 3;

/// The cgroups of pods by their UIDs: paths below the mount with a slash before them.
pub(super) type PodCgroups = BTreeMap<String, String>;

/// What is asked about.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "asked")]
pub(super) enum Asked {
    /// A pod, as `namespace/name`.
    Pod(String),
    /// A cgroup: its path below the mount, with a slash before it.
    Cgroup(String),
}

impl Asked {
    /// What a target asks about on a node; `None` for what only a cluster has.
    pub(super) fn of(target: &Target) -> Option<Self> {
        if let Some(path) = target.on_node("cgroup") {
            let below = |mount| path.trim_start_matches('/').strip_prefix(mount);
            let below = MOUNTS.into_iter().find_map(below).filter(|rest| rest.starts_with('/'));
            let path = below.unwrap_or(path);
            let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            return Some(Self::Cgroup(format!("/{}", parts.join("/"))));
        }
        let name = target.pod()?;
        Some(Self::Pod(format!("{}/{name}", target.namespace().unwrap_or_default())))
    }

    /// Refuses what cannot be looked for.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Pod(name) => match name.split_once('/') {
                Some(("", name)) => {
                    Err(anyhow!("pod/{name}: in which namespace? Give it with -n NAMESPACE"))
                }
                _ => Ok(()),
            },
            Self::Cgroup(path) => {
                ensure!(
                    path != "/",
                    "cgroup/: which one? Give its path below the mount, as in cgroup/system.slice/web.service"
                );
                Ok(())
            }
        }
    }

    /// By which name it is recorded, unless it is part of something else.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Pod(name) | Self::Cgroup(name) => name,
        }
    }

    /// What it is.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Cgroup(_) => "cgroup",
        }
    }

    /// The workload that it is, or lies in: of a cgroup the pod or the cgroup that it lies in.
    pub(super) fn find<'a>(
        &self,
        snapshot: &'a Snapshot,
        pods: &PodCgroups,
    ) -> Option<&'a Workload> {
        let mut all = snapshot.workloads.iter();
        let path = match self {
            Self::Pod(name) => {
                return all.find(|w| w.kind == WorkloadKind::Pod && w.key.name == *name);
            }
            Self::Cgroup(path) => path,
        };
        // A pod of which nothing runs any more has no cgroups that are known, but its UID is in the path.
        let uid = path.split('/').rev().find_map(|part| pod_uid(part.as_bytes()));
        let holds = |above: &str| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let cgroup = |workload: &Workload| match workload.kind {
            WorkloadKind::Pod => pods.get(workload.key.uid.as_ref()?).cloned(),
            WorkloadKind::Cgroup => Some(workload.key.name.clone()),
            WorkloadKind::Process => None,
        };
        // The innermost: one workload may lie in another.
        all.filter_map(|workload| Some((cgroup(workload)?, workload)))
            .filter(|(above, _)| holds(above))
            .max_by_key(|(above, _)| above.len())
            .map(|(_, workload)| workload)
            .or_else(|| {
                let is_it = |w: &&Workload| uid.is_some() && w.key.uid == uid;
                snapshot.workloads.iter().find(is_it)
            })
    }

    /// That nothing is known of it, and what is: the workloads of the node, and how many records there are.
    pub(super) fn unknown(
        &self,
        workloads: Option<&[Workload]>,
        records: Option<usize>,
    ) -> anyhow::Error {
        let (word, name) = (self.word(), self.name());
        let is_alike = |workload: &&Workload| match self {
            Self::Pod(_) => workload.kind == WorkloadKind::Pod,
            Self::Cgroup(_) => workload.kind == WorkloadKind::Cgroup,
        };
        let alike = workloads.into_iter().flatten().filter(is_alike);
        let mut names: Vec<(f64, &str)> =
            alike.map(|w| (strsim::jaro_winkler(&w.key.name, name), w.key.name.as_str())).collect();
        let of = if matches!(self, Self::Pod(_)) { "pods" } else { "workloads" };
        let here = workloads.map(|all| {
            let many = if matches!(self, Self::Pod(_)) { names.len() } else { all.len() };
            format!("the {many} {of} of this node")
        });
        let recorded = records.map(|records| format!("the records of incidents ({records})"));
        let places: Vec<String> = here.into_iter().chain(recorded).collect();
        let own = name.rsplit('/').next();
        let below = format!("{name}/");
        names.retain(|(like, other)| {
            *like >= LIKENESS || other.rsplit('/').next() == own || other.starts_with(&below)
        });
        names.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let near: Vec<&str> = names.iter().take(OFFERED).map(|(_, name)| *name).collect();
        let hint = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean {}?", near.join(", ")),
        };
        match places.as_slice() {
            [] => anyhow!(
                "{word} {name}: with --cri none and no records of incidents nothing is known of any pod"
            ),
            places => anyhow!("{word} {name}: it is not among {}{hint}", places.join(" nor in ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::snapshot::WorkloadKey;

    fn workload(kind: WorkloadKind, name: &str, uid: Option<&str>) -> Workload {
        let key = WorkloadKey {
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
            ..WorkloadKey::default()
        };
        Workload { key, kind, ..Workload::default() }
    }

    #[test]
    fn a_cgroup_goes_with_the_innermost_workload_that_it_lies_in() {
        let snapshot = Snapshot {
            workloads: vec![
                workload(WorkloadKind::Cgroup, "/apps", None),
                workload(WorkloadKind::Cgroup, "/apps/web", None),
                workload(WorkloadKind::Pod, "ns/db", Some("u")),
                workload(
                    WorkloadKind::Pod,
                    "ns/ended",
                    Some("0c7e8f0e-5a7a-4a6b-9c44-0123456789ab"),
                ),
            ],
            ..Snapshot::at(ebb_policy::Time(0))
        };
        let ended = "0c7e8f0e-5a7a-4a6b-9c44-0123456789ab";
        let pods = PodCgroups::from([("u".to_owned(), "/kubepods/podu".to_owned())]);
        let found = |path: &str| {
            let asked = Asked::Cgroup(path.to_owned());
            asked.find(&snapshot, &pods).map(|workload| workload.key.name.as_str())
        };
        assert_eq!(found("/apps/web/worker"), Some("/apps/web"));
        assert_eq!(found("/apps/web"), Some("/apps/web"));
        assert_eq!(found("/apps/web2"), Some("/apps"), "a name that begins alike is another");
        assert_eq!(found("/kubepods/podu/main"), Some("ns/db"));
        assert_eq!(found("/kubepods"), None, "what is above a workload is none");
        assert_eq!(found("/ns/db"), None);
        assert_eq!(found(&format!("/kubepods/pod{ended}/main")), Some("ns/ended"));
    }

    #[test]
    fn who_asks_above_the_workloads_is_told_of_those_below() {
        let all = [workload(WorkloadKind::Cgroup, "/system.slice/web.service", None)];
        let asked = Asked::Cgroup("/system.slice".to_owned());
        assert_eq!(
            asked.unknown(Some(&all), None).to_string(),
            "cgroup /system.slice: it is not among the 1 workloads of this node; did you mean /system.slice/web.service?"
        );
    }
}
