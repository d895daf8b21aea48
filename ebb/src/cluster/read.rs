//! A cluster as a graph: the List that kubectl prints, checked, or what an API server has listed.
//!
//! Of each object only its metadata is read. Which kinds are namespaced follows from the objects themselves.

use crate::json;
use anyhow::{Context as _, ensure};
use ebb_policy_cluster::{
    Exclusions, Graph, Kind, Object, OwnerReference, Resource, Scope, State, Time, Uid,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The label by which the collector leaves an object as it is.
const HOLD: &str = "ebb.dev/hold";

/// A cluster.
pub(super) struct Cluster {
    pub(super) graph: Graph,
    /// The file, or the API server's URL.
    pub(super) source: String,
    pub(super) is_live: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: String,
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: Option<String>,
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
    #[serde(default)]
    block_owner_deletion: bool,
}

impl Cluster {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// It cannot be read, is no List, or an object in it is wrong: file, key and value.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let list: List = json::read(path)?;
        let source = path.display().to_string();
        Self::of(list, source.clone()).context(source)
    }

    /// What an API server has listed.
    pub(super) fn live(server: &str, listed: ebb_kube::Listed) -> Self {
        let mut graph = Graph::new(Exclusions::default());
        for object in listed.objects {
            graph.observe(object);
        }
        for (resource, scope, state) in listed.resources {
            graph.set_resource(resource, Some((scope, state)));
        }
        Self { graph, source: server.to_owned(), is_live: true }
    }

    /// What is said of an object that is not there.
    pub(super) fn absent(&self) -> &'static str {
        if self.is_live { "not there" } else { "not in the file" }
    }

    fn of(list: List, source: String) -> anyhow::Result<Self> {
        ensure!(
            list.kind == "List",
            "kind = {}: give the List that kubectl get KINDS -A -o json prints",
            list.kind
        );
        let mut graph = Graph::new(Exclusions::default());
        let mut scopes: BTreeMap<Resource, Scope> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (at, item) in list.items.into_iter().enumerate() {
            let object = object(item).with_context(|| format!("items[{at}]"))?;
            let scope = if object.namespace.is_some() { Scope::Namespaced } else { Scope::Cluster };
            let first = *scopes.entry(Resource::from(&object.kind)).or_insert(scope);
            ensure!(
                first == scope,
                "items[{at}].metadata.namespace: {} {} and others of its kind differ in whether they have one",
                object.kind,
                object.name
            );
            let uid = object.uid.clone();
            ensure!(
                seen.insert(uid.clone()),
                "items[{at}].metadata.uid = {uid}: another object has it too"
            );
            graph.observe(object);
        }
        for (resource, scope) in scopes {
            graph.set_resource(resource, Some((scope, State::Synced)));
        }
        Ok(Self { graph, source, is_live: false })
    }

    /// All objects, in the order of uids.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        self.graph.uids().filter_map(|uid| self.graph.object(uid))
    }

    /// The kinds that the file has, or that are served.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Resource> {
        self.graph.resources().map(|(resource, _)| resource)
    }
}

fn object(item: Item) -> anyhow::Result<Object> {
    let Item { api_version, kind, metadata } = item;
    ensure!(
        kind != "PartialObjectMetadata",
        "kind = PartialObjectMetadata: does not say of which kind the object is; give apiVersion and kind of the object itself"
    );
    ensure!(!metadata.uid.is_empty(), "metadata.uid: empty");
    let deleting_since = metadata
        .deletion_timestamp
        .map(|text| {
            time(&text).with_context(|| {
                format!(
                    "metadata.deletionTimestamp = {text}: give a time as in 2026-01-31T08:00:00Z"
                )
            })
        })
        .transpose()?;
    let owners = metadata.owner_references.into_iter().map(|reference| OwnerReference {
        kind: Kind::new(&reference.api_version, &reference.kind),
        name: reference.name,
        uid: Uid::new(&reference.uid),
        controller: reference.controller,
        block_owner_deletion: reference.block_owner_deletion,
    });
    Ok(Object {
        uid: Uid::new(&metadata.uid),
        kind: Kind::new(&api_version, &kind),
        namespace: metadata.namespace,
        name: metadata.name,
        resource_version: metadata.resource_version,
        owners: owners.collect(),
        finalizers: metadata.finalizers,
        deleting_since,
        held: metadata.labels.get(HOLD).is_some_and(|value| value == "true"),
    })
}

/// A time as the API server writes it: `YYYY-MM-DDTHH:MM:SSZ`, since 1970.
fn time(text: &str) -> Option<Time> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let parts: Vec<u64> = text.split(by).map(str::parse).collect::<Result<_, _>>().ok()?;
        parts.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(clock, ':')?);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    let is_there = (1970..=9999).contains(&year)
        && (1..=*months.get(before)?).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let days = years + months[..before].iter().sum::<u64>() + day.checked_sub(1)?;
    is_there.then_some(Time((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000))
}

#[cfg(test)]
mod tests {
    use super::time;
    use ebb_policy_cluster::Time;

    #[test]
    fn times_are_read_as_the_api_server_writes_them_and_others_are_refused() {
        assert_eq!(time("1970-01-01T00:00:00Z"), Some(Time(0)));
        assert_eq!(time("2024-02-29T12:30:01Z"), Some(Time(1_709_209_801_000)));
        assert_eq!(time("2026-11-24T03:16:20Z"), Some(Time(1_795_490_180_000)));
        for wrong in [
            "2023-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01",
            "yesterday",
            "2026-01-00T00:00:00Z",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
