//! A pod that fills the disk of a node with a real kubelet: it is evicted before the disk is full, and nobody else.
//!
//! Nothing tells ebb of volumes and logs but the directories in which the kubelet has made them. Without an API server
//! the test deletes an evicted pod, as whoever reads its condition would, and with one ebb does; the kubelet then removes
//! what it has written.
use crate::agent::{Agent, Settings, is, since};
use crate::checks::disk::{LINE, MIB, STAY, WAYS, Watch, Way, evicted};
use crate::checks::kubelet::{containers, idle_pods};
use crate::checks::kubernetes::{condition_and_taint_of, evicts, is_about, on_a_node};
use crate::containerd::{GATE, SOCKET, SOON, Store, open_gate};
use crate::kube::{ApiPod, Kube, PodSpec};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

const ROUNDS: usize = 10;

/// No image is removed: what a writer leaves is all that there is to get back.
fn thresholds() -> String {
    format!(
        "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nevictionHard:\n  nodefs.available: \"{LINE}\"\n  memory.available: 20Mi\n"
    )
}

/// A pod that writes by `script` once its gate is open.
fn run_writer(kube: &Kube, name: &str, script: &str) -> Result<ApiPod> {
    let text = format!("until [ -e {GATE}/{name} ]; do sleep 0.2; done; {script}; {STAY}");
    kube.run(&PodSpec {
        name,
        command: &["/bin/sh", "-c", &text],
        empty_dirs: &["data"],
        ..PodSpec::default()
    })
}

/// Ten rounds of each way to fill it.
pub(crate) fn filled(test: &TestContext) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let played = play(test, &kube);
    // Also of a run that failed, which is when they are wanted.
    kube.keep_logs(test)?;
    kube.delete_all_pods()?;
    Store::drop_ballast()?;
    played.map(|()| Outcome::Passed)
}

fn play(test: &TestContext, kube: &Kube) -> Result<()> {
    Store::drop_ballast()?;
    let idle = idle_pods(kube)?;
    let before = containers(kube, &idle)?;
    let settings = Settings {
        thresholds: &thresholds(),
        arguments: &["--enforce", "--cri", SOCKET, "--node-fs", "/var/lib/kubelet"],
        own: "  mode: kubernetes\n  memoryAvailable: memAvailable\n",
        ..Settings::default()
    };
    let mut agent = Agent::start(test, &settings)?;
    agent.wait_for(SOON, "the inventory is known", |record| is(record, "inventory"))?;
    let mut names = Vec::new();
    for (number, (way, script, above)) in WAYS.iter().enumerate() {
        Store::drop_ballast()?;
        Store::leave(LINE + above)?;
        let mut took = Vec::new();
        let mut least = u64::MAX;
        for round in 0..ROUNDS {
            let name = format!("w-{number}-{round}");
            let pod = run_writer(kube, &name, script)?;
            let id = kube.container_id(&pod)?.with_context(|| format!("{name} does not run"))?;
            let recovered = agent.count("pressureRelieved");
            let watch = Watch::start();
            open_gate(&name)?;
            let ended = wait::seldom(SOON, &format!("{name} has ended ({way})"), || {
                let status = kube.containerd.wait(kube.containerd.cri.container(&id));
                status.is_ok_and(|status| status.state != ebb_cri::ContainerState::Running)
            });
            let seen = watch.stop();
            ended?;
            took.push(seen.below);
            least = least.min(seen.least);
            ensure!(seen.least > 0, "{way}: the disk was full");
            kube.delete(&name)?;
            wait::seldom(SOON, "the pressure is over", || {
                agent.count("pressureRelieved") > recovered
            })?;
            names.push(format!("default/{name}"));
            let chosen = evicted(agent.records());
            ensure!(chosen == names, "{way}: evicted {chosen:?}, expected {names:?}");
        }
        let text = format!(
            "{way}: from the crossing to the end of the container {took:.1?}, at least {} MiB left",
            least / MIB
        );
        runner::note(test, &text)?;
    }
    ensure!(containers(kube, &idle)? == before, "an idle pod was started again");
    agent.stop().map(drop)
}

/// For what a step takes on a loaded host under TCG.
const PATIENCE: Duration = Duration::from_secs(240);

/// Connected to the API server, each way once: who fills the disk goes before it is full, its object too, it is told once, and the Node says so as long as it is short.
pub(crate) fn told(test: &TestContext) -> Result<Outcome> {
    // Until somebody who is held up has looked for the condition.
    let fields = thresholds() + "evictionPressureTransitionPeriod: 60s\n";
    let played = on_a_node(test, &fields, |test, kube, agent| {
        for (number, way) in WAYS.iter().enumerate() {
            Store::drop_ballast()?;
            one_way(test, kube, agent, &format!("leak-{number}"), way)?;
        }
        Ok(())
    });
    Store::drop_ballast()?;
    played
}

fn one_way(
    test: &TestContext,
    kube: &Kube,
    agent: &mut Agent,
    name: &str,
    (way, script, above): &Way,
) -> Result<()> {
    let says = |node| condition_and_taint_of(&node, "EbbDiskPressure", "ebb.dev/disk-pressure");
    Store::leave(LINE + above)?;
    let pod = run_writer(kube, name, script)?;
    let relieved = agent.count("pressureRelieved");
    let watch = Watch::start();
    open_gate(name)?;
    let evicted = wait::seldom_some(PATIENCE, &format!("{name} is evicted ({way})"), || {
        agent.records().iter().find(|record| evicts(record, &pod)).cloned()
    });
    let gone = evicted.and_then(|evicted| {
        wait::seldom(PATIENCE, "the Node is short of disk", || {
            kube.node().is_ok_and(|node| says(node) == (Some(true), true))
        })?;
        kube.until_gone(&pod, PATIENCE)?;
        since(&evicted)
    });
    let gone = gone.with_context(|| agent.last_words());
    let seen = watch.stop();
    let gone = gone?;
    ensure!(seen.least > 0, "{way}: the disk was full");
    agent.wait_for(PATIENCE, &format!("the API server was told of {name}"), |record| {
        is(record, "evictionTold") && is_about(record, &pod)
    })?;
    let events = kube.events(&pod, "Evicted")?;
    ensure!(events.len() == 1, "{} Events about {name}: {events:?}", events.len());
    wait::seldom(PATIENCE, "its kubelet has removed what it wrote", || {
        agent.count("pressureRelieved") > relieved
    })?;
    wait::seldom(PATIENCE, "the Node says that it is no longer short of disk", || {
        kube.node().is_ok_and(|node| says(node) == (Some(false), false))
    })?;
    let left = seen.least / MIB;
    runner::note(
        test,
        &format!(
            "{way}: at least {left} MiB left, the object gone at most {gone:.1?} after the eviction"
        ),
    )
}
