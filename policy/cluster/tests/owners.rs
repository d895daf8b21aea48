//! The rules of owners and dependents, case by case, as kube-controller-manager's garbage collector was measured to behave.
//!
//! A small API server carries the verdicts out until nothing moves; what is left is what counts.

mod store;

use ebb_policy_cluster::{
    Doubt, Exclusion, Exclusions, Gone, Hold, Kind, Object, OwnerReference, Policy, Problem,
    Resource, Scope, State, Time, Verdict, WaitFor,
};
use store::{Store, blocking, object, of_kind, owned, resource, to, uid};

fn broken() -> State {
    State::Broken { since: Time(7), why: "conversion webhook is down".into() }
}

fn chain(reference: fn(&Object) -> OwnerReference) -> Store {
    let a = object("a");
    let b = owned("b", &[reference(&a)]);
    let c = owned("c", &[reference(&b)]);
    Store::with(&[a, b, c])
}

#[test]
fn in_the_background_a_chain_goes_owner_first_without_a_look_up() {
    let mut store = chain(blocking);
    store.delete(&uid("a"), Some(Policy::Background));
    store.settle();
    assert!(store.left().is_empty());
    assert_eq!(store.log, ["delete b Background", "delete c Background"]);
    assert_eq!(store.lookups, 0);
}

#[test]
fn in_the_foreground_leaves_go_first_and_the_owner_last() {
    let mut store = chain(blocking);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert!(store.left().is_empty());
    assert_eq!(
        store.log,
        [
            "delete b Foreground",
            "delete c Background",
            "remove foregroundDeletion of b",
            "remove foregroundDeletion of a"
        ]
    );
}

#[test]
fn an_owner_does_not_wait_for_dependents_that_do_not_block() {
    let mut store = chain(to);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.deliver_all();
    assert!(matches!(store.graph.verdict(&uid("a")), Verdict::RemoveFinalizer { .. }));
    store.settle();
    assert!(store.left().is_empty());
}

#[test]
fn orphans_lose_only_that_reference_and_their_own_dependents_are_untouched() {
    let mut store = chain(blocking);
    store.delete(&uid("a"), Some(Policy::Orphan));
    store.settle();
    assert_eq!(store.left(), ["b", "c"]);
    assert!(store.owners("b").is_empty());
    assert_eq!(store.owners("c"), ["b"]);
    assert_eq!(store.log.last().unwrap(), "remove orphan of a");
}

#[test]
fn a_finalizer_orphan_orphans_a_delete_without_options_and_not_one_in_the_background() {
    for (policy, left) in [(None, vec!["b", "c"]), (Some(Policy::Background), vec![])] {
        let mut store = chain(to);
        store.change("a", |a| a.finalizers.push("orphan".into()));
        store.delete(&uid("a"), policy);
        store.settle();
        assert_eq!(store.left(), left);
    }
}

#[test]
fn an_owner_that_is_absent_is_looked_up_once_before_its_dependents_go() {
    let gone = object("gone");
    let mut store = Store::with(&[owned("b", &[to(&gone)]), owned("c", &[to(&gone)])]);
    assert!(matches!(store.graph.verdict(&uid("b")), Verdict::ConfirmOwner(_)));
    store.settle();
    assert!(store.left().is_empty());
    assert_eq!(store.lookups, 1);
}

#[test]
fn an_owner_of_the_same_name_with_another_uid_is_absent() {
    let a = object("a");
    let stale = OwnerReference { uid: uid("former"), ..to(&a) };
    let mut store = Store::with(&[a, owned("b", &[stale])]);
    store.settle();
    assert_eq!(store.left(), ["a"]);
}

#[test]
fn a_uid_under_another_name_or_kind_is_absent_after_a_look_up() {
    let a = object("a");
    let renamed = OwnerReference { name: "other".into(), ..to(&a) };
    let other_kind = OwnerReference { kind: Kind::new("apps/v1", "Deployment"), ..to(&a) };
    for wrong in [renamed, other_kind] {
        let mut store = Store::with(&[a.clone(), owned("b", &[wrong])]);
        store.settle();
        assert_eq!(store.left(), ["a"]);
        assert_eq!(store.lookups, 1);
    }
}

