//! What ebb keeps after set-up suffices, and what it costs to withhold each capability of the operating guide's table.
use crate::agent::{Agent, Settings, is, name_of};
use crate::cgroup::Cgroup;
use crate::containerd::{Site, Wanted, volume_of};
use crate::node;
use crate::privileges::{
    CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_IPC_LOCK, CAP_KILL, CAP_PERFMON,
    CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_RESOURCE,
};
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Volumes are measured every minute, emulated.
const MEASURED: Duration = Duration::from_secs(150);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"25%\"\n";
const USER: u32 = 1000;
const LEAK: &str = "work.slice/leak.service";

/// What an ebb that enforces goes on with, where limits could be raised and there is no reflex.
const KEPT: [u32; 6] =
    [CAP_KILL, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_BPF, CAP_SYS_NICE];

/// In every thread the privileges are those of the table; with them, and under the filter, ebb kills a user's leak by the best means and ends in order. The runner looks for calls that the filter has not listed.
pub(crate) fn suffice(test: &TestContext) -> Result<Outcome> {
    for filter in ["log", "enforce"] {
        let own = format!("  seccomp: {filter}\n");
        let (started, acted) = {
            let mut scene = Scene::with_innocents(2, 20)?;
            let settings = Settings { own: &own, ..to_enforce(&[]) };
            let mut agent = Agent::start(test, &settings)?;
            let started = agent.wait_for(SOON, "ebb has begun", |record| is(record, "started"))?;
            confined(&agent)?;
            let acted = users_leak(&mut agent)?;
            confined(&agent)?;
            agent.stop()?;
            scene.assert_peace()?;
            Cgroup::clear_workloads()?;
            (started, acted)
        };
        let best = Cgroup::create("work.slice/probe")?.has("cgroup.kill");
        let means = if best { "cgroupKill" } else { "freezeAndSignal" };
        ensure!(acted["method"] == means, "with {filter}: {acted}");
        let missing = texts(&started, "unavailable");
        let withheld =
            |text: &&String| ["denied", "permitted", "give up"].iter().any(|w| text.contains(w));
        let refused: Vec<_> = missing.iter().filter(withheld).collect();
        ensure!(refused.is_empty(), "with {filter} it lacks {refused:?}");
        let told =
            texts(&started, "sources").into_iter().find(|text| text.starts_with("privileges"));
        runner::note(test, &told.context("its privileges are not told")?)?;
    }
    Ok(Outcome::Passed)
}

pub(crate) fn kill(test: &TestContext) -> Result<Outcome> {
    let mut agent = Agent::start(test, &to_enforce(&[CAP_KILL]))?;
    let leak = leak_of_a_user()?;
    let refused = agent.wait_for(SOON, "a signal was refused", |record| is(record, "notDone"))?;
    ensure!(refused.to_string().contains("not permitted"), "it says {refused}");
    // The kernel kills on its behalf all the same.
    gone(&leak)?;
    agent.stop()?;
    Ok(Outcome::Passed)
}

pub(crate) fn dac_override(test: &TestContext) -> Result<Outcome> {
    let mut agent = Agent::start(test, &to_enforce(&[CAP_DAC_OVERRIDE]))?;
    let acted = users_leak(&mut agent)?;
    ensure!(acted["method"] == "freezeAndSignal", "it was killed by {acted}");
    agent.stop()?;
    Ok(Outcome::Passed)
}

/// Two pods are over the limit of their volumes, and a user's volume lets nobody else in: with the capability a dry run measures it, and without its size is unknown, which is no ground to evict.
pub(crate) fn dac_read_search(test: &TestContext) -> Result<Outcome> {
    let site = Site::new(false)?;
    let over = |name: &str| -> Result<()> {
        let volumes = &[("data", "{sizeLimit: 4Mi}")];
        let script = "while true; do sleep 1; done";
        site.run(&Wanted { name, volumes, script, ..Wanted::default() })?;
        fs::write(volume_of(name, "data").join("f"), vec![b'x'; 8 << 20])
            .with_context(|| format!("cannot fill the volume of {name}"))
    };
    over("open")?;
    over("closed")?;
    let closed = volume_of("closed", "data");
    chown(&closed, Some(USER), Some(USER)).context("cannot give the volume away")?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).context("cannot close it")?;
    let fields = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nevictionHard:\n  memory.available: 20Mi\n";
    let goes = |agent: &mut Agent, name: &str| {
        let name = format!("default/{name}");
        agent.wait_for(MEASURED, &format!("{name} would be evicted"), |record| {
            is(record, "evicted") && name_of(record).as_deref() == Some(&name)
        })
    };
    let mut agent = site.rehearsal(test, fields, &[])?;
    goes(&mut agent, "open")?;
    goes(&mut agent, "closed")?;
    agent.stop()?;
    let mut agent = site.rehearsal(test, fields, &[CAP_DAC_READ_SEARCH])?;
    goes(&mut agent, "open")?;
    // Measured later than the first two, all of which are looked at each time.
    over("last")?;
    goes(&mut agent, "last")?;
    let victims = agent.victims();
    ensure!(!victims.iter().any(|name| name.ends_with("closed")), "it named {victims:?}");
    agent.stop()?;
    Ok(Outcome::Passed)
}

