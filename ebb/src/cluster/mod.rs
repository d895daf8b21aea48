//! Commands on a cluster, live or saved: what the API server lists, or `kubectl get … -A -o json` printed, judged by the collector's own graph.
//!
//! ```text
//!  FILE ───────► read (checked) ─┐
//!  API server ─► list ───────────┴─► Cluster { graph } ─► graph · explain · stuck
//! ```
//! A file is a point in time, and complete for the kinds that are in it: of owners of other kinds nothing is known, and that is said.

pub(super) mod explain;
pub(super) mod graph;
mod page;
mod picture;
mod read;
pub(super) mod stuck;
mod svg;

use super::Failure;
use anyhow::anyhow;
use ebb_policy_cluster::{Doubt, Exclusion, Hold, Object, Pause, Resource, Uid};
use read::Cluster;
use serde::Serialize;
use std::path::PathBuf;

/// Which API server, and as whom.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// How to reach the cluster and as whom; else $KUBECONFIG, else ~/.kube/config, else the service account of this pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig; else its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Server {
    /// A client.
    pub(super) async fn connect(&self) -> anyhow::Result<ebb_kube::Api> {
        Ok(ebb_kube::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?)
    }
}

/// Where the cluster is.
#[derive(Debug, clap::Args)]
struct Source {
    /// A saved cluster, what `kubectl get KINDS -A -o json` printed: a List of whole objects or of their metadata; `-` is standard input. Without it, the live cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

impl Source {
    /// The cluster as it is now, or as it was saved.
    fn read(&self) -> Result<Cluster, Failure> {
        if let Some(file) = &self.from {
            return Cluster::read(file).map_err(Failure::Input);
        }
        super::event_loop()?.block_on(async {
            let api = self.server.connect().await.map_err(Failure::Input)?;
            let listed = ebb_kube::list_all(&api).await.map_err(|e| match e {
                // It names the server itself.
                ebb_kube::Failure::Connection(why) => anyhow!(why),
                e => anyhow!("{}: {e}", api.server()),
            })?;
            Ok(Cluster::live(api.server(), listed))
        })
    }
}

/// An age in milliseconds.
pub(super) fn age(text: &str) -> anyhow::Result<u64> {
    let wrong = || anyhow!("give a number with s, m, h or d, as in 5m");
    let unit = match text.chars().last() {
        Some('s') => 1_000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Which object of which cluster.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The object: KIND/NAME, or KIND.GROUP/NAME where several groups have the kind.
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// The object's namespace; leave it out for an object of the cluster.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    source: Source,
}

impl Target {
    /// The object as it was asked for.
    pub(super) fn object(&self) -> &str {
        &self.object
    }

    /// The pod's name, where a pod is asked for.
    pub(super) fn pod(&self) -> Option<&str> {
        let (kind, name) = self.object.split_once('/')?;
        let pods = Resource { group: String::new(), kind: "Pod".to_owned() };
        (is_kind(&pods, kind) && !name.is_empty()).then_some(name)
    }

    /// What is asked for of a kind that nodes have: `cgroup` or `image`. `None` where another kind is, or where a namespace or a saved cluster says that a cluster has it.
    pub(super) fn on_node(&self, kind: &str) -> Option<&str> {
        let (word, asked) = self.object.split_once('/')?;
        let word = word.to_lowercase();
        let is_kind = word == kind || word.strip_suffix('s') == Some(kind);
        (is_kind && self.namespace.is_none() && self.is_live()).then_some(asked)
    }

    /// The namespace that was given.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether it is asked for in a cluster that runs, not in a file.
    pub(super) fn is_live(&self) -> bool {
        self.source.from.is_none()
    }

    /// Which API server.
    pub(super) fn server(&self) -> &Server {
        &self.source.server
    }

    /// The cluster, and the object in it.
    fn find(&self) -> Result<(Cluster, Uid), Failure> {
        let cluster = self.source.read()?;
        let uid = self.uid(&cluster).map_err(Failure::Input)?;
        Ok((cluster, uid))
    }

    fn uid(&self, cluster: &Cluster) -> anyhow::Result<Uid> {
        let asked = &self.object;
        let (kind, name) = asked
            .split_once('/')
            .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
            .ok_or_else(|| anyhow!("{asked}: give KIND/NAME, as in deployment/web"))?;
        let file = &cluster.source;
        let of_kind: Vec<Object> = cluster
            .objects()
            .filter(|object| is_kind(&Resource::from(&object.kind), kind))
            .collect();
        if of_kind.is_empty() {
            let kinds: Vec<String> = cluster.kinds().map(resource).collect();
            return Err(anyhow!(
                "{asked}: {file} has no object of this kind; it has {}",
                kinds.join(", ")
            ));
        }
        let named: Vec<&Object> = of_kind
            .iter()
            .filter(|object| object.name == name && object.namespace == self.namespace)
            .collect();
        match named[..] {
            [object] => Ok(object.uid.clone()),
            [] => {
                let namespace = self.namespace.as_deref();
                let place =
                    namespace.map_or("without a namespace".into(), |n| format!("in namespace {n}"));
                let elsewhere: Vec<&str> = of_kind
                    .iter()
                    .filter(|object| object.name == name)
                    .map(|object| object.namespace.as_deref().unwrap_or("no namespace"))
                    .collect();
                let hint = if elsewhere.is_empty() {
                    String::new()
                } else {
                    format!("; there is one in {} (-n)", elsewhere.join(", "))
                };
                Err(anyhow!("{asked}: {file} has no such object {place}{hint}"))
            }
            _ => {
                let kinds: Vec<String> =
                    named.iter().map(|object| resource(&Resource::from(&object.kind))).collect();
                Err(anyhow!(
                    "{asked}: several kinds have it: {}; give KIND.GROUP/NAME",
                    kinds.join(", ")
                ))
            }
        }
    }
}

/// Whether a word names a kind as kubectl has it: in any case, in the singular or plural, with its group or without.
fn is_kind(resource: &Resource, word: &str) -> bool {
    let word = word.to_lowercase();
    let (word, group) = word.split_once('.').map_or((&*word, None), |(w, g)| (w, Some(g)));
    let kind = resource.kind.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    (word == kind || word == plural) && group.is_none_or(|group| group == resource.group)
}

/// An object by what people call it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    /// `None` where the file does not have the object.
    kind: Option<String>,
    group: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: String,
}

impl Name {
    fn of(cluster: &Cluster, uid: &Uid) -> Self {
        let object = cluster.graph.object(uid);
        let of = |read: fn(&Object) -> Option<String>| object.as_ref().and_then(read);
        Self {
            kind: of(|o| Some(o.kind.kind.clone())),
            group: of(|o| Some(o.kind.group.clone())),
            namespace: of(|o| o.namespace.clone()),
            name: of(|o| Some(o.name.clone())),
            uid: uid.to_string(),
        }
    }
}

/// An object as text: `ReplicaSet.apps shop/web-1`.
fn name(cluster: &Cluster, uid: &Uid) -> String {
    cluster.graph.object(uid).map_or_else(
        || format!("uid {uid} ({})", cluster.absent()),
        |object| {
            let namespace = object.namespace.map(|n| n + "/").unwrap_or_default();
            format!("{} {namespace}{}", object.kind, object.name)
        },
    )
}

fn resource(resource: &Resource) -> String {
    if resource.group.is_empty() {
        resource.kind.clone()
    } else {
        format!("{}.{}", resource.kind, resource.group)
    }
}

/// One hold as text: what it is, and after a semicolon what would release it.
fn hold(cluster: &Cluster, hold: &Hold) -> String {
    match hold {
        Hold::Finalizer(finalizer) => {
            format!("finalizer {finalizer}; released when whoever set it removes it")
        }
        Hold::BlockingDependent(uid) => {
            format!(
                "blocking dependent {}; released when it is gone or no longer blocks",
                name(cluster, uid)
            )
        }
        Hold::Orphan(uid) => {
            format!(
                "dependent {} still refers to it; the collector removes the reference",
                name(cluster, uid)
            )
        }
        Hold::Owner(uid) => {
            format!("owner {} is there; released when it is gone", name(cluster, uid))
        }
        Hold::Doubt(found) => doubt(cluster, found),
        Hold::Excluded(Exclusion::Label) => {
            "label ebb.dev/hold: \"true\"; released when it is removed".to_owned()
        }
        Hold::Excluded(Exclusion::Namespace(namespace)) => {
            format!("namespace {namespace} is excluded")
        }
        Hold::Excluded(Exclusion::Resource(kind)) => format!("kind {} is excluded", resource(kind)),
        Hold::Cycle(uids) => {
            let names: Vec<String> = uids.iter().map(|uid| name(cluster, uid)).collect();
            format!(
                "it waits for itself: {}; released when blockOwnerDeletion is cleared in one of them",
                names.join(" -> ")
            )
        }
        Hold::Unconfirmed(uid) => {
            format!(
                "owner {} is not where the reference says; the collector looks it up first",
                name(cluster, uid)
            )
        }
        Hold::Request(Pause::Invalid) => "the API server refuses the request".to_owned(),
        Hold::Request(Pause::Sent | Pause::Conflict) => "a request is under way".to_owned(),
    }
}

fn doubt(cluster: &Cluster, doubt: &Doubt) -> String {
    match doubt {
        Doubt::NotServed(kind) if cluster.is_live => format!(
            "the API server does not serve {}, so whether the owner is there is unknown",
            resource(kind)
        ),
        Doubt::NotServed(kind) => format!(
            "the file has no {}, so whether the owner is there is unknown; save that kind too",
            resource(kind)
        ),
        Doubt::NamespacedOwner(kind) => format!(
            "it belongs to the cluster and names an owner of the namespaced kind {}: never deleted for it; released when the reference is changed",
            resource(kind)
        ),
        Doubt::Syncing(kind) => format!("{} is being listed", resource(kind)),
        Doubt::Broken { resource: kind, why, .. } => {
            format!("{} cannot be watched: {why}", resource(kind))
        }
    }
}

/// A hold for machines.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownHold {
    hold: &'static str,
    finalizer: Option<String>,
    objects: Vec<Name>,
    kind: Option<String>,
    message: String,
}