#[test]
fn an_owner_in_another_namespace_is_absent_and_said() {
    let a = Object { namespace: Some("elsewhere".into()), ..object("a") };
    let mut store = Store::with(&[a.clone(), owned("b", &[to(&a)])]);
    assert!(store.graph.explain(&uid("b")).unwrap().owners[0].crosses_namespaces);
    assert_eq!(store.graph.invalid_owners(&uid("b")), [uid("a")]);
    assert!(store.graph.invalid_owners(&uid("a")).is_empty());
    store.settle();
    assert_eq!(store.left(), ["a"]);
}

#[test]
fn a_cluster_scoped_object_is_never_deleted_for_a_namespaced_owner() {
    let a = object("a");
    let child = Object { owners: vec![to(&a)], ..of_kind("Fleet", "fleet") };
    let mut store = Store::with(&[a, child]);
    store.delete(&uid("a"), Some(Policy::Background));
    store.settle();
    assert_eq!(store.left(), ["fleet"]);
    assert_eq!(store.graph.invalid_owners(&uid("fleet")), [uid("a")]);
    let doubt = Doubt::NamespacedOwner(resource("ConfigMap"));
    assert_eq!(store.graph.verdict(&uid("fleet")), Verdict::Unknown(doubt));
}

#[test]
fn a_namespaced_object_goes_with_its_cluster_scoped_owner() {
    let fleet = of_kind("Fleet", "fleet");
    let mut store = Store::with(&[fleet.clone(), owned("b", &[to(&fleet)])]);
    store.settle();
    assert_eq!(store.left(), ["b", "fleet"]);
    assert!(store.graph.invalid_owners(&uid("b")).is_empty());
    store.delete(&uid("fleet"), None);
    store.settle();
    assert!(store.left().is_empty());
}

#[test]
fn a_dependent_stays_while_the_kind_of_its_owner_is_not_served() {
    let unknown = OwnerReference { kind: Kind::new("gone.io/v1", "Gadget"), ..to(&object("a")) };
    let mut store = Store::with(&[owned("b", &[unknown])]);
    store.settle();
    assert_eq!(store.left(), ["b"]);
    let gadget = Resource { group: "gone.io".into(), kind: "Gadget".into() };
    assert_eq!(store.graph.verdict(&uid("b")), Verdict::Unknown(Doubt::NotServed(gadget)));
}

#[test]
fn of_two_owners_the_dead_reference_is_patched_away() {
    let (a, b) = (object("a"), object("b"));
    let mut store = Store::with(&[a.clone(), b.clone(), owned("c", &[to(&a), to(&b)])]);
    store.delete(&uid("a"), None);
    store.settle();
    assert_eq!(store.left(), ["b", "c"]);
    assert_eq!(store.owners("c"), ["b"]);
}

#[test]
fn of_two_owners_one_in_the_foreground_is_patched_away_and_released() {
    let (a, b) = (object("a"), object("b"));
    let mut store = Store::with(&[a.clone(), b.clone(), owned("c", &[blocking(&a), to(&b)])]);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert_eq!(store.left(), ["b", "c"]);
    assert_eq!(store.owners("c"), ["b"]);
}

#[test]
fn a_cycle_in_the_foreground_goes_after_its_blocking_reference_is_cleared() {
    let (a, b) = (object("a"), object("b"));
    let mut store = Store::with(&[owned("a", &[blocking(&b)]), owned("b", &[blocking(&a)])]);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert!(store.left().is_empty());
    assert_eq!(store.log[0], "unblock b");
}

