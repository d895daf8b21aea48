//! The agents: for each the thread that speaks to the API server, and a task in the place of its loop.
use crate::server::{NAMESPACE, node_name, pod_name, pod_uid};
use anyhow::{Context, Result, ensure};
use ebb_agent::act::Mode;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::cluster::{Cluster, ClusterNews, Eviction, Order, Update};
use ebb_cluster_tests::plane::{Plane, User};
use ebb_node_api::{Setup, connect};
use ebb_policy::plan::NodeCondition;
use ebb_policy::signal::NodeConditionType;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(300);

/// What the tasks say of the news.
enum Word {
    Pods(usize),
    Node,
    Budgets,
    Told(Vec<String>),
    Trouble(String),
}

pub(crate) struct Fleet {
    agents: Vec<Cluster>,
    words: Receiver<(usize, Word)>,
    _tasks: tokio::runtime::Runtime,
}

/// How long it took until evictions were told, in seconds.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) half: f64,
    pub(crate) p99: f64,
    pub(crate) last: f64,
}

impl Fleet {
    /// Starts them, and waits until each knows its pods, its Node and the budgets.
    pub(crate) fn start(plane: &Plane, agents: usize, pods: usize) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Agent)?;
        let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
        let (say, words) = channel();
        let mut fleet = Vec::new();
        for agent in 0..agents {
            let (news, inbox) = mpsc::channel(64);
            let setup = Setup {
                kubeconfig: Some(kubeconfig.clone()),
                context: None,
                node: node_name(agent),
                dir: None,
                mode: Mode::Enforce,
                has_taints: true,
            };
            fleet.push(connect(setup)(Clock::of_process(), news)?);
            tasks.spawn(listen(agent, inbox, say.clone()));
        }
        let fleet = Self { agents: fleet, words, _tasks: tasks };
        let mut known = vec![[false; 3]; agents];
        let deadline = Instant::now() + PATIENCE;
        while known.iter().flatten().any(|known| !known) {
            let (agent, word) = fleet.next(deadline)?;
            match word {
                Word::Pods(count) => known[agent][0] |= count == pods,
                Word::Node => known[agent][1] = true,
                Word::Budgets => known[agent][2] = true,
                Word::Told(_) => {}
                Word::Trouble(what) => eprintln!("{}: {what}", node_name(agent)),
            }
        }
        Ok(fleet)
    }

    /// Each is short of memory and has evicted a pod of which nothing runs any more.
    pub(crate) fn evict_one_each(&mut self, pods: usize) -> Result<Storm> {
        ensure!(pods > 0, "there is nobody to be evicted");
        let begun = Instant::now();
        for (agent, cluster) in self.agents.iter().enumerate() {
            let uid = pod_uid(agent, 0);
            let orders = [
                Order::Conditions(conditions()),
                Order::Tell(Box::new(eviction(agent))),
                Order::Dead(uid),
            ];
            for order in orders {
                ensure!(cluster.give(order), "{} takes no orders", node_name(agent));
            }
        }
        let mut times = Vec::new();
        let deadline = begun + PATIENCE;
        while times.len() < self.agents.len() {
            match self.next(deadline)? {
                (agent, Word::Told(refused)) => {
                    ensure!(refused.is_empty(), "{}: {refused:?}", node_name(agent));
                    times.push(begun.elapsed().as_secs_f64());
                }
                (agent, Word::Trouble(what)) => eprintln!("{}: {what}", node_name(agent)),
                _ => {}
            }
        }
        let at = |part: usize| times.get((times.len() - 1) * part / 100).copied();
        let (half, p99, last) = (at(50), at(99), at(100));
        Ok(Storm {
            half: half.context("no times")?,
            p99: p99.context("no times")?,
            last: last.context("no times")?,
        })
    }

    fn next(&self, deadline: Instant) -> Result<(usize, Word)> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.words.recv_timeout(left).context("the agents were not done in time")
    }
}

/// In the place of a loop.
async fn listen(agent: usize, mut inbox: mpsc::Receiver<ClusterNews>, say: Sender<(usize, Word)>) {
    while let Some(news) = inbox.recv().await {
        let word = match news {
            ClusterNews::Pods(Update::All(pods)) => Word::Pods(pods.len()),
            ClusterNews::HasNode(true) => Word::Node,
            ClusterNews::Budgets(Update::All(_)) => Word::Budgets,
            ClusterNews::Told(told) => Word::Told(told.refused),
            ClusterNews::Trouble(what) => Word::Trouble(what),
            ClusterNews::Pods(Update::Broken(what))
            | ClusterNews::Budgets(Update::Broken(what)) => Word::Trouble(what),
            _ => continue,
        };
        // Nobody listens any more once the measurement is over.
        if say.send((agent, word)).is_err() {
            return;
        }
    }
}

fn conditions() -> Vec<NodeCondition> {
    let condition = |of: NodeConditionType| NodeCondition {
        condition_type: of,
        status: of == NodeConditionType::MemoryPressure,
        reason: String::new(),
        message: String::new(),
        last_observed: None,
    };
    NodeConditionType::ALL.map(condition).into()
}

fn eviction(agent: usize) -> Eviction {
    Eviction {
        namespace: NAMESPACE.to_owned(),
        name: pod_name(agent, 0),
        uid: pod_uid(agent, 0),
        grace: 1,
        reason: "Evicted".to_owned(),
        message: "The node was low on resource: memory. ".to_owned(),
        condition: true,
        annotations: Vec::new(),
        // One of long ago is told and deletes nobody.
        at: Clock::of_process().unix_ms(Boot::now()),
        is_deleting: false,
    }
}
