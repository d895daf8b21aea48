//! ebb connected to the API server beside a real kubelet on a node that has no time for either: both processors are busy, or five pods leak at once.
use super::kubernetes::{FIELDS, decides_on, evicts, gated, is_about, on_a_node};
use crate::actors::Actor;
use crate::agent::{Agent, is, since};
use crate::cgroup::Cgroup;
use crate::containerd::open_gate;
use crate::kube::{ApiPod, Kube};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use ebb_cri::ContainerState;
use serde_json::Value;
use std::time::Duration;

/// How many leaks are evicted, one after the other.
const EVICTIONS: usize = 20;
/// MiB/s of each of them.
const RATE: &str = "60";
/// Pods that leak at once, how often, and MiB/s of each.
const AT_ONCE: usize = 5;
const ROUNDS: usize = 4;
const RATE_AT_ONCE: &str = "50";
/// For what a step takes on a busy node under TCG.
const PATIENCE: Duration = Duration::from_secs(240);
const PROCESSORS: usize = 2;

/// With both processors busy, each leak is evicted by one decision; what its kubelet starts again before it has seen the deletion goes with it, and nothing of it is started afterwards.
pub(crate) fn starved(test: &TestContext) -> Result<Outcome> {
    on_a_node(test, FIELDS, |test, kube, agent| {
        let busy = Busy::start()?;
        let mut gone = Vec::new();
        for n in 1..=EVICTIONS {
            let name = format!("leak-{n}");
            let leak = gated(kube, &name, &name, RATE)?;
            open_gate(&name)?;
            let one = evicted(test, kube, agent, &leak)?;
            ensure!(
                (one.decisions, one.events) == (1, 1),
                "{name}: {} decisions, {} Events; {}",
                one.decisions,
                one.events,
                agent.last_words()
            );
            gone.push(one);
            for earlier in &gone {
                earlier.stays_gone(kube, agent)?;
            }
        }
        drop(busy);
        let again = gone.iter().filter(|one| one.kills > 1).count();
        let longest = gone.iter().map(|one| one.took).max().unwrap_or_default();
        runner::note(
            test,
            &format!(
                "{} of {EVICTIONS} evicted by one decision and told once; {again} were started again before the deletion was seen, and killed with it; the last object was gone after {longest:.1?}",
                gone.len()
            ),
        )
    })
}

/// Five leaking pods beside idle ones, again and again: each eviction is of one that leaks, and each of them goes.
pub(crate) fn five_at_once(test: &TestContext) -> Result<Outcome> {
    on_a_node(test, FIELDS, |test, kube, agent| {
        let mut gone = Vec::new();
        for round in 1..=ROUNDS {
            let gate = format!("round-{round}");
            let name = |n| format!("leak-{round}-{n}");
            let leaks = (1..=AT_ONCE).map(|n| gated(kube, &name(n), &gate, RATE_AT_ONCE));
            let leaks: Vec<ApiPod> = leaks.collect::<Result<_>>()?;
            let oom_kills = node::vmstat("oom_kill ")?;
            open_gate(&gate)?;
            for leak in &leaks {
                gone.push(evicted(test, kube, agent, leak)?);
            }
            ensure!(node::vmstat("oom_kill ")? == oom_kills, "the kernel killed in round {round}");
        }
        let decisions: usize = gone.iter().map(|one| one.decisions).sum();
        let kills: usize = gone.iter().map(|one| one.kills).sum();
        runner::note(
            test,
            &format!("{} leaks evicted by {decisions} decisions and {kills} kills", gone.len()),
        )
    })
}

/// A leak that is gone.
struct Gone {
    pod: ApiPod,
    /// From the moment its eviction was seen until its object was gone.
    took: Duration,
    decisions: usize,
    /// In the API server, about its eviction.
    events: usize,
    /// More than decisions where its kubelet has started it again.
    kills: usize,
}

