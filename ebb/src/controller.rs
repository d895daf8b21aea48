//! `ebb controller`: the cluster collector, live; nothing is changed unless --enforce is given.

use super::cluster::Server;
use super::{Failure, plan::Output};
use anyhow::{Context as _, anyhow};
use ebb_controller::{Collectors, Config, Format, Mode};
use ebb_kube::Api;
use ebb_policy_cluster::{Exclusions, Resource, pods::Limits};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments of `ebb controller`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: Server,
    /// Do what is to be done; without it, only say what would be.
    #[arg(long)]
    enforce: bool,
    /// Which collectors run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Collector::OwnerReferences, Collector::Pods])]
    collectors: Vec<Collector>,
    /// Leave a namespace or a kind as it is: `namespace/NAME`, or RESOURCE.GROUP as in configmaps or deployments.apps; may be repeated.
    #[arg(long, value_name = "WHAT")]
    ignore: Vec<String>,
    /// At most so many requests about objects a second; without it, as many as the API server answers quickly.
    #[arg(long, value_name = "N", value_parser = qps)]
    max_qps: Option<f64>,
    /// Terminated pods that may stay in the cluster; 0 for any number.
    #[arg(long, value_name = "N", default_value_t = 12_500)]
    terminated_pod_gc_threshold: usize,
    #[command(flatten)]
    limits: PodLimits,
    /// How long a node must be missing before its pods are deleted: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = super::cluster::age)]
    node_quarantine: u64,
    /// Act without a Lease: there is no other controller.
    #[arg(long)]
    no_leader_election: bool,
    /// The namespace of the Lease `ebb-controller`, by which one of several controllers acts.
    #[arg(long, value_name = "NS", default_value = "kube-system")]
    lease_namespace: String,
    /// Serve /livez, /readyz and /metrics there, as in 127.0.0.1:8080, or :8080 for every address of this host.
    #[arg(long, value_name = "ADDR", value_parser = ebb_http::address)]
    listen: Option<SocketAddr>,
    /// Form of the records.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Limits on terminated pods beside the threshold, none of which is set by itself. Evicted pods go first, then the oldest.
#[derive(Debug, Default, clap::Args)]
struct PodLimits {
    /// Terminated pods that may stay in a namespace.
    #[arg(long, value_name = "N", value_parser = pods)]
    terminated_pods_per_namespace: Option<usize>,
    /// Terminated pods that may stay of one owner: of the ReplicaSet, Job or other controller that made them.
    #[arg(long, value_name = "N", value_parser = pods)]
    terminated_pods_per_owner: Option<usize>,
    /// How long a terminated pod may stay: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", value_parser = pod_age)]
    terminated_pod_age: Option<u64>,
    /// How long a terminated pod of this `status.reason` may stay, as in Evicted=1h or NodeShutdown=10m; may be repeated.
    #[arg(long, value_name = "REASON=TIME", value_parser = age_by_reason)]
    terminated_pod_age_by_reason: Vec<(String, u64)>,
    /// These limits leave the failed pods of Jobs as they are; the threshold does not.
    #[arg(long)]
    keep_failed_pods_of_jobs: bool,
}

impl PodLimits {
    /// The options that are given, by their names.
    fn given(&self) -> Vec<&'static str> {
        let Self {
            terminated_pods_per_namespace,
            terminated_pods_per_owner,
            terminated_pod_age,
            terminated_pod_age_by_reason,
            keep_failed_pods_of_jobs,
        } = self;
        [
            ("--terminated-pods-per-namespace", terminated_pods_per_namespace.is_some()),
            ("--terminated-pods-per-owner", terminated_pods_per_owner.is_some()),
            ("--terminated-pod-age", terminated_pod_age.is_some()),
            (AGE_BY_REASON, !terminated_pod_age_by_reason.is_empty()),
            (KEEP_FAILED, *keep_failed_pods_of_jobs),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
        .collect()
    }

