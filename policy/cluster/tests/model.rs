//! Random clusters, whose watches lag and break, against a slow reference that reads the whole store.
//!
//! Every delete is held against the store by `store`; once all watches have caught up, each verdict is the reference's.

mod store;

use ebb_policy_cluster::{
    FOREGROUND_FINALIZER, Graph, ORPHAN_FINALIZER, Object, OwnerReference, Policy, Resource, State,
    Time, Uid, Verdict,
};
use proptest::prelude::*;
use store::{KINDS, Store, is_foreground, of_kind, owner_of, resource, to, uid};

/// Objects that there may be: few, so that they meet.
const NAMES: usize = 7;

#[derive(Debug, Clone)]
enum Step {
    Put { which: usize, owners: Vec<(usize, bool, u8)>, finalizers: u8 },
    Delete(usize, Option<Policy>),
    RemoveFinalizers(usize),
    Deliver(usize),
    Break(usize),
    Mend(usize),
    CarryOut(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let owners = prop::collection::vec((0..NAMES, any::<bool>(), 0..12_u8), 0..3);
    let policy = prop_oneof![
        Just(None),
        Just(Some(Policy::Background)),
        Just(Some(Policy::Foreground)),
        Just(Some(Policy::Orphan))
    ];
    prop_oneof![
        4 => (0..NAMES, owners, 0..12_u8)
            .prop_map(|(which, owners, finalizers)| Step::Put { which, owners, finalizers }),
        3 => (0..NAMES, policy).prop_map(|(which, policy)| Step::Delete(which, policy)),
        1 => (0..NAMES).prop_map(Step::RemoveFinalizers),
        6 => (0..KINDS.len()).prop_map(Step::Deliver),
        1 => (0..KINDS.len()).prop_map(Step::Break),
        1 => (0..KINDS.len()).prop_map(Step::Mend),
        8 => (0..NAMES).prop_map(Step::CarryOut),
    ]
}

fn name(which: usize) -> String {
    format!("o{which}")
}

/// The object of a number: which kind and namespace it has follows from it.
fn template(which: usize) -> Object {
    let mut object = of_kind(KINDS[which % KINDS.len()].1, &name(which));
    if which == NAMES - 1 && object.namespace.is_some() {
        object.namespace = Some("elsewhere".into());
    }
    object
}

fn reference((which, block, wrong): (usize, bool, u8)) -> OwnerReference {
    let mut reference = OwnerReference { block_owner_deletion: block, ..to(&template(which)) };
    match wrong {
        0 => reference.name.push_str("-other"),
        1 => reference.kind = of_kind("Fleet", "").kind,
        _ => {}
    }
    reference
}

fn take(store: &mut Store, step: Step) {
    match step {
        Step::Put { which, owners, finalizers } => {
            let fresh = template(which);
            // A uid that was once deleted never comes back.
            if store.is_spent(&fresh.uid) {
                return;
            }
            let mut object = store.objects.get(&fresh.uid).cloned().unwrap_or(fresh);
            object.owners = owners.into_iter().map(reference).collect();
            // Nor is a uid known before its object is there.
            let named = object.owners.iter().map(|owner| owner.uid.clone());
            let absent = named.filter(|uid| *uid != object.uid && !store.objects.contains_key(uid));
            store.spend(absent.collect());
            if object.deleting_since.is_none() {
                object.finalizers = match finalizers {
                    0 => vec![ORPHAN_FINALIZER.into()],
                    1 => vec![FOREGROUND_FINALIZER.into()],
                    2 => vec!["example.com/keep".into()],
                    _ => vec![],
                };
            }
            store.put(object);
        }
        Step::Delete(which, policy) => store.delete(&uid(&name(which)), policy),
        Step::RemoveFinalizers(which) => store.change(&name(which), |object| {
            object.finalizers.retain(|f| f != "example.com/keep");
        }),
        Step::Deliver(kind) => _ = store.deliver(&resource(KINDS[kind].1)),
        Step::Break(kind) => {
            store.set(KINDS[kind].1, State::Broken { since: Time(1), why: "down".into() });
        }
        Step::Mend(kind) => {
            store.set(KINDS[kind].1, State::Syncing);
            while store.deliver(&resource(KINDS[kind].1)) {}
            store.set(KINDS[kind].1, State::Synced);
        }
        Step::CarryOut(which) => _ = store.carry_out(&uid(&name(which))),
    }
}

/// What is to be done with an object, by reading the whole store: no graph, no cache, no watch.
fn slow(store: &Store, object: &Object) -> &'static str {
    let orphans = |owner: &Object| {
        owner.deleting_since.is_some() && owner.finalizers.iter().any(|f| f == ORPHAN_FINALIZER)
    };
    let by_uid = |reference: &OwnerReference| store.objects.get(&reference.uid);
    if object.owners.iter().filter_map(by_uid).any(orphans) {
        return "drop owners";
    }
    let dependents: Vec<&Object> = store
        .objects
        .values()
        .filter(|other| other.owners.iter().any(|owner| owner.uid == object.uid))
        .collect();
    let blocks = |other: &&Object| {
        other.owners.iter().any(|o| o.uid == object.uid && o.block_owner_deletion)
    };
    if orphans(object) {
        return if dependents.is_empty() { "remove finalizer" } else { "wait" };
    }
    if is_foreground(object) {
        return if dependents.iter().any(blocks) { "wait" } else { "remove finalizer" };
    }
    if object.deleting_since.is_some() || object.owners.is_empty() {
        return "nothing";
    }
    let namespaced = |reference: &OwnerReference| reference.kind.kind != "Fleet";
    if object.namespace.is_none() && object.owners.iter().any(namespaced) {
        return "unknown";
    }
    let mut solid: Vec<&Uid> = Vec::new();
    let mut waits = false;
    let mut gone: Vec<&Uid> = Vec::new();
    for reference in &object.owners {
        match owner_of(&store.objects, object, reference) {
            Some(owner) if !is_foreground(owner) => solid.push(&reference.uid),
            Some(_) => {
                waits = true;
                gone.push(&reference.uid);
            }
            None => gone.push(&reference.uid),
        }
    }
    if !solid.is_empty() {
        return if gone.iter().all(|uid| solid.contains(uid)) { "nothing" } else { "drop owners" };
    }
    if waits && !dependents.is_empty() {
        let is_cycle = dependents.iter().any(|other| is_foreground(other));
        let blocking = object.owners.iter().any(|owner| owner.block_owner_deletion);
        return if is_cycle && blocking { "unblock" } else { "delete Foreground" };
    }
    let has = |finalizer: &str| object.finalizers.iter().any(|f| f == finalizer);
    if has(ORPHAN_FINALIZER) {
        "delete Orphan"
    } else if has(FOREGROUND_FINALIZER) {
        "delete Foreground"
    } else {
        "delete Background"
    }
}

