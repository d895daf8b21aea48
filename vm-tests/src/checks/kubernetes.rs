//! ebb connected to the API server beside a real kubelet: what it evicts is deleted there, told once, and not started again; the Node says that it is under pressure for as long as it is.
use super::kubelet::{containers, idle_pods};
use crate::agent::{Agent, Settings, is, is_by_watchdog, since};
use crate::containerd::{GATE, SOCKET, open_gate};
use crate::init::SELF;
use crate::kube::{ApiPod, KUBECONFIG, Kube, NODE, PodSpec};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use ebb_vm_protocol::figures::percentile;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Available memory below which ebb evicts; and how long its conditions stay afterwards: until somebody who is held up has looked for them.
pub(super) const FIELDS: &str =
    "evictionHard:\n  memory.available: 400Mi\nevictionPressureTransitionPeriod: 60s\n";
/// From the last leak to the end of the condition.
const OVER_IN: Duration = Duration::from_secs(240);
/// MiB/s of the leak.
const RATE: &str = "60";
/// From the start of a leak to its eviction, on a loaded host under TCG.
const EVICTED_IN: Duration = Duration::from_secs(180);
/// From the eviction to the end of its object: a kubelet of that age takes 0.3 s when it is idle, and up to a minute when it has missed something.
const GONE_IN: Duration = Duration::from_secs(90);
const LEAKS: usize = 3;
/// More than there is: a leak that keeps so much available takes nothing before its gate is open.
const WITHOUT_A_HEAD_START: &str = "1000000";
/// How long an API server is away, from the first eviction on: the kubelet starts the pods again meanwhile, more than once.
const AWAY: Duration = Duration::from_secs(60);
/// From the crossing to the kill, in the median, also under emulation: a hundred times what it takes as a rule.
const KILLED_WITHIN_MS: f64 = 1000.0;

/// Each leak is evicted, deleted and told once; the Node says so as long as it is under pressure.
pub(crate) fn told(test: &TestContext) -> Result<Outcome> {
    on_a_node(test, FIELDS, leaks)
}

/// With an API server that answers nothing for a minute two leaks are killed in the same time, as often as their kubelet starts them again, and nobody else; what happened is told once it answers again, once each and in order.
pub(crate) fn told_later(test: &TestContext) -> Result<Outcome> {
    on_a_node(test, FIELDS, away)
}

/// Three idle pods, an agent that is connected, and what `play` does with them: nobody else pays, and the kernel kills nobody.
pub(super) fn on_a_node(
    test: &TestContext,
    thresholds: &str,
    play: fn(&TestContext, &Kube, &mut Agent) -> Result<()>,
) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let played = beside_idle_pods(test, &kube, thresholds, play);
    kube.keep_logs(test)?;
    kube.delete_all_pods()?;
    played.map(|()| Outcome::Passed)
}

fn beside_idle_pods(
    test: &TestContext,
    kube: &Kube,
    thresholds: &str,
    play: fn(&TestContext, &Kube, &mut Agent) -> Result<()>,
) -> Result<()> {
    let idle = idle_pods(kube)?;
    let before = containers(kube, &idle)?;
    let incidents = runner::out_dir(test)?.join("incidents");
    let incidents = incidents.to_str().context("an odd directory")?;
    let arguments = [
        "--enforce",
        "--kubernetes",
        "--kubeconfig",
        KUBECONFIG,
        "--node-name",
        NODE,
        "--cri",
        SOCKET,
        "--node-fs",
        "/var/lib/kubelet",
        "--incidents",
        incidents,
    ];
    let settings = Settings {
        thresholds,
        arguments: &arguments,
        own: "  mode: kubernetes\n",
        ..Settings::default()
    };
    let mut agent = Agent::start(test, &settings)?;
    agent.wait_for(EVICTED_IN, "the inventory is known", |record| is(record, "inventory"))?;
    agent.wait_for(EVICTED_IN, "the API server tells of pods", |record| is(record, "apiServer"))?;
    let oom_kills = node::vmstat("oom_kill ")?;
    play(test, kube, &mut agent)?;
    let others = agent.records().iter().filter(|r| is(r, "evicted") && !evicts_a_leak(r));
    let others: Vec<_> = others.cloned().collect();
    ensure!(others.is_empty(), "somebody else was evicted: {others:?}");
    ensure!(containers(kube, &idle)? == before, "an idle pod was started again");
    ensure!(node::vmstat("oom_kill ")? == oom_kills, "the kernel killed somebody");
    kube.kubelet_evicts_nobody()?;
    agent.stop().map(drop)
}

