//! `--api`: the local API of the agent, on a thread of its own, and what the loop says of the node in the protocol's words.

use super::Failure;
use super::rank::untouchable;
use super::running_agent::Document;
use super::workloads::{Known, Line, Stalls, Standing, lines};
use anyhow::{Context as _, anyhow};
use ebb_agent::act::Mode;
use ebb_agent::report::Reporter;
use ebb_agent::run::{
    LatestDecision, NodeInbox, NodeQuestions, NodeStatus, ThresholdNow, WorkloadsStatus,
    node_questions,
};
use ebb_agent::threads;
use ebb_api::wire::{
    self, AlsoBelow, Candidate, GetNodeResponse, ListWorkloadsResponse, MemoryPressure, Ranking,
    Threshold,
};
use ebb_api::{
    Allowed, Ask, Bound, NotBound, Questions, RecordSink, Records, Server, SocketFile, Stop,
    Stopped,
};
use ebb_journal::{Part, Record};
use ebb_policy::plan::{Strength, ThresholdState};
use ebb_policy::snapshot::{Workload, WorkloadKey, WorkloadKind};
use ebb_policy::{History, Quantity, Signal, Snapshot, rank, spared};
use nix::unistd::{Group, geteuid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How often a socket on which somebody else listens is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How long the end waits for clients to take in the last records.
const LAST: Duration = Duration::from_secs(1);

/// Which API there is to be.
#[derive(Debug, clap::Args)]
pub(super) struct ApiArgs {
    /// Serve the API to local clients on a Unix socket there, as in /run/ebb/api.sock: records as they happen, how the node stands, recorded incidents. Only root and ebb's own user may connect.
    #[arg(long, value_name = "PATH")]
    api: Option<PathBuf>,
    /// Let the members of this group, by name or number, connect to the API as well.
    #[arg(long, value_name = "GROUP", requires = "api")]
    api_group: Option<String>,
}

/// An API that is not served yet.
pub(super) struct Api {
    path: PathBuf,
    group: Option<u32>,
    /// `None` while somebody else listens there.
    socket: Option<(Bound, SocketFile)>,
    allowed: Allowed,
    sink: RecordSink,
    records: Records,
    questions: NodeQuestions,
    run: String,
}

/// An API that is served.
pub(super) struct Served {
    thread: JoinHandle<()>,
    stop: Stop,
    file: Arc<Mutex<Option<SocketFile>>>,
}

impl ApiArgs {
    /// Takes the socket, while privileges are there to give it to its group. One on which somebody else listens, as an ebb in a dry run, is told in `missing`, and tried again while the agent runs.
    pub(super) fn take(
        &self,
        missing: &mut Vec<String>,
    ) -> Result<Option<(Api, NodeInbox)>, Failure> {
        let Some(path) = &self.api else { return Ok(None) };
        let group = self.api_group.as_deref().map(group).transpose()?;
        let socket = match ebb_api::bind(path, group) {
            Ok(bound) => Some(bound),
            Err(error @ NotBound::InUse(_)) => {
                missing.push(format!("--api {error}; it is tried again every few seconds"));
                None
            }
            Err(error) => return Err(Failure::Input(anyhow!("--api {error}"))),
        };
        let (sink, records) = ebb_api::records();
        let (questions, inbox) = node_questions();
        let allowed = Allowed { uid: geteuid().as_raw(), group };
        let run = run_id().context("cannot make a name for this run").map_err(Failure::Failed)?;
        let path = path.clone();
        Ok(Some((Api { path, group, socket, allowed, sink, records, questions, run }, inbox)))
    }
}

/// A name that no other run has: numbers of records are of one run, and a client must be able to tell.
fn run_id() -> std::io::Result<String> {
    use std::io::Read as _;
    let mut random = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

/// The id of a group by its name or number.
fn group(named: &str) -> Result<u32, Failure> {
    let unknown = |why: String| Failure::Input(anyhow!("--api-group {named}: {why}"));
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    match Group::from_name(named) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(unknown("there is no such group".to_owned())),
        Err(error) => Err(unknown(error.to_string())),
    }
}

impl Api {
    /// What takes in the records that clients are to see.
    pub(super) fn sink(&self) -> RecordSink {
        self.sink.clone()
    }

    /// Serves it until what is returned is ended; whom it refuses is told by `reporters`' reporters.
    pub(super) fn serve(
        self,
        incidents: Option<PathBuf>,
        reporters: impl Fn() -> Reporter + Clone + Send + 'static,
    ) -> anyhow::Result<Served> {
        let Self { path, group, socket, allowed, sink: _, records, questions, run } = self;
        let (stop, mut stopped) = ebb_api::stop();
        let server = move |socket, stop| Server {
            socket,
            allowed,
            records,
            questions: Questions {
                node: ask(questions.clone()),
                workloads: ask_workloads(questions.clone()),
                decision: ask_decision(questions),
            },
            incidents,
            run,
            version: VERSION.to_owned(),
            stop,
        };
        let file = Arc::new(Mutex::new(None));
        let place = Arc::clone(&file);
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tell, tell_end) = (reporters.clone(), reporters);
        let serve = move || {
            let mut reporter = tell();
            let served = executor.block_on(async {
                let bound = match socket {
                    Some(bound) => Some(bound),
                    None => bind_later(&path, group, &mut stopped, &mut reporter).await,
                };
                let Some((socket, file)) = bound else { return Ok(()) };
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
                server(socket, stopped).serve(|record| reporter.tell(record)).await
            });
            if let Err(error) = served {
                reporter.tell(ended(&error.to_string()));
            }
        };
        let panicked = move |what: String| tell_end().tell(ended(&format!("it panicked: {what}")));
        let thread = threads::spawn_beside("ebb-api", serve, panicked)
            .context("cannot start the thread that serves the API")?;
        Ok(Served { thread, stop, file })
    }
}

