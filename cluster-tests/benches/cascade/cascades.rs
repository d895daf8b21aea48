//! Owners and dependents, and how long it takes until the last of them is gone.
use crate::counts;
use crate::probe::{self, Latency};
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::{Api, Policy};
use ebb_cluster_tests::collector::Running;
use ebb_cluster_tests::plane::{Plane, User};
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients that make or delete at the same time.
const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(900);

/// What is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Deployments, each with a ReplicaSet, which has a Pod.
    Chains(Policy),
    /// One ConfigMap that owns many.
    FanOut(Policy),
}

/// In this order.
pub(crate) const CASES: [Case; 5] = [
    Case::Chains(Policy::Background),
    Case::Chains(Policy::Foreground),
    Case::Chains(Policy::Orphan),
    Case::FanOut(Policy::Background),
    Case::FanOut(Policy::Foreground),
];

/// What a cascade took.
#[derive(Debug)]
pub(crate) struct Taken {
    /// From the first delete until the last object is gone.
    pub(crate) seconds: f64,
    /// Of the collector, for each object that it had to delete or, in the case of `orphan`, to release.
    pub(crate) requests: f64,
    pub(crate) unrelated: Latency,
}

impl Case {
    pub(crate) fn name(self) -> String {
        let (what, policy) = match self {
            Self::Chains(policy) => ("chains", policy),
            Self::FanOut(policy) => ("fan-out", policy),
        };
        format!("{what}, {}", format!("{policy:?}").to_lowercase())
    }

    fn policy(self) -> Policy {
        match self {
            Self::Chains(policy) | Self::FanOut(policy) => policy,
        }
    }
}

/// Makes what is to be deleted, lets the collector come to rest, and deletes it.
pub(crate) fn measure(
    case: Case,
    count: usize,
    running: &mut Running,
    plane: &Plane,
) -> Result<Taken> {
    let api = plane.api(User::Admin)?;
    let made =
        api.create("/api/v1/namespaces", &json!({"metadata": {"generateName": "cascade-"}}))?;
    let namespace = text(&made, "name")?;
    let paths = Paths::of(&namespace);
    let owners = match case {
        Case::Chains(_) => {
            let made = in_parallel(count, |number| chain(&api, &paths, number));
            made.map(|_| (0..count).map(|n| format!("{}/d{n}", paths.deployments)).collect())?
        }
        Case::FanOut(_) => {
            let owner = api.create(&paths.configmaps, &json!({"metadata": {"name": "owner"}}))?;
            in_parallel(count, |number| {
                let dependent = owned(&format!("c{number}"), "v1", "ConfigMap", &owner)?;
                api.create(&paths.configmaps, &dependent).map(drop)
            })?;
            vec![format!("{}/owner", paths.configmaps)]
        }
    };
    // What is asked of it now is done after everything that it has still to do.
    running.collects(&api)?;
    thread::sleep(Duration::from_secs(1));
    let before = counts::requests(&api)?;
    let options = case.policy().options();
    let mut seconds = 0.0;
    let unrelated = probe::during(&api, || {
        let begun = Instant::now();
        in_parallel(owners.len(), |number| api.delete(&owners[number], &options))?;
        wait::until_some(
            PATIENCE,
            || format!("{} are gone", case.name()),
            || {
                running.runs()?;
                Ok(paths.are_empty(&api, case)?.then_some(()))
            },
        )?;
        seconds = begun.elapsed().as_secs_f64();
        Ok(())
    })?;
    let requests = counts::requests(&api)? - before - owners.len() as u64;
    if case.policy() == Policy::Orphan {
        are_released(&api, &paths, count)?;
        for kind in ["pods", "replicasets"] {
            plane.store().remove(&format!("/registry/{kind}/{namespace}/"))?;
        }
    }
    let acted_on = match case {
        Case::Chains(Policy::Orphan) | Case::FanOut(_) => count,
        Case::Chains(_) => count * 2,
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let requests = requests as f64 / acted_on as f64;
    Ok(Taken { seconds, requests, unrelated })
}

struct Paths {
    deployments: String,
    replicasets: String,
    pods: String,
    configmaps: String,
}

impl Paths {
    fn of(namespace: &str) -> Self {
        let apps = format!("/apis/apps/v1/namespaces/{namespace}");
        let core = format!("/api/v1/namespaces/{namespace}");
        Self {
            deployments: format!("{apps}/deployments"),
            replicasets: format!("{apps}/replicasets"),
            pods: format!("{core}/pods"),
            configmaps: format!("{core}/configmaps"),
        }
    }

    /// Whether everything is gone that should go; one list of at most one object costs the server next to nothing.
    fn are_empty(&self, api: &Api, case: Case) -> Result<bool> {
        let all: &[&String] = match case {
            Case::Chains(Policy::Orphan) => &[&self.deployments],
            Case::Chains(_) => &[&self.deployments, &self.replicasets, &self.pods],
            // That of the namespace's certificates is not made by anybody here.
            Case::FanOut(_) => &[&self.configmaps],
        };
        for path in all {
            let list = api.get(&format!("{path}?limit=1"))?;
            if list["items"].as_array().is_none_or(|items| !items.is_empty()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn are_released(api: &Api, paths: &Paths, count: usize) -> Result<()> {
    let list = api.get(&paths.replicasets)?;
    let items = list["items"].as_array().context("a list without items")?;
    let owned = items.iter().filter(|item| !item["metadata"]["ownerReferences"].is_null()).count();
    ensure!(items.len() == count && owned == 0, "{} of {count} left, {owned} owned", items.len());
    Ok(())
}

fn chain(api: &Api, paths: &Paths, number: usize) -> Result<()> {
    let labels = json!({"app": format!("a{number}")});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": format!("d{number}")}, "spec": spec});
    let deployment = api.create(&paths.deployments, &deployment)?;
    let mut replicaset = owned(&format!("r{number}"), "apps/v1", "Deployment", &deployment)?;
    replicaset["spec"] = spec;
    let replicaset = api.create(&paths.replicasets, &replicaset)?;
    let mut of_it = owned(&format!("p{number}"), "apps/v1", "ReplicaSet", &replicaset)?;
    of_it["spec"] = pod;
    api.create(&paths.pods, &of_it).map(drop)
}

fn owned(name: &str, api_version: &str, kind: &str, owner: &Value) -> Result<Value> {
    Ok(json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": api_version, "kind": kind, "name": text(owner, "name")?, "uid": text(owner, "uid")?,
        "controller": true, "blockOwnerDeletion": true,
    }]}}))
}

fn text(object: &Value, key: &str) -> Result<String> {
    let text = object["metadata"][key].as_str();
    text.map(str::to_owned).with_context(|| format!("an object without {key}"))
}

fn in_parallel(count: usize, what: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                what(number)?;
            }
        };
        let workers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}