    /// An option without any effect is a mistake that its author should hear of.
    fn check(&self, collects_pods: bool) -> anyhow::Result<()> {
        let given = self.given();
        if let (Some(first), false) = (given.first(), collects_pods) {
            return Err(anyhow!("{first} has no effect: --collectors leaves pods out"));
        }
        if given == [KEEP_FAILED] {
            return Err(anyhow!(
                "{KEEP_FAILED} has no effect without a limit: give --terminated-pods-per-namespace, --terminated-pods-per-owner, --terminated-pod-age or {AGE_BY_REASON} too"
            ));
        }
        let mut reasons = BTreeSet::new();
        let mut all = self.terminated_pod_age_by_reason.iter().map(|(reason, _)| reason);
        if let Some(twice) = all.find(|reason| !reasons.insert(*reason)) {
            return Err(anyhow!("{AGE_BY_REASON} {twice}=… is given twice: give one time for it"));
        }
        Ok(())
    }
}

const KEEP_FAILED: &str = "--keep-failed-pods-of-jobs";
const AGE_BY_REASON: &str = "--terminated-pod-age-by-reason";

/// A collector by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Collector {
    /// Objects whose owners are gone, as kube-controller-manager's garbage collector has it.
    OwnerReferences,
    /// Pods that nobody else takes away, as kube-controller-manager's pod collector has it.
    Pods,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let ignored = ignored(&args.ignore).map_err(Failure::Input)?;
    args.limits.check(args.collectors.contains(&Collector::Pods)).map_err(Failure::Input)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // One thread has the graph, the other the connections.
    let runtime = runtime.worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the event loop")?;
    runtime.block_on(async {
        let api = args.server.connect().await.map_err(Failure::Input)?;
        let resources = named(&api, &ignored.resources).await?;
        let config = args.config(ignored.namespaces, resources);
        let format = match args.output {
            Output::Text => Format::Text,
            Output::Json => Format::Json,
        };
        ebb_controller::run(config, api, format, std::io::stdout()).await?;
        Ok(())
    })
}

impl Args {
    fn config(&self, namespaces: BTreeSet<String>, resources: BTreeSet<Resource>) -> Config {
        let pods = Limits {
            terminated: Some(self.terminated_pod_gc_threshold).filter(|&n| n > 0),
            quarantine: self.node_quarantine,
            per_namespace: self.limits.terminated_pods_per_namespace,
            per_controller: self.limits.terminated_pods_per_owner,
            age: self.limits.terminated_pod_age,
            age_by_reason: self.limits.terminated_pod_age_by_reason.iter().cloned().collect(),
            keep_failed_of_jobs: self.limits.keep_failed_pods_of_jobs,
            ignored_namespaces: namespaces.clone(),
        };
        Config {
            mode: if self.enforce { Mode::Enforce } else { Mode::Observe },
            collectors: Collectors {
                owner_references: self.collectors.contains(&Collector::OwnerReferences),
                pods: self.collectors.contains(&Collector::Pods),
            },
            exclusions: Exclusions { namespaces, resources },
            pods,
            max_qps: self.max_qps,
            lease_namespace: (!self.no_leader_election).then(|| self.lease_namespace.clone()),
            listen: self.listen,
        }
    }
}

/// What `--ignore` names.
struct Ignored {
    namespaces: BTreeSet<String>,
    resources: Vec<String>,
}

fn ignored(words: &[String]) -> anyhow::Result<Ignored> {
    let mut ignored = Ignored { namespaces: BTreeSet::new(), resources: Vec::new() };
    for word in words {
        match word.split_once('/') {
            Some(("namespace", name)) if !name.is_empty() => {
                ignored.namespaces.insert(name.to_owned());
            }
            None if !word.is_empty() => ignored.resources.push(word.clone()),
            _ => {
                return Err(anyhow!(
                    "--ignore {word}: give namespace/NAME, or RESOURCE.GROUP as in configmaps or deployments.apps"
                ));
            }
        }
    }
    Ok(ignored)
}