#[test]
fn an_object_that_owns_itself_stays_in_foreground_deletion_and_says_so() {
    let mut store = Store::with(&[owned("a", &[blocking(&object("a"))])]);
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert_eq!(store.left(), ["a"]);
    assert_eq!(store.graph.verdict(&uid("a")), Verdict::Wait(WaitFor::BlockingDependents));
    let holds = store.graph.explain(&uid("a")).unwrap().holds;
    assert_eq!(holds, [Hold::BlockingDependent(uid("a")), Hold::Cycle(vec![uid("a")])]);
    let found = store.graph.stuck(Time(1_000), 10);
    assert!(found.iter().any(|stuck| stuck.problem == Problem::Cycle(vec![uid("a")])));
}

#[test]
fn a_dependent_with_a_finalizer_of_its_own_holds_the_owner_until_it_goes() {
    let mut store = chain(blocking);
    store.change("b", |b| b.finalizers.push("example.com/keep".into()));
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    assert_eq!(store.left(), ["a", "b"]);
    let explain = |name| store.graph.explain(&uid(name)).unwrap().holds;
    assert_eq!(explain("a"), [Hold::BlockingDependent(uid("b"))]);
    assert_eq!(explain("b"), [Hold::Finalizer("example.com/keep".into())]);
    store.change("b", |b| b.finalizers.clear());
    store.settle();
    assert!(store.left().is_empty());
}

#[test]
fn the_policy_of_a_second_delete_wins() {
    let mut store = chain(blocking);
    store.change("b", |b| b.finalizers.push("example.com/keep".into()));
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    store.delete(&uid("a"), Some(Policy::Background));
    store.settle();
    assert_eq!(store.left(), ["b"]);
}

#[test]
fn an_owner_is_released_when_its_dependent_no_longer_blocks() {
    let mut store = chain(blocking);
    store.change("b", |b| b.finalizers.push("example.com/keep".into()));
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    store.change("b", |b| b.owners[0].block_owner_deletion = false);
    store.settle();
    assert_eq!(store.left(), ["b"]);
}

#[test]
fn a_dependent_that_is_added_during_a_foreground_deletion_goes_too() {
    let mut store = chain(blocking);
    store.change("b", |b| b.finalizers.push("example.com/keep".into()));
    store.delete(&uid("a"), Some(Policy::Foreground));
    store.settle();
    store.put(owned("late", &[blocking(&object("a"))]));
    store.settle();
    assert_eq!(store.left(), ["a", "b"]);
}

#[test]
fn an_intermediate_object_that_orphans_keeps_its_dependents_unless_its_owner_goes_in_the_foreground()
 {
    for policy in [Policy::Background, Policy::Foreground] {
        let mut store = chain(to);
        store.change("b", |b| b.finalizers.push("orphan".into()));
        store.delete(&uid("a"), Some(policy));
        store.settle();
        // In the foreground the intermediate object has dependents, and their deletion has the last word.
        let left = if policy == Policy::Background { vec!["c"] } else { vec![] };
        assert_eq!(store.left(), left, "{policy:?}");
    }
}

#[test]
fn an_intermediate_object_in_the_foreground_waits_for_its_dependents() {
    let mut store = chain(blocking);
    store.change("b", |b| b.finalizers.push("foregroundDeletion".into()));
    store.delete(&uid("a"), Some(Policy::Background));
    store.settle();
    assert_eq!(store.log[0], "delete b Foreground");
    assert!(store.left().is_empty());
}

#[test]
fn owners_of_a_broken_resource_leave_their_dependents_unknown_and_others_go_on() {
    let (app, a) = (of_kind("Deployment", "app"), object("a"));
    let pod = owned("pod", &[to(&app)]);
    let mut store = Store::with(&[app, pod, a.clone(), owned("b", &[to(&a)])]);
    store.set("Deployment", broken());
    store.delete(&uid("app"), None);
    store.delete(&uid("a"), None);
    store.settle();
    assert_eq!(store.left(), ["pod"]);
    assert!(matches!(store.graph.verdict(&uid("pod")), Verdict::Unknown(Doubt::Broken { .. })));
    store.set("Deployment", State::Synced);
    store.settle();
    assert!(store.left().is_empty());
}