impl ShownHold {
    fn new(cluster: &Cluster, of: &Hold) -> Self {
        let (mut finalizer, mut kind, mut uids) = (None, None, Vec::new());
        let word = match of {
            Hold::Finalizer(name) => {
                finalizer = Some(name.clone());
                "finalizer"
            }
            Hold::BlockingDependent(uid) => {
                uids.push(uid);
                "blockingDependent"
            }
            Hold::Orphan(uid) => {
                uids.push(uid);
                "orphan"
            }
            Hold::Owner(uid) => {
                uids.push(uid);
                "owner"
            }
            Hold::Unconfirmed(uid) => {
                uids.push(uid);
                "unconfirmedOwner"
            }
            Hold::Cycle(cycle) => {
                uids.extend(cycle);
                "cycle"
            }
            Hold::Doubt(Doubt::NotServed(of)) => {
                kind = Some(resource(of));
                if cluster.is_live { "kindNotServed" } else { "kindNotInFile" }
            }
            Hold::Doubt(Doubt::NamespacedOwner(of)) => {
                kind = Some(resource(of));
                "namespacedOwner"
            }
            Hold::Doubt(Doubt::Syncing(of)) => {
                kind = Some(resource(of));
                "syncing"
            }
            Hold::Doubt(Doubt::Broken { resource: of, .. }) => {
                kind = Some(resource(of));
                "broken"
            }
            Hold::Excluded(_) => "excluded",
            Hold::Request(_) => "request",
        };
        let objects = uids.into_iter().map(|uid| Name::of(cluster, uid)).collect();
        Self { hold: word, finalizer, objects, kind, message: hold(cluster, of) }
    }
}
