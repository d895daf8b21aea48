//! What is dead or unused goes, on the real containerd: how soon, how much, and what happens when either side dies in the middle.
use crate::agent::is;
use crate::containerd::{Daemon, Pod, SOON, Site, Store, Wanted, ctr, version};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context, Result, ensure};
use ebb_cri::launch::ContainerSpec;
use ebb_cri::{RuntimeEvent, What};
use ebb_vm_protocol::figures::percentile;
use ebb_vm_protocol::images::{APP, PAUSE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const EXITS: usize = 100;
/// The listing and the collection that come anyway come once in this time.
const BEAT: Duration = Duration::from_secs(60);
/// Images stay whatever happens: the store of these tests is small.
const NO_IMAGES: &str = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
const KEEP_NONE: &str = "maximumDeadContainersPerContainer: 0\n";
const FOR_EVER: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";

/// A hundred exits, from the kernel's end of a container to the end of its removal; which part of it is the runtime's is told.
pub(crate) fn within_a_second(test: &TestContext) -> Result<Outcome> {
    let took = exits(test, EXITS)?;
    let mut parts = Vec::new();
    for (what, of) in PARTS {
        let times = sorted(&took, of);
        let rank = |percent| percentile(&times, percent).context("nothing was removed");
        let (p50, p99, worst) = (rank(50)?, rank(99)?, rank(100)?);
        parts.push(p99);
        runner::note(test, &format!("{what}: {p50:.1?} p50, {p99:.1?} p99, {worst:.1?} at worst"))?;
    }
    let p99 = parts.first().context("nothing was measured")?;
    ensure!(*p99 < Duration::from_secs(1), "removed after {p99:.1?} p99");
    Ok(Outcome::Passed)
}

/// A few of the same, for a machine of which nothing can be said: none waits for the beat. Where one does, the next one waits for nearly all of it.
pub(crate) fn before_the_beat(test: &TestContext) -> Result<Outcome> {
    let took = exits(test, 5)?;
    let [worst, of_ebb] = [PARTS[0], PARTS[2]].map(|(_, of)| took.iter().map(of).max());
    let (worst, of_ebb) = worst.zip(of_ebb).context("nothing was removed")?;
    let text = format!(
        "removed after {worst:.0?} at worst, {of_ebb:.0?} of it from when containerd had cleared away"
    );
    runner::note(test, &text)?;
    ensure!(of_ebb < BEAT / 2, "{text}");
    Ok(Outcome::Passed)
}

/// The hundred for `cargo xtask bench`.
pub(crate) fn measure(test: &TestContext) -> Result<Outcome> {
    let took = exits(test, EXITS)?;
    let line = |exit: &Exit| format!("{} {}\n", exit.removed.as_micros(), exit.cleared.as_micros());
    let lines: String = took.iter().map(line).collect();
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("times"), lines).context("cannot leave the times")?;
    fs::write(dir.join("containerd"), version()?).context("cannot leave the version")?;
    Ok(Outcome::Passed)
}

/// What came of one container, from its end on.
#[derive(Debug)]
struct Exit {
    /// Until containerd said that it had deleted the task: before that it lists no end.
    cleared: Duration,
    /// Until ebb said that the container is removed.
    removed: Duration,
}

type Part = fn(&Exit) -> Duration;

const PARTS: [(&str, Part); 3] = [
    ("removed", |exit| exit.removed),
    ("of which containerd clears away", |exit| exit.cleared),
    ("from there on", |exit| exit.removed.saturating_sub(exit.cleared)),
];

fn sorted(took: &[Exit], of: Part) -> Vec<Duration> {
    let mut times: Vec<Duration> = took.iter().map(of).collect();
    times.sort_unstable();
    times
}

