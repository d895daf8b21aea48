//! Arguments that say which container runtime, and one look at a node that has one: shared by every command that needs pods.

use super::Failure;
use super::configured::ConfigArgs;
use super::look::look;
use super::node::NodeArgs;
use super::sockets::{self, Cri};
use super::warn;
use anyhow::{Context as _, anyhow};
use ebb_agent::act::Mode;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::{self, Config};
use ebb_agent::pods::Described;
use ebb_agent::run::SessionSetup;
use ebb_agent::sense::disk::DiskReading;
use ebb_agent::sense::logs::{LogRoots, Logs};
use ebb_agent::sense::manifests::Manifests;
use ebb_agent::sense::pod_dirs::PodRoots;
use ebb_agent::sense::runtime::{DiskUsage, Reader, writable_layers};
use ebb_agent::state::NodeState;
use ebb_agent::store::{self, Remembered};
use ebb_cri::{Deadlines, Endpoint, Error, Runtime};
use ebb_journal::text::plain;
use ebb_policy::snapshot::{ProtectedReason, Workload};
use ebb_policy::{History, Snapshot};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where pods come from.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RuntimeArgs {
    /// The container runtime's CRI socket, such as unix:///run/containerd/containerd.sock; pods are then the workloads. Without it the usual sockets are looked for by `pods`, `images`, `gc`, and with `mode: kubernetes` in the configuration by every command; `none` asks no runtime.
    #[arg(long, value_name = "SOCKET|none")]
    cri: Option<Cri>,
    /// Below which directory the usual sockets are looked for; the host's root, where ebb runs in a container.
    #[arg(long, value_name = "DIR", default_value = "/")]
    host_root: PathBuf,
    /// A directory of Kubernetes Pod manifests: requests, limits and priorities. A pod of the runtime without a manifest counts as deleted.
    #[arg(long, value_name = "DIR", requires = "cri")]
    pod_manifests: Option<PathBuf>,
    /// Pods' log directories.
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    pod_logs: PathBuf,
    /// Links to containers' logs.
    #[arg(long, value_name = "DIR", default_value = "/var/log/containers")]
    container_logs: PathBuf,
    /// Where ebb remembers across restarts when images were last in use; also the place of the lock that keeps a second ebb with --enforce off this node, so that in a container it is to be a directory of the host.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ebb")]
    state: PathBuf,
}

impl RuntimeArgs {
    /// Whether there is a source of pods.
    pub(super) fn is_given(&self) -> bool {
        self.endpoint().is_some()
    }

    /// Whether the operator has said which runtime, or that none is to be asked.
    pub(super) fn is_named(&self) -> bool {
        self.cri.is_some()
    }

    /// Whether no runtime is to be asked.
    pub(super) fn asks_none(&self) -> bool {
        self.cri == Some(Cri::None)
    }

    /// Whether manifests are a source of pods.
    pub(super) fn has_manifests(&self) -> bool {
        self.pod_manifests.is_some()
    }

    /// Why a command that is about a runtime has none: none is here, or none is to be asked.
    pub(super) fn without_runtime(&self) -> Failure {
        if self.cri.is_some() {
            return Failure::Input(anyhow!(
                "--cri none: it takes a container runtime to tell; name one with --cri SOCKET"
            ));
        }
        let at = |path| self.host_root.join(path).display().to_string();
        Failure::Host(anyhow!(
            "no container runtime has its socket at {}; name another with --cri SOCKET",
            sockets::USUAL.map(at).join(", ")
        ))
    }

    fn endpoint(&self) -> Option<&Endpoint> {
        match &self.cri {
            Some(Cri::At(endpoint)) => Some(endpoint),
            Some(Cri::None) | None => None,
        }
    }

    /// The same with the socket that is found where nothing was said: for commands that are about a runtime.
    fn with_any(&self) -> Result<Self, Failure> {
        if self.cri.is_some() {
            return Ok(self.clone());
        }
        let found = sockets::the_one(&self.host_root)?;
        if let Some(endpoint) = &found {
            warn("runtime", &format!("{endpoint}, found there (--cri names another)"));
        }
        Ok(Self { cri: found.map(Cri::At), ..self.clone() })
    }