/// The kinds that are ignored, once the API server says what it serves.
async fn named(api: &Api, words: &[String]) -> Result<BTreeSet<Resource>, Failure> {
    if words.is_empty() {
        return Ok(BTreeSet::new());
    }
    let found = loop {
        match api.discover().await {
            Ok(found) => break found,
            Err(failure) => super::warn("waiting for the API server", &failure.to_string()),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    ebb_controller::resources_named(&found, words).map_err(|word| {
        Failure::Input(anyhow!(
            "--ignore {word}: the API server serves no such resource; give RESOURCE.GROUP as `kubectl api-resources` lists it"
        ))
    })
}

fn qps(text: &str) -> anyhow::Result<f64> {
    let wrong = || anyhow!("give requests a second, more than 0 and at most 100000");
    let qps: f64 = text.parse().map_err(|_| wrong())?;
    if qps > 0.0 && qps <= 100_000.0 { Ok(qps) } else { Err(wrong()) }
}

fn pods(text: &str) -> anyhow::Result<usize> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| {
        anyhow!("give how many pods may stay, at least 1; without the option, any number may")
    })
}

fn pod_age(text: &str) -> anyhow::Result<u64> {
    let age = super::cluster::age(text)?;
    if age > 0 { Ok(age) } else { Err(anyhow!("give a time of more than 0, as in 1h")) }
}

fn age_by_reason(text: &str) -> anyhow::Result<(String, u64)> {
    let (reason, age) =
        text.split_once('=').filter(|(reason, _)| is_reason(reason)).ok_or_else(|| {
            anyhow!("give a reason as in a pod's status.reason, and a time, as in Evicted=1h")
        })?;
    Ok((reason.to_owned(), pod_age(age)?))
}

/// Kubernetes' form of a reason: one word in CamelCase.
fn is_reason(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_namespaces_and_kinds_are_told_apart_and_anything_else_is_refused() {
        let words = ["namespace/kube-system".to_owned(), "deployments.apps".to_owned()];
        let found = ignored(&words).unwrap();
        assert!(found.namespaces.contains("kube-system"));
        assert_eq!(found.resources, ["deployments.apps"]);
        for wrong in ["namespace/", "pods/web", ""] {
            assert!(ignored(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_on_pods_without_effect_is_refused() {
        assert!(pods("0").is_err() && pods("-1").is_err() && pods("many").is_err());
        assert!(pod_age("0h").is_err() && pod_age("1").is_err());
        assert_eq!((pods("1").unwrap(), pod_age("1h").unwrap()), (1, 3_600_000));
        let keep = || PodLimits { keep_failed_pods_of_jobs: true, ..PodLimits::default() };
        let alone = keep().check(true).unwrap_err().to_string();
        assert!(alone.starts_with("--keep-failed-pods-of-jobs has no effect without"), "{alone}");
        let ages = age_by_reason("Evicted=1h").unwrap();
        assert_eq!(ages, ("Evicted".to_owned(), 3_600_000));
        for wrong in ["Evicted", "=1h", "Evicted=", "Evicted=0h", "an end=1h"] {
            assert!(age_by_reason(wrong).is_err(), "{wrong}");
        }
        let twice = vec![ages.clone(), ages.clone()];
        let twice = PodLimits { terminated_pod_age_by_reason: twice, ..PodLimits::default() };
        let twice = twice.check(true).unwrap_err().to_string();
        assert!(twice.starts_with("--terminated-pod-age-by-reason Evicted=… is given twice"));
        let both = PodLimits { terminated_pod_age_by_reason: vec![ages], ..keep() };
        assert!(both.check(true).is_ok());
        let out = both.check(false).unwrap_err().to_string();
        assert_eq!(
            out,
            "--terminated-pod-age-by-reason has no effect: --collectors leaves pods out"
        );
        assert!(PodLimits::default().check(false).is_ok());
    }

    #[test]
    fn a_ceiling_of_nothing_is_refused() {
        assert!(qps("0").is_err() && qps("-1").is_err() && qps("NaN").is_err());
        assert!(qps("0.5").is_ok());
    }
}
