//! A soak: ebb enforces on a node with a real containerd while leaks and full disks come at random among everything else that happens on nodes.
//!
//! ```text
//! seed ─► script ─► round ─► pods that do wrong ─┬─► evicted ─► calm ─► books, sizes, innocents
//!                        └─► disturbances ───────┘
//! ```
//! The test plays the kubelet: what an evicted pod leaves goes when it has ended.
//! Of the clocks only the wall clock is stepped: suspend has a test of its own.
mod accounts;
mod disturb;
mod script;
mod size;

use crate::agent::{Agent, EBB, is, is_calm, name_of};
use crate::cgroup::Cgroup;
use crate::checks::pressure::remove_unused_images;
use crate::containerd::{GATE, Pod, SOON, Site, Store, Wanted, open_gate, volume_of};
use crate::init::SELF;
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use accounts::{Accounts, audit};
use anyhow::{Context, Result, ensure};
use disturb::MISTAKE;
use nix::unistd::Pid;
use script::{Disturbance, Fault, Round, Script};
use serde_json::Value;
use size::Size;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The threshold on the disk, and what is left above it when a round begins.
const DISK_LINE: u64 = 400 * MIB;
const DISK_ABOVE: u64 = 150 * MIB;
const INNOCENTS: [&str; 3] = ["a", "b", "c"];
const INCIDENTS: &str = "/run/incidents";
const OWN: &str = "  incidents: {directory: /run/incidents, keep: 10000}\n";
/// From a fault's begin to the end of the pod, on a loaded host under TCG.
const ENDS_IN: Duration = Duration::from_secs(120);
/// Descriptors that a connection to the runtime or a look at the node may have open at any moment.
const BUSY: usize = 4;

/// As long as it takes to have everything once.
pub(crate) fn three_minutes(test: &TestContext) -> Result<Outcome> {
    let (_, seed) = told()?;
    soak(test, Duration::from_secs(180), seed)
}

/// As long as the host says.
pub(crate) fn as_told(test: &TestContext) -> Result<Outcome> {
    let (lasts, seed) = told()?;
    soak(test, lasts, seed)
}

/// For how long, and by which seed.
fn told() -> Result<(Duration, u64)> {
    let text = fs::read_to_string("/payload/soak").context("nobody said how to soak")?;
    let numbers = text.trim().split_once(' ').and_then(|(seconds, seed)| {
        Some((Duration::from_secs(seconds.parse().ok()?), seed.parse().ok()?))
    });
    numbers.with_context(|| format!("{text:?} is no length and seed of a soak"))
}

/// The eviction fields of the `n`th configuration: a reload changes a number.
fn fields(n: usize) -> String {
    let memory = 280 + 8 * (n % 4);
    format!(
        "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nevictionHard:\n  nodefs.available: \"{DISK_LINE}\"\n  memory.available: {memory}Mi\n"
    )
}

/// The node, and what has happened on it so far.
struct Soak<'a> {
    test: &'a TestContext,
    site: Site,
    agent: Agent,
    ebb: Pid,
    innocents: Vec<(String, Vec<Pid>)>,
    /// Sandboxes of the innocents.
    stay: Vec<String>,
    oom_kills: u64,
    /// Pods that did wrong.
    played: Vec<String>,
    /// How often ebb was asked to read its configuration.
    asked: usize,
    sizes: Vec<Size>,
    began: Instant,
}

fn soak(test: &TestContext, lasts: Duration, seed: u64) -> Result<Outcome> {
    runner::note(test, &format!("seed {seed}, {} s", lasts.as_secs()))?;
    let mut soak = Soak::begin(test)?;
    let mut script = Script::of(seed);
    let mut rounds = 0;
    while soak.began.elapsed() < lasts {
        let Some(round) = script.next() else { break };
        let at = soak.began.elapsed().as_secs();
        let played = soak.play(rounds, &round);
        let told = played.with_context(|| format!("seed {seed}, round {rounds}: {round}"))?;
        runner::note(test, &format!("{at} s, round {rounds}: {round}: {told}"))?;
        rounds += 1;
    }
    soak.end(rounds).with_context(|| format!("seed {seed}"))
}

