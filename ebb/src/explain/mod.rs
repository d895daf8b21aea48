//! `ebb explain`: why an object of a cluster is still there; of a pod, a cgroup or an image, on its node, why it is safe, goes next or was evicted; of an eviction, all of it.
//!
//! ```text
//!  KIND/NAME ───────────────────────────────► cluster: what holds the object, what releases it
//!  pod/NAME, cgroup/PATH ─┬─ agent, or look ► live:    safe · its place for each signal · whether it goes next (what_if)
//!                         └─ incident files ► past:    was evicted: when, why, what was known, how it ended
//!  image/REF ───────────────────────────────► image:   why it stays or when it goes, who uses it
//!  eviction/ID ────────────── a record ─────► incident: from the crossing to the relief
//! ```

mod asked;
mod image;
mod live;
mod past;
mod text;
mod what_if;

use super::beside_kubelet::node_name;
use super::cluster::{self, Target};
use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::Output;
use super::records::Place;
use super::running_agent::{RunningAgent, RunningAgentArgs};
use super::runtime::{RuntimeArgs, Sight};
use super::{Failure, event_loop, incident, json, snapshot, warn};
use anyhow::{Context as _, anyhow};
use asked::{Asked, PodCgroups};
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::cluster::NodePod;
use ebb_agent::config::{Config, Mode};
use ebb_node_api::Look;
use ebb_policy::snapshot::Workload;
use ebb_policy::{History, Snapshot};
use live::Live;
use past::{Past, Untold};
use serde::Serialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can be asked about, after the options.
const EXAMPLES: &str = "\
Examples:
  ebb explain deployment/web -n shop             what holds an object of the cluster
  ebb explain pod/web-0 -n shop --kubernetes     a pod, from its node beside its kubelet
  ebb explain cgroup/system.slice/web.service    the workload that a cgroup is or lies in
  ebb explain image/nginx:1.29                   an image: a name with a tag or digest, or an id (6 characters or more)
  ebb explain eviction/latest                    an eviction: the id that `ebb incident list` shows, or its beginning";

/// Arguments of `ebb explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    running_agent: RunningAgentArgs,
    /// Explain a pod or a cgroup from this node, beside its kubelet: the API server tells of priorities, owners and budgets. It is so anyway where $NODE_NAME is set, as in the DaemonSet.
    #[arg(long, conflicts_with_all = ["from", "api"])]
    kubernetes: bool,
    /// The name of this Node in the cluster; without it, that in $NODE_NAME. Implies --kubernetes.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "api"])]
    node_name: Option<String>,
    /// Where `ebb run` keeps its records of incidents: they tell whether a workload was evicted, and why. Else the directory that --config names, or /etc/ebb/ebb.yaml, or the service's: /var/lib/ebb/incidents.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    incidents: Option<PathBuf>,
    /// Form of the answer; as JSON one object.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What is known of a workload on its node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(flatten)]
    asked: &'a Asked,
    looked_at: u64,
    /// As it is now; absent where the node has no such workload.
    live: Option<Live<'a>>,
    /// What was recorded; absent where no directory of records is known.
    past: Option<Past>,
    /// Evictions of it that the API server has not been told of yet.
    untold: Vec<Untold>,
}

/// A node at one moment, and what the API server has of it where that was asked.
struct Seen {
    config: Config,
    snapshot: Snapshot,
    history: History,
    pod_cgroups: PodCgroups,
    look: Option<Look>,
    notes: Vec<String>,
}

