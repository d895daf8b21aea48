//! `ebb explain`: why an object of a cluster is still there; of a pod, on its node, why it is safe, goes next or was evicted.
//!
//! ```text
//!  KIND/NAME ──────────────────────────────► cluster: what holds the object, what releases it
//!  pod/NAME on its node ─┬─ one look ──────► live:    safe · its place for each signal · whether it goes next (what_if)
//!                        └─ incident files ► past:    was evicted: when, why, what was known, how it ended
//! ```

mod live;
mod past;
mod text;
mod what_if;

use super::beside_kubelet::node_name;
use super::cluster::{self, Target};
use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::Output;
use super::runtime::{RuntimeArgs, Sight};
use super::{Failure, event_loop, json, warn};
use anyhow::{Context as _, anyhow};
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::{Config, Incidents};
use ebb_node_api::Look;
use ebb_policy::snapshot::{Workload, WorkloadKind};
use live::Live;
use past::{Past, Untold};
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;

/// How unlike a pod's name another may be to be offered in its place.
const LIKENESS: f64 = 0.85;

/// Names that are offered at most.
const OFFERED: usize = 3;

/// Arguments of `ebb explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Explain a pod from this node, beside its kubelet: the API server tells of priorities, owners and budgets. It is so anyway where $NODE_NAME is set, as in the DaemonSet.
    #[arg(long, conflicts_with = "from")]
    kubernetes: bool,
    /// The name of this Node in the cluster; without it, that in $NODE_NAME. Implies --kubernetes.
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    node_name: Option<String>,
    /// Where `ebb run` keeps its records of incidents: they tell whether a pod was evicted, and why. Else the directory that the configuration names.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    incidents: Option<PathBuf>,
    /// Form of the answer; as JSON one object.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What is known of a pod on its node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    /// `namespace/name`.
    pod: &'a str,
    looked_at: u64,
    /// As it is now; absent where the node has no such pod.
    live: Option<Live<'a>>,
    /// What was recorded; absent where no directory of records is known.
    past: Option<Past>,
    /// Evictions of it that the API server has not been told of yet.
    untold: Vec<Untold>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let is_meant = args.kubernetes
        || args.node_name.is_some()
        || args.incidents.is_some()
        || args.config.is_given()
        || args.runtime.is_named();
    let pod = args.target.pod();
    match pod {
        Some(name) if is_meant || args.target.is_live() && is_in_daemon_set() => {
            on_node(args, name)
        }
        _ if is_meant => Err(Failure::Input(anyhow!(
            "{}: from its node only a pod is explained; leave out --kubernetes, --node-name, --incidents, --config, --kubelet-config and --cri for what holds another object",
            args.target.object()
        ))),
        _ => cluster::explain::run(&args.target, args.output),
    }
}

/// The Node's name is in the environment of the agent's container.
fn is_in_daemon_set() -> bool {
    std::env::var_os(super::beside_kubelet::NODE_NAME).is_some_and(|name| !name.is_empty())
}

fn on_node(args: &Args, name: &str) -> Result<(), Failure> {
    let namespace = args.target.namespace().ok_or_else(|| {
        Failure::Input(anyhow!("pod/{name}: in which namespace? Give it with -n NAMESPACE"))
    })?;
    let full = format!("{namespace}/{name}");
    let has_api = args.kubernetes || args.node_name.is_some() || is_in_daemon_set();
    let (config, node) = if has_api {
        let node = node_name(args.node_name.clone())?;
        (args.config.clone().beside_kubelet(&args.node), Some(node))
    } else {
        (args.config.clone(), None)
    };
    let seen = if args.runtime.asks_none() {
        None
    } else {
        Some(event_loop()?.block_on(look(args, &config, node.as_deref()))?)
    };
    if let Some((look, sight)) = &seen {
        sight.notes.iter().chain(&gaps(look.as_ref())).for_each(|what| warn("note", what));
    }
    let (look, sight) = seen.unzip();
    let look = look.flatten();
    let configured = match &sight {
        Some(sight) => sight.config.incidents.clone(),
        None => config.load_for(true)?.incidents,
    };
    let none = Vec::new();
    let workloads = sight.as_ref().map_or(&none, |sight| &sight.snapshot.workloads);
    let workload = workloads.iter().find(|workload| is_pod(workload, &full));
    let object = look.as_ref().and_then(|look| look.pods.as_ref().ok()).and_then(|pods| {
        let mut own = pods.iter();
        own.find(|pod| pod.object.namespace == namespace && pod.object.name == name)
    });
    let past = past(args, configured, &full)?;
    let untold = past::untold(args.runtime.state(), &full).unwrap_or_else(|error| {
        warn("note", &format!("{error:#}"));
        Vec::new()
    });
    let is_recorded = past.as_ref().is_some_and(|past| !past.incidents.is_empty());
    if workload.is_none() && !is_recorded && untold.is_empty() {
        let known = sight.as_ref().map(|sight| sight.snapshot.workloads.as_slice());
        return Err(Failure::Input(unknown(&full, known, past.as_ref())));
    }
    let live = sight.as_ref().zip(workload).map(|(sight, workload)| {
        live::explain(&sight.snapshot, &sight.config, &sight.history, workload, object)
    });
    let looked_at = Clock::of_process().unix_ms(Boot::now());
    let answer = Answer { pod: &full, looked_at, live, past, untold };
    let shown = match args.output {
        Output::Json => json::pretty(&answer)? + "\n",
        Output::Text => text::describe(&answer),
    };
    std::io::stdout().write_all(shown.as_bytes()).context("cannot write the explanation")?;
    Ok(())
}

