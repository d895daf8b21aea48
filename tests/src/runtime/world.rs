//! What a fake runtime has, the rules by which it changes, and the faults a test puts into it.

use ebb_cri::wire::containerd::types::Envelope;
use ebb_cri::wire::runtime as v1;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tonic::{Code, Status};

/// Which runtime is imitated: what it is called, what it implements, and what it does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// CRI v1alpha2 only.
    Containerd14,
    /// The cri plugin is disabled: containerd's own services only.
    ContainerdWithoutCri,
    /// No event stream, no `RuntimeConfig`, nothing pinned.
    Containerd16,
    /// No `RuntimeConfig`.
    Containerd17,
    /// Everything that ebb asks for.
    Containerd2,
    /// Bare ids of images, names with digest in containers, two filesystems, refuses to remove an image in use, none
    /// of containerd's services.
    CriO,
    /// The same without `enable_pod_events`: the stream is accepted and stays silent.
    CriOWithoutEvents,
}

impl Flavour {
    pub(crate) fn is_containerd(self) -> bool {
        !self.is_crio()
    }

    pub(crate) fn is_crio(self) -> bool {
        matches!(self, Self::CriO | Self::CriOWithoutEvents)
    }

    pub(crate) fn name_and_version(self) -> (&'static str, &'static str) {
        match self {
            Self::Containerd14 => ("containerd", "1.4.13~ds1"),
            Self::Containerd16 => ("containerd", "1.6.20~ds1"),
            Self::ContainerdWithoutCri | Self::Containerd17 => ("containerd", "1.7.24~ds1"),
            Self::Containerd2 => ("containerd", "2.1.9+unknown"),
            Self::CriO | Self::CriOWithoutEvents => ("cri-o", "1.33.0"),
        }
    }
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No answer, ever.
    Hang,
    /// An answer after this long.
    Late(Duration),
    /// No answer after so many calls of the kind that were answered, until the fault is taken away.
    HeldAfter(usize),
    /// An error, with gRPC's code (13 is internal) and these words.
    Refuse(i32, String),
    /// It is done, but the answer never comes.
    DoneAndSilent,
}

/// A sandbox.
#[derive(Clone, Debug)]
pub struct FakeSandbox {
    /// Id.
    pub id: String,
    /// UID of its pod.
    pub uid: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub name: String,
    /// How many came before.
    pub attempt: u32,
    /// Whether it is ready.
    pub ready: bool,
    /// Nanoseconds since 1970.
    pub created: i64,
    /// Whether its kubelet has it from a file.
    pub is_static: bool,
}

