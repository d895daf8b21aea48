//! ebb connected to a whole control plane, at a soft threshold: a budget is obeyed, and who is evicted instead leaves its Service while it still runs.
use super::kubernetes::{decides_on, is_about, on_a_node};
use crate::agent::{Agent, is};
use crate::init::SELF;
use crate::kube::{ApiPod, Kube, PodSpec};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Grace of a minute below 450 MiB; the hard threshold is out of reach.
const SOFT: &str = "\
evictionHard:
  memory.available: 50Mi
evictionSoft:
  memory.available: 450Mi
evictionSoftGracePeriod:
  memory.available: 1s
evictionMaxPodGracePeriod: 60
";
/// MiB that are left by who is guarded, and by who takes the rest: the first holds more, and ranks first. What the control plane still takes meanwhile fits between these and the thresholds.
const LEFT: [&str; 2] = ["700", "300"];
/// MiB that are available to begin with, at least: else the one who is guarded holds less than the other.
const NEEDED: u64 = 1_200;
/// Neither asks for much time, nor ends when asked to.
const ACTOR: &str = "unmoved";
/// For what a step takes on a loaded host under TCG.
const PATIENCE: Duration = Duration::from_secs(240);
/// What the pod that is served asks for itself, so that it gets all of that. Its endpoints go within a second on a host that is not busy.
const GRACE: u64 = 60;

/// Of two pods the larger has a budget that allows nothing, and stays. The other one leaves its Service's endpoints while its container runs on, and goes when its grace is over.
pub(crate) fn obeys_budgets_and_drains(test: &TestContext) -> Result<Outcome> {
    on_a_node(test, SOFT, |test, kube, agent| {
        let played = play(test, kube, agent);
        kube.remove_service("leak-served")?;
        kube.remove_budget("leak-guarded")?;
        played
    })
}

fn play(test: &TestContext, kube: &Kube, agent: &mut Agent) -> Result<()> {
    let available = node::meminfo("MemAvailable")? >> 20;
    ensure!(available > NEEDED, "only {available} MiB are available to begin with");
    kube.budget_of_one("leak-guarded")?;
    let guarded = holder(kube, "leak-guarded", LEFT[0])?;
    wait::seldom(PATIENCE, "the budget counts its pod", || {
        kube.allowed_by("leak-guarded").is_ok_and(|allowed| allowed == Some((1, 0)))
    })?;
    kube.serve("leak-served")?;
    let served = holder(kube, "leak-served", LEFT[1])?;
    wait::seldom(PATIENCE, "its Service leads to it, or ebb asks to evict it", || {
        kube.endpoints("leak-served").is_ok_and(|pods| pods.contains(&served.uid))
            || agent.records().iter().any(|record| decides_on(record, &served))
    })?;
    wait::seldom(PATIENCE, "the pod that is served is being deleted", || {
        kube.is_being_deleted(&served).unwrap_or_default()
    })
    .with_context(|| agent.last_words())?;
    let began = Instant::now();
    wait::seldom(PATIENCE, "its Service leads to it no more", || {
        kube.endpoints("leak-served").is_ok_and(|pods| !pods.contains(&served.uid))
    })?;
    let drained = began.elapsed();
    let runs = kube.container_id(&served)?;
    ensure!(runs.is_some(), "its container had ended before its Service left it out");
    kube.until_gone(&served, PATIENCE)?;
    let gone = began.elapsed();
    ensure!(
        drained < gone / 2,
        "gone {gone:.1?} after its deletion, which its Service saw after {drained:.1?}"
    );
    agent.wait_for(PATIENCE, "the API server was told", |record| {
        is(record, "evictionTold") && is_about(record, &served)
    })?;
    let events = kube.events(&served, "Evicted")?.len();
    ensure!(events == 1, "{events} Events about one eviction");
    ensure!(kube.container_id(&guarded)?.is_some(), "who has a budget does not run any more");
    ensure!(kube.restarts(&guarded)? == 0, "who has a budget was started again");
    let decided = agent.records().iter().filter(|r| decides_on(r, &guarded)).count();
    ensure!(decided == 0, "it was decided {decided} times to evict who has a budget");
    runner::note(
        test,
        &format!(
            "endpoints gone {drained:.1?} and object {gone:.1?} after the deletion was seen; the larger pod stayed for its budget"
        ),
    )
}

/// A pod that leaves so many MiB to everybody else.
fn holder(kube: &Kube, name: &str, left: &str) -> Result<ApiPod> {
    let command = &[SELF, "act-here", ACTOR, left];
    kube.run(&PodSpec { name, command, grace: Some(GRACE), ..PodSpec::default() })
}
