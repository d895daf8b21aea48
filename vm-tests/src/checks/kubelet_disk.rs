//! A pod that fills the disk of a node with a real kubelet: it is evicted before the disk is full, and nobody else.
//!
//! Nothing tells ebb of volumes and logs but the directories in which the kubelet has made them. The test deletes an
//! evicted pod, as whoever reads its condition would; the kubelet then removes what it has written.
use crate::agent::{Agent, Settings, is};
use crate::checks::disk::{LINE, MIB, STAY, WAYS, Watch, evicted};
use crate::checks::kubelet::{containers, idle_pods};
use crate::containerd::{GATE, SOCKET, SOON, Store, open_gate};
use crate::kube::{Kube, PodSpec};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context as _, Result, ensure};

const ROUNDS: usize = 10;

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
    let fields = format!(
        "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nevictionHard:\n  nodefs.available: \"{LINE}\"\n  memory.available: 20Mi\n"
    );
    let settings = Settings {
        thresholds: &fields,
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
            let text = format!("until [ -e {GATE}/{name} ]; do sleep 0.2; done; {script}; {STAY}");
            let command = &["/bin/sh", "-c", &text];
            let pod = kube.run(&PodSpec { name: &name, command, empty_dirs: &["data"] })?;
            let id = kube.container_id(&pod)?.with_context(|| format!("{name} does not run"))?;
            let recovered = count(&mut agent, "pressureRelieved");
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
                count(&mut agent, "pressureRelieved") > recovered
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

fn count(agent: &mut Agent, event: &str) -> usize {
    agent.records().iter().filter(|record| is(record, event)).count()
}