fn in_words(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Nothing => "nothing",
        Verdict::Delete { policy: Policy::Background, .. } => "delete Background",
        Verdict::Delete { policy: Policy::Foreground, .. } => "delete Foreground",
        Verdict::Delete { policy: Policy::Orphan, .. } => "delete Orphan",
        Verdict::DropOwners { .. } => "drop owners",
        Verdict::RemoveFinalizer { .. } => "remove finalizer",
        Verdict::Unblock { .. } => "unblock",
        Verdict::Wait(_) => "wait",
        Verdict::Unknown(_) => "unknown",
        Verdict::ConfirmOwner(_) => "confirm owner",
        Verdict::Excluded(_) => "excluded",
    }
}

/// The verdict once every owner that it asks for was looked up.
fn confirmed(store: &mut Store, uid: &Uid) -> Verdict {
    while let Verdict::ConfirmOwner(key) = store.graph.verdict(uid) {
        let answer = store.look_up(&key);
        store.graph.answer_owner(key, &answer);
    }
    store.graph.verdict(uid)
}

fn mend_all(store: &mut Store) {
    (0..KINDS.len()).for_each(|kind| take(store, Step::Mend(kind)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn verdicts_are_those_of_the_store_once_all_watches_have_caught_up(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut store = Store::new();
        for step in steps {
            take(&mut store, step);
        }
        mend_all(&mut store);
        for object in store.objects.clone().values() {
            let verdict = confirmed(&mut store, &object.uid);
            prop_assert_eq!(in_words(&verdict), slow(&store, object), "{:?}", object);
        }
        store.settle();
        for object in store.objects.values() {
            let left = slow(&store, object);
            prop_assert!(["nothing", "wait", "unknown"].contains(&left), "{left}: {object:?}");
        }
    }

    #[test]
    fn the_order_in_which_objects_are_seen_does_not_matter(
        steps in prop::collection::vec(step(), 1..40),
        order in Just((0..NAMES).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut store = Store::new();
        steps.into_iter().for_each(|step| take(&mut store, step));
        let build = |order: &[usize]| {
            let mut graph = Graph::default();
            for (api_version, kind, scope) in KINDS {
                let kind = ebb_policy_cluster::Kind::new(api_version, kind);
                graph.set_resource(Resource::from(&kind), Some((scope, State::Synced)));
            }
            for which in order {
                store.objects.get(&uid(&name(*which))).cloned().map(|object| graph.observe(object));
            }
            graph
        };
        let (one, other) = (build(&(0..NAMES).collect::<Vec<_>>()), build(&order));
        for uid in store.objects.keys() {
            prop_assert_eq!(one.explain(uid), other.explain(uid));
            for policy in [Policy::Background, Policy::Foreground, Policy::Orphan] {
                prop_assert_eq!(one.cascade(uid, policy), other.cascade(uid, policy));
            }
        }
        prop_assert_eq!(one.stuck(Time(9), 1), other.stuck(Time(9), 1));
    }

    #[test]
    fn a_cascade_names_exactly_what_the_delete_then_removes(
        steps in prop::collection::vec(step(), 1..40),
        which in 0..NAMES,
        policy in prop_oneof![Just(Policy::Background), Just(Policy::Foreground), Just(Policy::Orphan)],
    ) {
        let mut store = Store::new();
        steps.into_iter().for_each(|step| take(&mut store, step));
        mend_all(&mut store);
        store.settle();
        let root = uid(&name(which));
        let Some(cascade) = store.graph.cascade(&root, policy) else { return Ok(()) };
        let before: Vec<Uid> = store.objects.keys().cloned().collect();
        store.delete(&root, Some(policy));
        store.settle();
        let gone: Vec<Uid> = before.into_iter().filter(|uid| !store.objects.contains_key(uid)).collect();
        prop_assert_eq!(&cascade.deleted, &gone);
        prop_assert!(cascade.held.iter().all(|held| store.objects.contains_key(&held.uid)));
        prop_assert_eq!(cascade.counts.values().sum::<usize>(), gone.len());
    }
}
