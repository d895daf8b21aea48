//! Workloads that do what they can to be taken for something else, and what really is protected beside them: by real processes and a real cgroup tree.
use crate::actors::Actor;
use crate::agent::{Agent, Settings, is, is_by_watchdog, victims};
use crate::cgroup::Cgroup;
use crate::init::SELF;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Scene;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";
/// A user, and root's pendant.
const USER: u32 = 1000;
const USERS_TREE: &str = "work.slice/user@1000.service";
/// How long a leak that moves on stays in a cgroup; one that never rests a tenth of it.
const STAYS: Duration = Duration::from_millis(200);
/// Leaks that move, one after the other, and where to. The first thread of a process, once it has ended, stays behind when it is moved: where such a process lives the kernel lists nobody.
const MOVING: [(&str, &str, Shape); 4] = [
    ("into scopes", "hog", Shape::Scope),
    ("without its first thread", "leaderless", Shape::Scope),
    ("to where nobody counts memory", "hog", Shape::Bare),
    ("without its first thread, into threaded cgroups", "leaderless", Shape::Threaded),
];
/// A cgroup below the one that a leak moves into.
const BELOW: &str = "below";
const TOO_DEEP: &str = "70 cgroups deep";
/// Levels that a tree of its own choice is nested.
const LEVELS: usize = 70;

/// A leak, a disguise each time: it is killed, and nobody else.
pub(crate) fn disguises(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(3, 30)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let daemons = "work.slice/daemons.service".to_owned();
    let nested = format!("work.slice/{}leak", "n/".repeat(LEVELS));
    let rounds = [
        ("beside processes named as daemons are", daemons, no_more as fn(&Cgroup) -> Result<()>),
        ("in a unit of its own named kubelet", format!("{USERS_TREE}/kubelet.service"), given),
        // From here on the kernel is not asked to tell of cgroups.
        (TOO_DEEP, nested, no_more),
        ("with marks of its own", format!("{USERS_TREE}/marked.service"), marked),
    ];
    for (nth, (what, path, prepare)) in rounds.iter().enumerate() {
        runner::note(test, what)?;
        let cgroup = Cgroup::create(path)?;
        prepare(&cgroup)?;
        if nth == 0 {
            for name in ["pause", "podman", "kubelet", "containerd"] {
                Actor::start(&cgroup, &["named", name, &USER.to_string(), "idle", "1"])?;
            }
        }
        let words = ["named", "leak", &USER.to_string(), "hog", "0"];
        let mut leak = Actor::start(&cgroup, &words)?;
        wait::until(SOON, "the leak is gone", || leak.is_alive().is_ok_and(|alive| !alive))?;
        scene.assert_peace().with_context(|| format!("a leak {what}"))?;
        // What lies too deep goes by the name of one above it.
        agent.until_recovered(SOON, |name| cgroup.name().starts_with(name))?;
        let is_told = |record: &Value| {
            is(record, "degraded")
                && record["what"].as_str().is_some_and(|what| what.contains("nested"))
        };
        if rounds.iter().position(|(what, ..)| *what == TOO_DEEP) <= Some(nth) {
            agent.wait_for(SOON, "ebb listens for cgroups no more", is_told)?;
        } else {
            let is_told = agent.records().iter().any(is_told);
            ensure!(!is_told, "after {what} ebb does not listen for cgroups");
        }
    }
    let victims = victims(&agent.stop()?);
    ensure!(victims.len() == rounds.len(), "ebb acted on {victims:?}");
    Ok(Outcome::Passed)
}

fn no_more(_: &Cgroup) -> Result<()> {
    Ok(())
}

/// Give a unit and the manager above it to the user.
fn given(cgroup: &Cgroup) -> Result<()> {
    for path in [Cgroup::at(USERS_TREE).path(), cgroup.path()] {
        chown(path, Some(USER), Some(USER))
            .with_context(|| format!("cannot give {} away", path.display()))?;
    }
    Ok(())
}

/// What an owner may write on a cgroup: marks of systemd-oomd, and all the protection that there is.
fn marked(cgroup: &Cgroup) -> Result<()> {
    given(cgroup)?;
    for mark in ["user.oomd_omit", "user.oomd_avoid"] {
        xattr::set(cgroup.path(), mark, b"1").with_context(|| format!("cannot set {mark}"))?;
    }
    cgroup.write("memory.low", "max")
}

