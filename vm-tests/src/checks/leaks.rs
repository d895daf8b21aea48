//! Workloads that take memory until somebody stops them: it must be ebb, in time, and the right one.
use crate::actors::Actor;
use crate::agent::{Agent, Settings, is, name_of, since, victims};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";

/// The threshold in MiB.
fn line() -> Result<u64> {
    Ok((node::meminfo("MemTotal")? >> 20) * 15 / 100)
}

/// As fast as the machine goes.
pub(crate) fn full_speed(test: &TestContext) -> Result<Outcome> {
    stopped(
        test,
        &["hog", "0"],
        &Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], ..Settings::default() },
    )
}

/// How long a calm node is watched.
const CALM: Duration = Duration::from_secs(10);
/// How often ebb wakes in a second of that at most. Without the kernel's timer it looks 15 to 20 times at what is left of this node.
const WAKES: f64 = 8.0;

/// While nothing happens ebb sleeps; who takes memory as fast as the machine goes is stopped all the same.
pub(crate) fn out_of_the_calm(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(3, 50)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let sources = agent.records().iter().find_map(|record| record.get("sources"));
    if !sources.is_some_and(|sources| sources.to_string().contains("a timer of the kernel")) {
        return Ok(Outcome::Skipped("this kernel has no timers for programs".into()));
    }
    let ebb = agent.pid()?;
    let slept = || node::status(ebb, "voluntary_ctxt_switches:");
    let (began, before) = (Instant::now(), slept()?);
    std::thread::sleep(CALM);
    let (slept, lasted) = (slept()? - before, began.elapsed().as_secs_f64());
    let text = format!("it woke {slept} times in {lasted:.1} s");
    runner::note(test, &text)?;
    ensure!(f64::from(u32::try_from(slept)?) < WAKES * lasted, "{text}");
    let _hog = Workload::start("work.slice/hog.service", &["hog", "0"])?;
    goes_alone(agent, &mut scene, "/work.slice/hog.service")
}

/// The first who is evicted is this one, and the only one.
pub(super) fn goes_alone(mut agent: Agent, scene: &mut Scene, who: &str) -> Result<Outcome> {
    agent.wait_for(SOON, "somebody is evicted", |record| is(record, "evicted"))?;
    scene.assert_peace()?;
    let gone = victims(&agent.stop()?);
    ensure!(gone == [who], "{gone:?} were evicted");
    Ok(Outcome::Passed)
}

/// Processes beside a leak, more than ebb holds.
const BESIDE: usize = 70;

/// In a thread whose process shows no memory any more, behind more processes than are held one by one: `cgroup.kill` reaches those alone.
pub(crate) fn leaderless(test: &TestContext) -> Result<Outcome> {
    let cgroup = Cgroup::create("work.slice/hog.service")?;
    for _ in 0..BESIDE {
        Actor::start(&cgroup, &["idle", "0"])?;
    }
    stopped(
        test,
        &["leaderless", "300"],
        &Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], ..Settings::default() },
    )
}

/// In tmpfs, in no process's resident set.
pub(crate) fn in_tmpfs(test: &TestContext) -> Result<Outcome> {
    stopped(
        test,
        &["shmer", "300"],
        &Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], ..Settings::default() },
    )
}

/// With every BPF program left out, and with the capabilities for them gone: files are enough.
pub(crate) fn without_bpf(test: &TestContext) -> Result<Outcome> {
    let arguments = &["--enforce", "--leave-out", "all"];
    stopped(
        test,
        &["hog", "300"],
        &Settings { thresholds: THRESHOLDS, arguments, without_bpf: true, ..Settings::default() },
    )
}

