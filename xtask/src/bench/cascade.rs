//! The cluster collector beside kube-controller-manager, measured by a benchmark of `cluster-tests`.
use super::criterion::cargo_bench;
use super::figure::{Finding, apart};
use super::host::conditions;
use crate::{kube, sh};
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Run it and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When there is no control plane, or the benchmark fails.
pub(super) fn run(chains: usize, owned: usize) -> Result<Finding> {
    let assets = kube::assets(kube::For::Cluster)?;
    let kcm = assets.join("kube-controller-manager");
    ensure!(kcm.is_file(), "{} is not there to be measured beside", kcm.display());
    let version = sh::read(Command::new(kcm).arg("--version"))?;
    let version = version.split_whitespace().last().context("no version")?;
    let mut bench = cargo_bench("ebb-cluster-tests", "cascade");
    bench.env("EBB_CLUSTER_ASSETS", &assets);
    bench.env("EBB_CHAINS", chains.to_string()).env("EBB_OWNED", owned.to_string());
    let (tables, figures) = apart(&sh::read(&mut bench)?)?;
    let conditions = conditions()?;
    let text = format!(
        "## Cascades\n\n\
         Conditions: {conditions}. kube-apiserver and kube-controller-manager {version} (garbagecollector alone) and etcd on the same machine, without other controllers; the collectors one after the other.\n\
         A chain is a Deployment that owns a ReplicaSet that owns a Pod. Four clients delete the owners; the clock runs from the first delete until the last object is gone.\n\
         Requests are the collector's for each object that it has to delete or release, without lists and watches, as the API server counts them.\n\
         By hand is twelve clients that know every object and watch nothing, and send the same writes: the control plane's own time.\n\
         Where both have the same limit, a tenth of a second's requests may be sent at once.\n\
         The least of a cascade is what its deletes cost an unrelated client without a collector: the four clients that delete the owners of chains, or one client that deletes what one owner leaves behind, one after the other.\n\
         Unrelated p99 is that of a client that reads one namespace every 4 ms meanwhile.\n\n\
         {tables}\n",
    );
    Ok(Finding { conditions, text, figures })
}
