//! The Kubernetes part of many agents beside one API server, measured by a benchmark of `cluster-tests`.
use super::criterion::cargo_bench;
use super::figure::{Finding, apart};
use super::host::conditions;
use crate::{kube, sh};
use anyhow::Result;

/// Run it and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When there is no control plane, or the benchmark fails, as it does when an agent takes more than it may.
pub(super) fn run(agents: usize) -> Result<Finding> {
    let assets = kube::assets(kube::For::Cluster)?;
    let mut bench = cargo_bench("ebb-cluster-tests", "fleet");
    bench.env("EBB_CLUSTER_ASSETS", &assets).env("EBB_AGENTS", agents.to_string());
    let (table, figures) = apart(&sh::read(&mut bench)?)?;
    let conditions = conditions()?;
    let text = format!(
        "## Many agents beside one API server\n\n\
         Conditions: {conditions}. kube-apiserver and etcd on the same machine, as they are started by default; the Kubernetes part of every agent in one process beside them, under a service account.\n\
         Pods have 2 KiB of annotations. Memory is that of the process, less what it had before, by the number of agents.\n\
         Requests and watches are those about pods, nodes, budgets and events, as the API server counts them.\n\n\
         {table}\n",
    );
    Ok(Finding { conditions, text, figures })
}