/// Looks at the node once, and at what the API server has of it where there is a Node of this name.
async fn look(
    args: &Args,
    config: &ConfigArgs,
    node: Option<&str>,
) -> Result<(Option<Look>, Sight), Failure> {
    let look = match node {
        Some(node) => {
            let api = args.target.server().connect().await.map_err(Failure::Input)?;
            Some(ebb_node_api::look(&api, node).await)
        }
        None => None,
    };
    let pods = |config: &Config| look.as_ref().and_then(|l| l.manifested(&config.contract));
    let sight = Sight::with_pods(&args.node, config, &args.runtime, pods).await?;
    Ok((look, sight))
}

fn is_pod(workload: &Workload, name: &str) -> bool {
    workload.kind == WorkloadKind::Pod && workload.key.name == name
}

/// What of the API server's is not known, and what that means.
fn gaps(look: Option<&Look>) -> Vec<String> {
    let Some(look) = look else {
        return vec![
            "the API server is not asked (--kubernetes): priorities, requests, owners and budgets of pods are not known, so the agent may rank them otherwise".to_owned(),
        ];
    };
    let pods = look.pods.as_ref().err().map(|why| {
        format!("the API server does not tell of this node's pods: {why}; priorities, requests and owners are not known")
    });
    let budgets = look.budgets.as_ref().err().map(|why| {
        format!("the API server does not tell of disruption budgets: {why}; they are not known")
    });
    pods.into_iter().chain(budgets).collect()
}

/// The records in the directory that was named, else in the configuration's; `None` where there is none.
fn past(args: &Args, configured: Option<Incidents>, name: &str) -> Result<Option<Past>, Failure> {
    let configured = configured.map(|incidents| incidents.directory);
    let Some(directory) = args.incidents.clone().or(configured) else {
        warn(
            "note",
            "no records of incidents are known: name their directory with --incidents DIR, as `ebb run` has it",
        );
        return Ok(None);
    };
    let past = past::read(&directory, name)?;
    past.unreadable.iter().for_each(|why| warn("note", why));
    Ok(Some(past))
}

/// That nothing is known of a pod, and what is.
fn unknown(name: &str, workloads: Option<&[Workload]>, past: Option<&Past>) -> anyhow::Error {
    let pods = workloads.into_iter().flatten().filter(|w| w.kind == WorkloadKind::Pod);
    let mut names: Vec<(f64, &str)> = pods
        .map(|pod| (strsim::jaro_winkler(&pod.key.name, name), pod.key.name.as_str()))
        .collect();
    let here = workloads.map(|_| format!("the {} pods of this node", names.len()));
    let recorded = past.map(|past| format!("the records of incidents ({})", past.records));
    let places: Vec<String> = here.into_iter().chain(recorded).collect();
    let own = name.rsplit('/').next();
    names.retain(|(like, other)| *like >= LIKENESS || other.rsplit('/').next() == own);
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let near: Vec<&str> = names.iter().take(OFFERED).map(|(_, name)| *name).collect();
    let hint = match near.as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(", ")),
    };
    match places.as_slice() {
        [] => anyhow!(
            "pod {name}: with --cri none and no records of incidents nothing is known of any pod"
        ),
        places => anyhow!("pod {name}: it is not among {}{hint}", places.join(" nor in ")),
    }
}