    /// The same for commands that decide about workloads: a socket that is found is used only where the configuration says that pods are the workloads. Elsewhere it would change who is evicted, and is only told.
    pub(super) fn for_config(&self, config: &Config) -> Result<Self, Failure> {
        match (&self.cri, config.mode) {
            (Some(_), _) => Ok(self.clone()),
            (None, config::Mode::Kubernetes) => self.with_any(),
            (None, config::Mode::Standalone) => {
                for socket in sockets::found(&self.host_root) {
                    let what = format!(
                        "a container runtime has its socket at {}, which is not used: --cri {} makes its pods the workloads, --cri none says that they are not",
                        socket.display(),
                        socket.display()
                    );
                    warn("note", &what);
                }
                Ok(self.clone())
            }
        }
    }

    /// The directory for what is remembered; only a runtime's images are.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        self.endpoint().map(|_| self.state.clone())
    }

    /// The directory of the node's lock.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// The directory for what has to be put back on cgroups.
    pub(super) fn steps_dir(&self) -> PathBuf {
        self.state.clone()
    }

    /// What the agent's session with the runtime needs.
    pub(super) fn session(&self, kubelet: Option<PathBuf>, mode: Mode) -> Option<SessionSetup> {
        Some(SessionSetup {
            endpoint: self.endpoint()?.clone(),
            manifests: self.pod_manifests.clone(),
            dirs: PodRoots { logs: self.log_roots(), kubelet },
            mode,
        })
    }

    fn log_roots(&self) -> LogRoots {
        LogRoots { pods: self.pod_logs.clone(), containers: self.container_logs.clone() }
    }
}

/// A node with a runtime, looked at once.
pub(super) struct Sight {
    pub(super) config: Config,
    pub(super) runtime: Runtime,
    pub(super) state: NodeState,
    pub(super) snapshot: Snapshot,
    /// With what is remembered of images, where the store can be read.
    pub(super) history: History,
    pub(super) store: PathBuf,
    /// What could not be had, for people.
    pub(super) notes: Vec<String>,
}

impl Sight {
    /// Looks at the node and its runtime; must be called inside an event loop.
    ///
    /// # Errors
    /// Bad arguments, a node that cannot be read, a runtime that is not there.
    pub(super) async fn take(
        node: &NodeArgs,
        config: &ConfigArgs,
        args: &RuntimeArgs,
    ) -> Result<Self, Failure> {
        Self::with_pods(node, config, args, |_| None).await
    }