#[test]
fn nothing_is_deleted_because_a_resource_has_not_synced() {
    let app = of_kind("Deployment", "app");
    let mut store = Store::new();
    store.set("Deployment", State::Syncing);
    store.put(owned("pod", &[to(&app)]));
    store.settle();
    assert_eq!(store.left(), ["pod"]);
    assert_eq!(store.lookups, 0);
}

#[test]
fn an_orphaning_owner_waits_for_resources_in_which_dependents_may_be() {
    let mut store = chain(to);
    store.set("Deployment", broken());
    store.delete(&uid("a"), Some(Policy::Orphan));
    store.settle();
    assert!(store.left().contains(&"a".into()));
    assert!(matches!(
        store.graph.verdict(&uid("a")),
        Verdict::Wait(WaitFor::Resource(Doubt::Broken { .. }))
    ));
    store.set("Deployment", State::Synced);
    store.settle();
    assert_eq!(store.left(), ["b", "c"]);
}

#[test]
fn an_owner_missing_from_a_new_list_is_looked_up_before_its_dependents_go() {
    let mut store = chain(to);
    store.graph.forget(&uid("a"), Gone::Missing);
    store.settle();
    assert_eq!((store.left(), store.lookups), (vec!["a".into(), "b".into(), "c".into()], 1));
}

/// It went before its watch had shown it: a new list has nothing that could be missed.
#[test]
fn an_owner_that_only_a_look_up_found_is_looked_up_again_after_a_new_list_of_its_kind() {
    for end in [State::Syncing, broken()] {
        let owner = of_kind("Deployment", "a");
        let mut store = Store::new();
        store.objects.insert(owner.uid.clone(), owner.clone());
        store.put(owned("b", &[to(&owner)]));
        store.settle();
        assert_eq!((store.graph.verdict(&uid("b")), store.lookups), (Verdict::Nothing, 1));
        store.objects.remove(&owner.uid);
        store.set("Deployment", end);
        let changed = store
            .graph
            .set_resource(Resource::from(&owner.kind), Some((Scope::Namespaced, State::Synced)));
        assert!(changed.contains(&uid("b")));
        assert!(matches!(store.graph.verdict(&uid("b")), Verdict::ConfirmOwner(_)));
        store.settle();
        assert!(store.left().is_empty());
    }
}

#[test]
fn excluded_objects_are_never_touched() {
    let ignored = |exclusions: Exclusions, change: fn(&mut Object)| {
        let mut store = Store::excluding(exclusions);
        let mut b = owned("b", &[to(&object("a"))]);
        change(&mut b);
        store.put(b);
        store.settle();
        assert_eq!(store.left(), ["b"]);
        store.graph.verdict(&uid("b"))
    };
    let namespaces = Exclusions { namespaces: ["ns".into()].into(), ..Exclusions::default() };
    let kinds = Exclusions { resources: [resource("ConfigMap")].into(), ..Exclusions::default() };
    let by = |exclusion| Verdict::Excluded(exclusion);
    assert_eq!(ignored(namespaces, |_| {}), by(Exclusion::Namespace("ns".into())));
    assert_eq!(ignored(kinds, |_| {}), by(Exclusion::Resource(resource("ConfigMap"))));
    assert_eq!(ignored(Exclusions::default(), |b| b.held = true), by(Exclusion::Label));
}

#[test]
fn a_change_says_whose_verdict_may_have_changed() {
    let mut store = chain(blocking);
    let mut a = store.objects[&uid("a")].clone();
    assert_eq!(store.graph.observe(a.clone()), [uid("a")]);
    a.deleting_since = Some(Time(1));
    a.finalizers.push("foregroundDeletion".into());
    assert_eq!(store.graph.observe(a), [uid("a"), uid("b")]);
    assert_eq!(store.graph.forget(&uid("b"), Gone::Deleted), [uid("a"), uid("c")]);
}