fn leaks(test: &TestContext, kube: &Kube, agent: &mut Agent) -> Result<()> {
    let killed = (1..=LEAKS).map(|n| leak(test, kube, agent, n)).collect::<Result<Vec<_>>>()?;
    killed_in_time(test, &killed)?;
    wait::seldom(OVER_IN, "the Node says that pressure is over", || {
        kube.node().is_ok_and(|node| condition_and_taint(&node) == (Some(false), false))
    })
}

fn away(test: &TestContext, kube: &Kube, agent: &mut Agent) -> Result<()> {
    let gated = |name| gated(kube, name, name, RATE);
    let leaks = [gated("leak-away-1")?, gated("leak-away-2")?];
    let server = kube.api_server_cgroup();
    server.write("cgroup.freeze", "1")?;
    let mut began = None;
    let gone = leaks.iter().try_for_each(|leak| {
        open_gate(&leak.name)?;
        wait::seldom(EVICTED_IN, &format!("{} is evicted", leak.name), || {
            agent.records().iter().any(|record| evicts(record, leak))
        })?;
        began.get_or_insert_with(Instant::now);
        Ok(())
    });
    let began = began.unwrap_or_else(Instant::now);
    let over = wait::seldom(AWAY * 4, "the API server was away for long enough", || {
        began.elapsed() >= AWAY
    });
    // Whatever became of it: the next test wants an API server.
    server.write("cgroup.freeze", "0")?;
    let back = Instant::now();
    gone.and(over)?;
    for leak in &leaks {
        let name = &leak.name;
        kube.until_gone(leak, GONE_IN)?;
        runner::note(
            test,
            &format!("{name} was gone {:.1?} after the API server was back", back.elapsed()),
        )?;
        kube.until_torn_down(leak)?;
    }
    // What its kubelet starts again at once belongs to the same decision; what leaks again later takes another.
    let told = |agent: &mut Agent| {
        of_leaks(agent, &leaks, |r, leak| is(r, "evictionTold") && is_about(r, leak))
    };
    let decided = of_leaks(agent, &leaks, decides_on);
    wait::seldom(
        GONE_IN,
        &format!("the API server was told of {} decisions", decided.len()),
        || told(agent).len() >= decided.len(),
    )?;
    let (told, decided) = (told(agent), of_leaks(agent, &leaks, decides_on));
    ensure!(told == decided, "decided on {decided:?}, and told of {told:?}");
    let kills = of_leaks(agent, &leaks, evicts).len();
    let mut killed = Vec::new();
    for leak in &leaks {
        let (events, own) = (kube.events(leak, "Evicted")?.len(), decided.iter());
        let decisions = own.filter(|name| **name == leak.name).count();
        ensure!(
            events == decisions && decisions >= 1,
            "{decisions} decisions on {} are shown by {events} Events",
            leak.name
        );
        let evicted = agent.records().iter().find(|record| evicts(record, leak));
        killed.push(killed_after(evicted.context("it was not evicted")?)?);
    }
    killed_in_time(test, &killed)?;
    runner::note(
        test,
        &format!(
            "{kills} kills by {decided:?} while the API server was away, each told once and in order"
        ),
    )
}

/// A pod that leaks once its gate is open, and at once when it is started again.
pub(super) fn gated(kube: &Kube, name: &str, gate: &str, rate: &str) -> Result<ApiPod> {
    let gate = format!("{GATE}/{gate}");
    let command = &[SELF, "act-here", "gated", WITHOUT_A_HEAD_START, &gate, rate];
    kube.run(&PodSpec { name, command, ..PodSpec::default() })
}

/// Names of the leaks that records are about, in the order of the records.
fn of_leaks(
    agent: &mut Agent,
    leaks: &[ApiPod],
    is_about: impl Fn(&Value, &ApiPod) -> bool,
) -> Vec<String> {
    let of = |record: &Value| leaks.iter().find(|leak| is_about(record, leak));
    agent.records().iter().filter_map(of).map(|leak| leak.name.clone()).collect()
}

/// How many milliseconds after the crossing somebody was killed. Where the loop got no processor for seconds the watchdog has killed, which has its own time: `None`.
pub(super) fn killed_after(evicted: &Value) -> Result<Option<f64>> {
    if is_by_watchdog(evicted) {
        return Ok(None);
    }
    let after = evicted.get("afterMs").and_then(Value::as_f64);
    after.with_context(|| format!("no time since the crossing: {evicted}")).map(Some)
}

