//! Who is to blame: what the BPF programs say about OOM kills, and their counters against the kernel's own files.
use crate::actors::Actor;
use crate::agent::{Agent, Settings, is, is_by_watchdog};
use crate::cgroup::Cgroup;
use crate::probing::Probing;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Workload;
use anyhow::{Context, Result, ensure};
use ebb_probes::{KernelEvent, OomLimit, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// How long a leak may take that fights with a reader for every page, with another guest on the same two processors: alone it takes 15 s.
const THRASHING: Duration = Duration::from_secs(240);
/// Bytes a second below which growth causes nothing.
const LEAST_GROWTH: i64 = 1 << 20;

/// The limit belongs to the parent, the victim to a child, and it is not the first process there.
pub(crate) fn limited_oom(_: &TestContext) -> Result<Outcome> {
    let mut probing = Probing::start(&Options::default())?;
    let parent = Cgroup::create("work.slice/limited")?;
    parent.write("memory.max", &(48 << 20).to_string())?;
    let child = Cgroup::create("work.slice/limited/app")?;
    let mut first = Actor::start(&child, &["idle", "4"])?;
    let mut hog = Actor::start(&child, &["hog", "0"])?;
    let (pid, victim, limit) = oom_kill(&mut probing)?;
    ensure!(pid == hog.pid()?, "{pid} is not the hog");
    ensure!(victim == child.id()?, "the victim's cgroup is not its own");
    ensure!(limit == OomLimit::Cgroup(parent.id()?), "blamed: {limit:?}");
    hog.wait()?;
    ensure!(first.is_alive()?, "the first process died");
    Ok(Outcome::Passed)
}

/// Without any limit it is the node that is out of memory.
pub(crate) fn global_oom(_: &TestContext) -> Result<Outcome> {
    let mut probing = Probing::start(&Options::default())?;
    let cgroup = Cgroup::create("work.slice/unlimited")?;
    let mut hog = Actor::start(&cgroup, &["hog", "0"])?;
    let (pid, victim, limit) = oom_kill(&mut probing)?;
    ensure!(pid == hog.pid()?, "{pid} is not the hog");
    ensure!(victim == cgroup.id()?, "the victim's cgroup is not its own");
    ensure!(limit == OomLimit::Node, "blamed: {limit:?}");
    hog.wait()?;
    Ok(Outcome::Passed)
}

fn oom_kill(probing: &mut Probing) -> Result<(Pid, u64, OomLimit)> {
    probing.find(SOON, "an OOM kill is reported", |event| match event {
        KernelEvent::OomKill { pid, victim_cgroup, limit, .. } => {
            Some((Pid::from_raw(i32::try_from(*pid).ok()?), *victim_cgroup, *limit))
        }
        _ => None,
    })
}

/// Forks against /proc/stat: a file read before and after bounds what the programs may have counted.
pub(crate) fn fork_counter(test: &TestContext) -> Result<Outcome> {
    let before = forks_of_node()?;
    let mut probing = Probing::start(&Options::default())?;
    let attached = forks_of_node()?;
    let cgroup = Cgroup::create("work.slice/forks")?;
    Actor::start(&cgroup, &["exits", "500", "4"])?.wait()?;
    let low = forks_of_node()? - attached;
    let totals = probing.totals()?;
    let high = forks_of_node()? - before;
    let counted: u64 = totals.cgroups.values().filter_map(|cgroup| cgroup.forks).sum();
    runner::note(test, &format!("{low} <= {counted} <= {high}"))?;
    ensure!((low..=high).contains(&counted), "{counted} forks, but {low} to {high} by the file");
    let own = totals.cgroups.get(&cgroup.id()?).and_then(|cgroup| cgroup.forks);
    ensure!(own == Some(500), "{own:?} forks in a cgroup that made 500");
    probing.events.clear();
    Ok(Outcome::Passed)
}

/// Refaults and memory stall of one thrashing cgroup against its memory.stat and memory.pressure.
pub(crate) fn thrash_counters(test: &TestContext) -> Result<Outcome> {
    let cgroup = Cgroup::create("work.slice/thrash")?;
    cgroup.write("memory.max", &(24 << 20).to_string())?;
    let actor = Actor::start(&cgroup, &["cacher", "48"])?;
    let before = Files::read(&cgroup)?;
    let mut probing = Probing::start(&Options::default())?;
    let attached = Files::read(&cgroup)?;
    crate::wait::until(SOON, "it thrashes", || {
        Files::read(&cgroup).is_ok_and(|now| now.refaults > attached.refaults + 10_000)
    })?;
    kill(actor.pid()?, Signal::SIGSTOP).context("cannot stop the thrasher")?;
    let low = Files::read(&cgroup)?;
    let totals = probing.totals()?;
    let high = Files::read(&cgroup)?;
    let own = totals.cgroups.get(&cgroup.id()?).context("the thrasher was not counted")?;
    let refaults = own.refaults.context("refaults are not counted")?;
    let stall = own.stall_ns.context("memory stall is not counted")? / 1000;
    let reclaims = own.memcg_reclaims;
    runner::note(
        test,
        &format!(
            "refaults {refaults} in {}..{}, stall {stall} us in {}..{}, memcg reclaims {reclaims:?}",
            low.refaults - attached.refaults,
            high.refaults - before.refaults,
            low.stall - attached.stall,
            high.stall - before.stall
        ),
    )?;
    // The files are flushed lazily: a few pages per CPU may be missing from either reading.
    let slack = 512;
    // The hook sees folios, the file counts pages: where the page cache uses large folios (6.16), fewer are seen.
    ensure!(refaults > 0, "a thrashing cgroup without refaults");
    ensure!(refaults <= high.refaults - before.refaults + slack, "too many refaults: {refaults}");
    ensure!(stall * 2 >= low.stall - attached.stall, "too little stall: {stall} us");
    ensure!(stall <= (high.stall - before.stall) * 2, "too much stall: {stall} us");
    ensure!(reclaims.is_none_or(|count| count > 0), "a thrashing cgroup without reclaim");
    probing.events.clear();
    Ok(Outcome::Passed)
}

/// A leak takes away what a reader has mapped: ebb ends the leak, and says who waited and who was the cause.
pub(crate) fn sufferer_and_cause(test: &TestContext) -> Result<Outcome> {
    let incidents = "/run/incidents";
    // What is in use is not available: the threshold is where the kernel has to take it away already.
    let thresholds = "evictionHard:\n  memory.available: \"30Mi\"\n";
    let arguments = &["--enforce", "--incidents", incidents];
    let settings = Settings { thresholds, arguments, ..Settings::default() };
    let mut agent = Agent::start(test, &settings)?;
    let mut reader = Workload::start("work.slice/reader.service", &["mapper", "150"])?;
    // Slowly from where all of the file still fits: for seconds it fits less and less.
    let mut leak = Workload::start("work.slice/leak.service", &["rush", "220", "10"])?;
    let chosen = agent.wait_for(THRASHING, "somebody is to be ended", |record| {
        is(record, "decided") || is(record, "evicted") && is_by_watchdog(record)
    })?;
    let pressure = reader.cgroup.read("memory.pressure")?;
    leak.actor.wait()?;
    ensure!(reader.actor.is_alive()?, "the reader was ended");
    agent.until_recovered(SOON, |name| *name == leak.cgroup.name())?;
    agent.stop()?;
    if is_by_watchdog(&chosen) {
        // Of a loop that is held up there is no decision to explain.
        runner::note(test, "the watchdog killed: nothing is said of who waits")?;
        return Ok(Outcome::Passed);
    }
    let record = fs::read_dir(incidents)?.next().context("no incident is on record")??.path();
    let incident = fs::read_to_string(record)?;
    fs::write(runner::out_dir(test)?.join("incident.json"), &incident)?;
    let notes = chosen.get("notes").and_then(Value::as_array).context("no notes")?;
    let notes: Vec<&str> = notes.iter().filter_map(Value::as_str).collect();
    runner::note(test, &format!("{}; the reader itself: {pressure}", notes.join("; ")))?;
    let says = |who: &Workload, what: &str| {
        notes.iter().any(|note| note.starts_with(&format!("{} {what}", who.cgroup.name())))
    };
    ensure!(says(&reader, "waits for memory"), "nobody says that the reader waits: {notes:?}");
    let growth = growth_in(&chosen, &leak.cgroup.name());
    if growth.is_some_and(|growth| growth < LEAST_GROWTH) {
        // It leaks by a rate of its own, and less where the guest stands still.
        runner::note(test, &format!("the leak grew by {growth:?} bytes a second: no cause"))?;
    } else {
        ensure!(says(&leak, "grows by"), "nobody says that the leak is the cause: {notes:?}");
        ensure!(!says(&leak, "waits for memory"), "the leak is taken for a sufferer: {notes:?}");
    }
    ensure!(incident.contains("\"stallUs\""), "the incident does not have what was counted");
    Ok(Outcome::Passed)
}

/// Bytes a second by which ebb found `name` to grow when it decided, if it did.
fn growth_in(decided: &Value, name: &str) -> Option<i64> {
    let ranking = decided.get("ranking")?.as_array()?;
    let of = |ranked: &&Value| ranked.pointer("/workload/name").is_some_and(|own| own == name);
    let keys = ranking.iter().find(of)?.get("keys")?.as_array()?;
    let growth = keys.iter().find(|key| key.get("key").is_some_and(|key| key == "growth"));
    growth?.get("perSecond")?.as_i64()
}

struct Files {
    /// Pages.
    refaults: u64,
    /// Microseconds.
    stall: u64,
}

impl Files {
    fn read(cgroup: &Cgroup) -> Result<Self> {
        let pressure = cgroup.read("memory.pressure")?;
        let total =
            pressure.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1));
        Ok(Self {
            refaults: cgroup.counter("memory.stat", "workingset_refault_file ")?,
            stall: total.context("no total in memory.pressure")?.trim().parse()?,
        })
    }
}

fn forks_of_node() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("processes "));
    line.context("/proc/stat counts no processes")?.trim().parse().context("an odd /proc/stat")
}
