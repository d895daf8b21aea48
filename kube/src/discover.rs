//! Discovery: which kinds are served, by which version each is read, and which can be watched.
//!
//! Groups are asked beside each other, and each has a deadline: one that hangs delays nobody else, and counts as failed.
//! The API server's own groups change with the server alone, and it says which they are: a look again asks only for the others.

use crate::call::{Api, Call};
use crate::catalogue::{ApiResource, Discovered};
use crate::failure::Failure;
use crate::list::METADATA_LIST;
use ebb_policy_cluster::{Kind, Resource, Scope};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a version of a group may take: as long as the API server waits for an aggregated one before it calls it unavailable.
const DEADLINE: Duration = Duration::from_secs(5);
/// Versions that are asked at the same time.
const AT_ONCE: usize = 8;
/// Kinds that own nothing and are many: they would fill watches for nothing.
const LEFT_OUT: [(&str, &str); 3] =
    [("", "Event"), ("events.k8s.io", "Event"), ("coordination.k8s.io", "Lease")];
/// Kinds that an old group serves beside the new one: the objects are the same, and so are their uids.
const TWICE: [(&str, &str, &str); 1] = [("extensions", "Ingress", "networking.k8s.io")];

#[derive(Deserialize)]
struct Versions {
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<Version>,
    preferred_version: Option<Version>,
}

#[derive(Deserialize, PartialEq)]
struct Version {
    version: String,
}

#[derive(Clone, PartialEq, Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Clone, PartialEq, Deserialize)]
struct Served {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// The versions of groups that the API server registers when it starts, by the names of their `APIService`s.
const OWN: &str = "/apis/apiregistration.k8s.io/v1/apiservices?labelSelector=kube-aggregator.kubernetes.io/automanaged=onstart";

#[derive(Deserialize)]
struct Services {
    items: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// How much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Everything.
    Whole,
    /// What may have changed while the API server ran; for its own groups their last answers stand.
    Again,
}

/// Discovery again and again, with what is worth keeping between looks.
#[derive(Default)]
pub struct Discovery {
    /// What each version served, and whether two looks in a row agreed on it.
    known: BTreeMap<Key, (Resources, bool)>,
}

/// A group and one of its versions.
type Key = (String, String);

impl Discovery {
    /// What is served now. Groups that cannot be asked are among the failed ones.
    ///
    /// # Errors
    /// The list of groups cannot be read: nothing is known then.
    pub async fn look(&mut self, api: &Api, look: Look) -> Result<Discovered, Failure> {
        let core: Versions = api.read(Call::get("get", "/api".into())).await?;
        let groups: Groups = api.read(Call::get("get", "/apis".into())).await?;
        let own = if look == Look::Again { own(api).await } else { BTreeSet::new() };
        let mut served: Vec<Key> =
            core.versions.into_iter().map(|version| (String::new(), version)).collect();
        for Group { name, versions, preferred_version } in groups.groups {
            // The preferred version first: a kind is read by the first version that has it.
            let preferred = preferred_version.iter();
            let others = versions.iter().filter(|v| preferred_version.as_ref() != Some(v));
            served.extend(preferred.chain(others).map(|of| (name.clone(), of.version.clone())));
        }
        self.known.retain(|version, _| served.contains(version));
        let is_settled = |key: &Key| {
            let is_own = own.contains(&format!("{}.{}", key.1, key.0));
            is_own && self.known.get(key).is_some_and(|(_, agrees)| *agrees)
        };
        let asked = served.iter().filter(|key| !is_settled(key)).cloned().collect();
        let mut answers = all(api, asked).await;
        let mut found = Discovered::default();
        // In their order, whoever was faster: a kind is read by the first version that has it.
        for key in served {
            match answers.remove(&key) {
                // Its last answer stands.
                None => {}
                Some(Ok(resources)) => {
                    let agrees = self.known.get(&key).is_some_and(|(known, _)| *known == resources);
                    self.known.insert(key.clone(), (resources, agrees));
                }
                Some(Err(failure)) => {
                    self.known.remove(&key);
                    found.failed.insert(key.0, format!("{}: {failure}", key.1));
                    continue;
                }
            }
            if let Some((resources, _)) = self.known.get(&key) {
                add(&key.0, &key.1, resources, &mut found.resources);
            }
        }
        leave_out(&mut found.resources);
        Ok(found)
    }
}

/// What these versions serve, asked beside each other.
async fn all(api: &Api, keys: Vec<Key>) -> BTreeMap<Key, Result<Resources, Failure>> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    for key in keys {
        let (api, turns) = (api.clone(), Arc::clone(&turns));
        asked.spawn(async move {
            let _turn = turns.acquire().await;
            let answer = api.served(&key).await;
            (key, answer)
        });
    }
    asked.join_all().await.into_iter().collect()
}

