//! What a running agent knows and decides by, asked over its API: the commands that explain and try out take it where they would else look at the node by themselves.
//!
//! One look shows neither how fast anything grows nor what the agent remembers, and may be made by another configuration.

use super::client::failure;
use super::node::NodeArgs;
use super::runtime::ago;
use super::{Failure, event_loop, json, warn};
use anyhow::Context as _;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::{Config, Reader};
use ebb_api::client::{Client, ClientError};
use ebb_policy::{History, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the latest decision of a running agent was made of.
pub(super) struct RunningAgent {
    /// The configuration in force.
    pub(super) config: Config,
    pub(super) snapshot: Snapshot,
    pub(super) history: History,
    /// The cgroups of pods, by their UIDs.
    pub(super) pod_cgroups: BTreeMap<String, String>,
}

/// The same as the API tells it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    pub(super) config: String,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) history: Arc<History>,
    pub(super) pod_cgroups: BTreeMap<String, String>,
}

/// Which agent is asked.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunningAgentArgs {
    /// Ask the running agent whose API has its socket there, as in /run/ebb/api.sock, rather than looking at the node: it knows how fast workloads grow, and by which configuration it decides.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "kubelet_config", "cri", "cgroup_root", "node_fs"])]
    api: Option<PathBuf>,
}

impl RunningAgentArgs {
    /// Whether an agent is to be asked.
    pub(super) fn is_given(&self) -> bool {
        self.api.is_some()
    }

    /// What the agent knows that is to be asked, if one is.
    pub(super) fn ask(&self) -> Result<Option<RunningAgent>, Failure> {
        self.api.as_deref().map(RunningAgent::ask).transpose()
    }
}

impl RunningAgent {
    /// What the agent at the usual socket knows, where there is one, nothing names another node, and it knows what is asked for.
    pub(super) fn usual(node: &NodeArgs, is_known: impl Fn(&Self) -> bool) -> Option<Self> {
        let usual = Path::new(ebb_api::USUAL);
        if !node.is_this_one() {
            return None;
        }
        let known = match document(usual) {
            Err(ClientError::Absent { .. }) => return None,
            Err(error) => Err(failure(error)),
            Ok(document) => Self::read(usual, &document),
        };
        let why = |failure: Failure| failure.error().map(|error| format!("{error:#}"));
        let tell = |why: String| warn("note", &format!("the running agent is not heard: {why}"));
        let known = known.map_err(|failure| why(failure).map(tell)).ok().filter(is_known)?;
        known.tell(usual);
        Some(known)
    }

    /// Asks the agent whose API is at `socket`, and says on standard error of when its answer is.
    pub(super) fn ask(socket: &Path) -> Result<Self, Failure> {
        let known = Self::read(socket, &document(socket).map_err(failure)?)?;
        known.tell(socket);
        Ok(known)
    }

    /// Says on standard error of when it is.
    fn tell(&self, socket: &Path) {
        let now = Clock::of_process().unix_ms(Boot::now());
        let age = ago(now.saturating_sub(self.snapshot.taken_at.0));
        warn("note", &format!("as the agent at {} decided last, {age} ago", socket.display()));
    }

    fn read(socket: &Path, document: &[u8]) -> Result<Self, Failure> {
        let read = || {
            let text = std::str::from_utf8(document).context("not UTF-8")?;
            let Document { config, snapshot, history, pod_cgroups } = json::parse(text)?;
            // Beside an API server or not: what the agent has in force is allowed where it is.
            let config = Reader { has_api_server: true }.parse(&config).context("config")?;
            let (snapshot, history) =
                (Arc::unwrap_or_clone(snapshot), Arc::unwrap_or_clone(history));
            anyhow::Ok(Self { config, snapshot, history, pod_cgroups })
        };
        let said = || format!("{}: this ebb does not understand the answer", socket.display());
        Ok(read().with_context(said)?)
    }
}

fn document(socket: &Path) -> Result<Vec<u8>, ClientError> {
    let asked = async { Client::connect(socket).await?.decision().await };
    match event_loop() {
        Ok(executor) => executor.block_on(asked),
        Err(error) => {
            Err(ClientError::Unreachable { path: socket.to_owned(), why: format!("{error:#}") })
        }
    }
}
