//! `ebb run --api`: what local clients are told of a running agent, and that they cannot hold it up.

mod calls;
mod clients;
mod commands;
mod decision;
mod raw;
mod services;
mod sockets;
mod workloads;

use crate::{Agent, CONFIG, config, start};
use ebb_api::client::{Client, Watching};
use ebb_api::wire::watch_response::Item;
use ebb_api::wire::{Begin, Gap, Record, WatchRequest};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, PATIENCE, wait_for};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};
use tokio::runtime::Runtime;

/// An agent with an API, on a node with something to evict.
struct Served {
    node: FakeNode,
    hog: FakeCgroup,
    agent: Agent,
    config: NamedTempFile,
    dir: TempDir,
    api: Api,
}

/// Its socket, and what drives this process' clients of it.
struct Api {
    path: PathBuf,
    runtime: Runtime,
}

/// What a Watch has told so far.
#[derive(Default)]
struct Told {
    begin: Option<Begin>,
    records: Vec<Record>,
    gaps: Vec<Gap>,
}

impl Served {
    fn new(extra: &[&str]) -> Self {
        let mut node = FakeNode::new();
        let hog = node.add("apps/hog", 1500);
        node.add("apps/web", 100);
        let (config, dir) = (config(CONFIG), tempfile::tempdir().unwrap());
        let api = Api::new(dir.path().join("api.sock"));
        let agent = api.start(&node, config.path(), extra);
        Self { node, hog, agent, config, dir, api }
    }

    /// Has the hog evicted, if the agent enforces.
    fn runs_short(&self) {
        self.node.gives_back_when_killed(&self.hog, 1500);
        self.node.set_available(60);
    }
}

impl Api {
    fn new(path: PathBuf) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { path, runtime }
    }

    fn start(&self, node: &FakeNode, config: &Path, extra: &[&str]) -> Agent {
        let mut all = vec!["--api", self.path.to_str().unwrap()];
        all.extend(extra);
        start(node, config, &all)
    }

    fn client(&self) -> Client {
        self.runtime.block_on(Client::connect(&self.path)).unwrap()
    }

    fn watch(&self, after: Option<u64>, run: Option<String>) -> Watching {
        let mut client = self.client();
        self.runtime.block_on(client.watch(WatchRequest { after, run })).unwrap()
    }

    /// Takes in what is told until a record of this kind.
    fn until(&self, watching: &mut Watching, kind: &str) -> Told {
        let mut told = Told::default();
        let all = async {
            loop {
                match watching.next().await.unwrap().unwrap() {
                    Item::Begin(begin) => told.begin = Some(begin),
                    Item::Gap(gap) => told.gaps.push(gap),
                    Item::Record(record) => {
                        let is_last = record.kind == kind;
                        told.records.push(record);
                        if is_last {
                            return;
                        }
                    }
                }
            }
        };
        let done = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, all).await });
        done.unwrap_or_else(|_| panic!("no {kind} among {:#?}", told.records));
        told
    }
}

fn as_json(records: &[Record]) -> Vec<Value> {
    records.iter().map(|record| serde_json::from_str(&record.json).unwrap()).collect()
}

#[test]
fn a_watch_sees_an_eviction_from_the_crossing_to_the_relief_and_resumes_without_loss() {
    let mut served = Served::new(&["--enforce"]);
    let Served { agent, api, node, hog, .. } = &mut served;
    let mut watching = api.watch(Some(0), None);
    let first = api.until(&mut watching, "started");
    let begin = first.begin.unwrap();
    // The server may take `started` over only after it has begun the watch.
    let there_are = (begin.newest, begin.oldest);
    assert!([(0, None), (1, Some(1))].contains(&there_are), "{there_are:?}");
    node.gives_back_when_killed(hog, 1500);
    node.set_available(60);
    let crossing = api.until(&mut watching, "thresholdCrossed");
    // The connection is lost in the middle of it.
    drop(watching);
    agent.wait("pressureRelieved");
    let last = crossing.records.last().unwrap().seq;
    let mut again = api.watch(Some(last), Some(begin.run.clone()));
    let rest = api.until(&mut again, "pressureRelieved");
    assert_eq!(rest.begin.unwrap().run, begin.run);
    assert!(rest.gaps.is_empty(), "{:?}", rest.gaps);
    let records = [first.records, crossing.records, rest.records].concat();
    let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "in order, each once, and none is missing");
    // What the agent writes on its own output is the measure of what there is to tell.
    assert_eq!(as_json(&records), agent.seen);
    let place = |kind| records.iter().position(|record: &Record| record.kind == kind).unwrap();
    // That its processes are gone may be seen before the thread that killed them has said so.
    for last in ["evicted", "terminated"] {
        let order = ["started", "thresholdCrossed", "decided", last, "pressureRelieved"];
        assert!(order.map(place).is_sorted(), "{order:?}: {:?}", order.map(place));
    }
    let crossed = &records[place("thresholdCrossed")];
    assert!(crossed.text.contains("memory.available crossed its threshold"), "{crossed:?}");
    assert_eq!(crossed.severity(), ebb_api::wire::Severity::Warning);
    let evicted = &records[place("evicted")];
    assert!(evicted.incidents[0].ends_with("-memory.available"), "{evicted:?}");
}

#[test]
fn a_watch_without_a_number_begins_with_what_happens_next_and_hears_of_the_end() {
    let served = Served::new(&[]);
    let mut watching = served.api.watch(None, None);
    let begun = served.api.runtime.block_on(watching.next()).unwrap();
    assert!(matches!(begun, Some(Item::Begin(_))), "{begun:?}");
    served.agent.stop();
    let told = served.api.until(&mut watching, "stopping");
    // The server may take `started` over only after it has begun the watch.
    let later = told.records.iter().filter(|record| record.kind != "started");
    assert_eq!(later.count(), 1, "{:?}", told.records);
    let end = served.api.runtime.block_on(watching.next());
    assert!(end.unwrap_err().to_string().contains("ebb ends"));
    assert!(!served.api.path.exists(), "its socket stays behind");
}

#[test]
fn a_number_of_an_earlier_run_is_told_as_a_gap() {
    let served = Served::new(&[]);
    let mut watching = served.api.watch(Some(7), Some("before".into()));
    let told = served.api.until(&mut watching, "started");
    let reasons: Vec<_> = told.gaps.iter().map(Gap::reason).collect();
    assert_eq!(reasons, [ebb_api::wire::GapReason::AnotherRun]);
    assert_eq!(told.records[0].seq, 1);
    served.agent.stop();
}

/// Each look at the configuration is a record: many of them are more than the agent keeps.
#[test]
fn records_that_are_not_kept_any_more_are_told_as_a_gap() {
    let mut served = Served::new(&[]);
    wait_for("the first records to be forgotten", || {
        for _ in 0..50 {
            served.agent.signal(nix::sys::signal::Signal::SIGHUP);
            served.agent.wait("reloaded");
        }
        let mut watching = served.api.watch(None, None);
        let begun = served.api.runtime.block_on(watching.next()).unwrap();
        matches!(begun, Some(Item::Begin(begin)) if begin.oldest > Some(2))
    });
    let mut watching = served.api.watch(Some(1), None);
    let told = served.api.until(&mut watching, "reloaded");
    let gap = &told.gaps[0];
    assert_eq!((gap.reason(), gap.first), (ebb_api::wire::GapReason::Forgotten, Some(2)));
    assert_eq!(told.records[0].seq, gap.last() + 1);
    served.agent.stop();
}
