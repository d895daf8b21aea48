//! ownerReference GC, case by case.
use crate::Case;
use crate::kinds::{self, Kind};
use crate::world::{KEEP, Made, World, blocking, to, with};
use anyhow::Result;
use ebb_cluster_tests::api::Policy::{Background, Foreground, Orphan, Unsaid};
use ebb_cluster_tests::api::never;
use serde_json::{Value, json};

pub(crate) const CASES: [Case; 31] = [
    // It takes longest.
    ("a_kind_that_is_defined_later_takes_part", later_kind),
    ("in_the_background_a_chain_goes", background_chain),
    ("in_the_foreground_leaves_go_before_their_owners", foreground_chain),
    ("an_owner_does_not_wait_for_dependents_that_do_not_block", foreground_not_blocking),
    ("orphans_lose_only_that_reference_and_their_dependents_are_untouched", orphans),
    ("a_finalizer_orphan_orphans_when_the_delete_says_nothing", orphan_finalizer_unsaid),
    ("a_delete_in_the_background_overrules_a_finalizer_orphan", orphan_finalizer_overruled),
    ("a_dependent_whose_owner_never_was_goes", absent),
    ("a_dependent_of_a_former_object_of_the_same_name_goes", former),
    ("a_dependent_of_a_uid_under_another_name_goes", other_name),
    ("a_dependent_of_a_uid_under_another_kind_goes", other_kind),
    ("an_owner_made_anew_keeps_only_dependents_of_its_own_uid", made_anew),
    ("a_dependent_of_an_owner_in_another_namespace_goes_with_a_warning", other_namespace),
    ("an_object_of_the_cluster_stays_with_a_warning_when_its_owner_has_a_namespace", cluster_child),
    ("a_dependent_goes_with_its_owner_of_the_cluster", cluster_owner),
    ("a_dependent_stays_when_its_owner_s_kind_is_unknown", unknown_kind),
    ("of_two_owners_the_one_that_is_gone_is_no_longer_named", two_owners),
    ("of_two_owners_the_one_in_the_foreground_is_no_longer_waited_for", two_owners_foreground),
    ("a_dependent_whose_two_owners_are_gone_goes", two_owners_both),
    ("a_cycle_in_the_foreground_goes", cycle),
    ("an_object_that_owns_itself_stays_in_the_foreground", own_owner),
    ("a_dependent_with_a_finalizer_of_its_own_holds_its_owner", holds),
    ("the_policy_of_a_second_delete_wins", second_delete),
    ("an_owner_is_released_when_its_dependent_no_longer_blocks", unblocked),
    ("a_dependent_added_during_a_foreground_deletion_goes_too", added_late),
    ("an_intermediate_object_with_the_finalizer_orphan_keeps_its_dependents", middle_orphan),
    ("in_the_foreground_an_intermediate_object_does_not_orphan", middle_orphan_foreground),
    ("an_intermediate_object_with_foreground_deletion_waits", middle_foreground),
    ("custom_resources_own_and_are_owned", custom),
    ("custom_resources_wait_in_the_foreground", custom_foreground),
    ("a_deployment_goes_with_its_replica_sets_and_their_pods", workload),
];

struct Chain {
    a: Made,
    b: Made,
    c: Made,
}

/// c of b of a.
fn chain(world: &World, reference: fn(&Made) -> Value) -> Result<Chain> {
    let a = world.make("a", &[])?;
    let b = world.make("b", &[reference(&a)])?;
    let c = world.make("c", &[reference(&b)])?;
    Ok(Chain { a, b, c })
}

/// The same, where a finalizer keeps b, and a is deleted in the foreground and waits for it.
fn held_chain(world: &World) -> Result<Chain> {
    let chain = chain(world, blocking)?;
    world.set_finalizers(&chain.b, &[KEEP])?;
    world.delete(&chain.a, Foreground)?;
    world.becomes(&[
        "a with foregroundDeletion terminating",
        "b of a! with example.com/keep terminating",
    ])?;
    Ok(chain)
}

fn background_chain(world: &World) -> Result<()> {
    let chain = chain(world, blocking)?;
    world.stays(&["a", "b of a!", "c of b!"])?;
    world.delete(&chain.a, Background)?;
    world.becomes(&[])
}

fn foreground_chain(world: &World) -> Result<()> {
    let chain = chain(world, blocking)?;
    world.set_finalizers(&chain.c, &[KEEP])?;
    world.delete(&chain.a, Foreground)?;
    world.stays(&[
        "a with foregroundDeletion terminating",
        "b of a! with foregroundDeletion terminating",
        "c of b! with example.com/keep terminating",
    ])?;
    world.set_finalizers(&chain.c, &[])?;
    world.becomes(&[])
}

fn foreground_not_blocking(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    let b = world.make_kind(Kind::ConfigMap, "b", &[to(&a)], &[KEEP])?;
    world.delete(&a, Foreground)?;
    world.stays(&["b of a with example.com/keep terminating"])?;
    world.set_finalizers(&b, &[])?;
    world.becomes(&[])
}