impl<'a> Soak<'a> {
    fn begin(test: &'a TestContext) -> Result<Self> {
        let site = Site::new(false)?;
        Store::hold_logs()?;
        remove_unused_images(&site)?;
        // What an earlier soak left, if there was one.
        let _ = fs::remove_dir_all(INCIDENTS);
        // Containers see it where they see gates.
        fs::copy(SELF, Path::new("/run/gates/guest")).context("cannot copy the actors")?;
        let mut innocents = Vec::new();
        let mut stay = Vec::new();
        for name in INNOCENTS {
            let script = format!("exec {GATE}/guest act-here idle 20");
            let volumes = &[("data", "{}")];
            let (pod, _) =
                site.run(&Wanted { name, script: &script, volumes, ..Wanted::default() })?;
            fs::write(volume_of(name, "data").join("small"), [b'x'; 12 << 10])?;
            stay.push(pod.sandbox.clone());
            innocents.push((name.to_owned(), members(name)?));
        }
        Store::leave(DISK_LINE + DISK_ABOVE)?;
        let agent = site.agent(test, &fields(0), OWN)?;
        let (ebb, oom_kills) = (agent.pid()?, node::vmstat("oom_kill ")?);
        let (played, sizes, began) = (Vec::new(), Vec::new(), Instant::now());
        Ok(Self {
            test,
            site,
            agent,
            ebb,
            innocents,
            stay,
            oom_kills,
            played,
            asked: 0,
            sizes,
            began,
        })
    }

