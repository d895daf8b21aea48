//! How long a collector takes beside many owned objects until it collects the last one of them.
use crate::counts;
use anyhow::Result;
use ebb_cluster_tests::collector::{Collector, Limits, Running};
use ebb_cluster_tests::plane::{Plane, User};
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Objects of one owner.
const OF_ONE: usize = 2;
const PATIENCE: Duration = Duration::from_secs(900);
/// Listed after all others.
const LAST: &str = "zzz";

/// What a start took.
#[derive(Debug)]
pub(crate) struct Start {
    /// From the start of the process until garbage that was there before it is gone.
    pub(crate) seconds: f64,
    /// Lists and watches are left out.
    pub(crate) requests: u64,
    pub(crate) resident: u64,
}

/// Writes Secrets into a hundred namespaces, and ConfigMaps that own two of them each.
pub(crate) fn fill(plane: &Plane, owned: usize) -> Result<()> {
    let dependent = |number: usize| {
        let (owner, namespace) = (number / OF_ONE, format!("owned-{}", number / OF_ONE % 100));
        let name = format!("workload-{number}");
        let mut object = object("Secret", &namespace, &name, &uid(1, number));
        object["metadata"]["ownerReferences"] =
            json!([reference(&format!("owner-{owner}"), &uid(2, owner))]);
        (key("secrets", &namespace, &name), object)
    };
    let owner = |owner: usize| {
        let (namespace, name) = (format!("owned-{}", owner % 100), format!("owner-{owner}"));
        (
            key("configmaps", &namespace, &name),
            object("ConfigMap", &namespace, &name, &uid(2, owner)),
        )
    };
    plane.store().put((0..owned.div_ceil(OF_ONE)).map(owner))?;
    plane.store().put((0..owned).map(dependent))
}

/// Removes what was written.
pub(crate) fn empty(plane: &Plane) -> Result<()> {
    for number in 0..100 {
        for resource in ["secrets", "configmaps"] {
            plane.store().remove(&format!("/registry/{resource}/owned-{number}/"))?;
        }
    }
    Ok(())
}

/// Starts a collector beside what was written.
pub(crate) fn measure(
    collector: Collector,
    limits: Limits,
    plane: &Plane,
    assets: &Path,
) -> Result<Start> {
    let api = plane.api(User::Admin)?;
    let mut garbage = object("Secret", LAST, LAST, &uid(3, 0));
    garbage["metadata"]["ownerReferences"] = json!([reference("never", &uid(4, 0))]);
    plane.store().put([(key("secrets", LAST, LAST), garbage)].into_iter())?;
    let before = counts::requests(&api)?;
    let begun = Instant::now();
    let mut running = Running::measured(collector, limits, plane, assets)?;
    let path = format!("/api/v1/namespaces/{LAST}/secrets?limit=1");
    wait::until_some(
        PATIENCE,
        || format!("{collector:?} collects the last object"),
        || {
            running.runs()?;
            Ok(api.get(&path)?["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
        },
    )?;
    let seconds = begun.elapsed().as_secs_f64();
    let requests = counts::requests(&api)? - before;
    let resident = running.resident()?;
    eprintln!(
        "{collector:?} {limits:?} started: {seconds:.1} s, {requests} requests, {} MiB",
        resident >> 20
    );
    running.end()?;
    Ok(Start { seconds, requests, resident })
}

fn uid(of: usize, number: usize) -> String {
    format!("{of:08x}-0000-4000-8000-{number:012x}")
}

fn key(resource: &str, namespace: &str, name: &str) -> String {
    format!("/registry/{resource}/{namespace}/{name}")
}

fn object(kind: &str, namespace: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {
        "namespace": namespace, "name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
    }})
}

fn reference(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
}
