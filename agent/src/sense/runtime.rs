//! What the container runtime has, in policy's words: pods, containers, images, and what they take up.
//!
//! ```text
//!  list sandboxes, containers ─┐                        every change, and once a minute
//!  status of what is not dead ─┼─► Inventory            once for each: cgroup, mounted images
//!  list images, layers ────────┘                        when images change, and when disk matters
//! ```
//! [`Reader`] remembers only what saves it from asking twice, and forgets what is no longer listed.
//! It runs where waiting harms nobody (see `run/session`), never in the loop.

use super::pod_dirs::{Figure, PodSizes};
use crate::clock::{Boot, Clock};
use ebb_cri::{Error, ImageUse, PieceKind, Runtime};
use ebb_model::pod::Asked;
use ebb_policy::Time;
use ebb_policy::snapshot::{Container, ContainerState, FsUsage, Image, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where container runtimes usually listen.
const SOCKETS: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];

/// The first of the usual places of a runtime's socket where there is one.
pub(crate) fn usual_socket() -> Option<&'static str> {
    SOCKETS.into_iter().find(|socket| Path::new(socket).exists())
}

/// Everything that the runtime has.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// When it was listed.
    pub at: Boot,
    /// Sandboxes; a pod has several when earlier ones are not removed yet.
    pub pods: Vec<PodSeen>,
    /// Containers, dead ones too.
    pub containers: Vec<ContainerSeen>,
    /// Ids of containers that have ended since the last inventory.
    pub exited: Vec<String>,
    /// Images; `None` when they were not listed this time and the last list stands.
    pub images: Option<Images>,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// As policy sees it.
    pub sandbox: Sandbox,
    /// The pod as `namespace/name`.
    pub name: String,
    /// The kubelet runs it from a file or a URL, not for the API server.
    pub is_static: bool,
    /// Its kubelet runs it for the API server, by the word that kubelets write on sandboxes themselves.
    pub is_of_api_server: bool,
    /// The sandbox's own cgroup below the cgroup mount, where known.
    pub cgroup: Option<PathBuf>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSeen {
    /// As policy sees it.
    pub container: Container,
    /// Its cgroup below the cgroup mount, where known; a container that has ended has none.
    pub cgroup: Option<PathBuf>,
    /// Ids of images that are mounted into it as volumes.
    pub mounted_images: Vec<String>,
    /// What the runtime was asked to give it, as last told.
    pub asked: Asked,
}

/// All images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// When they began to be listed.
    pub at: Boot,
    /// As policy sees them.
    pub list: Vec<Image>,
    /// Bytes of each layer that some image could take with it; one that stays whatever images go is left out.
    pub layers: BTreeMap<Arc<str>, u64>,
    /// By image id, bytes on disk of everything that it needs, shared or not.
    pub totals: BTreeMap<String, u64>,
    /// Why layers are not known, where they are not.
    pub layers_unknown: Option<String>,
    /// A directory on the filesystem of the images.
    pub filesystem: Option<PathBuf>,
    /// A directory on the filesystem of the writable layers, where the runtime tells it apart.
    pub layer_filesystem: Option<PathBuf>,
}

/// What pods take up on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Writable layers, by container id.
    pub layers: BTreeMap<String, Figure>,
    /// The rest, by UID of the pod.
    pub pods: BTreeMap<String, PodSizes>,
}

/// What need not be asked again of something that runs.
#[derive(Clone, Debug)]
struct Settled {
    /// When it was asked.
    at: Boot,
    cgroup: Option<PathBuf>,
    mounts: Vec<String>,
    /// The one fact that may change: asked again now and then.
    asked: Asked,
}

/// Reads a runtime again and again.
#[derive(Debug)]
pub struct Reader {
    runtime: Runtime,
    clock: Clock,
    settled: BTreeMap<String, Settled>,
    /// Names of images, to find the one that a container means.
    images: Vec<ebb_cri::Image>,
}

/// Statuses asked for in one reading; the rest follow in the next, so that a node full of pods does not hold the first list up.
const ASKED_AT_MOST: usize = 512;

