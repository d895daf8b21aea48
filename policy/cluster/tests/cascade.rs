//! What a cascade foretells where the answer is not only below the object.

#![allow(clippy::unwrap_used, reason = "what a test does not find is its failure")]

mod store;

use ebb_policy_cluster::{Object, Policy, Uid};
use store::{Store, blocking, object, of_kind, owned, to, uid};

/// Foretold and then deleted: what went, which must be the same.
fn deletes(store: &mut Store, name: &str, policy: Policy) -> Vec<Uid> {
    let cascade = store.graph.cascade(&uid(name), policy).unwrap();
    let before: Vec<Uid> = store.objects.keys().cloned().collect();
    store.delete(&uid(name), Some(policy));
    store.settle();
    let gone: Vec<Uid> =
        before.into_iter().filter(|uid| !store.objects.contains_key(uid)).collect();
    assert_eq!(cascade.deleted, gone, "foretold and gone");
    gone
}

#[test]
fn what_does_not_block_a_kept_owner_goes_before_it() {
    let kept = Object { finalizers: vec!["example.com/keep".into()], ..object("a") };
    let mut store = Store::with(&[kept.clone(), owned("b", &[to(&kept)])]);
    assert_eq!(deletes(&mut store, "a", Policy::Foreground), [uid("b")]);
    assert_eq!(store.left(), ["a"]);
}

#[test]
fn an_owner_that_waits_for_nothing_else_goes_too() {
    // A cluster-scoped object is never deleted for a namespaced owner, and holds it up all the same.
    let owner = object("a");
    let fleet = Object { owners: vec![blocking(&owner)], ..of_kind("Fleet", "b") };
    let mut store = Store::with(&[owner, fleet, object("c")]);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert_eq!(store.left(), ["a", "b", "c"]);
    assert_eq!(deletes(&mut store, "b", Policy::Background), [uid("a"), uid("b")]);
}

#[test]
fn an_owner_that_waits_for_another_one_stays() {
    let owner = object("a");
    let fleet = |name: &str| Object { owners: vec![blocking(&owner)], ..of_kind("Fleet", name) };
    let mut store = Store::with(&[owner.clone(), fleet("b"), fleet("c")]);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert_eq!(deletes(&mut store, "b", Policy::Background), [uid("b")]);
    assert_eq!(store.left(), ["a", "c"]);
}