impl Gone {
    /// Nothing of it was started since, or killed.
    fn stays_gone(&self, kube: &Kube, agent: &mut Agent) -> Result<()> {
        let name = &self.pod.name;
        let kills = count(agent, |record| evicts(record, &self.pod));
        ensure!(kills == self.kills, "{name} was killed {kills} times, {} before", self.kills);
        ensure!(runs(kube, &self.pod)? == 0, "{name} was started after its deletion");
        Ok(())
    }
}

/// Waits until a leak is evicted, gone and told of.
fn evicted(test: &TestContext, kube: &Kube, agent: &mut Agent, leak: &ApiPod) -> Result<Gone> {
    let name = &leak.name;
    let mut first = None;
    wait::seldom(PATIENCE, &format!("{name} is evicted"), || {
        first = agent.records().iter().find(|record| evicts(record, leak)).cloned();
        first.is_some()
    })
    .with_context(|| agent.last_words())?;
    kube.until_gone(leak, PATIENCE).with_context(|| agent.last_words())?;
    let took = since(first.as_ref().context("it was evicted")?)?;
    wait::seldom(PATIENCE, &format!("nothing of {name} runs"), || {
        runs(kube, leak).is_ok_and(|running| running == 0)
    })
    .with_context(|| agent.last_words())?;
    agent.wait_for(PATIENCE, &format!("the API server was told of {name}"), |record| {
        is(record, "evictionTold") && is_about(record, leak)
    })?;
    // Who was not needed any more when it came to it was decided on and not evicted: another's end was enough.
    let spared = count(agent, |record| is(record, "notDone") && is_about(record, leak));
    let decisions = count(agent, |record| decides_on(record, leak)).saturating_sub(spared);
    let kills = count(agent, |record| evicts(record, leak));
    let mut events = 0;
    wait::seldom(PATIENCE, &format!("{decisions} decisions on {name} are told"), || {
        events = kube.events(leak, "Evicted").map_or(0, |events| events.len());
        events >= decisions
    })
    .with_context(|| agent.last_words())?;
    ensure!(
        events == decisions,
        "{decisions} decisions on {name}, and {events} Events; {}",
        agent.last_words()
    );
    kube.until_torn_down(leak)?;
    let after = first.as_ref().and_then(|record| record.get("afterMs")).and_then(Value::as_f64);
    let killed = match after {
        Some(after) => format!("killed {after:.0} ms after the crossing"),
        None => "killed by the watchdog".to_owned(),
    };
    runner::note(
        test,
        &format!("{name}: {killed}, {kills} kills, object gone at most {took:.1?} after the kill"),
    )?;
    Ok(Gone { pod: leak.clone(), took, decisions, events, kills })
}

fn count(agent: &mut Agent, is_one: impl Fn(&Value) -> bool) -> usize {
    agent.records().iter().filter(|record| is_one(record)).count()
}

/// How many containers of a pod run.
fn runs(kube: &Kube, pod: &ApiPod) -> Result<usize> {
    let all = kube.containerd.wait(kube.containerd.cri.containers()).context("no containers")?;
    let own = all.iter().filter(|container| {
        container.state == ContainerState::Running
            && container.pod.as_ref().is_some_and(|own| own.uid == pod.uid)
    });
    Ok(own.count())
}

/// A process for each processor that never rests, in no pod. Only the control plane is served first, as it always is here.
struct Busy(Vec<Cgroup>);

impl Busy {
    fn start() -> Result<Self> {
        let mut all = Self(Vec::new());
        for n in 0..PROCESSORS {
            let cgroup = Cgroup::create(&format!("work.slice/busy-{n}.service"))?;
            all.0.push(cgroup.clone());
            Actor::start(&cgroup, &["spin"])?;
        }
        Ok(all)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for cgroup in &self.0 {
            // The next test finds whoever could not be killed.
            let _ = cgroup.kill();
        }
    }
}
