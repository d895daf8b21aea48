//! The thread `ebb-cluster`: follows what the API server has of this node, and tells it of evictions in their order.

use crate::node::{NodeSeen, NodeWord, States, clear_taints};
use crate::outbox::Outbox;
use crate::queue::Queue;
use crate::tell::{self, Asked, Unfinished};
use anyhow::{Context as _, Result, anyhow};
use ebb_agent::act::Mode;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::cluster::{
    Budget, Cluster, ClusterNews, Connect, Eviction, NodePod, Order, Told, Update,
};
use ebb_agent::threads::{own_id, precede};
use ebb_kube::{Api, Failure, Time, Update as Followed, follow, pause_after};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Orders that may wait.
const WAITING: usize = 256;

/// Evictions that are kept until the API server can be told; beyond this the oldest is given up, and that is said.
const KEPT: usize = 1024;

/// Evictions that are told at the same time.
const AT_ONCE: usize = 4;

/// How long a pod's phase waits until nothing of it runs any more: its kubelet takes back a Failed that comes before.
const DEATH: Duration = Duration::from_millis(500);

/// How long telling waits for the taint of the Node: what takes an evicted pod's place is made as soon as it is told.
const TAINT: Duration = Duration::from_secs(2);

/// How long it is waited for the end of a pod that was deleted while something of it still ran; then its kubelet sees to that alone.
const LATE_DEATH: Duration = Duration::from_secs(60);

/// How long after an eviction this thread goes before whatever is not real-time: what is evicted is not gone before it is told, and in a container it has but its pod's share of busy processors.
const FIRST: Duration = Duration::from_secs(3);

/// The longest pause between two attempts to tell.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long reading a kubeconfig may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// Where budgets are, the newest version first.
pub(crate) const BUDGETS: &[&str] =
    &["/apis/policy/v1/poddisruptionbudgets", "/apis/policy/v1beta1/poddisruptionbudgets"];

/// What the thread needs to begin.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The kubeconfig; `None`: as the commands on a cluster find theirs.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it.
    pub context: Option<String>,
    /// The Node's name.
    pub node: String,
    /// Where it is kept what could not be told; `None`: nowhere.
    pub dir: Option<PathBuf>,
    /// Whether anything is written.
    pub mode: Mode,
    /// Whether the Node gets taints.
    pub has_taints: bool,
}

/// What the agent starts its thread by.
#[must_use]
pub fn connect(setup: Setup) -> Connect {
    Box::new(|clock, news| start(setup, clock, news))
}

/// Starts the thread; it ends when the last [`Cluster`] is dropped.
fn start(setup: Setup, clock: Clock, news: Sender<ClusterNews>) -> Result<Cluster> {
    let (orders, inbox) = mpsc::channel(WAITING);
    let (connected, answer) = std::sync::mpsc::sync_channel(1);
    let executor = crate::executor::new()?;
    ebb_agent::threads::spawn("ebb-cluster", move || {
        executor.block_on(async {
            // The client lives in this thread's executor.
            let api = ebb_kube::connect(setup.kubeconfig.as_deref(), setup.context.as_deref());
            match api.await {
                Ok(api) => {
                    // Nobody waits for this any more only when `start` has given up.
                    let _ = connected.send(Ok(own_id()));
                    Session::new(setup, api, clock, news).run(inbox).await;
                }
                Err(error) => {
                    let _ = connected.send(Err(error));
                }
            }
        });
    })
    .context("cannot start the thread for the API server")?;
    let thread = answer.recv_timeout(CONNECTS_WITHIN).map_err(|_| {
        anyhow!("the kubeconfig was not read within {} s", CONNECTS_WITHIN.as_secs())
    })??;
    Ok(Cluster::new(orders).of_thread(thread))
}

/// What became of one attempt.
struct Attempt {
    number: u64,
    result: Result<(bool, Vec<String>), Unfinished>,
}

/// What became of a change of what a Node, by its UID, says.
struct Said {
    node: String,
    result: Result<(States, Option<Failure>), Failure>,
}

struct Session {
    setup: Setup,
    api: Api,
    clock: Clock,
    news: Sender<ClusterNews>,
    node: Option<Arc<NodeSeen>>,
    word: NodeWord,
    word_failed: u32,
    /// The Node is being made to say something.
    saying: Option<JoinHandle<()>>,
    said: Sender<Said>,
    word_at: Option<Instant>,
    /// The Node has the taints that it is to have, or nobody is about to give it them.
    is_tainted: watch::Sender<bool>,
    /// Of pods whose end somebody waits for, by UID.
    deaths: BTreeMap<String, watch::Sender<bool>>,
    queue: Queue,
    outbox: Option<Outbox>,
    attempts: Sender<Attempt>,
    failures: u32,
    /// When to try again after a failure.
    again_at: Option<Instant>,
    /// Until when this thread goes before whatever is not real-time.
    first_until: Option<Instant>,
    /// The last thing that was said to be wrong, by what it is about.
    troubles: BTreeMap<&'static str, String>,
}