/// Leaks that move on five times a second, each time into a new cgroup, and have the one that they left removed: what they took is charged to no workload.
pub(crate) fn moves(test: &TestContext) -> Result<Outcome> {
    let beside = owned("beside.scope")?;
    let mut beside = Actor::start(&beside, &["idle", "1"])?;
    move_and_leak(test, THRESHOLDS, MOVING.len(), STAYS, || {
        ensure!(beside.is_alive()?, "a workload of the same user was killed");
        Ok(())
    })
}

/// The same ten times as fast, by somebody who is alone in the tree: between two looks it is anywhere, and nobody else dies for it.
pub(crate) fn never_rests(test: &TestContext) -> Result<Outcome> {
    // It may take several looks to catch it, and memory is not to be out by then.
    let thresholds = "evictionHard:\n  memory.available: \"30%\"\n";
    move_and_leak(test, thresholds, 2 * MOVING.len(), STAYS / 10, || Ok(()))
}

/// So many leaks, which stay for `stays` where they are; after each all is well by `is_well` and with the workloads of others.
fn move_and_leak(
    test: &TestContext,
    thresholds: &str,
    leaks: usize,
    stays: Duration,
    mut is_well: impl FnMut() -> Result<()>,
) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(3, 30)?;
    let mut agent = Agent::enforce(test, thresholds)?;
    // The threshold is crossed at another moment of its stay each time.
    for (nth, (what, kind, shape)) in MOVING.into_iter().cycle().take(leaks).enumerate() {
        runner::note(test, what)?;
        let mut at = owned(&format!("leak-{nth}-0.scope"))?;
        let mut leak = Actor::start(&at, &[kind, "200"])?;
        let begun = Instant::now();
        let mut moved = 0;
        while leak.is_alive()? {
            ensure!(begun.elapsed() < SOON, "the leak lives after it has moved {moved} times");
            moved += 1;
            let next = owned(&shape.name(nth, moved))?;
            // It may be dead by now, and not to be moved any more.
            if leak.pid().and_then(|pid| shape.adopt(&next, pid)).is_ok() {
                Shape::leave(&at)?;
                at = next;
            }
            thread::sleep(stays);
        }
        runner::note(test, &format!("killed after it had moved {moved} times"))?;
        agent.until_recovered(SOON, |name| name.contains(&format!("/leak-{nth}-")))?;
        is_well()?;
        scene.assert_peace()?;
    }
    let victims = victims(&agent.stop()?);
    let is_meant = victims.len() >= leaks && victims.iter().all(|one| one.contains("/leak-"));
    ensure!(is_meant, "ebb acted on {victims:?}");
    Ok(Outcome::Passed)
}

/// A cgroup of the user's tree that is the user's.
fn owned(name: &str) -> Result<Cgroup> {
    let cgroup = Cgroup::create(&format!("{USERS_TREE}/{name}"))?;
    given(&cgroup)?;
    Ok(cgroup)
}

/// What a cgroup is like into which a leak moves.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A scope.
    Scope,
    /// One whose memory is charged to the one above: it has no memory controller.
    Bare,
    /// Threaded: the threads are in one below.
    Threaded,
}

impl Shape {
    fn name(self, nth: usize, moved: usize) -> String {
        let ending = if matches!(self, Self::Scope) { ".scope" } else { "" };
        format!("leak-{nth}-{moved}{ending}")
    }

    /// Removes it once everybody has left but a first thread that has ended, for which the process is listed there still: nobody is killed.
    fn leave(cgroup: &Cgroup) -> Result<()> {
        wait::until(SOON, &format!("{} can be removed", cgroup.name()), || {
            // There is none below the first, nor in a scope.
            let _ = fs::remove_dir(cgroup.child(BELOW).path());
            fs::remove_dir(cgroup.path()).is_ok()
        })
    }

