//! ebb beside a real kubelet, which starts again whatever it finds dead: the same pod is evicted as often as it must be, and nobody else pays for it.
use crate::agent::{Agent, Settings, is};
use crate::containerd::SOCKET;
use crate::init::SELF;
use crate::kube::{ApiPod, Ending, Kube, PodSpec, ending, last_ending};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Available memory below which ebb evicts; the guest has 2 GiB, of which its services take less than half.
const FIELDS: &str = "evictionHard:\n  memory.available: 400Mi\n";
/// MiB/s of the leak: seconds to the threshold, and from there to the node's end many of ebb's looks.
const RATE: &str = "60";
/// From the start of a leak to its end in its pod's status, on a loaded host under TCG.
const ENDED_IN: Duration = Duration::from_secs(180);
/// A kubelet waits before it starts a container again, twice as long each time and at most this long.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
/// How often a leak is evicted.
const ROUNDS: usize = 10;
/// How often the same one: most of a round is the kubelet's waiting, which gets longer each time.
const ROUNDS_OF_ONE: usize = 4;
/// A kubelet of that age sees on cgroup v2 what pods leave of what it may give them, and no more. With this threshold a pod of [`ABOVE_IT`] MiB was seen evicted, and one of 1 MiB was not.
const OWN_THRESHOLD: &str = "1500Mi";
const ABOVE_IT: &str = "700";
const IDLE: &[&str] = &["/bin/sleep", "1000000"];
/// What a leak has written when it begins.
const LOGGED: &str = "ready\n";
/// What the status says of a container that was killed and is still there to be asked.
const KILLED: (i64, &str) = (137, "Error");

/// What the tests of ebb beside it rely on, without ebb: a pod that is killed from outside is started again with the same UID in a new sandbox, and its status says how it ended.
pub(crate) fn starts_again(test: &TestContext) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let killed = kill_once(test, &kube);
    kube.keep_logs(test)?;
    kube.delete_all_pods()?;
    killed.map(|()| Outcome::Passed)
}

fn kill_once(test: &TestContext, kube: &Kube) -> Result<()> {
    let pod = kube.run(&PodSpec { name: "killed", command: IDLE, ..PodSpec::default() })?;
    let container = kube.container_id(&pod)?.context("the pod does not run")?;
    let sandboxes = kube.sandboxes(&pod)?;
    let began = Instant::now();
    kube.cgroup(&pod).kill()?;
    let again = wait::seldom_some(ENDED_IN, "the kubelet has started it again", || {
        kube.container_id(&pod).ok()?.filter(|id| *id != container)
    })?;
    runner::note(test, &format!("started again within {:.1?}", began.elapsed()))?;
    let object = kube.pod(&pod)?;
    ensure!(uid_of(&object) == Some(&pod.uid), "the pod was made anew");
    let ended = ending(&object).context("nothing of its last run in its status")?;
    ensure!(
        (ended.exit_code, ended.reason.as_str()) == KILLED,
        "it is said to have ended: {ended:?}"
    );
    ensure!(ended.container.ends_with(&container), "{again} is said to have ended");
    let newest = kube.sandboxes(&pod)?.into_iter().next();
    ensure!(newest.is_some_and(|newest| !sandboxes.contains(&newest)), "in its old sandbox");
    Ok(())
}

/// Without ebb: what a kubelet leaves of a pod that it evicts itself is no more than ebb's eviction leaves.
pub(crate) fn evicts_itself(test: &TestContext) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let played = kube.with_kubelet_threshold(OWN_THRESHOLD, || {
        let command = &[SELF, "act-here", "idle", ABOVE_IT];
        let pod = kube.run(&PodSpec { name: "evicted", command, ..PodSpec::default() })?;
        let says = |object: &Value, path: &str| {
            object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let object = wait::seldom_some(ENDED_IN, "its kubelet has evicted it", || {
            kube.pod(&pod).ok().filter(|object| says(object, "/status/phase") == "Failed")
        })?;
        ensure!(says(&object, "/status/reason") == "Evicted", "{:#}", object["status"]);
        let (ended, log) = (ending(&object), kube.log(&pod));
        runner::note(test, &format!("of its run its status says {ended:?}; its log: {log:?}"))?;
        let is_alike = |ended: &Ending| (ended.exit_code, ended.reason.as_str()) == KILLED;
        ensure!(ended.as_ref().is_none_or(is_alike), "it ended otherwise: {ended:?}");
        ensure!(log.as_ref().map_or(true, |log| log == LOGGED), "its log is {log:?}");
        Ok(())
    });
    kube.keep_logs(test)?;
    kube.delete_all_pods()?;
    // Other tests see to it that there are none of the kubelet's.
    kube.delete_events()?;
    played.map(|()| Outcome::Passed)
}

/// A pod leaks, is evicted, is started again by its kubelet with the same UID in the same sandbox, and leaks again: each time it is the one that goes, and the three idle pods beside it stay as they are.
pub(crate) fn evicted_again(test: &TestContext) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let played = play(test, &kube);
    // Also of a run that failed, which is when they are wanted.
    kube.keep_logs(test)?;
    kube.delete_all_pods()?;
    played.map(|()| Outcome::Passed)
}