/// A container.
#[derive(Clone, Debug)]
pub struct FakeContainer {
    /// Id.
    pub id: String,
    /// Id of its sandbox.
    pub sandbox: String,
    /// Name.
    pub name: String,
    /// How many came before.
    pub attempt: u32,
    /// State.
    pub state: v1::ContainerState,
    /// Nanoseconds since 1970.
    pub created: i64,
    /// Nanoseconds since 1970; zero while it has not.
    pub finished: i64,
    /// Exit code once it has ended.
    pub exit_code: i32,
    /// Why it ended.
    pub reason: String,
    /// Id of its image.
    pub image: String,
    /// Whether the kubelet's labels are there.
    pub labelled: bool,
    /// Its log file.
    pub log_path: String,
    /// Its cgroup, as in its OCI specification.
    pub cgroup: String,
    /// What it has written, bytes and inodes.
    pub written: (u64, u64),
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeLayer {
    /// Its name; equal names are the same layer, if what lies below is the same too.
    pub name: String,
    /// Bytes as it is pulled.
    pub packed: u64,
    /// Bytes as it lies unpacked.
    pub unpacked: u64,
}

/// An image.
#[derive(Clone, Debug)]
pub struct FakeImage {
    /// Id.
    pub id: String,
    /// Names with a tag.
    pub tags: Vec<String>,
    /// Names with a digest.
    pub digests: Vec<String>,
    /// Layers, lowest first.
    pub layers: Vec<FakeLayer>,
    /// Whether it is pinned.
    pub pinned: bool,
}

impl FakeImage {
    /// Bytes as CRI reports them.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.layers.iter().map(|layer| layer.packed).sum()
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.id == name
            || self.id.strip_prefix("sha256:") == Some(name)
            || self.tags.iter().chain(&self.digests).any(|own| own == name)
    }
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    /// Which runtime this is.
    pub flavour: Flavour,
    /// By id.
    pub sandboxes: BTreeMap<String, FakeSandbox>,
    /// By id.
    pub containers: BTreeMap<String, FakeContainer>,
    /// By id.
    pub images: BTreeMap<String, FakeImage>,
    /// CRI's names of all calls so far, each with the id or name it was about.
    pub calls: Vec<(&'static str, String)>,
    /// By CRI's name of the call; `*` is every call without a fault of its own.
    pub faults: BTreeMap<String, Fault>,
    /// Mount point of images, and of writable layers where they are apart.
    pub image_fs: String,
    pub(crate) changes: broadcast::Sender<v1::ContainerEventResponse>,
    pub(crate) native: broadcast::Sender<Envelope>,
    next: u64,
}

/// Events that a slow client may be behind.
const EVENTS: usize = 16_384;

/// A name of the form of a digest, different for different texts.
#[must_use]
pub fn short_digest(text: &str) -> String {
    // Two numbers of FNV-1a; equal texts must be equal, and nothing is at stake.
    let hash = |seed: u64| {
        let step = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(seed, step)
    };
    let (a, b) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    format!("{a:016x}{b:016x}{:016x}{:016x}", a ^ b.rotate_left(7), b ^ a.rotate_left(13))
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl World {
    pub(crate) fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: BTreeMap::new(),
            calls: Vec::new(),
            faults: BTreeMap::new(),
            image_fs: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs".to_owned(),
            changes: broadcast::Sender::new(EVENTS),
            native: broadcast::Sender::new(EVENTS),
            next: 0,
        }
    }

    /// Add an image with one tag and these layers (name, bytes as pulled); unpacked they take twice as much. Returns its id.
    pub fn add_image(&mut self, tag: &str, layers: &[(&str, u64)]) -> String {
        let digest = short_digest(tag);
        let id = if self.flavour.is_crio() { digest } else { format!("sha256:{digest}") };
        let repository = tag.rsplit_once(':').map_or(tag, |(repository, _)| repository);
        let layer = |&(name, packed): &(&str, u64)| FakeLayer {
            name: name.to_owned(),
            packed,
            unpacked: packed * 2,
        };
        let image = FakeImage {
            id: id.clone(),
            tags: vec![tag.to_owned()],
            digests: vec![format!("{repository}@sha256:{}", short_digest(&format!("{tag} m")))],
            layers: layers.iter().map(layer).collect(),
            pinned: false,
        };
        self.announce_image("/images/create", tag);
        self.images.insert(id.clone(), image);
        id
    }

    /// Add a ready sandbox; returns its id.
    pub fn add_pod(&mut self, namespace: &str, name: &str, uid: &str) -> String {
        let id = self.fresh("sandbox");
        let sandbox = FakeSandbox {
            id: id.clone(),
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            attempt: 0,
            ready: true,
            created: now(),
            is_static: false,
        };
        self.sandboxes.insert(id.clone(), sandbox);
        self.announce(&id, v1::ContainerEventType::ContainerStartedEvent);
        id
    }