/// The API server's own versions; none where it does not say.
async fn own(api: &Api) -> BTreeSet<String> {
    let call = Call { accept: METADATA_LIST, ..Call::get("list", OWN.into()) };
    let services = api.read::<Services>(call).await.map(|services| services.items);
    services.unwrap_or_default().into_iter().map(|of| of.metadata.name).collect()
}

impl Api {
    /// What is served now. Groups that cannot be asked are among the failed ones.
    ///
    /// # Errors
    /// The list of groups cannot be read: nothing is known then.
    pub async fn discover(&self) -> Result<Discovered, Failure> {
        Discovery::default().look(self, Look::Whole).await
    }

    async fn served(&self, (group, version): &Key) -> Result<Resources, Failure> {
        let path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        self.read(Call { deadline: DEADLINE, ..Call::get("get", path) }).await
    }
}

fn add(group: &str, version: &str, served: &Resources, to: &mut BTreeMap<Resource, ApiResource>) {
    for Served { name, kind, namespaced, verbs } in &served.resources {
        // A subresource is a part of its resource.
        if name.contains('/') {
            continue;
        }
        let kind =
            Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.clone() };
        let can = |verb: &str| verbs.iter().any(|v| v == verb);
        let is_watched = can("list") && can("watch") && can("delete");
        let scope = if *namespaced { Scope::Namespaced } else { Scope::Cluster };
        // What cannot even be read, like a review, is nobody's owner.
        if !can("get") {
            continue;
        }
        let resource = Resource::from(&kind);
        to.entry(resource).or_insert(ApiResource { kind, plural: name.clone(), scope, is_watched });
    }
}

fn leave_out(resources: &mut BTreeMap<Resource, ApiResource>) {
    let key = |group: &str, kind: &str| Resource { group: group.into(), kind: kind.into() };
    for (group, kind) in LEFT_OUT {
        if let Some(of) = resources.get_mut(&key(group, kind)) {
            of.is_watched = false;
        }
    }
    for (group, kind, new) in TWICE {
        if resources.contains_key(&key(new, kind))
            && let Some(of) = resources.get_mut(&key(group, kind))
        {
            of.is_watched = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(text: &str) -> Resources {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn subresources_are_skipped_and_the_first_version_that_has_a_kind_is_used() {
        let all = r#"["get","list","watch","delete"]"#;
        let mut found = BTreeMap::new();
        let pods = format!(
            r#"{{"resources":[{{"name":"pods","kind":"Pod","namespaced":true,"verbs":{all}}},
            {{"name":"pods/status","kind":"Pod","namespaced":true,"verbs":["get"]}}]}}"#
        );
        add("batch", "v1", &served(&pods), &mut found);
        add("batch", "v1beta1", &served(&pods), &mut found);
        let of: Vec<_> = found.values().collect();
        assert_eq!(of.len(), 1);
        assert_eq!((of[0].kind.version.as_str(), of[0].plural.as_str()), ("v1", "pods"));
        assert!(of[0].is_watched);
    }

    #[test]
    fn events_leases_and_what_cannot_be_watched_are_left_unwatched() {
        let all = r#"["get","list","watch","delete"]"#;
        let mut found = BTreeMap::new();
        let events = format!(
            r#"{{"resources":[{{"name":"events","kind":"Event","namespaced":true,"verbs":{all}}},
            {{"name":"componentstatuses","kind":"ComponentStatus","namespaced":false,"verbs":["get","list"]}}]}}"#
        );
        add("", "v1", &served(&events), &mut found);
        leave_out(&mut found);
        assert!(found.values().all(|of| !of.is_watched), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
