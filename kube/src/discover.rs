//! Discovery: which kinds are served, by which version each is read, and which can be watched.

use crate::call::{Api, Call};
use crate::catalogue::{ApiResource, Discovered};
use crate::failure::Failure;
use ebb_policy_cluster::{Kind, Resource, Scope};
use serde::Deserialize;
use std::collections::BTreeMap;

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

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

impl Api {
    /// What is served now. Groups that cannot be asked are among the failed ones.
    ///
    /// # Errors
    /// The list of groups cannot be read: nothing is known then.
    pub async fn discover(&self) -> Result<Discovered, Failure> {
        let core: Versions = self.read(Call::get("get", "/api".into())).await?;
        let groups: Groups = self.read(Call::get("get", "/apis".into())).await?;
        let mut found = Discovered::default();
        for version in core.versions {
            self.ask("", &version, format!("/api/{version}"), &mut found).await;
        }
        for Group { name, versions, preferred_version } in groups.groups {
            // The preferred version first: a kind is read by the first version that has it.
            let preferred = preferred_version.iter();
            let others = versions.iter().filter(|v| preferred_version.as_ref() != Some(v));
            for Version { version } in preferred.chain(others) {
                self.ask(&name, version, format!("/apis/{name}/{version}"), &mut found).await;
            }
        }
        leave_out(&mut found.resources);
        Ok(found)
    }

    async fn ask(&self, group: &str, version: &str, path: String, found: &mut Discovered) {
        match self.read::<Resources>(Call::get("get", path)).await {
            Ok(served) => add(group, version, served, &mut found.resources),
            Err(failure) => {
                found.failed.insert(group.to_owned(), format!("{version}: {failure}"));
            }
        }
    }
}

fn add(group: &str, version: &str, served: Resources, to: &mut BTreeMap<Resource, ApiResource>) {
    for Served { name, kind, namespaced, verbs } in served.resources {
        // A subresource is a part of its resource.
        if name.contains('/') {
            continue;
        }
        let kind = Kind { group: group.to_owned(), version: version.to_owned(), kind };
        let can = |verb: &str| verbs.iter().any(|v| v == verb);
        let is_watched = can("list") && can("watch") && can("delete");
        let scope = if namespaced { Scope::Namespaced } else { Scope::Cluster };
        // What cannot even be read, like a review, is nobody's owner.
        if !can("get") {
            continue;
        }
        let resource = Resource::from(&kind);
        to.entry(resource).or_insert(ApiResource { kind, plural: name, scope, is_watched });
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
        add("batch", "v1", served(&pods), &mut found);
        add("batch", "v1beta1", served(&pods), &mut found);
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
        add("", "v1", served(&events), &mut found);
        leave_out(&mut found);
        assert!(found.values().all(|of| !of.is_watched), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