    /// Makes a sandbox that of a static pod.
    pub fn is_of_a_file(&mut self, sandbox: &str) {
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox) {
            sandbox.is_static = true;
        }
    }

    /// Add a running container; returns its id.
    pub fn add_container(&mut self, sandbox: &str, name: &str, image: &str) -> String {
        let id = self.fresh("container");
        let same = |c: &&FakeContainer| c.sandbox == sandbox && c.name == name;
        let before = self.containers.values().filter(same).count();
        let last = self.containers.values().filter(same).map(|c| c.created).max();
        let uid = self.sandboxes.get(sandbox).map(|s| s.uid.clone()).unwrap_or_default();
        let container = FakeContainer {
            id: id.clone(),
            sandbox: sandbox.to_owned(),
            name: name.to_owned(),
            attempt: u32::try_from(before).unwrap_or(u32::MAX),
            state: v1::ContainerState::ContainerRunning,
            // Of two that are made in the same millisecond, neither is the newer.
            created: now().max(last.map_or(0, |last| last + 1_000_000)),
            finished: 0,
            exit_code: 0,
            reason: String::new(),
            image: image.to_owned(),
            labelled: true,
            log_path: String::new(),
            cgroup: format!("/kubepods/burstable/pod{uid}/{id}"),
            written: (0, 0),
        };
        self.containers.insert(id.clone(), container);
        self.announce(&id, v1::ContainerEventType::ContainerStartedEvent);
        id
    }

    /// A container ends by itself.
    pub fn exit(&mut self, id: &str, code: i32) {
        if self.list_as_exited(id, code) {
            self.tell_of_exit(id);
        }
    }

    /// A container's end is told; the list is not that far yet.
    pub fn tell_of_exit(&mut self, id: &str) {
        self.announce(id, v1::ContainerEventType::ContainerStoppedEvent);
    }

    /// A container that runs is listed as ended from now on, and nobody says so; whether it ran.
    pub fn list_as_exited(&mut self, id: &str, code: i32) -> bool {
        let running = v1::ContainerState::ContainerRunning;
        let Some(container) = self.containers.get_mut(id).filter(|c| c.state == running) else {
            return false;
        };
        container.state = v1::ContainerState::ContainerExited;
        container.exit_code = code;
        container.finished = now().max(container.created);
        container.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        true
    }

    /// Events of CRI's stream that some follower has not taken yet.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.changes.len()
    }

    /// How many follow CRI's stream of events, and containerd's: what happens from now on they are told.
    #[must_use]
    pub fn followers(&self) -> (usize, usize) {
        (self.changes.receiver_count(), self.native.receiver_count())
    }

    /// How often a call was made, whatever it was about.
    #[must_use]
    pub fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|(name, _)| *name == call).count()
    }

    pub(crate) fn stop_sandbox(&mut self, id: &str) {
        let inside = self.inside(id);
        for container in inside {
            self.exit(&container, 137);
        }
        let stopped = self.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready);
        if let Some(sandbox) = stopped {
            sandbox.ready = false;
            self.announce(id, v1::ContainerEventType::ContainerStoppedEvent);
        }
    }

    pub(crate) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        for container in self.inside(id) {
            self.remove_container(&container);
        }
        if self.sandboxes.contains_key(id) {
            self.announce(id, v1::ContainerEventType::ContainerDeletedEvent);
            self.sandboxes.remove(id);
        }
    }

    pub(crate) fn remove_container(&mut self, id: &str) {
        self.exit(id, 137);
        if self.containers.contains_key(id) {
            self.announce(id, v1::ContainerEventType::ContainerDeletedEvent);
            self.containers.remove(id);
        }
    }

    /// containerd resolves a name to an image and removes all of its names; CRI-O takes one name away, and refuses what
    /// a container uses.
    pub(crate) fn remove_image(&mut self, name: &str) -> Result<(), Status> {
        let found = self.images.values().find(|image| image.is_called(name));
        let Some(id) = found.map(|image| image.id.clone()) else { return Ok(()) };
        if self.flavour.is_crio() {
            if self.containers.values().any(|container| container.image == id) {
                return Err(Status::unknown(format!("image {name} is in use by a container")));
            }
            if let Some(image) = self.images.get_mut(&id) {
                image.tags.retain(|tag| tag != name);
                if !image.tags.is_empty() && !image.id.contains(name) {
                    return Ok(());
                }
            }
        }
        if let Some(image) = self.images.remove(&id) {
            for name in image.tags.iter().chain(&image.digests).chain([&image.id]) {
                self.announce_image("/images/delete", name);
            }
        }
        Ok(())
    }

    fn inside(&self, sandbox: &str) -> Vec<String> {
        let inside = self.containers.values().filter(|container| container.sandbox == sandbox);
        inside.map(|container| container.id.clone()).collect()
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.next += 1;
        short_digest(&format!("{kind} {}", self.next))
    }

    /// What should happen to this call, which is written down.
    pub(crate) fn enter(&mut self, call: &'static str, on: &str) -> Option<Fault> {
        self.calls.push((call, on.to_owned()));
        self.faults.get(call).or_else(|| self.faults.get("*")).cloned()
    }
}

/// The error of a fault.
pub(crate) fn refusal(code: i32, words: &str) -> Status {
    Status::new(Code::from_i32(code), words)
}