impl Session {
    fn new(setup: Setup, api: Api, clock: Clock, news: Sender<ClusterNews>) -> Self {
        let (attempts, _) = mpsc::channel(1);
        let (said, _) = mpsc::channel(1);
        Self {
            outbox: setup.dir.as_deref().map(Outbox::in_dir),
            word: NodeWord::new(setup.has_taints),
            setup,
            api,
            clock,
            news,
            node: None,
            word_failed: 0,
            saying: None,
            said,
            word_at: None,
            is_tainted: watch::Sender::new(true),
            deaths: BTreeMap::new(),
            queue: Queue::default(),
            attempts,
            failures: 0,
            again_at: None,
            first_until: None,
            troubles: BTreeMap::new(),
        }
    }

    async fn run(mut self, mut orders: Receiver<Order>) {
        let (attempts, mut finished) = mpsc::channel(AT_ONCE);
        self.attempts = attempts;
        let (said, mut outcomes) = mpsc::channel(1);
        self.said = said;
        let (nodes, mut seen) = mpsc::channel(4);
        self.follow(nodes);
        self.load().await;
        loop {
            self.say_what_is_due();
            self.begin_what_is_due();
            let due = [self.again_at, self.word_at, self.first_until].into_iter().flatten().min();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Stop(done)) => {
                        self.stop().await;
                        let _ = done.send(());
                    }
                    Some(order) => self.take(order).await,
                    None => return,
                },
                Some(attempt) = finished.recv() => self.end(attempt).await,
                Some(said) = outcomes.recv() => self.take_said(said).await,
                Some(update) = seen.recv() => self.take_node(update).await,
                written = written(&mut self.outbox) => self.take_written(written).await,
                () = at(due) => {
                    let now = Instant::now();
                    self.again_at = self.again_at.filter(|at| *at > now);
                    self.word_at = self.word_at.filter(|at| *at > now);
                    if self.first_until.take_if(|until| *until <= now).is_some()
                        && let Err(error) = precede(0, false)
                    {
                        let what = format!("the thread for the API server keeps its real-time priority: {error}");
                        self.tell_trouble("priority", what).await;
                    }
                }
            }
        }
    }

    /// Begins to follow; each ends by itself once nobody listens any more.
    fn follow(&self, nodes: Sender<Followed<NodeSeen>>) {
        let (api, name) = (&self.api, &self.setup.node);
        let pods = pods_of(name);
        let own = format!("/api/v1/nodes?fieldSelector=metadata.name%3D{name}");
        let (a, news) = (api.clone(), self.news.clone());
        tokio::spawn(async move {
            follow(a, &[&pods], NodePod::read, |u| ClusterNews::Pods(update(u)), news).await;
        });
        let a = api.clone();
        tokio::spawn(async move { follow(a, &[&own], NodeSeen::read, |u| u, nodes).await });
        let (a, news) = (api.clone(), self.news.clone());
        tokio::spawn(async move {
            follow(a, BUDGETS, Budget::read, |u| ClusterNews::Budgets(update(u)), news).await;
        });
    }

    /// Takes up what an earlier run could not tell. A dry run tells nobody, and leaves it for the next that does.
    async fn load(&mut self) {
        let Some(file) = self.outbox.as_ref().map(Outbox::file) else { return };
        let is_dry = self.setup.mode == Mode::DryRun;
        let list = if is_dry { file.look::<Eviction>() } else { file.load() };
        let what = match list {
            Ok(list) if list.is_empty() => return,
            Ok(list) if is_dry => {
                format!(
                    "the API server is not told of {} evictions of an earlier run: this is a dry run",
                    list.len()
                )
            }
            Ok(list) => {
                list.into_iter().for_each(|eviction| self.queue.add(eviction, None));
                self.queue.tell_one_by_one();
                return;
            }
            Err(error) => format!(
                "evictions of an earlier run that the API server was not told of cannot be read: {error}"
            ),
        };
        self.tell(ClusterNews::Trouble(what)).await;
    }

    async fn take(&mut self, order: Order) {
        match order {
            Order::Tell(eviction) => {
                self.go_first();
                self.deaths.retain(|_, death| death.receiver_count() > 0);
                let (death, is_dead) = watch::channel(false);
                self.deaths.insert(eviction.uid.clone(), death);
                self.queue.add(*eviction, Some(is_dead));
                self.keep().await;
            }
            Order::Evict(eviction) => self.evict(*eviction),
            Order::Dead(uid) => {
                if let Some(death) = self.deaths.get(&uid) {
                    death.send_replace(true);
                }
            }
            Order::Conditions(conditions) => {
                self.word.want(conditions, Time(self.clock.unix_ms(Boot::now())));
            }
            Order::Stop(_) => {}
        }
    }

    /// Goes before whatever is not real-time for a moment, where that is possible.
    fn go_first(&mut self) {
        let is_first = self.first_until.is_some();
        // Without the right to it waits like any other; the loop has said so.
        if self.setup.mode == Mode::Enforce && (is_first || precede(0, true).is_ok()) {
            self.first_until = Some(Instant::now() + FIRST);
        }
    }

    /// Has the outbox write what is still to be told, and gives up what is too much.
    async fn keep(&mut self) {
        let given_up = self.queue.give_up_beyond(KEPT);
        if given_up > 0 {
            let what = format!(
                "the API server is not told of {given_up} evictions: more than {KEPT} wait for it"
            );
            self.tell(ClusterNews::Trouble(what)).await;
        }
        if let Some(outbox) = &mut self.outbox {
            outbox.keep(self.queue.evictions().cloned().collect());
        }
    }

    async fn take_written(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => drop(self.troubles.remove("outbox")),
            Err(error) => {
                let what = format!(
                    "what the API server is still to be told would not outlive this run: {error}"
                );
                self.tell_trouble("outbox", what).await;
            }
        }
    }

    /// Begins to tell, in their order; after a failure one by one.
    fn begin_what_is_due(&mut self) {
        if self.again_at.is_some() {
            return;
        }
        for (number, item) in self.queue.begin(AT_ONCE, self.failures > 0) {
            let (api, node) = (self.api.after_deadlines(item.deadlines()), self.setup.node.clone());
            let until = item.began + DEATH;
            let eviction = item.eviction.clone();
            let (mut death, mut tainted) = (item.death.clone(), self.is_tainted.subscribe());
            let (attempts, news) = (self.attempts.clone(), self.news.clone());
            tokio::spawn(async move {
                let is_dead = async {
                    match &mut death {
                        Some(death) if !eviction.is_deleting => holds(death, until).await,
                        _ => false,
                    }
                };
                let (is_dead, _) =
                    tokio::join!(is_dead, holds(&mut tainted, Instant::now() + TAINT));
                let result = tell::tell(&api, &node, &eviction, is_dead, &news).await;
                // What the Eviction subresource has deleted its kubelet ends and finishes.
                let runs_on = !(is_dead || eviction.is_deleting)
                    && matches!(&result, Ok((false, refused)) if refused.is_empty());
                let _ = attempts.send(Attempt { number, result }).await;
                if let Some(mut death) = death.filter(|_| runs_on)
                    && holds(&mut death, Instant::now() + LATE_DEATH).await
                {
                    tell::finish(&api, &eviction).await;
                }
            });
        }
    }

    async fn end(&mut self, attempt: Attempt) {
        match attempt.result {
            Ok((was_gone, refused)) => {
                self.failures = 0;
                self.troubles.remove("evictions");
                let Some(item) = self.queue.take(attempt.number) else { return };
                self.keep().await;
                let took = item.began.elapsed();
                let told = Told { eviction: item.eviction, was_gone, refused, took };
                self.tell(ClusterNews::Told(Box::new(told))).await;
            }
            Err(Unfinished { failure, is_deleted }) => {
                self.queue.put_back(attempt.number, &failure, is_deleted);
                if is_deleted {
                    self.keep().await;
                }
                let pause = pause_after(&failure, self.failures, LONGEST_PAUSE);
                if self.again_at.is_none() {
                    // Those that were told at the same time have failed of the same.
                    self.failures = self.failures.saturating_add(1);
                }
                self.again_at = self.again_at.max(Some(Instant::now() + pause));
                let what = format!("the API server is not told of evictions yet: {failure}");
                self.tell_trouble("evictions", what).await;
            }
        }
    }

    /// Leaves an eviction to the API server, beside everything else.
    fn evict(&self, eviction: Eviction) {
        let (api, news) = (self.api.clone(), self.news.clone());
        let mut tainted = self.is_tainted.subscribe();
        tokio::spawn(async move {
            // Whether or not it is there by then.
            holds(&mut tainted, Instant::now() + TAINT).await;
            let uid = eviction.uid.clone();
            let told = match tell::evict(&api, &eviction).await {
                Asked::Done => ClusterNews::Deleted(uid),
                Asked::Refused(failure) => ClusterNews::Refused {
                    uid,
                    why: failure.to_string(),
                    retry_after: failure
                        .retry_after()
                        .filter(|after| !after.is_zero())
                        .unwrap_or(LONGEST_PAUSE),
                },
                Asked::Failed(failure) => ClusterNews::NotEvicted { uid, why: failure.to_string() },
            };
            let _ = news.send(told).await;
        });
    }

    async fn take_node(&mut self, update: Followed<NodeSeen>) {
        match update {
            Followed::All(nodes) => {
                let now = nodes.into_values().next();
                if now.as_ref().map(|node| &node.uid) != self.node.as_ref().map(|node| &node.uid) {
                    self.word.forget();
                    self.word_at = None;
                }
                self.node = now;
                self.troubles.remove("node");
                self.tell(ClusterNews::HasNode(self.node.is_some())).await;
            }
            Followed::Broken(why) => {
                let what = format!("the Node: {why}; its conditions and taints stay as they are");
                self.tell_trouble("node", what).await;
            }
        }
    }

    /// Has the Node say what it is to say, beside everything else: evictions wait a moment for its taints, and for nothing more.
    fn say_what_is_due(&mut self) {
        let Some(node) = self.node.clone().filter(|_| self.word.is_due()) else { return };
        if self.saying.is_some() || self.word_at.is_some() {
            return;
        }
        let api = self.api.after_deadlines(self.word_failed);
        let (saying, said) = (self.word.to_say(&node), self.said.clone());
        let tainted = self.is_tainted.clone();
        tainted.send_replace(false);
        self.saying = Some(tokio::spawn(async move {
            let result = saying.say(&api, &node, &tainted).await;
            let _ = said.send(Said { node: node.uid.clone(), result }).await;
        }));
    }

    async fn take_said(&mut self, said: Said) {
        self.saying = None;
        self.is_tainted.send_replace(true);
        match said.result {
            Ok((states, refused)) => {
                self.word_failed = 0;
                self.troubles.remove("conditions");
                if let Some(failure) = refused {
                    let what = format!("Events about the Node are not written: {failure}");
                    self.tell_trouble("events of the Node", what).await;
                }
                // Of a Node that was replaced meanwhile nothing is known.
                if self.node.as_ref().is_some_and(|node| node.uid == said.node) {
                    self.word.note_said(states);
                }
            }
            Err(failure) => {
                let after = pause_after(&failure, self.word_failed, LONGEST_PAUSE);
                self.word_failed = self.word_failed.saturating_add(1);
                self.word_at = Some(Instant::now() + after);
                let what = format!(
                    "conditions and taints of the Node are not as they should be: {failure}"
                );
                self.tell_trouble("conditions", what).await;
            }
        }
    }

    async fn stop(&mut self) {
        // Nothing is said of the Node any more.
        self.word.want(Vec::new(), Time(0));
        if let Some(saying) = self.saying.take() {
            // It must not put back what is taken away here.
            saying.abort();
            let _ = saying.await;
        }
        let node = self.node.clone().filter(|_| self.setup.mode == Mode::Enforce);
        let api = &self.api;
        let untaint = async {
            match &node {
                Some(node) => clear_taints(api, node).await,
                None => Ok(()),
            }
        };
        let flush = async {
            match &mut self.outbox {
                Some(outbox) => outbox.flush().await,
                None => Ok(()),
            }
        };
        // Neither waits for the other: whoever has ebb end may not wait for long.
        let (written, untainted) = tokio::join!(flush, untaint);
        self.take_written(written).await;
        if let Err(failure) = untainted {
            self.tell(ClusterNews::Trouble(format!("taints of the Node stay: {failure}"))).await;
        }
    }

    async fn tell(&self, news: ClusterNews) {
        // It fails only when the loop has ended, which the next turn sees.
        let _ = self.news.send(news).await;
    }

    async fn tell_trouble(&mut self, about: &'static str, what: String) {
        if self.troubles.insert(about, what.clone()).as_ref() != Some(&what) {
            self.tell(ClusterNews::Trouble(what)).await;
        }
    }
}

/// Where the pods of a node are.
pub(crate) fn pods_of(node: &str) -> String {
    format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
}

/// What is followed, for the loop, which knows no client.
fn update<T>(of: Followed<T>) -> Update<T> {
    match of {
        Followed::All(all) => Update::All(all),
        Followed::Broken(why) => Update::Broken(why),
    }
}

/// Whether that holds, or comes to by then.
async fn holds(what: &mut watch::Receiver<bool>, until: Instant) -> bool {
    matches!(timeout_at(until, what.wait_for(|holds| *holds)).await, Ok(Ok(_)))
}

/// Waits until the outbox, where there is one, has written something.
async fn written(outbox: &mut Option<Outbox>) -> io::Result<()> {
    match outbox {
        Some(outbox) => outbox.written().await,
        None => std::future::pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