    fn adopt(self, into: &Cgroup, pid: Pid) -> Result<()> {
        let below = into.child(BELOW);
        match self {
            Self::Scope => into.adopt(pid),
            Self::Bare => {
                fs::create_dir(below.path()).context("cannot make a cgroup below")?;
                below.adopt(pid)
            }
            Self::Threaded => {
                fs::create_dir(below.path()).context("cannot make a cgroup below")?;
                below.write("cgroup.type", "threaded")?;
                into.adopt(pid)?;
                let threads = fs::read_dir(format!("/proc/{pid}/task"));
                let threads = threads.context("cannot list threads")?.flatten();
                let names = threads.map(|thread| thread.file_name().to_string_lossy().into_owned());
                // The first thread has ended, and stays where it was.
                names
                    .filter(|thread| *thread != pid.to_string())
                    .try_for_each(|thread| below.write("cgroup.threads", &thread))
            }
        }
    }
}

/// The ninth process of the largest workload, born after ebb has looked at the others, is exempt from the OOM killer: the workload lives, the leak beside it goes.
pub(crate) fn ninth(test: &TestContext) -> Result<Outcome> {
    let cgroup = Cgroup::create("work.slice/nine.service")?;
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(Actor::start(&cgroup, &["idle", "1"])?);
    }
    let settings = Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], ..no_settings() };
    let last = || {
        all.push(Actor::start(&cgroup, &["scored", "-1000", "idle", &mib_of_half()?])?);
        Ok(all)
    };
    lives(test, last, &settings, Some("oom_score_adj is -1000"))
}

/// A kubelet in a unit of no known name is known by its program, its user and its namespaces.
pub(crate) fn kubelet(test: &TestContext) -> Result<Outcome> {
    let settings = Settings { thresholds: THRESHOLDS, arguments: &["--enforce"], ..no_settings() };
    lives(test, || Ok(vec![own_kubelet()?]), &settings, None)
}

/// The same without the capability to read programs and namespaces: unknown counts as protected.
pub(crate) fn kubelet_unread(test: &TestContext) -> Result<Outcome> {
    let arguments = &["--enforce", "--leave-out", "all"];
    let settings =
        Settings { thresholds: THRESHOLDS, arguments, without_bpf: true, ..no_settings() };
    lives(test, || Ok(vec![own_kubelet()?]), &settings, None)
}

fn no_settings() -> Settings<'static> {
    Settings::default()
}

/// Half of what is available, in MiB: more than a leak has when the threshold is crossed.
fn mib_of_half() -> Result<String> {
    Ok((node::meminfo("MemAvailable")? >> 21).to_string())
}

fn own_kubelet() -> Result<Actor> {
    let program = "/run/kubelet";
    fs::copy(SELF, program).context("cannot copy the program")?;
    let cgroup = Cgroup::create("work.slice/own.service")?;
    Actor::start_as(program, &cgroup, &["idle", &mib_of_half()?])
}

/// All whom `protected` starts live through a leak beside them; `refusal` is why ebb did not touch them, where it had chosen them.
fn lives(
    test: &TestContext,
    protected: impl FnOnce() -> Result<Vec<Actor>>,
    settings: &Settings<'_>,
    refusal: Option<&str>,
) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let leaks = Cgroup::create("work.slice/leak.service")?;
    if refusal.is_some() {
        // However fast the leak is found to grow, it is not chosen before those that are protected.
        let innocents =
            ["innocent-0", "innocent-1"].map(|name| format!("work.slice/{name}.service"));
        for cgroup in innocents.iter().map(|path| Cgroup::at(path)).chain([leaks.clone()]) {
            xattr::set(cgroup.path(), "trusted.oomd_avoid", b"1").context("cannot mark")?;
        }
    }
    let mut agent = Agent::start(test, settings)?;
    let mut protected = protected()?;
    let mut leak = Actor::start(&leaks, &["hog", "300"])?;
    wait::until(SOON, "the leak is gone", || leak.is_alive().is_ok_and(|alive| !alive))?;
    agent.until_recovered(SOON, |name| *name == leaks.name())?;
    for actor in &mut protected {
        ensure!(actor.is_alive()?, "a protected process was killed");
    }
    if let Some(refusal) = refusal {
        let says = |record: &Value| {
            let refused = is(record, "notDone") && record.to_string().contains(refusal);
            // The watchdog passes over whom it may not kill without a word.
            refused || is_by_watchdog(record)
        };
        ensure!(agent.records().iter().any(says), "nobody was refused for {refusal}");
    }
    let victims = victims(&agent.stop()?);
    ensure!(victims.iter().all(|v| v.ends_with("leak.service")), "ebb acted on {victims:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}
