//! The thread that talks to the container runtime, so that the loop never waits for it.
//!
//! ```text
//!         ┌──Order──► lister: events of the runtime ─► list ───────────┐
//!  loop ──┤            └► disk_usage: disk usage, beside the lists ────┼──News──► loop
//!         └──Task───► worker: removals in turn, ends of pods beside ─┘
//!                                  thread ebb-runtime
//! ```
//! A runtime that hangs fills the queues, which are bounded; the loop is told that it is away and decides without it.

mod beside;
mod disk_usage;
mod lister;
mod worker;

use crate::act::Mode;
use crate::act::runtime::{Outcome, RuntimeHand};
use crate::clock::Clock;
use crate::sense::logs::Logs;
use crate::sense::manifests::Manifests;
use crate::sense::pod_dirs::PodRoots;
use crate::sense::runtime::{DiskUsage, Inventory};
use ebb_cri::{Deadlines, Endpoint, Runtime, RuntimeEvent, RuntimeEvents};
use ebb_journal::Part;
use lister::Lister;
use std::io;
use std::path::PathBuf;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::sleep_until;
pub(crate) use worker::Task;

/// Orders and tasks that may wait.
const WAITING: usize = 256;

/// What the session needs to begin.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// The runtime's socket.
    pub endpoint: Endpoint,
    /// Pod manifests, if they are a source of pods.
    pub manifests: Option<PathBuf>,
    /// Where pods' logs and volumes are.
    pub dirs: PodRoots,
    /// Whether to act.
    pub mode: Mode,
}

/// What the loop asks to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// List now; the images too if true.
    List {
        /// Whether to list images.
        images: bool,
    },
    /// List as soon as the runtime has noticed that nothing runs any more in this cgroup of a container or sandbox.
    Ended {
        /// Below the cgroup mount.
        cgroup: PathBuf,
    },
    /// Measure what pods take up on disk.
    Usage,
}

/// What the session tells.
#[derive(Debug)]
pub(crate) enum News {
    /// A runtime is there, or there again: its name and version.
    Up(String),
    /// There is none, and why.
    Down(String),
    /// What it has.
    Inventory(Box<Inventory>),
    /// What pods take up on disk.
    Usage(DiskUsage),
    /// Which logs there are.
    Logs(Logs),
    /// What the manifests say, when that has changed.
    Manifests(Manifests),
    /// A piece of work is over.
    Done(Outcome),
    /// All work of a list is over.
    AllDone,
    /// Something could not be had or done.
    Trouble(Part, String),
}

/// The loop's end.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    orders: Sender<Order>,
    tasks: Sender<Task>,
}

impl Session {
    /// Asks for something to be read. One that finds no room is dropped: what waits before it asks for as much.
    pub(crate) fn ask(&self, order: Order) {
        // A full queue means that a listing is due anyway.
        let _ = self.orders.try_send(order);
    }

    /// Hands a task over without waiting; false when the worker has not kept up, which only a runtime that hangs can cause.
    pub(crate) fn give(&self, task: Task) -> bool {
        self.tasks.try_send(task).is_ok()
    }
}

/// Starts the thread; it ends when the last [`Session`] is dropped.
///
/// # Errors
/// When no thread can be made.
pub(crate) fn start(setup: SessionSetup, clock: Clock, news: Sender<News>) -> io::Result<Session> {
    let (orders, order_inbox) = mpsc::channel(WAITING);
    let (tasks, task_inbox) = mpsc::channel(WAITING);
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    crate::threads::spawn("ebb-runtime", move || {
        executor.block_on(async {
            let (runtime, events) = Runtime::start(setup.endpoint.clone(), Deadlines::default());
            let hand = match setup.mode {
                Mode::Enforce => RuntimeHand::Enforce(runtime.clone()),
                Mode::DryRun => RuntimeHand::DryRun(runtime.clone()),
            };
            tokio::spawn(worker::run(hand, runtime.clone(), task_inbox, news.clone()));
            let lister = Lister::new(setup, runtime, clock, news);
            read(lister, order_inbox, events).await;
        });
    })?;
    Ok(Session { orders, tasks })
}

async fn read(mut lister: Lister, mut orders: Receiver<Order>, mut events: RuntimeEvents) {
    lister.read_manifests().await;
    loop {
        let due = lister.next_due();
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => lister.take(order),
                None => return,
            },
            told = next(&mut events) => lister.hear(told).await,
            () = sleep_until(due) => lister.do_what_is_due().await,
        }
    }
}

/// The events of a runtime never end while its handle is held.
async fn next(events: &mut RuntimeEvents) -> RuntimeEvent {
    match events.next().await {
        Some(event) => event,
        None => std::future::pending().await,
    }
}