/// What a container is given may be changed while it runs: it is asked again after this long, for so many at a time.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);
const ASKED_AGAIN_AT_MOST: usize = 64;

/// What writable layers take up, by container id, each as of the moment that the runtime names; one that names none may have measured at any time. A runtime may take seconds to measure it.
///
/// # Errors
/// When the runtime does not say.
pub async fn writable_layers(runtime: &Runtime) -> Result<BTreeMap<String, Figure>, Error> {
    let usage = runtime.container_usage().await?;
    let layer = |container: ebb_cri::ContainerUsage| {
        let layer = container.writable_layer?;
        let usage = FsUsage { used_bytes: layer.bytes, inodes_used: layer.inodes };
        let age = layer.at.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        let age = age.and_then(|age| u64::try_from(age.as_nanos()).ok());
        let at = age.map_or(Boot(0), |age| Boot(Boot::now().0.saturating_sub(age)));
        Some((container.id, Figure { usage, at, is_whole: true }))
    };
    Ok(usage.into_iter().filter_map(layer).collect())
}

impl Reader {
    /// A reader that knows nothing yet.
    #[must_use]
    pub fn new(runtime: Runtime, clock: Clock) -> Self {
        Self { runtime, clock, settled: BTreeMap::new(), images: Vec::new() }
    }

    /// Lists sandboxes and containers, and images too if asked to (always the first time).
    ///
    /// # Errors
    /// When one of the lists cannot be had; a status that cannot be had only leaves its facts unknown.
    pub async fn inventory(&mut self, with_images: bool) -> Result<Inventory, Error> {
        let images = if with_images || self.images.is_empty() {
            Some(self.read_images().await?)
        } else {
            None
        };
        let at = Boot::now();
        let now = self.clock.time(at);
        let sandboxes = self.runtime.sandboxes().await?;
        let containers = self.runtime.containers().await?;
        self.settle(&sandboxes, &containers).await;
        let pods: Vec<PodSeen> = sandboxes.into_iter().map(|s| self.pod(s, now)).collect();
        let uids: BTreeMap<&str, &str> = pods
            .iter()
            .map(|pod| (pod.sandbox.id.as_str(), pod.sandbox.pod_uid.as_str()))
            .collect();
        let containers = containers.into_iter().map(|c| self.container(c, &uids, now)).collect();
        Ok(Inventory { at, containers, pods, exited: Vec::new(), images })
    }

    /// Whether the status of something that runs is still to be had: it was refused, or there were too many to ask for.
    #[must_use]
    pub fn has_unsettled(&self, inventory: &Inventory) -> bool {
        let containers = inventory.containers.iter().map(|seen| &seen.container);
        let running = containers.filter(|c| c.state == ContainerState::Running).map(|c| &c.id);
        let sandboxes = inventory.pods.iter().map(|seen| &seen.sandbox);
        let ready = sandboxes.filter(|sandbox| sandbox.ready).map(|sandbox| &sandbox.id);
        running.chain(ready).any(|id| !self.settled.contains_key(id))
    }

    /// Ids of what runs, containers and sandboxes; `only` asks for no more than whether that one does.
    ///
    /// # Errors
    /// When the runtime does not say.
    pub async fn running(&self, only: Option<&str>) -> Result<BTreeSet<String>, Error> {
        self.runtime.running(only).await
    }

    async fn read_images(&mut self) -> Result<Images, Error> {
        let at = Boot::now();
        self.images = self.runtime.images().await?;
        let filesystems = self.runtime.image_fs().await?;
        let place = |list: Vec<ebb_cri::FsUsage>| {
            let mut paths = list.into_iter().map(|fs| PathBuf::from(fs.mountpoint));
            paths.find(|path| path.is_absolute())
        };
        // Not every runtime says so; those that do not pin it.
        let sandbox_image = self.runtime.sandbox_image().await.unwrap_or_default();
        let is_of_sandboxes = |image: &ebb_cri::Image| {
            sandbox_image.as_deref().is_some_and(|name| image.is_called(name))
        };
        let mut images = Images {
            at,
            list: self.images.iter().map(|i| image(i, is_of_sandboxes(i))).collect(),
            filesystem: place(filesystems.images),
            layer_filesystem: place(filesystems.containers),
            ..Images::default()
        };
        match self.runtime.layers().await {
            Ok(layers) => images.add_layers(&layers),
            // Sizes by layers are a refinement: without them the images are still known.
            Err(error) => images.layers_unknown = Some(error.to_string()),
        }
        Ok(images)
    }

