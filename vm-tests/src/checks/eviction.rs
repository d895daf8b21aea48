//! Pods end through the real containerd: what is left of many, and what a runtime that hangs costs.
use crate::agent::is;
use crate::cgroup::Cgroup;
use crate::containerd::{Daemon, Leftovers, Pod, SOON, Site, Wanted, open_gate};
use crate::observer::{self, Observer};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::fs;
use std::time::{Duration, Instant};

const NO_IMAGES: &str = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
/// The kubelet's lowest priority that is never evicted.
const CRITICAL: i32 = 2_000_000_000;
/// Pods that are there at the same time.
const AT_A_TIME: usize = 5;

/// Pods that are evicted as fast as they can be made: no shim, snapshot, mount, namespace, bundle or cgroup stays, and the one that is protected does.
pub(crate) fn many(test: &TestContext) -> Result<Outcome> {
    let evictions = evictions()?;
    let site = Site::new(true)?;
    let idle = "trap 'exit 0' TERM; while true; do sleep 1; done";
    let (_, stays) =
        site.run(&Wanted { name: "stays", priority: CRITICAL, script: idle, ..Wanted::default() })?;
    let before = Leftovers::count()?;
    // A soft threshold that is always met: whoever may go goes, with a grace period.
    let fields = format!(
        "{NO_IMAGES}evictionHard:\n  memory.available: 20Mi\nevictionSoft:\n  memory.available: 99%\nevictionSoftGracePeriod:\n  memory.available: 100ms\nevictionMaxPodGracePeriod: 3\n"
    );
    let own = "  afterEviction: continue\n  victims: enough\n";
    let mut agent = site.agent(test, &fields, own)?;
    let began = Instant::now();
    let mut made = 0;
    let mut stubborn = 0;
    while made < evictions {
        let mut round: Vec<(String, Pod)> = Vec::new();
        for _ in 0..AT_A_TIME.min(evictions - made) {
            let name = format!("pod-{made}");
            // Every fifth one ignores what it is asked, and is killed when its grace is over.
            let is_stubborn = made % 5 == 4;
            let script =
                if is_stubborn { "trap '' TERM; while true; do sleep 1; done" } else { idle };
            // One that was evicted before its container was started cannot be run to the end, and is evicted all the same.
            if let Ok((pod, _)) = site.run(&Wanted { name: &name, script, ..Wanted::default() }) {
                round.push((name, pod));
            }
            stubborn += usize::from(is_stubborn);
            made += 1;
        }
        wait::seldom(SOON, "the round is evicted and collected", || {
            site.sandboxes().is_ok_and(|left| left.len() == 1)
        })?;
        for (name, pod) in round {
            site.delete(&name)?;
            let cgroup = pod.cgroup();
            // Only an empty cgroup can be removed; the pod's own is the kubelet's to remove, which the test plays.
            wait::until(SOON, "the pod's cgroup is empty", || {
                children(&cgroup) == 0 && fs::remove_dir(&cgroup).is_ok()
            })?;
        }
        // It takes long: whoever ends it early is to have had something of it.
        if made % 50 == 0 {
            runner::note(test, &format!("{made} of {evictions} in {:.0?}", began.elapsed()))?;
        }
    }
    let took = began.elapsed();
    Leftovers::until_back(before, SOON)?;
    ensure!(site.runs(&stays)?, "the critical pod was touched");
    agent.records();
    let records = agent.stop()?;
    let departed = records.iter().filter(|record| is(record, "terminated")).count();
    let text = format!(
        "{made} pods made, {departed} departures, {stubborn} of them stubborn, in {took:.0?}; nothing left: {before:?}"
    );
    runner::note(test, &text)?;
    ensure!(departed >= evictions, "{text}");
    Ok(Outcome::Passed)
}

/// How many: the host says.
fn evictions() -> Result<usize> {
    let text = fs::read_to_string("/payload/evictions").context("nobody said how many")?;
    text.trim().parse().with_context(|| format!("{text:?} evictions"))
}

/// Directories of a cgroup that are not its own files; one that is gone has none.
fn children(cgroup: &std::path::Path) -> usize {
    let Ok(entries) = fs::read_dir(cgroup) else { return 0 };
    entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
}

const HOGS: usize = 4;
/// Hogs that play again for those of which the sampler missed the crossing.
const SPARE: usize = 3;
/// How long the runtime hangs.
const HANGS: Duration = Duration::from_secs(60);

