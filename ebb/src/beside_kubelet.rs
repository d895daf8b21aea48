//! Arguments of an agent that runs beside a kubelet and is connected to the cluster's API server.

use super::Failure;
use super::runtime::RuntimeArgs;
use anyhow::anyhow;
use ebb_agent::act::Mode;
use ebb_agent::cluster::{Connect, is_a_name};
use std::path::{Path, PathBuf};

/// By which environment variable a DaemonSet tells the Node's name.
pub(super) const NODE_NAME: &str = "NODE_NAME";

/// Which cluster, and which of its nodes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KubernetesArgs {
    /// Run beside the kubelet of a cluster: the API server tells of pods, their owners and budgets, and is told of evictions. Implies `mode: kubernetes`.
    #[arg(long)]
    kubernetes: bool,
    /// The name of this Node in the cluster; without it, that in $NODE_NAME.
    #[arg(long, value_name = "NAME", requires = "kubernetes")]
    node_name: Option<String>,
    /// How to reach the cluster and as whom; else $KUBECONFIG, else ~/.kube/config, else the service account of this pod.
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig; else its current one.
    #[arg(long, value_name = "NAME", requires = "kubernetes")]
    context: Option<String>,
    /// Do not taint the Node while it is under pressure.
    #[arg(long, requires = "kubernetes")]
    no_node_taints: bool,
}

impl KubernetesArgs {
    /// Whether there is an API server.
    pub(super) fn is_wanted(&self) -> bool {
        self.kubernetes
    }

    /// Refuses arguments that do not fit together; what of the configuration does not fit them, `on_node` knows.
    pub(super) fn check(&self, runtime: &RuntimeArgs) -> Result<(), Failure> {
        if !self.kubernetes {
            return Ok(());
        }
        if runtime.has_manifests() {
            return Err(Failure::Input(anyhow!(
                "--pod-manifests: with --kubernetes the API server tells what pods ask for; leave it out"
            )));
        }
        if !runtime.is_given() {
            return Err(Failure::Input(anyhow!(
                "--kubernetes: the containers of pods are known from the container runtime alone; name it with --cri SOCKET"
            )));
        }
        Ok(())
    }

    /// What the agent's thread for the API server needs; `None` where none is wanted.
    pub(super) fn setup(&self, state: &Path, mode: Mode) -> Result<Option<Connect>, Failure> {
        if !self.kubernetes {
            return Ok(None);
        }
        let node = node_name(self.node_name.clone())?;
        // Tried while a mistake can still be told as one; the agent's thread makes a client of its own.
        let (file, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let tried = super::event_loop()?.block_on(ebb_kube::connect(file, context));
        tried.map_err(|error| Failure::Input(anyhow!("--kubernetes: {error}")))?;
        Ok(Some(ebb_node_api::connect(ebb_node_api::Setup {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            node,
            dir: Some(state.to_owned()),
            mode,
            has_taints: !self.no_node_taints,
        })))
    }
}

/// The name of this Node: the one that was given, else that in the environment.
pub(super) fn node_name(given: Option<String>) -> Result<String, Failure> {
    let given = given.or_else(|| std::env::var(NODE_NAME).ok());
    let node = given.filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure::Input(anyhow!(
            "--kubernetes: which Node is this? Give --node-name NAME or set {NODE_NAME} (in a DaemonSet from the field spec.nodeName)"
        ))
    })?;
    if !is_a_name(&node) {
        return Err(Failure::Input(anyhow!(
            "--node-name {node:?}: a Node's name has lower-case letters, digits, `-` and `.`, at most 253"
        )));
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_no_nodes() {
        for name in ["", "../x", "a/b", "A", "a,b", "a b", ".a"] {
            assert!(name.is_empty() || !is_a_name(name), "{name:?}");
        }
        assert!(is_a_name("ip-10-0-0-1.eu-west-1.compute.internal"));
    }
}