    /// Asks once for the status of what runs: its cgroup, and images mounted into it.
    async fn settle(&mut self, sandboxes: &[ebb_cri::Sandbox], containers: &[ebb_cri::Container]) {
        let listed: BTreeSet<&str> = sandboxes
            .iter()
            .map(|s| s.id.as_str())
            .chain(containers.iter().map(|c| c.id.as_str()))
            .collect();
        self.settled.retain(|id, _| listed.contains(id.as_str()));
        let mut left = ASKED_AT_MOST;
        let now = Boot::now();
        for sandbox in sandboxes.iter().filter(|sandbox| sandbox.ready) {
            if left == 0 || self.settled.contains_key(&sandbox.id) {
                continue;
            }
            left -= 1;
            let status = self.runtime.sandbox(&sandbox.id).await;
            let status = status.inspect_err(|error| tracing::debug!(%error, "no status"));
            if let Ok(status) = status {
                let cgroup = status.cgroup.as_deref().map(below_mount);
                let settled =
                    Settled { at: now, cgroup, mounts: Vec::new(), asked: Asked::default() };
                self.settled.insert(sandbox.id.clone(), settled);
            }
        }
        let mut again = ASKED_AGAIN_AT_MOST;
        for container in containers {
            // One that was made runs before the runtime says so: where, it says already.
            let runs = matches!(
                container.state,
                ebb_cri::ContainerState::Created | ebb_cri::ContainerState::Running
            );
            let left = match self.settled.get(&container.id) {
                Some(settled) if now.since(settled.at) < ASKED_AGAIN_AFTER => continue,
                Some(_) => &mut again,
                None => &mut left,
            };
            if *left == 0 || !runs {
                continue;
            }
            *left -= 1;
            let status = self.runtime.container(&container.id).await;
            let status = status.inspect_err(|error| tracing::debug!(%error, "no status"));
            if let Ok(status) = status {
                let ebb_cri::Resources { cpu_shares, cpu_quota, memory_limit, oom_score_adj } =
                    status.resources;
                let settled = Settled {
                    at: now,
                    cgroup: status.cgroup.as_deref().map(below_mount),
                    mounts: status.image_volumes,
                    asked: Asked {
                        shares: cpu_shares,
                        quota: cpu_quota,
                        memory: memory_limit,
                        oom_score_adj,
                    },
                };
                self.settled.insert(container.id.clone(), settled);
            }
        }
    }

    fn pod(&self, sandbox: ebb_cri::Sandbox, now: Time) -> PodSeen {
        let ebb_cri::PodName { uid, namespace, name } = sandbox.pod;
        let source = sandbox.annotations.get("kubernetes.io/config.source");
        PodSeen {
            cgroup: self.settled.get(&sandbox.id).and_then(|settled| settled.cgroup.clone()),
            name: format!("{namespace}/{name}"),
            is_static: source.is_some_and(|source| source == "file" || source == "http"),
            is_of_api_server: source.is_some_and(|source| source == "api"),
            sandbox: Sandbox {
                pod_uid: if uid.is_empty() { stand_in(&sandbox.id) } else { uid },
                ready: sandbox.ready,
                created_at: self.time(sandbox.created, now),
                id: sandbox.id,
            },
        }
    }

