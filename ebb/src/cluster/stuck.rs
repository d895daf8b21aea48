//! `ebb stuck`: what does not move by itself in a saved cluster.

use super::read::Cluster;
use super::{Name, ShownHold, Source, age, hold, name, resource};
use crate::plan::Output;
use crate::{Failure, json};
use anyhow::Context as _;
use ebb_journal::text::plain;
use ebb_policy_cluster::{BadReference, Problem, Stuck, Time};
use serde::Serialize;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments of `ebb stuck`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Deletions that began longer ago than this, by this machine's clock: a number with s, m, h or d.
    #[arg(long, value_name = "AGE", default_value = "5m", value_parser = age)]
    older_than: u64,
    /// Form of the answer; as JSON a list of what was found.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    object: Name,
    problem: &'static str,
    deleting_since: Option<u64>,
    owner: Option<Name>,
    cycle: Option<Vec<Name>>,
    holds: Option<Vec<ShownHold>>,
    message: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let cluster = args.source.read()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = Time(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let found = cluster.graph.stuck(now, args.older_than);
    let text = match args.output {
        Output::Json => {
            let shown: Vec<Shown> = found.iter().map(|stuck| shown(&cluster, stuck, now)).collect();
            json::pretty(&shown)? + "\n"
        }
        Output::Text if found.is_empty() => "nothing is stuck\n".to_owned(),
        Output::Text => {
            let mut lines = Vec::new();
            for stuck in &found {
                lines.push(format!(
                    "{}: {}",
                    name(&cluster, &stuck.uid),
                    message(&cluster, stuck, now)
                ));
                if let Problem::Terminating { holds, .. } = &stuck.problem {
                    lines
                        .extend(holds.iter().map(|of| format!("  held by {}", hold(&cluster, of))));
                }
            }
            lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write what is stuck")?;
    Ok(())
}

fn shown(cluster: &Cluster, stuck: &Stuck, now: Time) -> Shown {
    let mut shown = Shown {
        object: Name::of(cluster, &stuck.uid),
        problem: "terminating",
        deleting_since: None,
        owner: None,
        cycle: None,
        holds: None,
        message: message(cluster, stuck, now),
    };
    match &stuck.problem {
        Problem::Terminating { since, holds } => {
            shown.deleting_since = Some(since.0);
            shown.holds = Some(holds.iter().map(|hold| ShownHold::new(cluster, hold)).collect());
        }
        Problem::Cycle(uids) => {
            shown.problem = "cycle";
            shown.cycle = Some(uids.iter().map(|uid| Name::of(cluster, uid)).collect());
        }
        Problem::Reference { owner, wrong } => {
            shown.owner = Some(Name::of(cluster, owner));
            shown.problem = match wrong {
                BadReference::AcrossNamespaces => "ownerInAnotherNamespace",
                BadReference::NamespacedOwner(_) => "namespacedOwner",
                BadReference::NotServed(_) if cluster.is_live => "kindNotServed",
                BadReference::NotServed(_) => "kindNotInFile",
            };
        }
    }
    shown
}

fn message(cluster: &Cluster, stuck: &Stuck, now: Time) -> String {
    match &stuck.problem {
        Problem::Terminating { since, holds } => {
            let age = crate::runtime::ago(now.0.saturating_sub(since.0));
            let by = match (holds.is_empty(), cluster.is_live) {
                (false, _) => "",
                (true, true) => ": nothing that can be seen holds it",
                (true, false) => ": nothing in the file holds it",
            };
            format!("terminating for {age}{by}")
        }
        Problem::Cycle(uids) => {
            let names: Vec<String> = uids.iter().map(|uid| name(cluster, uid)).collect();
            format!("owns itself, by way of {}", names.join(", "))
        }
        Problem::Reference { owner, wrong } => {
            let owner = name(cluster, owner);
            match wrong {
                BadReference::AcrossNamespaces => {
                    format!(
                        "names {owner} as its owner, which is in another namespace: it counts as absent"
                    )
                }
                BadReference::NamespacedOwner(kind) => format!(
                    "belongs to the cluster and names an owner of the namespaced kind {}: never deleted for it",
                    resource(kind)
                ),
                BadReference::NotServed(kind) if cluster.is_live => format!(
                    "the API server does not serve {}, so whether its owner is there is unknown",
                    resource(kind)
                ),
                BadReference::NotServed(kind) => {
                    format!(
                        "the file has no {}, so whether its owner is there is unknown",
                        resource(kind)
                    )
                }
            }
        }
    }
}