    /// One round; says what came of it.
    fn play(&mut self, number: usize, round: &Round) -> Result<String> {
        let mut pods = Vec::new();
        for (n, fault) in round.faults.iter().enumerate() {
            let name = format!("wrong-{number}-{n}");
            let what = match fault {
                Fault::Leak(actor) => format!("exec {GATE}/guest act-here {actor}"),
                Fault::Fill(command) => format!("{command}; sleep 1000"),
            };
            let script = format!("until [ -e {GATE}/{name} ]; do sleep 0.2; done; {what}");
            let made: Vec<&Pod> = pods.iter().map(|(_, (pod, _))| pod).collect();
            let pod = self.pod(&name, &script, &made)?;
            pods.push((name, pod));
        }
        let asks = |(what, _): &&(Disturbance, Duration)| {
            matches!(what, Disturbance::Reload | Disturbance::Refused)
        };
        self.asked += round.disturbances.iter().filter(asks).count();
        let (site, ebb) = (&self.site, self.ebb);
        // With ebb stopped nobody is to need it.
        let (floods, others): (Vec<_>, Vec<_>) =
            round.disturbances.iter().partition(|(what, _)| *what == Disturbance::Flood);
        floods.iter().try_for_each(|(what, _)| disturb::cause(*what, site, ebb, number))?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = others
                .iter()
                .map(|(what, after)| {
                    scope.spawn(move || {
                        std::thread::sleep(*after);
                        disturb::cause(*what, site, ebb, number)
                            .with_context(|| format!("{what:?}"))
                    })
                })
                .collect();
            let ended = pods.iter().try_for_each(|(name, _)| open_gate(name)).and_then(|()| {
                wait::until(ENDS_IN, "who did wrong has ended", || {
                    pods.iter().all(|(name, pod)| is_empty(name, &pod.1))
                })
            });
            let mut results = threads.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => Err(anyhow::anyhow!("a disturbance panicked")),
            });
            ended.and_then(|()| results.try_for_each(|result| result))
        })?;
        for (name, _) in &pods {
            self.played.push(format!("default/{name}"));
        }
        self.tidy(pods.into_iter().map(|(name, (pod, _))| (name, pod)))?;
        let agent = &mut self.agent;
        wait::seldom(SOON, "the episodes are over", || is_calm(agent.records()))?;
        self.assert_peace()?;
        self.look(round.faults.len())
    }

    /// A pod that waits for its gate beside those that do so already. The runtime may have been killed a moment ago.
    fn pod(&self, name: &str, script: &str, made: &[&Pod]) -> Result<(Pod, String)> {
        let made = made.iter().map(|pod| pod.sandbox.clone());
        let stay: Vec<String> = self.stay.iter().cloned().chain(made).collect();
        let wanted = Wanted { name, script, volumes: &[("data", "{}")], ..Wanted::default() };
        let mut trouble = None;
        let run = wait::seldom_some(SOON, "a pod runs", || match self.site.run(&wanted) {
            Ok(pod) => Some(pod),
            Err(error) => {
                trouble = Some(error);
                // Half of it may be there.
                let _ = self.remove_all_but(&stay);
                None
            }
        });
        run.with_context(|| format!("{trouble:?}"))
    }

    /// What a kubelet does with pods that were evicted, and with what is left of those that came and went.
    fn tidy(&self, pods: impl Iterator<Item = (String, Pod)>) -> Result<()> {
        for (name, pod) in pods {
            self.site.delete(&name)?;
            fs::remove_dir_all(volume_of(&name, "data")).context("cannot remove a volume")?;
            // ebb may have been faster.
            let _ = fs::remove_dir_all(&pod.spec.log_directory);
        }
        let mut trouble = None;
        let removed = wait::seldom(SOON, "nobody but the innocents is left", || {
            trouble = self.remove_all_but(&self.stay).err();
            trouble.is_none()
        });
        removed.with_context(|| format!("{trouble:?}"))?;
        let kubepods = Cgroup::at("kubepods/burstable");
        for entry in fs::read_dir(kubepods.path()).context("cannot list cgroups of pods")?.flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("poduid-churn-") || name.starts_with("poduid-wrong-") {
                kubepods.child(&name).remove()?;
            }
        }
        Ok(())
    }

    fn remove_all_but(&self, stay: &[String]) -> Result<()> {
        let cri = &self.site.containerd.cri;
        self.site.containerd.wait(async {
            for container in cri.containers().await? {
                if !stay.contains(&container.sandbox) {
                    cri.stop_container(&container.id, Duration::ZERO).await?;
                    cri.remove_container(&container.id).await?;
                }
            }
            for sandbox in cri.sandboxes().await? {
                if !stay.contains(&sandbox.id) {
                    cri.stop_sandbox(&sandbox.id).await?;
                    cri.remove_sandbox(&sandbox.id).await?;
                }
            }
            Ok::<_, ebb_cri::Error>(())
        })?;
        Ok(())
    }

    /// The innocents are who they were, and the kernel's OOM killer was not needed.
    fn assert_peace(&self) -> Result<()> {
        for (name, before) in &self.innocents {
            let now = members(name)?;
            ensure!(now == *before, "of {name} there were {before:?}, now {now:?}");
        }
        let kills = node::vmstat("oom_kill ")? - self.oom_kills;
        ensure!(kills == 0, "the kernel's OOM killer acted {kills} times");
        Ok(())
    }

    /// Look how large ebb is, and say how soon the last `count` were evicted.
    fn look(&mut self, count: usize) -> Result<String> {
        let size = Size::of(self.ebb)?;
        self.sizes.push(size);
        let late: Vec<&String> = self.played.iter().rev().take(count).collect();
        let acted = self.agent.records().iter().filter(|record| is(record, "evicted"));
        let acted = acted.filter(|r| name_of(r).is_some_and(|name| late.contains(&&name)));
        let times: Vec<String> = acted
            .map(|r| r.get("afterMs").map_or_else(|| "without".to_owned(), Value::to_string))
            .collect();
        let Size { anon, descriptors, threads } = size;
        Ok(format!(
            "killed {} ms after the crossing; ebb has {anon} KiB, {descriptors} descriptors, {threads} threads",
            times.join(" and ")
        ))
    }

    /// The verdict.
    fn end(self, rounds: usize) -> Result<Outcome> {
        let Self { test, site, mut agent, ebb, played, asked, sizes, .. } = self;
        let first = sizes.first().context("not one round")?;
        // What it had of the pods that are gone it lets go, if not at once.
        let few = || Size::of(ebb).is_ok_and(|now| now.descriptors <= first.descriptors + BUSY);
        let closed = wait::seldom(SOON, "ebb has no more descriptors than in the beginning", few);
        closed.with_context(|| format!("{sizes:?}"))?;
        size::ensure_no_growth(&sizes)?;
        agent.records();
        let records = agent.stop()?;
        let books = audit(&records, &played)?;
        let refusals = refusals(&records, asked)?;
        let incidents = incidents(&books)?;
        let Accounts { crossed, evicted, late, lost, degraded, .. } = books;
        let last = sizes.last().map_or(0, |size| size.anon);
        let text = format!(
            "{rounds} rounds, {crossed} episodes, {} of {} evictions right, {late} times somebody took long to end, {incidents} incident records, {lost} kernel events lost and {refusals} configurations refused of {asked} that were to be read; ebb had {} KiB after the first round and {last} after the last; degraded: {degraded:?}",
            evicted.len(),
            played.len(),
            first.anon
        );
        runner::note(test, &text)?;
        drop(site);
        Ok(Outcome::Passed)
    }
}

