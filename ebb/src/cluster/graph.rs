//! `ebb graph`: owners and dependents of an object of a saved cluster, and what a delete would do.

use super::picture::{Reference, outcome, picture, references};
use super::read::Cluster;
use super::svg::Outcome;
use super::{Name, ShownHold, Target, hold, name, page, resource};
use crate::{Failure, json};
use anyhow::Context as _;
use ebb_journal::text::plain;
use ebb_policy_cluster::{Cascade, Policy, Uid};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

/// Arguments of `ebb graph`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// What a delete with this policy would do, too.
    #[arg(long, value_enum)]
    cascade: Option<CascadePolicy>,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// `kubectl delete --cascade`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CascadePolicy {
    /// The object goes at once, its dependents after it.
    Background,
    /// Blocking dependents go first.
    Foreground,
    /// Dependents lose their reference and stay.
    Orphan,
}

impl CascadePolicy {
    /// As the option has it.
    fn word(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Foreground => "foreground",
            Self::Orphan => "orphan",
        }
    }
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// A graph for Graphviz.
    Dot,
    /// A picture.
    Svg,
    /// A page with the picture, what holds the object, and what the delete would do; it opens offline and runs no script.
    Html,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    object: Name,
    objects: Vec<Name>,
    references: Vec<Reference>,
    cascade: Option<Shown>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    deleted: Vec<Name>,
    loses_references: Vec<Name>,
    held: Vec<Held>,
    counts: BTreeMap<String, usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    object: Name,
    holds: Vec<ShownHold>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (cluster, uid) = args.target.find()?;
    let policy = args.cascade.map(|policy| match policy {
        CascadePolicy::Background => Policy::Background,
        CascadePolicy::Foreground => Policy::Foreground,
        CascadePolicy::Orphan => Policy::Orphan,
    });
    let cascade = policy.and_then(|policy| cluster.graph.cascade(&uid, policy));
    let around = around(&cluster, &uid);
    let text = match args.output {
        Form::Json => {
            let answer = Answer {
                object: Name::of(&cluster, &uid),
                objects: around.iter().map(|uid| Name::of(&cluster, uid)).collect(),
                references: references(&cluster, &around),
                cascade: cascade.map(|cascade| shown(&cluster, &cascade)),
            };
            json::pretty(&answer)? + "\n"
        }
        Form::Dot => dot(&cluster, &around, cascade.as_ref()),
        Form::Svg => picture(&cluster, &around, cascade.as_ref()).alone(),
        Form::Html => {
            let asked = args.cascade.zip(cascade.as_ref());
            let asked = asked.map(|(policy, cascade)| (policy.word(), cascade));
            page::page(&cluster, &uid, &around, asked)?
        }
        Form::Text => lines(&cluster, &uid, cascade.as_ref())
            .iter()
            .map(|line| plain(line).into_owned() + "\n")
            .collect(),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the graph")?;
    Ok(())
}

/// The object, its owners and theirs, its dependents and theirs.
fn around(cluster: &Cluster, uid: &Uid) -> BTreeSet<Uid> {
    let owners = |uid: &Uid| -> Vec<Uid> {
        let object = cluster.graph.object(uid);
        object.map(|o| o.owners.into_iter().map(|owner| owner.uid).collect()).unwrap_or_default()
    };
    let mut found = reach(uid, owners);
    found.extend(reach(uid, |uid| cluster.graph.dependents(uid)));
    found
}

fn reach(from: &Uid, next: impl Fn(&Uid) -> Vec<Uid>) -> BTreeSet<Uid> {
    let mut found = BTreeSet::from([from.clone()]);
    let mut due = vec![from.clone()];
    while let Some(uid) = due.pop() {
        due.extend(next(&uid).into_iter().filter(|uid| found.insert(uid.clone())));
    }
    found
}

fn shown(cluster: &Cluster, cascade: &Cascade) -> Shown {
    let names = |uids: &[Uid]| uids.iter().map(|uid| Name::of(cluster, uid)).collect();
    let held = cascade.held.iter().map(|held| Held {
        object: Name::of(cluster, &held.uid),
        holds: held.holds.iter().map(|hold| ShownHold::new(cluster, hold)).collect(),
    });
    Shown {
        deleted: names(&cascade.deleted),
        loses_references: names(&cascade.loses_references),
        held: held.collect(),
        counts: cascade.counts.iter().map(|(kind, many)| (resource(kind), *many)).collect(),
    }
}

fn lines(cluster: &Cluster, uid: &Uid, cascade: Option<&Cascade>) -> Vec<String> {
    let mut lines = vec![name(cluster, uid)];
    if let Some(object) = cluster.graph.object(uid) {
        let owners = object.owners.iter().map(|owner| {
            let is_there = cluster.graph.object(&owner.uid).is_some();
            let absent = if is_there { String::new() } else { format!(" ({})", cluster.absent()) };
            format!("  owner {} {}{absent}", owner.kind, owner.name)
        });
        lines.extend(owners);
    }
    // An object is listed with its dependents once: there may be cycles, and more than one way to it.
    let mut listed = BTreeSet::from([uid.clone()]);
    let mut due = vec![(1, uid.clone())];
    while let Some((depth, owner)) = due.pop() {
        if depth > 1 {
            lines.push(format!("{}dependent {}", "  ".repeat(depth - 1), name(cluster, &owner)));
        }
        let new = cluster.graph.dependents(&owner).into_iter().rev();
        due.extend(new.filter(|uid| listed.insert(uid.clone())).map(|uid| (depth + 1, uid)));
    }
    let Some(cascade) = cascade else { return lines };
    let counts: Vec<String> =
        cascade.counts.iter().map(|(kind, many)| format!("{many} {}", resource(kind))).collect();
    let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    lines.push(format!("would delete {counts}"));
    lines.extend(cascade.deleted.iter().map(|uid| format!("  deletes {}", name(cluster, uid))));
    let loses = cascade.loses_references.iter();
    lines.extend(loses.map(|uid| format!("  removes a reference from {}", name(cluster, uid))));
    for held in &cascade.held {
        for by in &held.holds {
            lines.push(format!("  held up {}: {}", name(cluster, &held.uid), hold(cluster, by)));
        }
    }
    lines
}

/// A graph for Graphviz, from owner to dependent; what a cascade deletes is filled, what it holds up has a double line.
fn dot(cluster: &Cluster, around: &BTreeSet<Uid>, cascade: Option<&Cascade>) -> String {
    let quoted =
        |text: &str| format!("\"{}\"", plain(text).replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = "digraph owners {\n".to_owned();
    for uid in around {
        let style = match outcome(uid, cascade) {
            Outcome::Deleted => ", style=filled",
            Outcome::Held => ", peripheries=2",
            Outcome::Stays => "",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {} [label={}{style}];",
            quoted(&uid.to_string()),
            quoted(&name(cluster, uid))
        );
    }
    for Reference { owner, dependent, blocks } in references(cluster, around) {
        let style = if blocks { "" } else { " [style=dashed]" };
        let _ = writeln!(text, "  {} -> {}{style};", quoted(&owner), quoted(&dependent));
    }
    text + "}\n"
}