impl From<RunningAgent> for Seen {
    fn from(known: RunningAgent) -> Self {
        let RunningAgent { config, snapshot, history, pod_cgroups } = known;
        Self { config, snapshot, history, pod_cgroups, look: None, notes: Vec::new() }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let is_meant = args.kubernetes
        || args.node_name.is_some()
        || args.incidents.is_some()
        || args.running_agent.is_given()
        || args.config.is_given()
        || args.runtime.is_named();
    if let Some(reference) = args.target.on_node("image") {
        return image(args, reference);
    }
    if let Some(id) = args.target.on_node("eviction") {
        return eviction(args, id);
    }
    match Asked::of(&args.target) {
        Some(asked @ Asked::Cgroup(_)) => on_node(args, &asked),
        Some(asked) if is_meant || args.target.is_live() && is_in_daemon_set() => {
            on_node(args, &asked)
        }
        _ if is_meant => Err(Failure::Input(anyhow!(
            "{}: from its node only a pod, a cgroup, an image or an eviction is explained; leave out --kubernetes, --node-name, --incidents, --config, --kubelet-config, --api and --cri for what holds another object",
            args.target.object()
        ))),
        _ => cluster::explain::run(&args.target, args.output),
    }
}

/// The Node's name is in the environment of the agent's container.
fn is_in_daemon_set() -> bool {
    std::env::var_os(super::beside_kubelet::NODE_NAME).is_some_and(|name| !name.is_empty())
}

/// An image is the runtime's, and nothing else is looked at for it.
fn image(args: &Args, reference: &str) -> Result<(), Failure> {
    let is_misplaced = args.node_name.is_some() || args.running_agent.is_given();
    if is_misplaced || args.kubernetes || args.incidents.is_some() {
        return Err(Failure::Input(anyhow!(
            "image/{reference}: the runtime alone tells of images; leave out --kubernetes, --node-name, --api and --incidents"
        )));
    }
    let answer = event_loop()?.block_on(async {
        let sight = Sight::take(&args.node, &args.config, &args.runtime).await?;
        sight.notes.iter().for_each(|what| warn("note", what));
        image::explain(&sight, reference, args.output).await
    })?;
    print(&answer)
}

/// An eviction is what was recorded of it: nothing is looked at.
fn eviction(args: &Args, id: &str) -> Result<(), Failure> {
    let is_misplaced = args.kubernetes
        || args.node_name.is_some()
        || args.running_agent.is_given()
        || args.runtime.is_named();
    if id.is_empty() || is_misplaced {
        return Err(Failure::Input(anyhow!(
            "eviction/{id}: give the id of a record, as `ebb incident list` shows it, or `latest`; leave out --kubernetes, --node-name, --api and --cri"
        )));
    }
    let config = args.config.is_given().then(|| args.config.load()).transpose()?;
    let place = || Place::known(args.incidents.as_deref(), config.as_ref());
    print(&incident::explain(Path::new(id), place, args.output)?)
}

fn print(shown: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(shown.as_bytes()).context("cannot write the explanation")?;
    Ok(())
}

fn on_node(args: &Args, asked: &Asked) -> Result<(), Failure> {
    asked.check().map_err(Failure::Input)?;
    let has_api = args.kubernetes || args.node_name.is_some() || is_in_daemon_set();
    let (config, node) = if has_api {
        let node = node_name(args.node_name.clone())?;
        (args.config.clone().beside_kubelet(&args.node), Some(node))
    } else {
        (args.config.clone(), None)
    };
    let is_open = !args.config.is_given() && !args.runtime.is_named() && !has_api;
    let running_agent = match args.running_agent.ask()? {
        // What has begun since it last decided it does not know.
        None if is_open => RunningAgent::usual(&args.node, |known| {
            asked.find(&known.snapshot, &known.pod_cgroups).is_some()
        }),
        asked => asked,
    };
    let is_of_an_agent = running_agent.is_some();
    let seen = match asked {
        _ if is_of_an_agent => running_agent.map(Seen::from),
        // Pods are the runtime's.
        Asked::Pod(_) if args.runtime.asks_none() => None,
        Asked::Pod(_) => Some(with_runtime(args, &config, &args.runtime, node.as_deref())?),
        Asked::Cgroup(_) => Some(with_any(args, &config, node.as_deref())?),
    };
    seen.iter().flat_map(|seen| &seen.notes).for_each(|what| warn("note", what));
    if seen.is_some() && !is_of_an_agent && !args.config.is_given() {
        warn(
            "note",
            "no configuration is named (-c FILE): thresholds and protection are the defaults",
        );
    }
    let loaded;
    let configured = match &seen {
        Some(seen) => &seen.config,
        None => {
            loaded = config.load_for(true)?;
            &loaded
        }
    };
    let workload = seen.as_ref().and_then(|seen| asked.find(&seen.snapshot, &seen.pod_cgroups));
    // A cgroup of a pod goes with the whole pod, which is what is recorded.
    let name = workload.map_or(asked.name(), |workload| &workload.key.name);
    // Of an earlier time it may have been a workload by itself.
    let past = past(args, configured, &[asked.name(), name])?;
    let untold = past::untold(args.runtime.state(), name).unwrap_or_else(|error| {
        warn("note", &format!("{error:#}"));
        Vec::new()
    });
    let is_recorded = past.as_ref().is_some_and(|past| !past.incidents.is_empty());
    if workload.is_none() && !is_recorded && untold.is_empty() {
        let known = seen.as_ref().map(|seen| seen.snapshot.workloads.as_slice());
        return Err(Failure::Input(asked.unknown(known, past.as_ref().map(|past| past.records))));
    }
    let live = seen.as_ref().zip(workload).map(|(seen, workload)| {
        let object = seen.look.as_ref().and_then(|look| object(look, workload));
        live::explain(&seen.snapshot, &seen.config, &seen.history, workload, object)
    });
    let now = || Clock::of_process().unix_ms(Boot::now());
    let looked_at = seen.as_ref().map_or_else(now, |seen| seen.snapshot.taken_at.0);
    let answer = Answer { asked, looked_at, live, past, untold };
    let shown = match args.output {
        Output::Json => json::pretty(&answer)? + "\n",
        Output::Text => text::describe(&answer),
    };
    print(&shown)
}

/// What the API server has of a pod.
fn object<'a>(look: &'a Look, workload: &Workload) -> Option<&'a Arc<NodePod>> {
    let mut pods = look.pods.as_ref().ok()?.iter();
    pods.find(|pod| format!("{}/{}", pod.object.namespace, pod.object.name) == workload.key.name)
}

