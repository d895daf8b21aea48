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
/// Clients that do a collector's work, where there is none.
const HANDS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(900);

/// What is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Deployments, each with a ReplicaSet, which has a Pod.
    Chains(Policy),
    /// One ConfigMap that owns many.
    FanOut(Policy),
}

/// Who deletes what the owners leave behind.
pub(crate) enum By<'a> {
    /// A collector, which has to find out.
    Collector(&'a mut Running),
    /// Clients that know what is there and watch nothing: what the control plane takes for the writes alone.
    Hands,
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
    /// Processor time for each object that it had to delete or release, in milliseconds: of the API server and etcd, and of the collector.
    pub(crate) plane: f64,
    pub(crate) own: f64,
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
pub(crate) fn measure(case: Case, count: usize, mut by: By<'_>, plane: &Plane) -> Result<Taken> {
    let api = plane.api(User::Admin)?;
    let (namespace, paths) = new_namespace(&api)?;
    let owners = make(case, count, &api, &paths)?;
    if let By::Collector(running) = &mut by {
        // What is asked of it now is done after everything that it has still to do.
        running.collects(&api)?;
    }
    thread::sleep(Duration::from_secs(1));
    let before = counts::requests(&api)?;
    let used = (plane.processor_time()?, own(&by)?);
    let mut seconds = 0.0;
    let unrelated = probe::during(&api, || {
        let begun = Instant::now();
        match &mut by {
            By::Collector(running) => {
                let options = case.policy().options();
                in_parallel(CLIENTS, owners.len(), |number| api.delete(&owners[number], &options))?;
                wait::until_some(
                    PATIENCE,
                    || format!("{} are gone", case.name()),
                    || {
                        running.runs()?;
                        Ok(paths.are_empty(&api, case)?.then_some(()))
                    },
                )?;
            }
            By::Hands => hands::delete(case, count, &api, &paths)?,
        }
        seconds = begun.elapsed().as_secs_f64();
        Ok(())
    })?;
    let used = (plane.processor_time()? - used.0, own(&by)? - used.1);
    let requests = counts::requests(&api)? - before - owners.len() as u64;
    ensure!(paths.are_empty(&api, case)?, "{}: something is left", case.name());
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
    let (requests, each) = (requests as f64 / acted_on as f64, 1_000.0 / acted_on as f64);
    Ok(Taken { seconds, requests, unrelated, plane: used.0 * each, own: used.1 * each })
}

/// How long an unrelated client's reads take while the same clients delete owners of nothing, and no collector runs.
pub(crate) fn alone(count: usize, plane: &Plane) -> Result<Latency> {
    let api = plane.api(User::Admin)?;
    let (_, paths) = new_namespace(&api)?;
    in_parallel(CLIENTS, count, |number| deployment(&api, &paths, number).map(drop))?;
    thread::sleep(Duration::from_secs(1));
    probe::during(&api, || {
        in_parallel(CLIENTS, count, |number| {
            api.delete(&format!("{}/d{number}", paths.deployments), &Policy::Background.options())
        })
    })
}

/// How long an unrelated client's reads take while one other deletes owned objects one after the other, and no collector runs: no collector asks for less at a time.
pub(crate) fn one_by_one(count: usize, plane: &Plane) -> Result<Latency> {
    let api = plane.api(User::Admin)?;
    let (_, paths) = new_namespace(&api)?;
    let owner = make(Case::FanOut(Policy::Background), count, &api, &paths)?;
    thread::sleep(Duration::from_secs(1));
    let taken = probe::during(&api, || {
        in_parallel(1, count, |number| {
            let path = format!("{}/c{number}", paths.configmaps);
            api.delete(&path, &Policy::Background.options())
        })
    })?;
    owner.iter().try_for_each(|path| api.delete(path, &Policy::Background.options()))?;
    Ok(taken)
}

fn own(by: &By<'_>) -> Result<f64> {
    match by {
        By::Collector(running) => running.processor_time(),
        By::Hands => Ok(0.0),
    }
}

/// Nothing of an earlier measurement is in it.
fn new_namespace(api: &Api) -> Result<(String, Paths)> {
    let namespace = json!({"metadata": {"generateName": "cascade-"}});
    let name = text(&api.create("/api/v1/namespaces", &namespace)?, "name")?;
    let paths = Paths::of(&name);
    Ok((name, paths))
}

/// Makes everything, and returns the paths of the owners.
fn make(case: Case, count: usize, api: &Api, paths: &Paths) -> Result<Vec<String>> {
    match case {
        Case::Chains(_) => {
            in_parallel(CLIENTS, count, |number| chain(api, paths, number))?;
            Ok((0..count).map(|n| format!("{}/d{n}", paths.deployments)).collect())
        }
        Case::FanOut(_) => {
            let owner = api.create(&paths.configmaps, &json!({"metadata": {"name": "owner"}}))?;
            in_parallel(CLIENTS, count, |number| {
                let dependent = owned(&format!("c{number}"), "v1", "ConfigMap", &owner)?;
                api.create(&paths.configmaps, &dependent).map(drop)
            })?;
            Ok(vec![format!("{}/owner", paths.configmaps)])
        }
    }
}

/// The requests that a collector would have to send, by clients who know them.
mod hands {
    use super::{Case, HANDS, Paths, in_parallel};
    use anyhow::Result;
    use ebb_cluster_tests::api::{Api, Policy};
    use serde_json::json;

    pub(super) fn delete(case: Case, count: usize, api: &Api, paths: &Paths) -> Result<()> {
        let Paths { deployments, replicasets, pods, configmaps } = paths;
        let policy = case.policy();
        let delete = |path: &str, name: &str, policy: Policy| {
            api.delete(&format!("{path}/{name}"), &policy.options())
        };
        let patch = |path: &str, name: &str, key: &str| {
            let patch = json!({ "metadata": { key: [] } });
            api.merge(&format!("{path}/{name}"), &patch).map(drop)
        };
        match case {
            Case::Chains(_) => in_parallel(HANDS, count, |number| {
                let [d, r, p] = ["d", "r", "p"].map(|of| format!("{of}{number}"));
                delete(deployments, &d, policy)?;
                match policy {
                    Policy::Orphan => patch(replicasets, &r, "ownerReferences")?,
                    Policy::Foreground => {
                        delete(replicasets, &r, policy)?;
                        delete(pods, &p, Policy::Background)?;
                        patch(replicasets, &r, "finalizers")?;
                    }
                    Policy::Background | Policy::Unsaid => {
                        delete(replicasets, &r, policy)?;
                        delete(pods, &p, policy)?;
                    }
                }
                if matches!(policy, Policy::Orphan | Policy::Foreground) {
                    patch(deployments, &d, "finalizers")?;
                }
                Ok(())
            }),
            Case::FanOut(_) => {
                delete(configmaps, "owner", policy)?;
                in_parallel(HANDS, count, |number| {
                    delete(configmaps, &format!("c{number}"), Policy::Background)
                })?;
                if policy == Policy::Foreground {
                    patch(configmaps, "owner", "finalizers")?;
                }
                Ok(())
            }
        }
    }
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

fn deployment(api: &Api, paths: &Paths, number: usize) -> Result<Value> {
    let deployment =
        json!({"metadata": {"name": format!("d{number}")}, "spec": replicated(number)});
    api.create(&paths.deployments, &deployment)
}

fn replicated(number: usize) -> Value {
    let labels = json!({"app": format!("a{number}")});
    let template = json!({"metadata": {"labels": labels}, "spec": pod()});
    json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template})
}

fn pod() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

fn chain(api: &Api, paths: &Paths, number: usize) -> Result<()> {
    let deployment = deployment(api, paths, number)?;
    let mut replicaset = owned(&format!("r{number}"), "apps/v1", "Deployment", &deployment)?;
    replicaset["spec"] = replicated(number);
    let replicaset = api.create(&paths.replicasets, &replicaset)?;
    let mut of_it = owned(&format!("p{number}"), "apps/v1", "ReplicaSet", &replicaset)?;
    of_it["spec"] = pod();
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

fn in_parallel(
    clients: usize,
    count: usize,
    what: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
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
        let workers: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}
