//! ebb's BPF programs on this kernel: which ones attach, and whether what they say is true.
use crate::actors::Actor;
use crate::cgroup::Cgroup;
use crate::privileges::{self, CAP_BPF, CAP_PERFMON};
use crate::probing::Probing;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use anyhow::{Context, Result, ensure};
use ebb_probes::{ExitStatus, Fact, KernelEvent, Options, ProbeState, Tier};
use std::collections::HashSet;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
/// 10,000 forks take 25 s under TCG alone.
const COLLECTING: Duration = Duration::from_secs(200);

/// Exactly the programs that `matrix.toml` declares attach, and the kernel refuses none of those that it offers.
pub(crate) fn run_here(test: &TestContext) -> Result<Outcome> {
    attach_as_declared(test)
}

/// The same with two capabilities and nothing else.
pub(crate) fn run_with_two_capabilities(test: &TestContext) -> Result<Outcome> {
    privileges::keep_only(&[CAP_BPF, CAP_PERFMON])?;
    attach_as_declared(test)
}

fn attach_as_declared(test: &TestContext) -> Result<Outcome> {
    let probing = Probing::start(&Options::default())?;
    let attached = probing.attached();
    runner::note(test, &format!("attached: {}", attached.join(" ")))?;
    for probe in probing.status() {
        if let ProbeState::Refused(why) = &probe.state {
            anyhow::bail!("the kernel refuses {}: {why}", probe.name);
        }
    }
    let declared = fs::read_to_string("/payload/programs").context("nothing is declared")?;
    let mut declared: Vec<&str> = declared.lines().collect();
    declared.sort_unstable();
    let lack: Vec<_> = declared.iter().filter(|name| !attached.contains(name)).collect();
    ensure!(lack.is_empty(), "declared but not attached: {lack:?}");
    let more: Vec<_> = attached.iter().filter(|name| !declared.contains(name)).collect();
    ensure!(more.is_empty(), "attached but not declared: {more:?}");
    Ok(Outcome::Passed)
}

/// 10,000 short processes: each exit arrives once, or is counted as lost.
pub(crate) fn every_exit(test: &TestContext) -> Result<Outcome> {
    let mut probing = Probing::start(&Options::default())?;
    let (delivered, lost) = storm(&mut probing, 10_000)?;
    runner::note(test, &format!("{delivered} delivered, {lost} lost"))?;
    Ok(Outcome::Passed)
}

/// A ring of one page overflows, and every record that found no room is counted.
pub(crate) fn small_ring(test: &TestContext) -> Result<Outcome> {
    let mut probing = Probing::start(&Options { vital_bytes: 4096, ..Options::default() })?;
    let cgroup = Cgroup::create("work.slice/storm")?;
    // Nobody reads while it rages.
    Actor::start(&cgroup, &["exits", "1000", "16"])?.wait()?;
    let lost = probing.lost()?.exits;
    ensure!(lost > 0, "1000 records fit into one page");
    let id = cgroup.id()?;
    let mut kept = 0;
    let read = probing.until(SOON, "what was kept is read", |new, lost| {
        kept += exits_in(new, id);
        kept + lost.exits >= 1001
    });
    read.with_context(|| format!("{kept} delivered, {lost} lost, of 1001"))?;
    runner::note(test, &format!("{lost} of 1001 lost and counted"))?;
    Ok(Outcome::Passed)
}

fn storm(probing: &mut Probing, count: u64) -> Result<(u64, u64)> {
    let cgroup = Cgroup::create("work.slice/storm")?;
    let id = cgroup.id()?;
    let mut actor = Actor::start(&cgroup, &["exits", &count.to_string(), "16"])?;
    // And the actor's own.
    let all = count + 1;
    let mut seen = 0;
    let collected = probing.until(COLLECTING, "all exits are accounted for", |new, lost| {
        seen += exits_in(new, id);
        seen + lost.exits >= all
    });
    if let Err(error) = collected {
        let exits = probing.events.iter().filter(|e| matches!(e, KernelEvent::Exit { .. }));
        let elsewhere = exits.count() as u64 - seen;
        let lost = probing.lost()?;
        let alive = actor.is_alive()?;
        let skipped = recursion_misses();
        anyhow::bail!(
            "{error}: {seen} of {all} delivered, {elsewhere} from elsewhere, {lost:?}, \
             alive {alive}, runs that the kernel skipped {skipped}"
        );
    }
    ensure!(actor.wait()?.success(), "the actor failed");
    let lost = probing.lost()?.exits;
    let delivered = exits_in(&probing.events, id);
    ensure!(delivered == seen, "{} of {seen} exits were delivered twice", seen - delivered);
    ensure!(delivered <= all, "{delivered} exits of {all} processes");
    ensure!(lost > 0 || delivered == all, "{delivered} of {all} exits, and none is counted lost");
    let statuses = probing.events.iter().filter_map(|event| match event {
        KernelEvent::Exit { cgroup, status: Some(status), .. } if *cgroup == id => Some(*status),
        _ => None,
    });
    let odd = statuses.filter(|s| !matches!(s, ExitStatus::Code(0 | 7))).count();
    ensure!(odd == 0, "{odd} exits with another status than the process gave");
    Ok((delivered, lost))
}

/// Runs of our programs that the kernel left out because the program was already running on that processor.
fn recursion_misses() -> u64 {
    let Ok(infos) = fs::read_dir("/proc/self/fdinfo") else { return 0 };
    let texts = infos.filter_map(|info| fs::read_to_string(info.ok()?.path()).ok());
    let misses = texts.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
        line.trim().parse::<u64>().ok()
    });
    misses.sum()
}

/// Different processes whose exits are among the events.
fn exits_in(events: &[KernelEvent], id: u64) -> u64 {
    let exits = events.iter().filter_map(|event| match event {
        KernelEvent::Exit { cgroup, pid, started_ns, .. } if *cgroup == id => {
            Some((*pid, *started_ns))
        }
        _ => None,
    });
    exits.collect::<HashSet<_>>().len() as u64
}

/// Locked down for confidentiality: everything that reads no kernel memory is alive.
pub(crate) fn survive_lockdown(test: &TestContext) -> Result<Outcome> {
    let state = fs::read_to_string("/sys/kernel/security/lockdown").context("no lockdown")?;
    ensure!(state.contains("[confidentiality]"), "the kernel is not locked down: {state}");
    let mut probing = Probing::start(&Options::default())?;
    runner::note(test, &format!("attached: {}", probing.attached().join(" ")))?;
    let facts = [
        Fact::Forks,
        Fact::Execs,
        Fact::MemoryStall,
        Fact::DirectReclaim,
        Fact::KswapdWakes,
        Fact::Refaults,
    ];
    for fact in facts {
        let told = probing.status().iter().any(|probe| {
            probe.feeds == fact && probe.tier == Tier::Rust && probe.state == ProbeState::Attached
        });
        ensure!(told, "nothing of the Rust tier tells {fact:?}");
    }
    let (delivered, lost) = storm(&mut probing, 100)?;
    runner::note(test, &format!("{delivered} exits delivered, {lost} lost"))?;
    Ok(Outcome::Passed)
}