fn play(test: &TestContext, kube: &Kube) -> Result<()> {
    let idle = idle_pods(kube)?;
    let before = containers(kube, &idle)?;
    let incidents = runner::out_dir(test)?.join("incidents");
    let incidents = incidents.to_str().context("an odd directory")?;
    let arguments =
        ["--enforce", "--cri", SOCKET, "--node-fs", "/var/lib/kubelet", "--incidents", incidents];
    let own = "  mode: kubernetes\n";
    let settings = Settings {
        thresholds: FIELDS,
        arguments: &arguments,
        own,
        config: None,
        without_bpf: false,
        without: &[],
    };
    let mut agent = Agent::start(test, &settings)?;
    agent.wait_for(ENDED_IN, "the inventory is known", |record| is(record, "inventory"))?;
    let mut rounds = Rounds { kube, agent, oom_kills: node::vmstat("oom_kill ")?, left: ROUNDS };
    for pod in 1.. {
        let available = node::meminfo("MemAvailable")? >> 20;
        runner::note(test, &format!("{available} MiB available before leak-{pod}"))?;
        rounds.of(test, &format!("leak-{pod}"))?;
        if rounds.left == 0 {
            break;
        }
    }
    ensure!(containers(kube, &idle)? == before, "an idle pod was started again");
    let Rounds { mut agent, oom_kills, .. } = rounds;
    let victims = acted_on(&mut agent);
    agent.stop()?;
    ensure!(victims.len() >= ROUNDS, "{ROUNDS} rounds, and ebb evicted {victims:?}");
    kube.kubelet_evicts_nobody()?;
    ensure!(node::vmstat("oom_kill ")? == oom_kills, "the kernel killed somebody");
    Ok(())
}

/// Three pods that do nothing.
pub(super) fn idle_pods(kube: &Kube) -> Result<Vec<ApiPod>> {
    let names = ["idle-1", "idle-2", "idle-3"];
    let run = |name| kube.run(&PodSpec { name, command: IDLE, ..PodSpec::default() });
    names.into_iter().map(run).collect()
}

/// Evictions of leaks, one after the other.
struct Rounds<'a> {
    kube: &'a Kube,
    agent: Agent,
    /// Of the kernel, before the first.
    oom_kills: u64,
    left: usize,
}

impl Rounds<'_> {
    /// One pod that leaks as often as its kubelet starts it again, until it would have to be waited for too long.
    fn of(&mut self, test: &TestContext, name: &str) -> Result<()> {
        let kube = self.kube;
        let command = &[SELF, "act-here", "hog", RATE];
        let leak = kube.run(&PodSpec { name, command, ..PodSpec::default() })?;
        let already = acted_on(&mut self.agent).len();
        let mut ended: Vec<Ending> = Vec::new();
        let mut sandboxes = BTreeSet::new();
        while self.left > 0 && ended.len() < ROUNDS_OF_ONE {
            let began = Instant::now();
            let round = ROUNDS - self.left + 1;
            let what = format!("{name} has ended in round {round}");
            let latest = wait::seldom_some(LONGEST_BACK_OFF + ENDED_IN, &what, || {
                sandboxes.extend(kube.sandboxes(&leak).unwrap_or_default().into_iter().next());
                let mut others = acted_on(&mut self.agent).split_off(already);
                others.retain(|uid| *uid != leak.uid);
                if !others.is_empty() {
                    return Some(Err(anyhow::anyhow!("round {round}: ebb evicted {others:?}")));
                }
                let latest = ending(&kube.pod(&leak).ok()?)?;
                let is_news = ended.iter().all(|ending| ending.container != latest.container);
                is_news.then_some(Ok(latest))
            })??;
            let says = (latest.exit_code, latest.reason.as_str());
            ensure!(says == KILLED, "round {round}: its pod's status says {latest:?}");
            let kills = node::vmstat("oom_kill ")? - self.oom_kills;
            ensure!(kills == 0, "round {round}: the kernel killed {kills} times");
            let what = format!("the log of the run that ended in round {round} can be read");
            wait::seldom(LONGEST_BACK_OFF + ENDED_IN, &what, || {
                // Or of a later run: on a slow node the next one has ended before this one's log was looked at.
                let is_last = |object: Value| {
                    last_ending(&object).is_some_and(|last| {
                        ended.iter().all(|earlier| earlier.container != last.container)
                    })
                };
                kube.pod(&leak).is_ok_and(is_last)
                    && kube.previous_log(&leak).is_ok_and(|log| log == LOGGED)
            })?;
            runner::note(test, &format!("round {round} took {:.0?}", began.elapsed()))?;
            ended.push(latest);
            self.left -= 1;
        }
        ensure!(uid_of(&kube.pod(&leak)?) == Some(&leak.uid), "the pod was made anew");
        // The sandbox is the kubelet's to stop (decision 0018): each run is a new container in the same one.
        ensure!(sandboxes.len() == 1, "{} rounds in {} sandboxes", ended.len(), sandboxes.len());
        kube.delete(name)
    }
}

fn uid_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

/// UIDs of the pods that ebb acted on, in order; an act on anything else is a whole record.
fn acted_on(agent: &mut Agent) -> Vec<String> {
    let acted = agent.records().iter().filter(|record| is(record, "evicted"));
    let uid = |record: &Value| record.pointer("/workload/uid")?.as_str().map(str::to_owned);
    acted.map(|record| uid(record).unwrap_or_else(|| record.to_string())).collect()
}

/// The running container of each pod and how often it was started again.
pub(super) fn containers(kube: &Kube, pods: &[ApiPod]) -> Result<Vec<(String, u64)>> {
    let look = |pod: &ApiPod| {
        let id = kube.container_id(pod)?.with_context(|| format!("{} does not run", pod.name))?;
        Ok((id, kube.restarts(pod)?))
    };
    pods.iter().map(look).collect()
}