/// Takes the socket as soon as nobody else listens there; `None` when the agent ends first. What else keeps it from that is told once.
async fn bind_later(
    path: &Path,
    group: Option<u32>,
    stopped: &mut Stopped,
    reporter: &mut Reporter,
) -> Option<(Bound, SocketFile)> {
    let mut told = None;
    while !stopped.within(AGAIN).await {
        match ebb_api::bind(path, group) {
            Ok(bound) => return Some(bound),
            Err(NotBound::InUse(_)) => {}
            Err(error) => {
                let what = format!("the API is not served: {error}; it is tried again");
                if told.as_ref() != Some(&what) {
                    reporter.tell_degraded(Part::LocalApi, what.clone());
                }
                told = Some(what);
            }
        }
    }
    None
}

fn ended(why: &str) -> Record {
    Record::Degraded {
        part: Part::LocalApi,
        what: format!("the API is served no more: {why}; the agent goes on"),
    }
}

impl Served {
    /// Ends it: clients get what was told last, unless they do not take it in soon.
    pub(super) fn end(self) {
        let Self { thread, stop, file } = self;
        drop(stop);
        drop(file.lock().unwrap_or_else(PoisonError::into_inner).take());
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < LAST {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// How the loop is asked how the node stands.
fn ask(questions: NodeQuestions) -> Ask<GetNodeResponse> {
    Box::new(move || {
        let asked = questions.ask();
        Box::pin(async move { asked?.await.ok().map(|status| node(&status)) })
    })
}

/// How the loop is asked which workloads there are; they are ranked here, on the API's own thread.
fn ask_workloads(questions: NodeQuestions) -> Ask<ListWorkloadsResponse> {
    let stalls = Arc::new(Mutex::new(Stalls::default()));
    Box::new(move || {
        let (asked, stalls) = (questions.ask_workloads(), Arc::clone(&stalls));
        Box::pin(async move {
            let status = asked?.await.ok()?;
            let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
            Some(workloads(&status, &mut stalls))
        })
    })
}

/// How the loop is asked what its latest decision was made of; it is written down here, on the API's own thread.
fn ask_decision(questions: NodeQuestions) -> Ask<Option<Arc<[u8]>>> {
    Box::new(move || {
        let asked = questions.ask_decision();
        Box::pin(async move {
            let LatestDecision { made_of, config, pod_cgroups } = asked?.await.ok()?;
            let Some((snapshot, history)) = made_of else { return Some(None) };
            let document = Document { config, snapshot, history, pod_cgroups };
            serde_json::to_vec(&document).ok().map(|json| Some(json.into()))
        })
    })
}

/// The workloads in the order in which they are told, in the protocol's words.
fn workloads(status: &WorkloadsStatus, stalls: &mut Stalls) -> ListWorkloadsResponse {
    let WorkloadsStatus { seen, growth, limits, pod_cgroups } = status;
    let signal = Signal::MemoryAvailable;
    let told = |seen: &Snapshot| {
        stalls.observe(seen);
        let history = History { growth: growth.clone(), ..History::default() };
        let ranking = rank(seen, limits, &history, signal);
        let spared = spared(seen, limits, &history, signal);
        let skipped = |workload: &Workload| {
            let why = untouchable(workload).or_else(|| spared.get(&workload.key).cloned())?;
            Some((workload.key.clone(), why))
        };
        let skipped: BTreeMap<_, _> = seen.workloads.iter().filter_map(skipped).collect();
        let known =
            Known { growth, ranking: &ranking, skipped: &skipped, victims: &[], pod_cgroups };
        lines(seen, &known, stalls).into_iter().map(workload).collect()
    };
    ListWorkloadsResponse {
        seen_at_ms: seen.as_ref().map(|seen| seen.taken_at.0),
        signal: signal.name().to_owned(),
        workloads: seen.as_deref().map(told).unwrap_or_default(),
        left_out: 0,
    }
}

fn workload(line: Line) -> wire::Workload {
    let Line { key, kind, cgroup, memory, growth, stall, priority, .. } = line;
    let Line { standing, place, reason, keys, .. } = line;
    wire::Workload {
        name: key.name,
        kind: match kind {
            WorkloadKind::Pod => wire::WorkloadKind::Pod,
            WorkloadKind::Cgroup => wire::WorkloadKind::Cgroup,
            WorkloadKind::Process => wire::WorkloadKind::Process,
        }
        .into(),
        pod_uid: key.uid,
        cgroup_id: key.cgroup.map(|id| id.0),
        pid: key.process.map(|process| process.pid),
        cgroup,
        memory,
        growth,
        stall,
        priority,
        standing: match standing {
            Standing::Candidate => wire::Standing::Candidate,
            Standing::Protected => wire::Standing::Protected,
            Standing::Spared => wire::Standing::Spared,
            Standing::Terminating | Standing::Victim => wire::Standing::Terminating,
            Standing::DryRunVictim => wire::Standing::DryRunVictim,
            Standing::Finished => wire::Standing::Finished,
            Standing::Unknown => wire::Standing::Unspecified,
        }
        .into(),
        place,
        reason,
        keys,
    }
}

/// How the node stands, in the protocol's words.
fn node(status: &NodeStatus) -> GetNodeResponse {
    let pressures = status.memory_pressure.iter().map(|(rule, full)| MemoryPressure {
        cgroup: rule.cgroup.clone(),
        limit: rule.limit.0,
        full_avg10: full.map(|share| share.0),
    });
    GetNodeResponse {
        version: VERSION.to_owned(),
        // The server knows it.
        run: String::new(),
        mode: match status.mode {
            Mode::Enforce => wire::Mode::Enforce,
            Mode::DryRun => wire::Mode::DryRun,
        }
        .into(),
        answered_at_ms: status.answered_at.0,
        looked_at_ms: status.looked_at.0,
        thresholds: status.thresholds.iter().map(threshold).collect(),
        memory_pressure: pressures.collect(),
        ranking: status.ranking.as_ref().map(|(at, ranked)| Ranking {
            at_ms: at.0,
            candidates: ranked.iter().map(candidate).collect(),
        }),
        workloads: u32::try_from(status.workloads).unwrap_or(u32::MAX),
        incidents: status.episodes.clone(),
    }
}

pub(super) fn threshold(now: &ThresholdNow) -> Threshold {
    let ThresholdNow { status, time_left, capacity } = now;
    let unit = unit(status.signal).into();
    Threshold {
        signal: status.signal.name().to_owned(),
        unit,
        strength: match status.strength {
            Strength::Hard => wire::Strength::Hard,
            Strength::Soft => wire::Strength::Soft,
        }
        .into(),
        limit: status.threshold.and_then(whole),
        available: status.available,
        state: match status.state {
            ThresholdState::Unobserved => wire::ThresholdState::Unobserved,
            ThresholdState::Clear => wire::ThresholdState::Clear,
            ThresholdState::Grace => wire::ThresholdState::Grace,
            ThresholdState::Stale => wire::ThresholdState::Stale,
            ThresholdState::Met => wire::ThresholdState::Met,
            ThresholdState::Inert => wire::ThresholdState::Inert,
        }
        .into(),
        met_since_ms: status.since.map(|since| since.0),
        grace_left_ms: status.grace_left.map(|left| left.0),
        capacity: *capacity,
        time_left_ms: time_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        also_below: status.also_below.as_ref().map(|also| AlsoBelow {
            signal: also.signal.name().to_owned(),
            unit: self::unit(also.signal).into(),
            limit: also.threshold.and_then(whole),
            available: also.available,
        }),
    }
}

/// A quantity in whole units, as the loop compares it.
fn whole(quantity: Quantity) -> Option<u64> {
    u64::try_from(quantity.ceil()).ok()
}

fn unit(signal: Signal) -> wire::Unit {
    if ebb_journal::text::is_in_bytes(signal) { wire::Unit::Bytes } else { wire::Unit::Count }
}

fn candidate(key: &WorkloadKey) -> Candidate {
    Candidate {
        workload: key.name.clone(),
        pod_uid: key.uid.clone(),
        cgroup_id: key.cgroup.map(|id| id.0),
        pid: key.process.map(|process| process.pid),
    }
}
