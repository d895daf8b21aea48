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
/// Nobody waits longer for a start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// What a last question may take.
const MARGIN: Duration = Duration::from_secs(60);
/// Listed after all others.
const LAST: &str = "zzz";

/// What a start took.
#[derive(Debug)]
pub(crate) struct Start {
    /// From the start of the process until garbage that was there before it is gone; or until that was given up.
    pub(crate) seconds: f64,
    pub(crate) is_given_up: bool,
    /// Lists and watches are left out.
    pub(crate) requests: u64,
    pub(crate) resident: u64,
}

/// Writes ConfigMaps and Secrets into a hundred namespaces: each owner has two dependents of the other kind.
///
/// So it does not matter which kind a collector lists first: half of the owners are named before they are seen.
pub(crate) fn fill(plane: &Plane, owned: usize) -> Result<()> {
    let namespace = |owner: usize| format!("owned-{}", owner % 100);
    let kinds = |owner: usize| {
        let (configmap, secret) = (("ConfigMap", "configmaps"), ("Secret", "secrets"));
        if (owner / 100).is_multiple_of(2) { (configmap, secret) } else { (secret, configmap) }
    };
    let dependent = |number: usize| {
        let owner = number / OF_ONE;
        let ((of, _), (kind, resource)) = kinds(owner);
        let (namespace, name) = (namespace(owner), format!("workload-{number}"));
        let mut object = object(kind, &namespace, &name, &uid(1, number));
        object["metadata"]["ownerReferences"] =
            json!([reference(of, &format!("owner-{owner}"), &uid(2, owner))]);
        (key(resource, &namespace, &name), object)
    };
    let owner = |owner: usize| {
        let ((kind, resource), _) = kinds(owner);
        let (namespace, name) = (namespace(owner), format!("owner-{owner}"));
        (key(resource, &namespace, &name), object(kind, &namespace, &name, &uid(2, owner)))
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

/// Starts a collector beside what was written, and waits for it no longer than `patience`.
pub(crate) fn measure(
    collector: Collector,
    limits: Limits,
    patience: Duration,
    plane: &Plane,
    assets: &Path,
) -> Result<Start> {
    let api = plane.api(User::Admin)?;
    let mut garbage = object("Secret", LAST, LAST, &uid(3, 0));
    garbage["metadata"]["ownerReferences"] = json!([reference("ConfigMap", "never", &uid(4, 0))]);
    plane.store().put([(key("secrets", LAST, LAST), garbage)].into_iter())?;
    let before = counts::requests(&api)?;
    let begun = Instant::now();
    let mut running = Running::measured(collector, limits, plane, assets)?;
    let path = format!("/api/v1/namespaces/{LAST}/secrets?limit=1");
    let mut is_given_up = false;
    wait::until_some(
        patience + MARGIN,
        || format!("{collector:?} collects the last object"),
        || {
            running.runs()?;
            let is_gone = api.get(&path)?["items"].as_array().is_some_and(Vec::is_empty);
            is_given_up = !is_gone && begun.elapsed() >= patience;
            Ok((is_gone || is_given_up).then_some(()))
        },
    )?;
    let seconds = begun.elapsed().as_secs_f64();
    let requests = counts::requests(&api)? - before;
    let resident = running.resident()?;
    eprintln!(
        "{collector:?} {limits:?} started: {seconds:.1} s{}, {requests} requests, {} MiB",
        if is_given_up { " (given up)" } else { "" },
        resident >> 20
    );
    running.end()?;
    plane.store().remove(&format!("/registry/secrets/{LAST}/"))?;
    Ok(Start { seconds, is_given_up, requests, resident })
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

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
}