/// Looks at a node whose workloads may be cgroups, as its configuration and the options about the runtime say.
fn with_any(args: &Args, config: &ConfigArgs, node: Option<&str>) -> Result<Seen, Failure> {
    let given = config.peek(args.runtime.is_given())?;
    let runtime = args.runtime.for_config(&given)?;
    if node.is_some() || runtime.is_given() {
        return with_runtime(args, config, &runtime, node);
    }
    if given.mode == Mode::Kubernetes {
        // Nothing but pods may be evicted there, and which cgroups are those of pods only a runtime tells.
        return Err(runtime.without_runtime());
    }
    let given = config.load()?;
    Ok(Seen {
        snapshot: snapshot::cgroups(&args.node, &given)?.snapshot(Boot::now()),
        config: given,
        history: History::default(),
        pod_cgroups: PodCgroups::new(),
        look: None,
        notes: vec![
            "one look does not show how fast anything grows, by which the attributed ranking goes; the agent may rank otherwise".to_owned(),
        ],
    })
}

/// Looks at a node and its runtime once, and at what the API server has of it where there is a Node of this name.
fn with_runtime(
    args: &Args,
    config: &ConfigArgs,
    runtime: &RuntimeArgs,
    node: Option<&str>,
) -> Result<Seen, Failure> {
    event_loop()?.block_on(async {
        let look = match node {
            Some(node) => {
                let api = args.target.server().connect().await.map_err(Failure::Input)?;
                Some(ebb_node_api::look(&api, node).await)
            }
            None => None,
        };
        let pods = |config: &Config| look.as_ref().and_then(|l| l.described(&config.contract));
        let sight = Sight::with_pods(&args.node, config, runtime, pods).await?;
        let pod_cgroups = sight.state.pod_cgroups();
        let Sight { config, snapshot, history, mut notes, .. } = sight;
        notes.extend(gaps(look.as_ref()));
        Ok(Seen { config, snapshot, history, pod_cgroups, look, notes })
    })
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

/// What is recorded of a workload; `None`, and a note, where no records are known that anybody has asked for.
fn past(args: &Args, configured: &Config, names: &[&str]) -> Result<Option<Past>, Failure> {
    let place = Place::known(args.incidents.as_deref(), Some(configured));
    let past = match place.and_then(|place| past::read(&place, names)) {
        Err(Failure::Input(error)) if args.incidents.is_none() => {
            warn("note", &format!("{error:#}"));
            return Ok(None);
        }
        past => past?,
    };
    past.unreadable.iter().for_each(|why| warn("note", why));
    Ok(Some(past))
}