fn orphans(world: &World) -> Result<()> {
    let chain = chain(world, blocking)?;
    world.delete(&chain.a, Orphan)?;
    world.stays(&["b", "c of b!"])
}

fn orphan_finalizer_unsaid(world: &World) -> Result<()> {
    let chain = chain(world, to)?;
    world.set_finalizers(&chain.a, &["orphan"])?;
    world.delete(&chain.a, Unsaid)?;
    world.stays(&["b", "c of b"])
}

fn orphan_finalizer_overruled(world: &World) -> Result<()> {
    let chain = chain(world, to)?;
    world.set_finalizers(&chain.a, &["orphan"])?;
    world.delete(&chain.a, Background)?;
    world.becomes(&[])
}

fn absent(world: &World) -> Result<()> {
    world.make("a", &[])?;
    world.make("b", &[never(&world.namespace)])?;
    world.stays(&["a"])
}

fn former(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    world.make("b", &[with(to(&a), "uid", &json!("former"))])?;
    world.stays(&["a"])
}

fn other_name(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    world.make("b", &[with(to(&a), "name", &json!("other"))])?;
    world.stays(&["a"])
}

fn other_kind(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    world.make("b", &[with(to(&a), "kind", &json!("Secret"))])?;
    world.stays(&["a"])
}

fn made_anew(world: &World) -> Result<()> {
    let former = world.make("a", &[])?;
    world.make("b", &[to(&former)])?;
    world.delete(&former, Background)?;
    let a = world.make("a", &[])?;
    world.make("c", &[to(&a)])?;
    world.stays(&["a", "c of a"])
}

fn other_namespace(world: &World) -> Result<()> {
    let elsewhere = world.session.namespace(&world.api)?;
    let path = Kind::ConfigMap.path(&elsewhere);
    let a = world.api.create(&path, &json!({"metadata": {"name": "a"}}))?;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": a["metadata"]["uid"],
    });
    let b = world.make("b", &[owner])?;
    world.becomes(&[])?;
    world.is_warned(&b, "OwnerRefInvalidNamespace")
}

fn cluster_child(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    let role = world.make_kind(Kind::ClusterRole, "role", &[to(&a)], &[])?;
    let fleet = world.make_kind(Kind::Fleet, "fleet", &[to(&a)], &[])?;
    world.delete(&a, Background)?;
    world.stays(&["fleet of a", "role of a"])?;
    world.is_warned(&role, "OwnerRefInvalidNamespace")?;
    world.is_warned(&fleet, "OwnerRefInvalidNamespace")
}

fn cluster_owner(world: &World) -> Result<()> {
    let role = world.make_kind(Kind::ClusterRole, "role", &[], &[])?;
    world.make("b", &[to(&role)])?;
    world.make_kind(Kind::Fleet, "fleet", &[to(&role)], &[])?;
    world.stays(&["b of role", "fleet of role", "role"])?;
    world.delete(&role, Unsaid)?;
    world.becomes(&[])
}

fn unknown_kind(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    let of_a_group = with(to(&a), "apiVersion", &json!("gone.example.com/v1"));
    world.make("b", &[with(of_a_group, "kind", &json!("Gizmo"))])?;
    world.make("c", &[with(to(&a), "kind", &json!("Gizmo"))])?;
    world.stays(&["a", "b of a", "c of a"])
}

fn two_owners(world: &World) -> Result<()> {
    let (a, b) = (world.make("a", &[])?, world.make("b", &[])?);
    world.make("c", &[to(&a), to(&b)])?;
    world.delete(&a, Background)?;
    world.stays(&["b", "c of b"])
}

fn two_owners_foreground(world: &World) -> Result<()> {
    let (a, b) = (world.make("a", &[])?, world.make("b", &[])?);
    world.make("c", &[blocking(&a), to(&b)])?;
    world.delete(&a, Foreground)?;
    world.stays(&["b", "c of b"])
}

fn two_owners_both(world: &World) -> Result<()> {
    let (a, b) = (world.make("a", &[])?, world.make("b", &[])?);
    world.make("c", &[to(&a), to(&b)])?;
    world.delete(&a, Background)?;
    world.becomes(&["b", "c of b"])?;
    world.delete(&b, Background)?;
    world.becomes(&[])
}

fn cycle(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    let b = world.make("b", &[blocking(&a)])?;
    world.set_owners(&a, &[blocking(&b)])?;
    world.stays(&["a of b!", "b of a!"])?;
    world.delete(&a, Foreground)?;
    world.becomes(&[])
}

fn own_owner(world: &World) -> Result<()> {
    let a = world.make("a", &[])?;
    world.set_owners(&a, &[blocking(&a)])?;
    world.stays(&["a of a!"])?;
    world.delete(&a, Foreground)?;
    world.stays(&["a of a! with foregroundDeletion terminating"])
}

