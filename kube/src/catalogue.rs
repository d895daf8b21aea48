//! What the API server serves, kept over discoveries: what an error hides stays, what is missing without one for a while goes.
//!
//! An API server that has just started lists few groups at first, without any error.

use ebb_policy_cluster::{Kind, Resource, Scope};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long a kind must be missing before it is believed to be gone.
const MISSING: Duration = Duration::from_secs(25);

/// A resource that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiResource {
    /// Its kind, in the version by which it is read and written.
    pub kind: Kind,
    /// Its name in URLs.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub scope: Scope,
    /// Whether it is to be watched: it can be listed, watched and deleted, and is not left out.
    pub is_watched: bool,
}

impl ApiResource {
    /// Group and kind.
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource::from(&self.kind)
    }

    /// The path of all its objects, or of those of a namespace.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let Kind { group, version, .. } = &self.kind;
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        let within = namespace.map(|n| format!("/namespaces/{n}")).unwrap_or_default();
        format!("{root}{within}/{}", self.plural)
    }
}

/// What one discovery found.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// What is served, by group and kind.
    pub resources: BTreeMap<Resource, ApiResource>,
    /// Groups of which a version could not be asked, and why.
    pub failed: BTreeMap<String, String>,
}

/// What a discovery changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// New, or served in another way than before.
    pub added: Vec<ApiResource>,
    /// No longer served, or in another way.
    pub removed: Vec<Resource>,
}

/// What is served, as far as is known.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    resources: BTreeMap<Resource, ApiResource>,
    failed: BTreeMap<String, String>,
    /// Since when discoveries do not show a resource.
    missing: BTreeMap<Resource, Instant>,
}

impl Catalogue {
    /// Takes over what a discovery found at `now`. A resource of a group that could not be asked stays as it is, and so does one that has just disappeared.
    pub fn update(&mut self, mut found: Discovered, now: Instant) -> Difference {
        let mut missing = BTreeMap::new();
        for (resource, known) in &self.resources {
            if found.failed.contains_key(&resource.group) {
                found.resources.insert(resource.clone(), known.clone());
            } else if !found.resources.contains_key(resource) {
                let since = self.missing.get(resource).copied().unwrap_or(now);
                if now.duration_since(since) < MISSING {
                    missing.insert(resource.clone(), since);
                    found.resources.insert(resource.clone(), known.clone());
                }
            }
        }
        let differs = |resource: &Resource, known: &ApiResource, other: &BTreeMap<_, _>| {
            other.get(resource) != Some(known)
        };
        let removed =
            self.resources.iter().filter(|(r, known)| differs(r, known, &found.resources));
        let removed = removed.map(|(resource, _)| resource.clone()).collect();
        let added = found.resources.iter().filter(|(r, new)| differs(r, new, &self.resources));
        let added = added.map(|(_, new)| new.clone()).collect();
        *self = Self { resources: found.resources, failed: found.failed, missing };
        Difference { added, removed }
    }

    /// A resource by group and kind.
    #[must_use]
    pub fn get(&self, resource: &Resource) -> Option<&ApiResource> {
        self.resources.get(resource)
    }

    /// Groups that could not be asked, and why.
    #[must_use]
    pub fn failed(&self) -> &BTreeMap<String, String> {
        &self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(kinds: &[&str]) -> Discovered {
        let resources = kinds.iter().map(|kind| {
            let kind = Kind::new("example.com/v1", kind);
            let plural = kind.kind.to_lowercase() + "s";
            let of = ApiResource { kind, plural, scope: Scope::Namespaced, is_watched: true };
            (of.resource(), of)
        });
        Discovered { resources: resources.collect(), failed: BTreeMap::new() }
    }

    fn names(resources: &[Resource]) -> Vec<&str> {
        resources.iter().map(|r| r.kind.as_str()).collect()
    }

    #[test]
    fn a_kind_that_is_not_served_for_a_while_is_removed() {
        let (mut catalogue, now) = (Catalogue::default(), Instant::now());
        assert_eq!(catalogue.update(served(&["A", "B"]), now).added.len(), 2);
        assert_eq!(catalogue.update(served(&["A"]), now), Difference::default());
        let difference = catalogue.update(served(&["A"]), now + MISSING);
        assert_eq!(names(&difference.removed), ["B"]);
        assert!(difference.added.is_empty());
    }

    #[test]
    fn a_kind_that_disappears_for_a_moment_stays() {
        let (mut catalogue, now) = (Catalogue::default(), Instant::now());
        catalogue.update(served(&["A", "B"]), now);
        for (kinds, seconds) in [(&["A"][..], 10), (&["A", "B"], 20), (&["A"], 40), (&["A"], 50)] {
            let difference = catalogue.update(served(kinds), now + Duration::from_secs(seconds));
            assert_eq!(difference, Difference::default(), "after {seconds} s");
        }
    }

    #[test]
    fn a_group_that_cannot_be_asked_keeps_its_kinds() {
        let (mut catalogue, now) = (Catalogue::default(), Instant::now());
        catalogue.update(served(&["A", "B"]), now);
        let mut hidden = served(&["A"]);
        hidden.failed.insert("example.com".into(), "503: service unavailable".into());
        assert_eq!(catalogue.update(hidden, now + MISSING * 2), Difference::default());
        assert_eq!(catalogue.failed().len(), 1);
        let resource = Resource { group: "example.com".into(), kind: "B".into() };
        assert!(catalogue.get(&resource).is_some());
    }

    #[test]
    fn a_kind_that_moves_to_another_version_is_watched_anew() {
        let (mut catalogue, now) = (Catalogue::default(), Instant::now());
        catalogue.update(served(&["A"]), now);
        let mut moved = served(&["A"]);
        moved.resources.values_mut().for_each(|of| of.kind.version = "v2".into());
        let difference = catalogue.update(moved, now);
        assert_eq!((names(&difference.removed), difference.added.len()), (vec!["A"], 1));
    }
}