    /// The same, where an API server tells of pods: `pods` makes workloads of them, as the configuration says.
    ///
    /// # Errors
    /// As [`Sight::take`].
    pub(super) async fn with_pods(
        node: &NodeArgs,
        config: &ConfigArgs,
        args: &RuntimeArgs,
        pods: impl FnOnce(&Config) -> Option<Described>,
    ) -> Result<Self, Failure> {
        let args = &args.with_any()?;
        let Some(endpoint) = args.endpoint().cloned() else {
            return Err(args.without_runtime());
        };
        let (roots, layout) = node.find().map_err(Failure::Input)?;
        let config = config.load_for(true)?;
        let mut notes = Vec::new();
        let mut state = look(&config, roots, layout, node.node_fs())?;
        state.pods_mut().expect_runtime();
        let (runtime, _events) = Runtime::start(endpoint, Deadlines::default());
        let mut reader = Reader::new(runtime.clone(), Clock::of_process());
        let inventory = reader.inventory(true).await.map_err(failure)?;
        if let Some(images) = &inventory.images {
            notes.extend(images.layers_unknown.clone());
            if let Some(path) = images.filesystem.clone() {
                state.disk_mut().set_image_store(path, images.layer_filesystem.clone());
            }
        }
        if let Some(places) = state.disk().places().cloned() {
            state.disk_mut().observe(DiskReading::of(&places));
        }
        let states: BTreeMap<_, _> = inventory
            .containers
            .iter()
            .map(|c| (c.container.id.as_str(), c.container.state))
            .collect();
        let logs = Logs::read(&args.log_roots(), &states);
        if logs.foreign > 0 {
            notes.push(format!("{} log entries are nobody's that ebb knows", logs.foreign));
        }
        if let Some(dir) = &args.pod_manifests {
            let found = Manifests::read_each(dir)
                .with_context(|| format!("--pod-manifests {}", dir.display()))
                .map_err(Failure::Input)?;
            state.pods_mut().observe_described(Described::from(&found));
            notes.extend(found.problems);
        }
        if let Some(pods) = pods(&config) {
            state.pods_mut().observe_described(pods);
        }
        match writable_layers(&runtime).await {
            Ok(layers) => {
                let usage = DiskUsage { layers, pods: BTreeMap::new() };
                state.storage_mut().observe_usage(usage);
            }
            Err(error) => notes.push(format!("writable layers are not known: {error}")),
        }
        state.storage_mut().observe_logs(logs);
        let mut history = History::default();
        match store::look(&args.state, Clock::of_process().time(Boot::now())) {
            Ok(Remembered { images, evicted, pods: _ }) => {
                history.images = images;
                state.pods_mut().remember_evicted(evicted);
            }
            Err(error) => notes.push(format!(
                "when images were last in use, and which pods were evicted, is unknown: {error}"
            )),
        }
        state.observe_inventory(inventory);
        let dirs = PodRoots { logs: args.log_roots(), kubelet: node.node_fs() };
        let sizes = dirs.measure(&state.pods().names());
        state.storage_mut().observe_sizes(sizes);
        let snapshot = state.snapshot(Boot::now());
        let is_unlisted = |w: &&Workload| w.protected == Some(ProtectedReason::Unlisted);
        let unlisted = snapshot.workloads.iter().filter(is_unlisted).count();
        if unlisted > 0 {
            notes.push(format!(
                "{unlisted} cgroups may be containers and are not on the runtime's list; `ebb run` takes those for another runtime's that no list has named for a minute"
            ));
        }
        let store = args.state.clone();
        Ok(Self { config, runtime, state, snapshot, history, store, notes })
    }
}

impl Sight {
    /// How full the filesystem of images is, percent; `None` where that is not known.
    pub(super) fn image_fs_full(&self) -> Option<u64> {
        let fs = self.snapshot.node.image_fs?;
        let (available, capacity) = (u128::from(fs.available?), u128::from(fs.capacity?));
        let left = u64::try_from((available * 100).checked_div(capacity)?).ok()?;
        Some(100_u64.saturating_sub(left))
    }
}

/// A runtime that is not there is the host's fault, everything else one on the way.
pub(super) fn failure(error: Error) -> Failure {
    let is_host = matches!(error, Error::Unreachable { .. });
    let error = anyhow::Error::new(error);
    if is_host { Failure::Host(error) } else { Failure::Failed(error) }
}

/// Text in columns: each as wide as its widest cell, numbers to the right where the head says so.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    // Before widths are measured: what is written out is longer than what it stands for.
    let rows: Vec<Vec<_>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let mut widths: Vec<usize> = head.iter().map(|name| name.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut head.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(AsRef::as_ref)));
    }
    text
}

/// The first twelve characters of an id, without the algorithm.
pub(super) fn short(id: &str) -> &str {
    let bare = id.strip_prefix("sha256:").unwrap_or(id);
    bare.get(..12).unwrap_or(bare)
}

/// How long ago, in the largest unit that fits.
pub(super) fn ago(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            vec![vec!["a".to_owned(), "long cell".to_owned()], vec!["bbbb".into(), String::new()]];
        assert_eq!(table(&["X", "Y"], &rows), "X     Y\na     long cell\nbbbb\n");
    }

    #[test]
    fn ids_are_short_and_ages_have_one_unit() {
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
        assert_eq!(short("abc"), "abc");
        let ages = [ago(0), ago(119_999), ago(3_600_000), ago(90_000_000), ago(1_000_000_000)];
        assert_eq!(ages, ["0s", "119s", "60m", "25h", "11d"]);
    }
}
