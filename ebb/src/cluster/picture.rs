//! A graph of a cluster as a picture: which references there are around an object, and what becomes of each object by a cascade.

use super::read::Cluster;
use super::svg::{self, Arrow, Outcome, Picture, Shape};
use ebb_journal::text::plain;
use ebb_policy_cluster::{Cascade, Uid};
use serde::Serialize;
use std::collections::BTreeSet;

/// From an owner to a dependent, by UIDs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    pub(super) owner: String,
    pub(super) dependent: String,
    pub(super) blocks: bool,
}

/// The references among these objects.
pub(super) fn references(cluster: &Cluster, around: &BTreeSet<Uid>) -> Vec<Reference> {
    let mut found = Vec::new();
    for object in around.iter().filter_map(|uid| cluster.graph.object(uid)) {
        for owner in object.owners.iter().filter(|owner| around.contains(&owner.uid)) {
            found.push(Reference {
                owner: owner.uid.to_string(),
                dependent: object.uid.to_string(),
                blocks: owner.block_owner_deletion,
            });
        }
    }
    found
}

/// What becomes of an object by a cascade.
pub(super) fn outcome(uid: &Uid, cascade: Option<&Cascade>) -> Outcome {
    let Some(cascade) = cascade else { return Outcome::Stays };
    if cascade.deleted.binary_search(uid).is_ok() {
        Outcome::Deleted
    } else if cascade.held.binary_search_by(|held| held.uid.cmp(uid)).is_ok() {
        Outcome::Held
    } else {
        Outcome::Stays
    }
}

/// A picture, owners above their dependents; what a cascade deletes is red, what it holds up yellow and dashed.
pub(super) fn picture(
    cluster: &Cluster,
    around: &BTreeSet<Uid>,
    cascade: Option<&Cascade>,
) -> Picture {
    let shape = |uid: &Uid| {
        let (kind, name) = match cluster.graph.object(uid) {
            Some(object) => {
                let namespace = object.namespace.map(|n| n + "/").unwrap_or_default();
                (object.kind.to_string(), format!("{namespace}{}", object.name))
            }
            None => (cluster.absent().to_owned(), uid.to_string()),
        };
        let outcome = outcome(uid, cascade);
        Shape { kind: clipped(&kind), name: clipped(&name), outcome }
    };
    let shapes: Vec<Shape> = around.iter().map(shape).collect();
    let place = |uid: &str| around.iter().position(|other| *other == Uid::new(uid));
    let arrow = |Reference { owner, dependent, blocks }| {
        Some(Arrow { owner: place(&owner)?, dependent: place(&dependent)?, blocks })
    };
    let arrows: Vec<Arrow> = references(cluster, around).into_iter().filter_map(arrow).collect();
    svg::draw(&shapes, &arrows)
}

/// A name that fits into a box: without control characters, and its middle left out where it is long.
fn clipped(name: &str) -> String {
    const MOST: usize = 60;
    let shown = plain(name);
    let count = shown.chars().count();
    if count <= MOST {
        return shown.into_owned();
    }
    let half = MOST / 2 - 1;
    let first: String = shown.chars().take(half).collect();
    let last: String = shown.chars().skip(count - half).collect();
    format!("{first}…{last}")
}
