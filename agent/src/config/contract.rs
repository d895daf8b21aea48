//! What the operator lets the authors of pods ask of ebb, by annotations.

use super::section::Section;

/// Which annotations of pods are honoured where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// The namespaces in which `ebb.dev/evict: never` protects a pod.
    pub evict_never_in: Vec<String>,
    /// The namespaces in which `ebb.dev/evict: avoid` puts a pod behind its equals.
    pub evict_avoid_in: Vec<String>,
}

impl Contract {
    /// Whether `ebb.dev/evict: never` protects the pods of this namespace.
    #[must_use]
    pub fn honours_never(&self, namespace: &str) -> bool {
        self.evict_never_in.iter().any(|listed| listed == namespace)
    }

    /// Whether `ebb.dev/evict: avoid` puts the pods of this namespace behind their equals.
    #[must_use]
    pub fn honours_avoid(&self, namespace: &str) -> bool {
        self.evict_avoid_in.iter().any(|listed| listed == namespace)
    }
}

/// Reads it from ebb's own section.
pub(super) fn read(section: &mut Section<'_>) -> Contract {
    Contract {
        evict_never_in: namespaces(section, "evictNeverIn", "who is never evicted"),
        evict_avoid_in: namespaces(section, "evictAvoidIn", "who is evicted after its equals"),
    }
}

/// The namespaces that a key lists, each written out.
fn namespaces(section: &mut Section<'_>, key: &'static str, decides: &str) -> Vec<String> {
    let listed = section.texts(key).unwrap_or_default();
    for namespace in &listed {
        if !is_a_namespace(namespace)
            && let Some(place) = section.value(key)
        {
            let problem = format!("{namespace:?} is no name of a namespace");
            let advice = format!(
                "write each namespace out, as in [\"payments\"]: whoever may make pods in one decides there {decides}"
            );
            section.refuse(key, place, &problem, &advice);
        }
    }
    listed
}

/// Whether a namespace could have this name.
fn is_a_namespace(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-')
}
