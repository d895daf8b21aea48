//! Why something is done with an object, as text.

use crate::name;
use ebb_policy_cluster::{
    Exclusion, Graph, ORPHAN_FINALIZER, Object, OwnerView, Resource, Scope, Standing, Uid, Verdict,
};

/// Why `verdict` is given on `object`.
pub(crate) fn why(graph: &Graph, object: &Object, verdict: &Verdict) -> String {
    let owners = graph.explain(&object.uid).map(|e| e.owners).unwrap_or_default();
    match verdict {
        Verdict::Delete { .. } => {
            let all: Vec<String> =
                owners.iter().map(|owner| standing(graph, object, owner)).collect();
            all.join(", ")
        }
        Verdict::DropOwners { owners: dropped, .. } => {
            let all: Vec<String> = owners
                .iter()
                .filter(|owner| dropped.contains(&owner.uid))
                .map(|owner| of_dropped(graph, object, owner))
                .collect();
            all.join(", ")
        }
        Verdict::RemoveFinalizer { finalizer, .. } if *finalizer == ORPHAN_FINALIZER => {
            format!("{finalizer}: no dependent refers to it any more")
        }
        Verdict::RemoveFinalizer { finalizer, .. } => {
            format!("{finalizer}: no dependent blocks its deletion any more")
        }
        Verdict::Unblock { .. } => "it and its owner wait for each other".to_owned(),
        Verdict::Excluded(exclusion) => match exclusion {
            Exclusion::Label => "it has the label ebb.dev/hold: \"true\"".to_owned(),
            Exclusion::Namespace(namespace) => format!("namespace {namespace} is ignored"),
            Exclusion::Resource(of) => format!("{} is ignored", name::resource(of)),
        },
        _ => String::new(),
    }
}

fn standing(graph: &Graph, object: &Object, owner: &OwnerView) -> String {
    let place = place(graph, object, owner);
    match owner.standing {
        Standing::Waiting => format!("owner {place} waits for its dependents to go"),
        _ if owner.crosses_namespaces => format!("owner {place} is in another namespace"),
        _ => format!("owner {place} is gone"),
    }
}

fn of_dropped(graph: &Graph, object: &Object, owner: &OwnerView) -> String {
    let is_orphaning = |uid: &Uid| {
        graph.object(uid).is_some_and(|o| {
            o.deleting_since.is_some() && o.finalizers.iter().any(|f| f == ORPHAN_FINALIZER)
        })
    };
    if is_orphaning(&owner.uid) {
        format!("owner {} orphans its dependents", place(graph, object, owner))
    } else {
        format!("{}, another owner is there", standing(graph, object, owner))
    }
}

/// An owner where the reference claims it to be.
fn place(graph: &Graph, object: &Object, owner: &OwnerView) -> String {
    let scope = graph.resource(&Resource::from(&owner.kind)).map(|(scope, _)| *scope);
    let namespace = object.namespace.as_deref().filter(|_| scope != Some(Scope::Cluster));
    name::place(&owner.kind, namespace, &owner.name)
}
