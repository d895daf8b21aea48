//! What happens in a runtime, as it happens: by containerd's own stream of events, elsewhere by CRI's.
//!
//! ```text
//!  containerd: Subscribe (tasks, images) ─┬─► RuntimeEvent ─► bounded queue ─► whoever keeps the state
//!  others: GetContainerEvents ────────────┘
//! ```
//! containerd up to 1.7 shares CRI's events out among those who ask for them, so that a second one takes them away from
//! the kubelet and gets half of them; its own stream reaches everybody. It comes from below CRI, though: an end is told
//! a moment before a list shows it.
//!
//! Neither stream says when it has begun, and a queue may overflow: after both the receiver is told to list again
//! ([`RuntimeEvent::Up`], [`RuntimeEvent::Missed`]). A stream may also be silent for ever (CRI-O without
//! `enable_pod_events` accepts and never sends), so listing now and then stays necessary.

mod containerd;
mod cri;

use crate::dial::Identity;
use crate::error::DialError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum RuntimeEvent {
    /// A connection is there: whatever was known before is old, list again.
    Up(Arc<Identity>),
    /// The connection is gone, or the first attempt failed. Said once, not for each attempt.
    Down(Arc<DialError>),
    /// Events were lost, or may have been: list again.
    Missed,
    /// A sandbox or container changed.
    Change(Change),
    /// The runtime's store has a new or another image of this name.
    ImageAdded(String),
    /// The runtime's store has no image of this name any more.
    ImageRemoved(String),
}

/// A change of a sandbox or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Id of the container or sandbox.
    pub id: String,
    /// Id of the sandbox it belongs to, and its own for a sandbox; `None` from sources that do not tell them apart.
    pub sandbox: Option<String>,
    /// What happened.
    pub what: What,
    /// When.
    pub at: Option<SystemTime>,
}

/// What happened to a sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It was made.
    Created,
    /// It was started.
    Started,
    /// It ended.
    Stopped,
    /// What it ran as was cleared away after its end, which the runtime is about to list. Told by containerd only.
    Cleared,
    /// A process in it was killed for lack of memory.
    OutOfMemory,
    /// It was removed.
    Deleted,
}

/// Where changes of containers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feed {
    /// Not settled: there is no connection, or its streams are too young to have been refused.
    Unsettled,
    /// CRI's stream.
    Cri,
    /// containerd's own stream.
    Containerd,
    /// Nowhere: exits must be seen in the kernel, and the rest by listing.
    None,
}

/// The receiving end. Nothing is sent while it is full; [`RuntimeEvent::Missed`] follows as soon as there is room.
#[derive(Debug)]
pub struct RuntimeEvents {
    receiver: mpsc::Receiver<RuntimeEvent>,
}

impl RuntimeEvents {
    /// The next event; `None` when every handle of the runtime is gone. May be cancelled without losing one.
    pub async fn next(&mut self) -> Option<RuntimeEvent> {
        self.receiver.recv().await
    }
}

/// Events that may wait.
const QUEUE: usize = 1024;
/// A stream that is refused is refused at once; after this long it is taken to have begun.
const SETTLES_IN: Duration = Duration::from_secs(1);
/// The pause after a stream that ended while its connection lives.
const OPENS_AGAIN_IN: Duration = Duration::from_secs(1);

/// The sending end, shared by the supervisor and the streams.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    sender: mpsc::Sender<RuntimeEvent>,
    missed: Arc<AtomicBool>,
    feed: watch::Sender<Feed>,
}

impl Outlet {
    pub(crate) fn new() -> (Self, RuntimeEvents) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let missed = Arc::new(AtomicBool::new(false));
        let feed = watch::Sender::new(Feed::Unsettled);
        (Self { sender, missed, feed }, RuntimeEvents { receiver })
    }

    pub(crate) fn feed(&self) -> watch::Receiver<Feed> {
        self.feed.subscribe()
    }

    /// Never waits: what finds no room is counted as missed.
    pub(crate) fn send(&self, event: RuntimeEvent) {
        if self.missed.load(Ordering::Relaxed) {
            if self.sender.try_send(RuntimeEvent::Missed).is_err() {
                return;
            }
            self.missed.store(false, Ordering::Relaxed);
        }
        if self.sender.try_send(event).is_err() {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Follow what this runtime offers until the result is dropped.
    pub(crate) fn follow(&self, channel: &Channel, identity: &Identity) -> Following {
        self.feed.send_replace(Feed::Unsettled);
        let mut tasks = JoinSet::new();
        tasks.spawn(containers(self.clone(), channel.clone(), identity.is_containerd()));
        if identity.is_containerd() {
            tasks.spawn(images(self.clone(), channel.clone()));
        }
        Following { _tasks: tasks, feed: self.feed.clone() }
    }

    /// Wait for a stream to open. One that has not been refused for a while has begun: say so, because a runtime sends
    /// nothing at all before the first event.
    async fn settle<T>(
        &self,
        feed: Option<Feed>,
        open: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::pin!(open);
        let early = tokio::time::timeout(SETTLES_IN, &mut open).await;
        if !matches!(early, Ok(Err(_))) {
            if let Some(feed) = feed {
                self.feed.send_replace(feed);
            }
            self.send(RuntimeEvent::Missed);
        }
        match early {
            Ok(result) => result,
            Err(_) => open.await,
        }
    }
}

/// For fuzz targets: an event of CRI's stream.
#[cfg(feature = "fuzz")]
pub(crate) fn event_of_cri(bytes: &[u8]) -> Option<RuntimeEvent> {
    let event = prost::Message::decode(bytes).ok()?;
    cri::change(event).map(RuntimeEvent::Change)
}

/// For fuzz targets: an event of containerd's stream.
#[cfg(feature = "fuzz")]
pub(crate) fn event_of_containerd(bytes: &[u8]) -> Option<RuntimeEvent> {
    let envelope = prost::Message::decode(bytes).ok()?;
    containerd::event(&envelope)
}

/// How a stream ended.
enum End {
    /// The runtime does not have it.
    Refused,
    /// It was open, or could not be opened for another reason.
    Closed,
}

impl End {
    fn of(status: &Status) -> Self {
        if status.code() == Code::Unimplemented { Self::Refused } else { Self::Closed }
    }
}

async fn containers(outlet: Outlet, channel: Channel, is_containerd: bool) {
    let mut feed = if is_containerd { Feed::Containerd } else { Feed::Cri };
    loop {
        let end = match feed {
            Feed::Cri => cri::follow(&outlet, channel.clone()).await,
            _ => containerd::follow_tasks(&outlet, channel.clone()).await,
        };
        match end {
            End::Refused if feed == Feed::Containerd => feed = Feed::Cri,
            End::Refused => {
                outlet.feed.send_replace(Feed::None);
                return;
            }
            End::Closed => {
                outlet.feed.send_replace(Feed::Unsettled);
                tokio::time::sleep(OPENS_AGAIN_IN).await;
            }
        }
    }
}

async fn images(outlet: Outlet, channel: Channel) {
    while let End::Closed = containerd::follow_images(&outlet, channel.clone()).await {
        tokio::time::sleep(OPENS_AGAIN_IN).await;
    }
}

/// The streams of one connection, ended when dropped.
pub(crate) struct Following {
    _tasks: JoinSet<()>,
    feed: watch::Sender<Feed>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.feed.send_replace(Feed::Unsettled);
    }
}