/// Kills come in time, if not each: a guest that stands still makes one late.
pub(super) fn killed_in_time(test: &TestContext, killed: &[Option<f64>]) -> Result<()> {
    let mut times: Vec<f64> = killed.iter().copied().flatten().collect();
    times.sort_by(f64::total_cmp);
    let shown =
        |after: &Option<f64>| after.map_or("by the watchdog".to_owned(), |ms| ms.to_string());
    let shown: Vec<String> = killed.iter().map(shown).collect();
    let text = format!("killed after the crossing, in ms: {}", shown.join(", "));
    runner::note(test, &text)?;
    let median = percentile(&times, 50);
    ensure!(median.is_none_or(|median| median <= KILLED_WITHIN_MS), "{text}");
    Ok(())
}

/// A decision on this pod, of the loop or in its place.
pub(super) fn decides_on(record: &Value, pod: &ApiPod) -> bool {
    if evicts(record, pod) && is_by_watchdog(record) {
        return true;
    }
    let evicts = record.get("evict").and_then(Value::as_array).into_iter().flatten();
    is(record, "decided") && evicts.into_iter().any(|evict| uid(evict) == Some(&pod.uid))
}

/// One leak: evicted, deleted, told once, not started again. Returns how many milliseconds after the crossing it was killed.
fn leak(test: &TestContext, kube: &Kube, agent: &mut Agent, n: usize) -> Result<Option<f64>> {
    let name = format!("leak-{n}");
    let command = &[SELF, "act-here", "hog", RATE];
    let leak = kube.run(&PodSpec { name: &name, command, ..PodSpec::default() })?;
    let mut evicted = None;
    wait::seldom(EVICTED_IN, &format!("{name} is evicted"), || {
        evicted = agent.records().iter().find(|record| evicts(record, &leak)).cloned();
        evicted.is_some()
    })?;
    let evicted = evicted.context("it was evicted")?;
    wait::seldom(GONE_IN, "the Node is under pressure", || {
        kube.node().is_ok_and(|node| condition_and_taint(&node) == (Some(true), true))
    })?;
    kube.until_gone(&leak, GONE_IN)?;
    let gone = since(&evicted)?;
    agent.wait_for(GONE_IN, &format!("the API server was told of {name}"), |record| {
        is(record, "evictionTold") && is_about(record, &leak)
    })?;
    let events = kube.events(&leak, "Evicted")?;
    ensure!(events.len() == 1, "{} Events about {name}: {events:?}", events.len());
    let told = agent.records().iter().find(|r| is(r, "evictionTold") && is_about(r, &leak));
    let refused = told.and_then(|record| record.get("refused")).and_then(Value::as_array);
    ensure!(refused.is_some_and(Vec::is_empty), "{name}: not all was taken: {refused:?}");
    kube.until_torn_down(&leak)?;
    runner::note(test, &format!("{name}: its object gone at most {gone:.1?} after the kill"))?;
    killed_after(&evicted)
}

fn uid(record: &Value) -> Option<&str> {
    record.pointer("/workload/uid").and_then(Value::as_str)
}

pub(super) fn evicts(record: &Value, pod: &ApiPod) -> bool {
    is(record, "evicted") && is_about(record, pod)
}

pub(super) fn is_about(record: &Value, pod: &ApiPod) -> bool {
    uid(record) == Some(&pod.uid)
}

fn evicts_a_leak(record: &Value) -> bool {
    let name = record.pointer("/workload/name").and_then(Value::as_str);
    name.is_some_and(|name| name.starts_with("default/leak-"))
}

/// What ebb's condition on memory says, if it is there, and whether its taint is.
pub(super) fn condition_and_taint(node: &Value) -> (Option<bool>, bool) {
    condition_and_taint_of(node, "EbbMemoryPressure", "ebb.dev/memory-pressure")
}

/// What this condition of ebb's says, if it is there, and whether this taint is.
pub(super) fn condition_and_taint_of(
    node: &Value,
    condition: &str,
    taint: &str,
) -> (Option<bool>, bool) {
    let list = |path| node.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let text = |object: &Value, key: &str| {
        object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let own = list("/status/conditions").find(|c| text(c, "type") == condition);
    let tainted = list("/spec/taints").any(|t| text(t, "key") == taint);
    (own.map(|condition| text(condition, "status") == "True"), tainted)
}