/// How many configurations were refused, each for the one mistake that is made here.
///
/// One that is mended before ebb has read it is never seen. One that is wrong is refused each time ebb is asked to read it, also by whoever asked for the right one whose place it has taken, and before that where ebb's own look at the file comes first.
fn refusals(records: &[Value], asked: usize) -> Result<usize> {
    let is_refusal = |record: &&Value| {
        is(record, "reloaded") && record.get("accepted") == Some(&Value::Bool(false))
    };
    let refusals: Vec<&Value> = records.iter().filter(is_refusal).collect();
    for refusal in &refusals {
        let errors = refusal.get("errors").map(Value::to_string).unwrap_or_default();
        ensure!(errors.contains(MISTAKE), "refused for something else: {refusal}");
    }
    let count = refusals.len();
    ensure!(count <= 2 * asked, "{count} configurations refused of {asked} that were to be read");
    Ok(count)
}

/// Every episode in which something was decided has its record, which says the same and is decided the same again. How many there are.
fn incidents(books: &Accounts) -> Result<usize> {
    let mut stored = Vec::new();
    for entry in fs::read_dir(INCIDENTS).context("cannot list incident records")? {
        let path = entry.context("cannot list incident records")?.path();
        let text = fs::read_to_string(&path).context("cannot read an incident record")?;
        let incident: Value = serde_json::from_str(&text).context("an incident is no JSON")?;
        let replay = Command::new(EBB).arg("replay").arg(&path).output();
        let replay = replay.context("cannot start ebb replay")?;
        let said = String::from_utf8_lossy(&replay.stdout);
        ensure!(replay.status.success(), "{} is decided otherwise: {said}", path.display());
        stored.push(incident.get("timeline").cloned().unwrap_or_default());
    }
    let is_there = |told: &Value| stored.iter().any(|timeline| timeline == told);
    for told in &books.decided {
        ensure!(is_there(told), "no incident record of {told}");
    }
    ensure!(stored.len() == books.decided.len(), "{} incident records", stored.len());
    Ok(stored.len())
}

/// Processes of a pod, sandbox included.
fn members(name: &str) -> Result<Vec<Pid>> {
    let mut members = Cgroup::at(&format!("kubepods/burstable/poduid-{name}")).processes()?;
    members.sort();
    Ok(members)
}

/// Whether nothing of a container runs.
fn is_empty(name: &str, container: &str) -> bool {
    let cgroup = Cgroup::at(&format!("kubepods/burstable/poduid-{name}")).child(container);
    cgroup.processes().is_ok_and(|left| left.is_empty())
}