/// One hog, three innocents, one agent: the hog's cgroup is ended by the best means the kernel has.
fn stopped(test: &TestContext, hog: &[&str], settings: &Settings<'_>) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(3, 50)?;
    let mut agent = Agent::start(test, settings)?;
    let mut hog = Workload::start("work.slice/hog.service", hog)?;
    agent.until_recovered(SOON, |name| *name == hog.cgroup.name())?;
    wait::until(SOON, "the hog is gone", || {
        hog.cgroup.processes().is_ok_and(|left| left.is_empty())
    })?;
    hog.actor.wait()?;
    let means = if hog.cgroup.has("cgroup.kill") { "cgroupKill" } else { "freezeAndSignal" };
    let records = agent.stop()?;
    let victims = victims(&records);
    tell(test, &records)?;
    ensure!(victims.iter().all(|v| v.ends_with("hog.service")), "ebb acted on {victims:?}");
    let acted = records.iter().find(|record| is(record, "evicted")).context("ebb did not act")?;
    let method = acted.get("method").and_then(Value::as_str);
    ensure!(method == Some(means), "ended by {method:?}, but the kernel has {means}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// Show when ebb did what.
fn tell(test: &TestContext, records: &[Value]) -> Result<()> {
    let recovered = records.iter().find(|record| is(record, "pressureRelieved"));
    let moments = recovered.and_then(|record| record.get("timeline")).and_then(Value::as_array);
    let moments = moments.map(Vec::as_slice).unwrap_or_default().iter().map(|moment| {
        let what = moment.get("what").and_then(Value::as_str).unwrap_or_default();
        format!("{what} {} ms", moment.get("afterMs").unwrap_or(&Value::Null))
    });
    runner::note(test, &moments.collect::<Vec<_>>().join(", "))
}

/// Five containers leak at once beside idle ones, again and again: 20 evictions of 20 hit a leaking one.
pub(crate) fn five_at_once(test: &TestContext) -> Result<Outcome> {
    const ROUNDS: usize = 4;
    let mut scene = Scene::with_innocents(5, 60)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    for round in 0..ROUNDS {
        let start = |n| {
            let path = format!("kubepods/besteffort/pod{round}-{n}/leak");
            Workload::start(&path, &["hog", "50"])
        };
        let mut leaks: Vec<Workload> = (0..5).map(start).collect::<Result<_>>()?;
        for leak in &mut leaks {
            wait::until(Duration::from_secs(120), "every leak is killed", || {
                leak.actor.is_alive().is_ok_and(|alive| !alive)
            })?;
        }
        wait::until(SOON, "the memory is back", || {
            let (available, total) = (node::meminfo("MemAvailable"), node::meminfo("MemTotal"));
            available.is_ok_and(|a| total.is_ok_and(|t| a > t / 2))
        })?;
        scene.assert_peace().with_context(|| format!("in round {round}"))?;
    }
    // The last victim is dead before ebb has written that it killed it.
    wait::until(SOON, "every eviction is on record", || agent.victims().len() >= 5 * ROUNDS)?;
    let records = agent.stop()?;
    let acted: Vec<String> =
        records.iter().filter(|r| is(r, "evicted")).filter_map(name_of).collect();
    let right = acted.iter().filter(|name| name.contains("kubepods/besteffort/pod")).count();
    runner::note(test, &format!("{right} of {} evictions right", acted.len()))?;
    ensure!(right == acted.len(), "ebb acted on {acted:?}");
    Ok(Outcome::Passed)
}

/// Each leak begins, and takes the node below the threshold, while ebb gets no processor: when it gets one again it knows the newcomer before it chooses.
pub(crate) fn while_held_up(test: &TestContext) -> Result<Outcome> {
    const ROUNDS: usize = 10;
    /// In every other round, so long that the watchdog finds the loop overdue too.
    const LONG: Duration = Duration::from_secs(5);
    /// MiB below the threshold, and far above what the kernel's OOM killer acts at.
    const BELOW: u64 = 60;
    let mut scene = Scene::with_innocents(3, 50)?;
    let line = line()?;
    let floor = (line - BELOW).to_string();
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    for round in 0..ROUNDS {
        let path = format!("work.slice/leak-{round}.service");
        kill(agent.pid()?, Signal::SIGSTOP).context("cannot stop ebb")?;
        let began = Instant::now();
        let mut leak = Workload::start(&path, &["unmoved", &floor])?;
        if round % 2 == 1 {
            wait::until(LONG * 2, "the loop is overdue", || began.elapsed() >= LONG)?;
        }
        kill(agent.pid()?, Signal::SIGCONT).context("cannot continue ebb")?;
        wait::until(SOON, "the leak is killed, or another", || {
            leak.actor.is_alive().is_ok_and(|alive| !alive) || scene.assert_peace().is_err()
        })
        .with_context(|| format!("in round {round}, {}", agent.last_words()))?;
        scene
            .assert_peace()
            .with_context(|| format!("in round {round}, {}", agent.last_words()))?;
        wait::until(SOON, "the memory is back", || {
            node::meminfo("MemAvailable").is_ok_and(|now| now >> 20 > line + 200)
        })?;
    }
    let victims = victims(&agent.stop()?);
    let is_leak = |victim: &String| victim.contains("/leak-");
    ensure!(victims.iter().all(is_leak), "ebb acted on {victims:?}");
    Ok(Outcome::Passed)
}

/// It does not end when asked to: the soft threshold's grace period passes, then it is killed.
pub(crate) fn stubborn(test: &TestContext) -> Result<Outcome> {
    let thresholds = "evictionHard:\n  memory.available: \"2%\"\n\
                      evictionSoft:\n  memory.available: \"40%\"\n\
                      evictionSoftGracePeriod:\n  memory.available: 1s\n\
                      evictionMaxPodGracePeriod: 2\n";
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, thresholds)?;
    let mut hog = Workload::start("work.slice/stubborn.service", &["stubborn", "40"])?;
    wait::until(SOON, "the stubborn one is gone", || {
        hog.actor.is_alive().is_ok_and(|alive| !alive)
    })?;
    agent.wait_for(SOON, "ebb has seen it go", |record| is(record, "terminated"))?;
    let records = agent.stop()?;
    let methods: Vec<&str> = records
        .iter()
        .filter(|record| is(record, "evicted"))
        .filter_map(|record| record.get("method")?.as_str())
        .collect();
    runner::note(test, &methods.join(", "))?;
    ensure!(methods.first() == Some(&"terminate"), "it was not asked first: {methods:?}");
    ensure!(methods.len() > 1, "asking was enough for a stubborn one");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// On a node whose processors are all busy, a leak that ebb evicts ends in a fraction of the time that the same leak takes after a bare SIGKILL: a BestEffort pod has the least weight there is, and each of its processes needs a processor to end.
pub(crate) fn ends_among_the_busy(test: &TestContext) -> Result<Outcome> {
    const SPINNING: usize = 4;
    /// Processes beside the leak in its pod. Their memory is nothing to take back.
    const BESIDE: usize = 8;
    /// MiB above the threshold from which a leak grows, and from where on it has the least weight: with that it hardly grows.
    const ABOVE: u64 = 20;
    const STARVED: u64 = 4;
    const RATE: &str = "10";
    /// Evictions, until one ended so soon: where the host takes the guest's processors away for as long as somebody is hurried, he ends as if he were not.
    const ROUNDS: usize = 3;
    /// For the end of who has the least weight, on a slow host.
    const PATIENCE: Duration = Duration::from_secs(300);
    let line = line()?;
    // What is left for the leak is so little that its end is done within the time for which it is hurried, also on a slow host.
    let mut scene = Scene::with_innocents(2, 350)?;
    let besteffort = Besteffort;
    // Those that are ending are listed no more, and still hold their memory.
    let is_over =
        |pod: &Workload| pod.cgroup.counter("cgroup.events", "populated").is_ok_and(|n| n == 0);
    // Nobody when it was gone before it was seen to have grown, and so before it had the least weight.
    let leak = |name: &str| -> Result<Option<Workload>> {
        besteffort.weigh("100")?;
        let path = format!("kubepods/besteffort/{name}/main");
        let words = ["gated", &(line + ABOVE).to_string(), GO, RATE];
        let leak = Workload::start(&path, &words)?;
        for _ in 0..BESIDE {
            Actor::start(&leak.cgroup, &["idle", "0"])?;
        }
        fs::write(GO, "")?;
        let has_grown = || has_less_than(line + STARVED) || is_over(&leak);
        wait::until(SOON, "the leak has grown", has_grown)?;
        besteffort.weigh("1")?;
        Ok((!is_over(&leak)).then_some(leak))
    };
    let busy: Vec<Workload> = (0..SPINNING)
        .map(|n| Workload::start(&format!("kubepods/burstable/busy-{n}/main"), &["spin"]))
        .collect::<Result<_>>()?;
    let killed = leak("killed")?.context("it went by itself")?;
    wait::until(PATIENCE, "the threshold is crossed", || has_less_than(line))?;
    let at = Instant::now();
    for pid in killed.cgroup.processes()? {
        kill(pid, Signal::SIGKILL)?;
    }
    wait::until(PATIENCE, "who was killed has ended", || is_over(&killed))?;
    let bare = at.elapsed();
    fs::remove_file(GO)?;
    wait::until(SOON, "its memory is back", || !has_less_than(line + 2 * ABOVE))?;

    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    // On Linux 7 it was seen to end within a second by itself.
    let waits = bare > Duration::from_secs(2);
    let is_soon = |with_ebb: &Duration| *with_ebb * 4 < bare;
    let mut ended = Vec::new();
    for round in 1..=2 * ROUNDS {
        let name = format!("evicted-{round}");
        if let Some(evicted) = leak(&name)? {
            wait::until(PATIENCE, "who was evicted has ended", || is_over(&evicted))?;
            let over = Instant::now();
            let record = agent.wait_for(SOON, "ebb has evicted", |record| {
                is(record, "evicted")
                    && name_of(record).is_some_and(|victim| victim.contains(&name))
            })?;
            // From the end of the kill, and what the kill took.
            let since_kill = since(&record)?.saturating_sub(over.elapsed());
            let took = record.get("tookUs").and_then(Value::as_u64).context("how long it took")?;
            ended.push(since_kill + Duration::from_micros(took));
        }
        besteffort.weigh("100")?;
        fs::remove_file(GO)?;
        if ended.iter().any(is_soon) || ended.len() == ROUNDS {
            break;
        }
        wait::until(SOON, "its memory is back", || !has_less_than(line + 2 * ABOVE))?;
    }
    runner::note(test, &format!("ended after {ended:.1?}; by SIGKILL alone after {bare:.1?}"))?;
    let victims = victims(&agent.stop()?);
    let is_leak = |victim: &String| victim.contains("/besteffort/evicted-");
    ensure!(victims.iter().all(is_leak), "ebb acted on {victims:?}");
    ensure!(!ended.is_empty(), "ebb was sooner than this test each time");
    ensure!(!waits || ended.iter().any(is_soon), "{ended:.1?}, and {bare:.1?} by SIGKILL alone");
    scene.assert_innocents_live()?;
    drop(busy);
    Ok(Outcome::Passed)
}

/// Whether fewer MiB are available.
fn has_less_than(mib: u64) -> bool {
    node::meminfo("MemAvailable").is_ok_and(|left| left >> 20 < mib)
}

/// What has a gated leak grow.
const GO: &str = "/run/go-busy";

/// The cgroup of BestEffort pods, which has its weight back when this is dropped.
struct Besteffort;

impl Besteffort {
    fn weigh(&self, weight: &str) -> Result<()> {
        Cgroup::at("kubepods/besteffort").write("cpu.weight", weight)
    }
}

impl Drop for Besteffort {
    fn drop(&mut self) {
        let _ = self.weigh("100");
        let _ = fs::remove_file(GO);
    }
}

/// A dry run chooses and says so, and harms nobody.
pub(crate) fn dry_run(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let thresholds = "evictionHard:\n  memory.available: \"50%\"\n";
    let mut agent = Agent::start(test, &Settings { thresholds, ..Settings::default() })?;
    let half = node::meminfo("MemTotal")? >> 20;
    let big = (node::meminfo("MemAvailable")? >> 20) - half * 4 / 10;
    let mut hog = Workload::start("work.slice/big.service", &["idle", &big.to_string()])?;
    let acted = agent.wait_for(SOON, "ebb would act", |record| is(record, "evicted"))?;
    ensure!(acted.get("method").and_then(Value::as_str) == Some("dryRun"), "it acted: {acted}");
    let name = name_of(&acted).unwrap_or_default();
    ensure!(name.ends_with("big.service"), "it would have ended {name}");
    agent.stop()?;
    ensure!(hog.actor.is_alive()?, "a dry run ended its victim");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}