/// A process of root's that is named as a kubelet and is none: with the capability its program is looked at, and it goes.
pub(crate) fn ptrace(test: &TestContext) -> Result<Outcome> {
    for (without, dies) in [(&[CAP_SYS_PTRACE][..], false), (&[], true)] {
        let mut scene = Scene::with_innocents(2, 20)?;
        if dies {
            let innocents = ["work.slice/innocent-0.service", "work.slice/innocent-1.service"];
            innocents
                .into_iter()
                .chain([LEAK])
                .try_for_each(|path| wish_to_be_last(path, "trusted"))?;
        }
        let mut agent = Agent::start(test, &to_enforce(without))?;
        let available = node::meminfo("MemAvailable")? >> 20;
        let total = node::meminfo("MemTotal")? >> 20;
        // Larger than all others, and not enough by itself: the leak is there when the threshold is crossed.
        let much = (available - total * 35 / 100).to_string();
        let mut fake =
            Workload::start("work.slice/fake.service", &["named", "kubelet", "0", "idle", &much])?;
        let mut leak = Workload::start(LEAK, &["hog", "100"])?;
        let victim = if dies { &mut fake } else { &mut leak };
        gone(victim)?;
        wait::until(SOON, "that is on record", || !agent.victims().is_empty())?;
        let acted = agent.victims();
        let first = acted.first().context("nobody was acted on")?;
        ensure!(first.ends_with("fake.service") == dies, "without {without:?} it chose {acted:?}");
        agent.stop()?;
        scene.assert_peace()?;
        Cgroup::clear_workloads()?;
    }
    Ok(Outcome::Passed)
}

/// A wish that stands in the namespace `trusted` alone counts with the capability, and not without.
pub(crate) fn admin(test: &TestContext) -> Result<Outcome> {
    for (without, spared) in [(&[CAP_SYS_ADMIN][..], false), (&[], true)] {
        let marked = Cgroup::create("work.slice/marked.service")?;
        xattr::set(marked.path(), "trusted.oomd_omit", b"1").context("cannot mark")?;
        if !spared {
            // What root says in the namespace `user` counts without the capability.
            wish_to_be_last(LEAK, "user")?;
        }
        let mut agent = Agent::start(test, &to_enforce(without))?;
        let available = node::meminfo("MemAvailable")? >> 20;
        let total = node::meminfo("MemTotal")? >> 20;
        let much = (available - total * 35 / 100).to_string();
        let idle = Workload::start("work.slice/marked.service", &["idle", &much])?;
        let leak = Workload::start(LEAK, &["hog", "100"])?;
        gone(if spared { &leak } else { &idle })?;
        wait::until(SOON, "that is on record", || !agent.victims().is_empty())?;
        let acted = agent.victims();
        let first = acted.first().context("nobody was acted on")?;
        ensure!(first.ends_with("marked.service") != spared, "without {without:?}: {acted:?}");
        agent.stop()?;
        Cgroup::clear_workloads()?;
    }
    Ok(Outcome::Passed)
}

/// Marks a cgroup, before ebb looks at it, so that who lives there goes after all who are not marked: however fast a leak is found to grow, whoever only holds memory is chosen before it.
fn wish_to_be_last(path: &str, space: &str) -> Result<()> {
    let cgroup = Cgroup::create(path)?;
    xattr::set(cgroup.path(), format!("{space}.oomd_avoid"), b"1").context("cannot mark")
}

pub(crate) fn bpf(test: &TestContext) -> Result<Outcome> {
    // CAP_SYS_ADMIN implies both.
    for one in [CAP_BPF, CAP_PERFMON] {
        let mut agent = Agent::start(test, &to_enforce(&[one, CAP_SYS_ADMIN]))?;
        let started = agent.wait_for(SOON, "ebb has begun", |record| is(record, "started"))?;
        lacks(&started, "BPF for")?;
        users_leak(&mut agent)?;
        agent.stop()?;
        Cgroup::clear_workloads()?;
    }
    Ok(Outcome::Passed)
}