/// The same leak with the runtime at work and with the runtime stopped for a minute: the kill is as soon.
pub(crate) fn hung_runtime(test: &TestContext) -> Result<Outcome> {
    const PERCENT: u64 = 25;
    let site = Site::new(true)?;
    let observer = Observer::start()?;
    let names: Vec<String> = (0..2 * HOGS + SPARE).map(|n| format!("hog-{n}")).collect();
    let mut hogs = Vec::new();
    for name in &names {
        // Seldom: each look is a program that is started, and there are many of them. What is read then waits to be written to somebody who does not read.
        let script = format!(
            "until [ -e /gate/{name} ]; do sleep 1; done; while true; do dd if=/dev/zero bs=64M count=1 | sleep 100000 & sleep 0.3; done"
        );
        let (_, id) = site.run(&Wanted { name, script: &script, ..Wanted::default() })?;
        hogs.push(id);
    }
    let fields = format!("{NO_IMAGES}evictionHard:\n  memory.available: {PERCENT}%\n");
    let mut agent = site.agent(test, &fields, "")?;
    let line = node::meminfo("MemTotal")? / 100 * PERCENT;
    let mut names = names.iter();
    let mut measure = || loop {
        let name = names.next().context("the sampler missed too many crossings")?;
        if let Some(took) = race(&observer, name, line)? {
            return anyhow::Ok(took);
        }
        runner::note(test, &format!("{name} was killed while the sampler had no processor"))?;
    };
    let at_work = (0..HOGS).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    let daemon = Daemon::running().context("no containerd")?;
    daemon.freeze()?;
    let frozen = Instant::now();
    let mut hung = Vec::new();
    let mut outcome = Ok(());
    for n in 0..u32::try_from(HOGS)? {
        // Spread over the whole time: before ebb has noticed, and long after.
        let due = frozen + HANGS * n / u32::try_from(HOGS)?;
        while Instant::now() < due {
            std::thread::sleep(Duration::from_millis(50));
        }
        match measure() {
            Ok(took) => hung.push(took),
            Err(error) => outcome = Err(error),
        }
    }
    while frozen.elapsed() < HANGS {
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.thaw()?;
    outcome?;
    let worst = |list: &[Duration]| list.iter().copied().max().unwrap_or_default();
    let text = format!(
        "from crossing to kill: {at_work:.1?} with the runtime at work, {hung:.1?} while it hangs for {HANGS:?}"
    );
    runner::note(test, &text)?;
    let unplayed = names.len();
    // What is left when it is back goes, too: nobody else stops these sandboxes.
    wait::seldom(SOON, "the sandboxes of the evicted are gone", || {
        site.sandboxes().is_ok_and(|left| left.len() == unplayed)
    })?;
    agent.records();
    agent.stop()?;
    // A kill that waited for the runtime would wait for a deadline of seconds; the host of an emulated guest may hold up one of four for some part of one.
    let best = |list: &[Duration]| list.iter().copied().min().unwrap_or_default();
    let slack = Duration::from_millis(100);
    ensure!(best(&hung) <= best(&at_work) + slack, "{text}");
    ensure!(worst(&hung) <= worst(&at_work) + 10 * slack, "{text}");
    Ok(Outcome::Passed)
}

/// Let one hog go; from the moment the memory is short to the kernel's SIGKILL for it. `None` when nobody was looking at the memory then.
fn race(observer: &Observer, name: &str, line: u64) -> Result<Option<Duration>> {
    wait::until(SOON, "the memory is back", || {
        node::meminfo("MemAvailable").is_ok_and(|now| now > line + (128 << 20))
    })?;
    let members = Cgroup::at(&format!("kubepods/burstable/poduid-{name}")).processes()?;
    observer.begin()?;
    let began = observer::now()?;
    open_gate(name)?;
    let deadline = Instant::now() + SOON;
    let killed = loop {
        ensure!(Instant::now() < deadline, "nobody killed {name}");
        let Some(kill) = observer.next_kill(Duration::from_millis(100)) else { continue };
        if kill.signal == Signal::SIGKILL as i32 && members.contains(&kill.victim) {
            break kill.at;
        }
    };
    wait::until(SOON, "a sample after the kill", || observer.has_sampled_after(killed))?;
    let samples = observer.take_samples()?;
    let crossed = observer::crossed_before(&samples, line, began, killed);
    if crossed.is_none() && !observer::is_watched(&samples, killed) {
        return Ok(None);
    }
    let crossed =
        crossed.with_context(|| format!("{name} was killed before the line was crossed"))?;
    Ok(Some(Duration::from_nanos(killed - crossed)))
}