fn holds(world: &World) -> Result<()> {
    let chain = held_chain(world)?;
    world.stays(&[
        "a with foregroundDeletion terminating",
        "b of a! with example.com/keep terminating",
    ])?;
    world.set_finalizers(&chain.b, &[])?;
    world.becomes(&[])
}

fn second_delete(world: &World) -> Result<()> {
    let chain = held_chain(world)?;
    world.delete(&chain.a, Background)?;
    world.stays(&["b of a! with example.com/keep terminating"])
}

fn unblocked(world: &World) -> Result<()> {
    let chain = held_chain(world)?;
    world.set_owners(&chain.b, &[with(to(&chain.a), "blockOwnerDeletion", &json!(false))])?;
    world.stays(&["b of a with example.com/keep terminating"])
}

fn added_late(world: &World) -> Result<()> {
    let chain = held_chain(world)?;
    world.make("late", &[blocking(&chain.a)])?;
    // kube-controller-manager looks at it when it looks at its owner again, and ebb at once.
    world.set_finalizers(&chain.b, &[])?;
    world.becomes(&[])
}

fn middle_orphan(world: &World) -> Result<()> {
    let chain = chain(world, to)?;
    world.set_finalizers(&chain.b, &["orphan"])?;
    world.delete(&chain.a, Background)?;
    world.stays(&["c"])
}

fn middle_orphan_foreground(world: &World) -> Result<()> {
    // With references that do not block, the owner may be gone first, and then it does orphan.
    let chain = chain(world, blocking)?;
    world.set_finalizers(&chain.b, &["orphan"])?;
    world.delete(&chain.a, Foreground)?;
    world.becomes(&[])
}

fn middle_foreground(world: &World) -> Result<()> {
    let chain = chain(world, blocking)?;
    world.set_finalizers(&chain.b, &["foregroundDeletion"])?;
    world.set_finalizers(&chain.c, &[KEEP])?;
    world.delete(&chain.a, Background)?;
    world.stays(&[
        "b of a! with foregroundDeletion terminating",
        "c of b! with example.com/keep terminating",
    ])?;
    world.set_finalizers(&chain.c, &[])?;
    world.becomes(&[])
}

fn custom(world: &World) -> Result<()> {
    let fleet = world.make_kind(Kind::Fleet, "fleet", &[], &[])?;
    let gadget = world.make_kind(Kind::Gadget, "gadget", &[to(&fleet)], &[])?;
    world.make("map", &[to(&gadget)])?;
    world.stays(&["fleet", "gadget of fleet", "map of gadget"])?;
    world.delete(&fleet, Background)?;
    world.becomes(&[])
}

fn custom_foreground(world: &World) -> Result<()> {
    let a = world.make_kind(Kind::Gadget, "a", &[], &[])?;
    let b = world.make_kind(Kind::Gadget, "b", &[blocking(&a)], &[])?;
    let c = world.make_kind(Kind::Secret, "c", &[blocking(&b)], &[KEEP])?;
    world.delete(&a, Foreground)?;
    world.stays(&[
        "a with foregroundDeletion terminating",
        "b of a! with foregroundDeletion terminating",
        "c of b! with example.com/keep terminating",
    ])?;
    world.set_finalizers(&c, &[])?;
    world.becomes(&[])
}

/// Of each policy, as controllers make the references.
fn workload(world: &World) -> Result<()> {
    let reference = |owner: &Made| with(blocking(owner), "controller", &json!(true));
    for policy in [Background, Foreground, Unsaid, Orphan] {
        let app = world.make_kind(Kind::Deployment, "app", &[], &[])?;
        let set = world.make_kind(Kind::ReplicaSet, "set", &[reference(&app)], &[])?;
        world.make_kind(Kind::Pod, "pod", &[reference(&set)], &[])?;
        world.delete(&app, policy)?;
        if policy == Orphan {
            world.stays(&["pod of set!", "set"])?;
        } else {
            world.becomes(&[])?;
        }
    }
    Ok(())
}

fn later_kind(world: &World) -> Result<()> {
    // One of its own for each collector: the definition stays.
    let kind = format!("Late{}", world.namespace);
    let version = kinds::define(&world.api, &kind, "Namespaced")?;
    let path = format!("/apis/{version}/namespaces/{}/{}s", world.namespace, kind.to_lowercase());
    kinds::served(&world.api, &path)?;
    let owner = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "owner"}});
    let owner = world.api.create(&path, &owner)?;
    let reference = json!({
        "apiVersion": version, "kind": kind, "name": "owner", "uid": owner["metadata"]["uid"],
    });
    world.make("b", &[reference])?;
    world.stays(&["b of owner"])?;
    world.api.delete(&format!("{path}/owner"), &Background.options())?;
    world.becomes_after_discovery(&[])
}