pub(crate) fn resource(test: &TestContext) -> Result<Outcome> {
    let started = start(test, &[CAP_SYS_RESOURCE])?;
    let live = texts(&started, "sources");
    let fast =
        live.iter().any(|text| text.contains("pressure trigger") && !text.contains("2000 ms"));
    ensure!(!fast, "it has a fast trigger all the same: {live:?}");
    // What it cannot replace by limits it keeps.
    let privileges = live.iter().find(|text| text.starts_with("privileges")).context("not told")?;
    for kept in ["CAP_IPC_LOCK", "CAP_SYS_NICE"] {
        ensure!(privileges.contains(kept), "{kept} is not kept: {privileges}");
    }
    Ok(Outcome::Passed)
}

pub(crate) fn ipc_lock(test: &TestContext) -> Result<Outcome> {
    let started = start(test, &[CAP_IPC_LOCK, CAP_SYS_RESOURCE])?;
    lacks(&started, "keep memory resident (mlockall)")?;
    let started = start(test, &[CAP_IPC_LOCK])?;
    ensure!(
        !texts(&started, "unavailable").iter().any(|text| text.contains("mlockall")),
        "with CAP_SYS_RESOURCE it can raise the limit"
    );
    Ok(Outcome::Passed)
}

pub(crate) fn nice(test: &TestContext) -> Result<Outcome> {
    let started = start(test, &[CAP_SYS_NICE])?;
    lacks(&started, "run before others (nice -20)")?;
    Ok(Outcome::Passed)
}

fn to_enforce<'a>(without: &'a [u32]) -> Settings<'a> {
    Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], without, ..Settings::default() }
}

/// What an ebb says when it starts without these.
fn start(test: &TestContext, without: &[u32]) -> Result<Value> {
    let mut agent = Agent::start(test, &to_enforce(without))?;
    let started = agent.wait_for(SOON, "ebb has begun", |record| is(record, "started"))?;
    agent.stop()?;
    Ok(started)
}

fn texts(started: &Value, key: &str) -> Vec<String> {
    let texts = started[key].as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn lacks(started: &Value, what: &str) -> Result<()> {
    let missing = texts(started, "unavailable");
    ensure!(
        missing.iter().any(|text| text.starts_with(what)),
        "{what} is not missing: {missing:?}"
    );
    Ok(())
}

/// A leak of a user's, in a cgroup that is the user's.
fn leak_of_a_user() -> Result<Workload> {
    let leak = Workload::start(LEAK, &["named", "leak", &USER.to_string(), "hog", "100"])?;
    let files = fs::read_dir(leak.cgroup.path())?.collect::<Result<Vec<_>, _>>()?;
    let files = files.into_iter().map(|file| file.path());
    for path in files.chain([leak.cgroup.path().to_owned()]) {
        chown(&path, Some(USER), Some(USER))
            .with_context(|| format!("cannot give {} away", path.display()))?;
    }
    Ok(leak)
}

/// How it was killed.
fn users_leak(agent: &mut Agent) -> Result<Value> {
    let mut leak = leak_of_a_user()?;
    let acted = agent.wait_for(SOON, "ebb has killed the leak", |record| {
        is(record, "evicted") && name_of(record).is_some_and(|name| name.ends_with("leak.service"))
    })?;
    gone(&leak)?;
    leak.actor.wait()?;
    Ok(acted)
}

fn gone(workload: &Workload) -> Result<()> {
    wait::until(SOON, "the victim is gone", || {
        workload.cgroup.processes().is_ok_and(|left| left.is_empty())
    })
}

/// Every thread holds what is documented and nothing else, in every set.
fn confined(agent: &Agent) -> Result<()> {
    let kept: u64 = KEPT.iter().fold(0, |mask, capability| mask | 1 << capability);
    let expected = [
        ("CapInh", 0),
        ("CapPrm", kept),
        ("CapEff", kept),
        ("CapBnd", kept),
        ("CapAmb", 0),
        ("NoNewPrivs", 1),
        // SECCOMP_MODE_FILTER
        ("Seccomp", 2),
    ];
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", agent.pid()?)).context("no threads")? {
        let status = fs::read_to_string(task?.path().join("status")).context("no status")?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            u64::from_str_radix(line?.trim(), 16).ok()
        };
        for (key, expected) in expected {
            ensure!(value(key) == Some(expected), "{key} is not {expected:x}: {status}");
        }
        threads += 1;
    }
    ensure!(threads > 5, "only {threads} threads were looked at");
    Ok(())
}