/// So many ends and removals, one after the other.
fn exits(test: &TestContext, exits: usize) -> Result<Vec<Exit>> {
    let mut site = Site::new(true)?;
    let (pod, first) = site.run(&Wanted { name: "web", script: FOR_EVER, ..Wanted::default() })?;
    let mut agent = site.agent(test, &format!("{NO_IMAGES}{KEEP_NONE}"), "")?;
    let mut took = Vec::with_capacity(exits);
    let mut refused = 0;
    for round in 0..exits {
        let id = site.containerd.busybox(&pod, APP, "brief", &["sleep", "100000"])?;
        let status = site.containerd.wait(site.containerd.cri.container(&id))?;
        let pid = i32::try_from(status.pid.context("the runtime tells no pid")?)?;
        let before = agent.records().len();
        let (ended, ended_at) = (Instant::now(), SystemTime::now());
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("cannot end a container")?;
        agent.wait_for(SOON, "the container is removed", |r| concerns(r, "removed", &id))?;
        let removed = ended.elapsed();
        let cleared_at =
            site.containerd.event(SOON, "its task is deleted", |event| match event {
                RuntimeEvent::Change(change) if change.id == id && change.what == What::Cleared => {
                    change.at
                }
                _ => None,
            })?;
        let cleared = cleared_at.duration_since(ended_at).unwrap_or_default();
        took.push(Exit { cleared, removed });
        refused += agent.records().iter().skip(before).filter(|r| is(r, "notRemoved")).count();
        ensure!(!site.containers()?.contains(&id), "it is still there in round {round}");
        // It takes long: whoever ends it early is to have had something of it.
        if (round + 1) % 10 == 0 {
            let worst = took.iter().map(|exit| exit.removed).max().unwrap_or_default();
            runner::note(test, &format!("{} of {exits}, at worst {worst:.1?}", round + 1))?;
        }
    }
    runner::note(test, &format!("{exits} exits, {refused} times refused first"))?;
    ensure!(site.runs(&first)?, "the one that runs was touched");
    agent.stop()?;
    Ok(took)
}

