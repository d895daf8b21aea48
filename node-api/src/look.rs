//! One look at what the API server has of a node, for a command that looks once and ends.

use ebb_agent::cluster::{Budget, NodePod, by_pod};
use ebb_agent::config::Contract;
use ebb_agent::pods::Described;
use ebb_kube::{Api, Update, follow};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a list is waited for: a little longer than one call may take.
const LISTED_WITHIN: Duration = Duration::from_secs(35);

/// What the API server has of a node.
#[derive(Debug)]
pub struct Look {
    /// The pods that are bound to it, or why they are not known.
    pub pods: Result<Vec<Arc<NodePod>>, String>,
    /// Disruption budgets of the cluster, or why they are not known.
    pub budgets: Result<Vec<Arc<Budget>>, String>,
}

/// Lists the pods of the Node of this name and the budgets, in one attempt.
pub async fn look(api: &Api, node: &str) -> Look {
    let pods = crate::session::pods_of(node);
    let pods = [pods.as_str()];
    let (pods, budgets) = tokio::join!(
        first(api, &pods, NodePod::read),
        first(api, crate::session::BUDGETS, Budget::read)
    );
    let pods = pods.map(|pods| by_pod(pods).into_values().collect());
    Look { pods, budgets: budgets.map(|budgets| budgets.into_values().collect()) }
}

impl Look {
    /// The pods as workloads, each with the budget that leaves it the least room, and protected where that is honoured; `None` where they are not known.
    #[must_use]
    pub fn described(&self, contract: &Contract) -> Option<Described> {
        let budgets = self.budgets.as_deref().unwrap_or_default();
        let pods = self.pods.as_ref().ok()?.iter();
        let pods = pods.map(|pod| pod.with_budgets(budgets.iter(), contract)).collect();
        // A static pod that nobody mirrors is missing here.
        Some(Described { pods, is_complete: false })
    }
}

/// What is told of these objects first.
async fn first<T: Send + Sync>(
    api: &Api,
    paths: &[&str],
    read: impl Fn(&serde_json::Value) -> T,
) -> Result<BTreeMap<String, Arc<T>>, String> {
    let (news, mut inbox) = mpsc::channel(1);
    let told = async {
        tokio::select! {
            () = follow(api.clone(), paths, read, |update| update, news) => None,
            update = inbox.recv() => update,
        }
    };
    match timeout(LISTED_WITHIN, told).await {
        Ok(Some(Update::All(all))) => Ok(all),
        Ok(Some(Update::Broken(why))) => Err(why),
        Ok(None) | Err(_) => Err(format!("no answer within {} s", LISTED_WITHIN.as_secs())),
    }
}
