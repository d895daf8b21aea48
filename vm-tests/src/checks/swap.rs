//! A leak on a node with swap: nothing happens to it while swap is free, and it alone is evicted when memory and swap are both short.
use crate::agent::{Agent, Settings, is, is_by_watchdog, victims};
use crate::containerd::load;
use crate::registry::{Context as TestContext, Outcome};
use crate::scene::{Scene, Workload};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use nix::fcntl::{FallocateFlags, fallocate};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(60);
/// The leak has to fill memory and then swap, at its own rate.
const FILLED: Duration = Duration::from_secs(150);
/// Swap space, MiB.
const SWAP: u64 = 192;
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";
/// MiB that the leak leaves at first: below the threshold, and far above what has the kernel swap.
const FLOOR: u64 = 60;
/// MiB a second by which it grows then.
const RATE: &str = "15";
const GO: &str = "/run/go-on";

/// Swap in a file on the root disk.
pub(crate) fn on_a_disk(test: &TestContext) -> Result<Outcome> {
    file_on_the_disk()?;
    leak(test)
}

/// Adds a swap file on the root disk, unless an earlier test has.
pub(super) fn file_on_the_disk() -> Result<()> {
    let path = Path::new("/swapfile");
    let swaps = fs::read_to_string("/proc/swaps").context("cannot read /proc/swaps")?;
    if swaps.lines().any(|line| line.split_whitespace().next() == path.to_str()) {
        return Ok(());
    }
    let file = File::create(path).context("cannot create the swap file")?;
    let length = i64::try_from(SWAP * MIB).context("too much swap")?;
    fallocate(&file, FallocateFlags::empty(), 0, length).context("cannot make it that long")?;
    drop(file);
    swap_on(path)
}

/// Swap on zram.
pub(crate) fn on_zram(test: &TestContext) -> Result<Outcome> {
    // What the kernel has built in is no module.
    let needed = ["zsmalloc", "lz4_compress", "lz4hc_compress", "zram"].into_iter();
    needed.filter(|name| Path::new(&format!("/payload/{name}.ko")).exists()).try_for_each(load)?;
    let size = (SWAP * MIB).to_string();
    fs::write("/sys/block/zram0/disksize", size).context("cannot size zram")?;
    swap_on(Path::new("/dev/zram0"))?;
    let outcome = leak(test)?;
    let stat = fs::read_to_string("/sys/block/zram0/mm_stat").context("cannot read mm_stat")?;
    runner::note(test, &format!("mm_stat afterwards: {}", stat.trim()))?;
    Ok(outcome)
}

fn swap_on(path: &Path) -> Result<()> {
    for applet in ["mkswap", "swapon"] {
        let status = Command::new("busybox").arg(applet).arg(path).status();
        ensure!(status.with_context(|| format!("no {applet}"))?.success(), "{applet} failed");
    }
    let total = node::meminfo("SwapTotal")?;
    ensure!(total > (SWAP - 1) * MIB, "only {total} bytes of swap");
    Ok(())
}

fn leak(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(3, 20)?;
    let incidents = runner::out_dir(test)?.join("incidents");
    let arguments = ["--enforce", "--incidents", incidents.to_str().context("an odd directory")?];
    let settings =
        Settings { thresholds: THRESHOLDS, arguments: &arguments, ..Settings::default() };
    let mut agent = Agent::start(test, &settings)?;
    let words = ["gated", &FLOOR.to_string(), GO, RATE];
    let mut leak = Workload::start("work.slice/leak.service", &words)?;
    let total = node::meminfo("MemTotal")?;
    let (available, swap) = (node::meminfo("MemAvailable")?, node::meminfo("SwapFree")?);
    ensure!(available < total * 15 / 100, "{available} of {total} bytes are no shortage");
    ensure!(swap > SWAP * MIB / 2, "only {swap} bytes of swap are left");
    look(&mut agent)?;
    ensure!(leak.actor.is_alive()?, "it went while {} MiB of swap were free", swap / MIB);
    ensure!(
        !agent.records().iter().any(|record| is(record, "thresholdCrossed")),
        "memory alone counts"
    );
    fs::write(GO, "").context("cannot let it go on")?;
    wait::until(FILLED, "the leak is gone", || leak.actor.is_alive().is_ok_and(|alive| !alive))?;
    agent.until_recovered(SOON, |name| *name == leak.cgroup.name())?;
    scene.assert_peace()?;
    let records = agent.stop()?;
    let victims = victims(&records);
    ensure!(victims == [leak.cgroup.name()], "ebb acted on {victims:?}");
    // Of what ebb went by, and not of what was left when this test happened to look.
    let left = swap_at_decisions(&incidents)?;
    let told: Vec<u64> = left.iter().map(|bytes| bytes / MIB).collect();
    runner::note(test, &format!("decided with {told:?} MiB of {SWAP} of swap free"))?;
    ensure!(left.iter().all(|left| *left < SWAP * MIB / 4), "it went with {told:?} MiB free");
    // The watchdog decides on nobody, and acts on what memory and swap are then.
    let has_decided = !left.is_empty() || records.iter().any(is_by_watchdog);
    ensure!(has_decided, "no decision is on record");
    Ok(Outcome::Passed)
}

/// Bytes of swap that were free at each decision that has an incident record.
fn swap_at_decisions(incidents: &Path) -> Result<Vec<u64>> {
    let mut left = Vec::new();
    // Without an incident there is no directory.
    for entry in fs::read_dir(incidents).into_iter().flatten() {
        let path = entry.context("cannot list incidents")?.path();
        let text = fs::read_to_string(&path).context("cannot read an incident")?;
        let incident: Value = serde_json::from_str(&text).context("an incident is no JSON")?;
        let decisions = incident.get("decisions").and_then(Value::as_array);
        for decision in decisions.into_iter().flatten() {
            let free = decision.pointer("/snapshot/node/swapFree").and_then(Value::as_u64);
            left.push(free.context("a decision without the swap that was free")?);
        }
    }
    Ok(left)
}

/// Has ebb look at the node: it does when its configuration changes, and tells of the second change after the look for the first.
fn look(agent: &mut Agent) -> Result<()> {
    for (nth, victims) in ["3", "4"].iter().enumerate() {
        agent.reconfigure(THRESHOLDS, &format!("  maxVictims: {victims}\n"))?;
        wait::until(SOON, "the configuration is obeyed", || {
            let reloaded = agent.records().iter().filter(|record| is(record, "reloaded"));
            reloaded.count() > nth
        })?;
    }
    Ok(())
}
