//! A leak on a node with swap: nothing happens to it while swap is free, and it alone is evicted when memory and swap are both short.
use crate::agent::{Agent, is, victims};
use crate::containerd::load;
use crate::registry::{Context as TestContext, Outcome};
use crate::scene::{Scene, Workload};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use nix::fcntl::{FallocateFlags, fallocate};
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
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
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
    let mut least = swap;
    wait::until(FILLED, "the leak is gone", || {
        least = node::meminfo("SwapFree").map_or(least, |free| free.min(least));
        leak.actor.is_alive().is_ok_and(|alive| !alive)
    })?;
    runner::note(test, &format!("least swap seen: {} MiB of {SWAP}", least / MIB))?;
    agent.wait_for(SOON, "ebb has recovered", |record| is(record, "pressureRelieved"))?;
    scene.assert_peace()?;
    let victims = victims(&agent.stop()?);
    ensure!(victims.len() == 1 && victims[0].contains("leak"), "ebb acted on {victims:?}");
    ensure!(least < SWAP * MIB / 4, "it went with {} MiB of swap free", least / MIB);
    Ok(Outcome::Passed)
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
