//! Why an object of a cluster, live or saved, is still there, and what would release it.

use super::read::Cluster;
use super::{Name, ShownHold, Target, doubt, hold, name};
use crate::plan::Output;
use crate::{Failure, json};
use anyhow::Context as _;
use ebb_journal::text::plain;
use ebb_policy_cluster::{Explanation, OwnerView, Standing, Verdict};
use serde::Serialize;
use std::io::Write as _;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    object: Name,
    verdict: &'static str,
    deleting_since: Option<u64>,
    owners: Vec<Owner>,
    holds: Vec<ShownHold>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    object: Name,
    standing: &'static str,
    blocks: bool,
    crosses_namespaces: bool,
}

pub(crate) fn run(target: &Target, output: Output) -> Result<(), Failure> {
    let (cluster, uid) = target.find()?;
    let found = cluster.graph.explain(&uid).context("the object is gone")?;
    let text = match output {
        Output::Json => {
            let owners = found.owners.iter().map(|owner| Owner {
                object: Name::of(&cluster, &owner.uid),
                standing: standing(&owner.standing),
                blocks: owner.blocks,
                crosses_namespaces: owner.crosses_namespaces,
            });
            let answer = Answer {
                object: Name::of(&cluster, &uid),
                verdict: verdict(&found.verdict).0,
                deleting_since: found.deleting_since.map(|time| time.0),
                owners: owners.collect(),
                holds: found.holds.iter().map(|hold| ShownHold::new(&cluster, hold)).collect(),
            };
            json::pretty(&answer)? + "\n"
        }
        Output::Text => {
            let mut lines = vec![format!("{}: {}", name(&cluster, &uid), state(&found))];
            for owner in &found.owners {
                let (claimed, known) = owner_words(&cluster, owner);
                lines.push(format!("  owner {claimed}: {known}"));
            }
            lines.extend(found.holds.iter().map(|of| format!("  held by {}", hold(&cluster, of))));
            lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the explanation")?;
    Ok(())
}

/// What an owner is called, and what is known of it.
pub(super) fn owner_words(cluster: &Cluster, owner: &OwnerView) -> (String, String) {
    let across = if owner.crosses_namespaces {
        " (in another namespace: the reference is not valid)"
    } else {
        ""
    };
    let known = match &owner.standing {
        Standing::Doubtful(found) => doubt(cluster, found),
        other => words(other).to_owned(),
    };
    (format!("{} {}", owner.kind, owner.name), known + across)
}

/// How it is with the object, and what the collector does.
pub(super) fn state(found: &Explanation) -> String {
    let what = verdict(&found.verdict).1;
    if found.deleting_since.is_some() { format!("terminating; {what}") } else { what.to_owned() }
}

/// A verdict in one word for machines, and for people.
fn verdict(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Nothing => ("nothing", "the collector has nothing to do with it"),
        Verdict::Delete { .. } => ("delete", "the collector deletes it: no owner is left"),
        Verdict::DropOwners { .. } => ("dropOwners", "the collector removes references from it"),
        Verdict::RemoveFinalizer { .. } => {
            ("removeFinalizer", "the collector removes its own finalizer from it")
        }
        Verdict::Unblock { .. } => {
            ("unblock", "the collector clears blockOwnerDeletion in it, to break a cycle")
        }
        Verdict::ConfirmOwner(_) => (
            "confirmOwner",
            "the collector looks up an owner, and deletes it where no owner is left",
        ),
        Verdict::Wait(_) => ("wait", "the collector waits"),
        Verdict::Unknown(_) => ("unknown", "unknown"),
        Verdict::Excluded(_) => ("excluded", "excluded"),
    }
}

fn standing(standing: &Standing) -> &'static str {
    match standing {
        Standing::Solid => "present",
        Standing::Waiting => "waiting",
        Standing::Absent => "absent",
        Standing::Unconfirmed(_) => "unconfirmed",
        Standing::Doubtful(_) => "unknown",
    }
}

fn words(standing: &Standing) -> &'static str {
    match standing {
        Standing::Solid => "present",
        Standing::Waiting => "being deleted in the foreground",
        Standing::Absent => "absent",
        Standing::Unconfirmed(_) => "not in the file",
        Standing::Doubtful(_) => "unknown",
    }
}