    fn container(
        &self,
        container: ebb_cri::Container,
        uids: &BTreeMap<&str, &str>,
        now: Time,
    ) -> ContainerSeen {
        let settled = self.settled.get(&container.id);
        let of_sandbox = uids.get(container.sandbox.as_str()).map(|uid| (*uid).to_owned());
        let of_labels = container.pod.map(|pod| pod.uid);
        let mounts = settled.into_iter().flat_map(|settled| &settled.mounts);
        let mounts = mounts.filter_map(|name| self.image_called(name));
        ContainerSeen {
            cgroup: settled.and_then(|settled| settled.cgroup.clone()),
            asked: settled.map(|settled| settled.asked).unwrap_or_default(),
            mounted_images: mounts.collect(),
            container: Container {
                pod_uid: of_sandbox.or(of_labels).unwrap_or_else(|| stand_in(&container.sandbox)),
                name: container.name,
                state: match container.state {
                    ebb_cri::ContainerState::Created => ContainerState::Created,
                    ebb_cri::ContainerState::Running => ContainerState::Running,
                    ebb_cri::ContainerState::Exited => ContainerState::Exited,
                    ebb_cri::ContainerState::Unknown => ContainerState::Unknown,
                },
                created_at: self.time(container.created, now),
                image: self.image_of(&container.image),
                sandbox_id: Some(container.sandbox),
                id: container.id,
            },
        }
    }

    /// The id of the image that a container runs, by whichever of its names the runtime gives.
    fn image_of(&self, usage: &ImageUse) -> Option<String> {
        let found = self.images.iter().find(|image| usage.is(image)).map(|image| image.id.clone());
        found.or_else(|| Some(usage.reference.clone()).filter(|reference| !reference.is_empty()))
    }

    fn image_called(&self, name: &str) -> Option<String> {
        self.images.iter().find(|image| image.is_called(name)).map(|image| image.id.clone())
    }

    /// A moment of the runtime's clock. One that it does not tell, or that is yet to come, is now: nothing is taken to be old for want of a date.
    fn time(&self, at: Option<SystemTime>, now: Time) -> Time {
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        since.and_then(|d| u64::try_from(d.as_millis()).ok()).map_or(now, |ms| Time(ms).min(now))
    }
}

impl Images {
    /// Takes in what images are made of. Pieces that stay whatever images go are nobody's to free.
    fn add_layers(&mut self, layers: &ebb_cri::Layers) {
        let name = |piece: &ebb_cri::Piece| match piece.kind {
            PieceKind::Content => format!("content {}", piece.id),
            PieceKind::Snapshot => format!("snapshot {}", piece.id),
        };
        // Each name is in memory once, however many images have it.
        let names: Vec<Arc<str>> = layers.pieces.iter().map(|piece| name(piece).into()).collect();
        let free = |place: &usize| {
            let (name, piece) = (names.get(*place)?, layers.pieces.get(*place)?);
            (!layers.held.contains(place)).then(|| (Arc::clone(name), piece.bytes))
        };
        for image in &mut self.list {
            let Some(pieces) = layers.images.get(&image.id) else { continue };
            let own: Vec<(Arc<str>, u64)> = pieces.iter().filter_map(free).collect();
            image.layers = Some(own.iter().map(|(name, _)| Arc::clone(name)).collect());
            self.layers.extend(own);
            self.totals.extend(layers.total(&image.id).map(|total| (image.id.clone(), total)));
        }
    }
}

/// The image of sandboxes counts as pinned, whether or not the runtime pins it.
fn image(image: &ebb_cri::Image, is_of_sandboxes: bool) -> Image {
    let mut tags = image.tags.clone();
    tags.sort();
    Image {
        id: image.id.clone(),
        runtime_handler: image.runtime_handler.clone(),
        tags,
        size: image.bytes,
        layers: None,
        pinned: image.pinned || is_of_sandboxes,
        last_used: None,
        first_detected: None,
    }
}

/// A sandbox that was made without naming a pod is a pod of its own.
fn stand_in(sandbox: &str) -> String {
    format!("sandbox {sandbox}")
}

/// A cgroup as the runtime names it, from the root of the hierarchy, as a path below the mount.
fn below_mount(cgroup: &str) -> PathBuf {
    PathBuf::from(cgroup.trim_start_matches('/'))
}