/// From above the high threshold to below the low one; who is in use, pinned, young or of sandboxes stays.
pub(crate) fn images_by_thresholds(test: &TestContext) -> Result<Outcome> {
    const HIGH: u64 = 80;
    const LOW: u64 = 68;
    /// Long enough to import images and fill the disk, and waited for once.
    const MINIMUM_AGE: Duration = Duration::from_mins(1);
    let site = Site::new(true)?;
    let (pod, _) = site.run(&Wanted { name: "web", script: FOR_EVER, ..Wanted::default() })?;
    // Its program is not in the image, so it never runs: made is enough to use an image.
    let cri = &site.containerd.cri;
    let using = ContainerSpec {
        name: "using".to_owned(),
        image: "ebb.test/gc-1:1".to_owned(),
        command: vec!["/nothing".to_owned()],
        ..ContainerSpec::default()
    };
    site.containerd.wait(cri.create_container(&pod.sandbox, &pod.spec, &using))?;
    let young = "ebb.test/gc-6:1";
    site.containerd.wait(cri.remove_image(&site.containerd.image_id(young)?))?;
    // With a threshold of its own, that is never reached, the disk is read more than once a minute.
    let fields = format!(
        "imageGCHighThresholdPercent: {HIGH}\nimageGCLowThresholdPercent: {LOW}\nimageMinimumGCAge: {}s\nevictionHard:\n  memory.available: 50Mi\n  imagefs.available: 1Mi\n",
        MINIMUM_AGE.as_secs()
    );
    let own = "  imageGCPeriod: 1s\n  imageOrder: leastToPullAgain\n";
    let mut agent = site.agent(test, &fields, own)?;
    // What is there at the first look was first seen then. Only what is imported after this is young.
    let looked = Instant::now();
    let old_enough = MINIMUM_AGE + Duration::from_secs(5);
    wait::seldom(old_enough * 2, "the images are old enough", || looked.elapsed() > old_enough)?;
    site.containerd.import_images()?;
    // Before 1.7 nothing can be pinned; from 2.0 on an import takes pins away.
    let can_pin = version()? != "1.6";
    if can_pin {
        let words = ["images", "label", "ebb.test/gc-2:1", "io.cri-containerd.pinned=pinned"];
        ctr(&words)?;
        let is_pinned = || {
            let image = site.containerd.wait(cri.image("ebb.test/gc-2:1"));
            image.is_ok_and(|image| image.is_some_and(|image| image.pinned))
        };
        wait::seldom(SOON, "an image is pinned", is_pinned)?;
    }
    Store::fill(HIGH + 1)?;
    let full = Store::percent()?;
    let done = agent.wait_for(SOON, "images are collected", |record| {
        is(record, "collected") && record.get("measured").is_some_and(Value::is_i64)
    })?;
    let number = |key: &str| done.get(key).and_then(Value::as_u64).context("a record's number");
    let (expected, measured) = (number("expected")?, number("measured")?);
    let left = Store::percent()?;
    let off = expected.abs_diff(measured) * 1000 / measured.max(1);
    let text = format!(
        "{full} % full before, {left} % after; {expected} bytes predicted, {measured} measured: {}.{} % off",
        off / 10,
        off % 10
    );
    runner::note(test, &text)?;
    ensure!(full >= HIGH && left <= LOW, "{text}");
    ensure!(off <= 50, "{text}");
    let pinned = can_pin.then_some("ebb.test/gc-2:1");
    for name in [PAUSE, APP, "ebb.test/gc-1:1", young].into_iter().chain(pinned) {
        site.containerd.image_id(name).with_context(|| format!("{name} did not stay"))?;
    }
    agent.stop()?;
    Store::drop_ballast()?;
    // The next test finds all of them again.
    if can_pin {
        ctr(&["images", "label", "ebb.test/gc-2:1", "io.cri-containerd.pinned="])?;
    }
    site.containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// Dead containers that are removed while somebody dies.
const DEAD: u32 = 8;
/// How often that is played, until some were left: a test that gets no processor for so long kills somebody who has removed all of them.
const PLAYS: usize = 4;

/// SIGKILL for the runtime while it is removing, then for ebb: each time the rest goes, once, and nothing else.
pub(crate) fn either_dies(test: &TestContext) -> Result<Outcome> {
    let site = Site::new(true)?;
    let (pod, runs) = site.run(&Wanted { name: "web", script: FOR_EVER, ..Wanted::default() })?;
    let images = site.containerd.wait(site.containerd.cri.images())?.len();
    for dying in ["containerd", "ebb"] {
        let mut plays = 0;
        loop {
            let left = dies_while_removing(test, &site, &pod, dying)?;
            ensure!(site.runs(&runs)?, "the one that runs ended with {dying}");
            runner::note(test, &format!("{dying} died with {left} of {DEAD} left"))?;
            plays += 1;
            if left > 0 {
                break;
            }
            ensure!(plays < PLAYS, "{dying} did not die in the middle in {PLAYS} plays");
        }
    }
    let now = site.containerd.wait(site.containerd.cri.images())?.len();
    ensure!(now == images, "{images} images before, {now} after");
    Ok(Outcome::Passed)
}

/// One play of it; returns how many were left when somebody died.
fn dies_while_removing(test: &TestContext, site: &Site, pod: &Pod, dying: &str) -> Result<usize> {
    let fields = format!("{NO_IMAGES}{KEEP_NONE}");
    let dead = (0..DEAD).map(|n| brief(site, pod, n)).collect::<Result<Vec<_>>>()?;
    dead.iter().try_for_each(|id| site.until_ended(id))?;
    let mut agent = site.agent_at_once(test, &fields, "")?;
    agent.wait_for(SOON, "the first is removed", |record| is(record, "removed"))?;
    let left = if dying == "containerd" {
        Daemon::running().context("no containerd")?.kill()?;
        let removed = agent.records().iter().filter(|record| is(record, "removed")).count();
        Daemon::start()?;
        dead.len() - removed
    } else {
        agent.kill()?;
        let left = site.containers()?.len() - 1;
        agent = site.agent_at_once(test, &fields, "")?;
        left
    };
    for id in &dead {
        site.until_removed(id, SOON).with_context(|| format!("after {dying} had died"))?;
    }
    let records = agent.stop()?;
    for id in &dead {
        let times = records.iter().filter(|record| concerns(record, "removed", id)).count();
        ensure!(times <= 1, "{id} was removed {times} times after {dying} had died");
    }
    let others = records.iter().filter(|record| is(record, "removed"));
    let others = others.filter(|record| !dead.iter().any(|id| concerns(record, "removed", id)));
    ensure!(others.count() == 0, "more than the dead was removed after {dying} had died");
    Ok(left)
}

/// Of each container at most one more than the configured number is there, running or dead; when its pod is deleted, none.
pub(crate) fn copies(test: &TestContext) -> Result<Outcome> {
    const MOST: usize = 2;
    const RESTARTS: u32 = 4;
    let site = Site::new(true)?;
    let fields = format!("{NO_IMAGES}maximumDeadContainersPerContainer: {MOST}\n");
    let agent = site.agent(test, &fields, "")?;
    let mut pods = Vec::new();
    for name in ["one", "two"] {
        let (pod, _) = site.run(&Wanted { name, script: "exit 0", ..Wanted::default() })?;
        pods.push(pod);
    }
    for restart in 0..RESTARTS {
        for pod in &pods {
            ended(&site, pod, restart)?;
        }
    }
    let copies = || -> Result<Vec<usize>> {
        let all = site.containerd.wait(site.containerd.cri.containers())?;
        let of = |pod: &Pod, name: &str| {
            all.iter().filter(|c| c.sandbox == pod.sandbox && c.name == name).count()
        };
        let each = |pod| [of(pod, "main"), of(pod, "brief")];
        Ok(pods.iter().flat_map(each).collect())
    };
    let expected = [1, MOST, 1, MOST];
    wait::seldom(SOON, "no more copies than allowed are left", || {
        copies().is_ok_and(|now| now == expected)
    })?;
    for (pod, name) in pods.iter().zip(["one", "two"]) {
        site.containerd.wait(site.containerd.cri.stop_sandbox(&pod.sandbox))?;
        site.delete(name)?;
    }
    wait::seldom(SOON, "nothing of the deleted pods is left", || {
        site.sandboxes().is_ok_and(|left| left.is_empty())
            && site.containers().is_ok_and(|left| left.is_empty())
    })?;
    let dirs = pods.iter().map(|pod| pod.spec.log_directory.as_str());
    wait::until(SOON, "their logs are gone", || dirs.clone().all(|dir| !Path::new(dir).exists()))?;
    agent.stop()?;
    Ok(Outcome::Passed)
}

/// An unused image goes when it is older than the maximum, and not before ebb itself has been up for so long.
pub(crate) fn images_by_age(test: &TestContext) -> Result<Outcome> {
    const MOST: Duration = Duration::from_secs(15);
    let site = Site::new(true)?;
    let (_, runs) = site.run(&Wanted { name: "web", script: FOR_EVER, ..Wanted::default() })?;
    let fields = format!("{NO_IMAGES}imageMinimumGCAge: 1s\nimageMaximumGCAge: 15s\n");
    let own = "  imageGCPeriod: 1s\n";
    let old = "ebb.test/gc-3:1";
    let there = |name: &str| site.containerd.image_id(name).is_ok();
    // What one agent has seen of an image's age does not make the next one hasty.
    site.agent(test, &fields, own)?.stop()?;
    let began = Instant::now();
    let agent = site.agent(test, &fields, own)?;
    wait::seldom(SOON, "the old image is gone", || !there(old))?;
    let after = began.elapsed();
    runner::note(test, &format!("gone {after:.1?} after the start, allowed from {MOST:?} on"))?;
    ensure!(after > MOST, "it was gone {after:?} after the start");
    agent.stop()?;
    ensure!(there(APP) && there(PAUSE) && site.runs(&runs)?, "what is in use went too");
    site.containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// A container that has ended, the `attempt`th of its name in its pod.
fn ended(site: &Site, pod: &Pod, attempt: u32) -> Result<String> {
    let id = brief(site, pod, attempt)?;
    site.until_ended(&id)?;
    Ok(id)
}

/// A container that ends at once.
fn brief(site: &Site, pod: &Pod, attempt: u32) -> Result<String> {
    let container = ContainerSpec {
        name: "brief".to_owned(),
        attempt,
        image: APP.to_owned(),
        command: vec!["/bin/true".to_owned()],
        log_path: format!("brief/{attempt}.log"),
        ..ContainerSpec::default()
    };
    site.containerd.container(pod, &container)
}

/// Whether a record tells this of that container.
fn concerns(record: &Value, event: &str, id: &str) -> bool {
    let work = record.get("work").and_then(|work| work.get("id")).and_then(Value::as_str);
    is(record, event) && work == Some(id)
}
