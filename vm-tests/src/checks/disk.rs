//! A pod that fills the disk, on the real containerd and ext4, without any manifest: it is evicted before the disk is full, and nobody else.
//!
//! The test plays the kubelet: what an evicted pod leaves in its volumes and logs goes when the pod has ended.
use crate::agent::is;
use crate::checks::pressure::remove_unused_images;
use crate::containerd::{GATE, SOON, Site, Store, Wanted, open_gate, volume_of};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const MIB: u64 = 1 << 20;
/// The threshold.
pub(super) const LINE: u64 = 600 * MIB;
/// What is left above it when a writer begins.
pub(super) const ABOVE: u64 = 200 * MIB;
/// The same for a log, which an emulated runtime writes slowly.
const ABOVE_FOR_LOGS: u64 = 40 * MIB;
pub(super) const STAY: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";

/// Where a writer writes and how fast, how it does that, and what is left above the threshold when it begins.
pub(super) type Way = (&'static str, &'static str, u64);

pub(super) const WAYS: [Way; 7] = [
    ("an emptyDir at full speed", "dd if=/dev/zero of=/data/f bs=1M", ABOVE),
    (
        "an emptyDir at 20 MB/s",
        "while dd if=/dev/zero bs=1M count=2 >> /data/f 2>/dev/null; do sleep 0.1; done",
        ABOVE,
    ),
    // Whoever adds up directories finds less of it than of a pod that does nothing.
    (
        "a file of its emptyDir that it has deleted and has open",
        "exec 3> /data/f; rm /data/f; dd if=/dev/zero bs=1M >&3",
        ABOVE,
    ),
    ("its writable layer at full speed", "dd if=/dev/zero of=/f bs=1M", ABOVE),
    (
        "its writable layer at 20 MB/s",
        "while dd if=/dev/zero bs=1M count=2 >> /f 2>/dev/null; do sleep 0.1; done",
        ABOVE,
    ),
    (
        "its log at full speed",
        "yes 0123456789012345678901234567890123456789012345678901234567890",
        ABOVE_FOR_LOGS,
    ),
    (
        "its log at 20 MB/s",
        "while true; do yes 0123456789012345678901234567890123456789 | head -c 2000000; sleep 0.1; done",
        ABOVE_FOR_LOGS,
    ),
];

/// One round of each.
pub(crate) fn once(test: &TestContext) -> Result<Outcome> {
    rounds(test, 1)
}

/// Ten rounds of each.
pub(crate) fn ten_times(test: &TestContext) -> Result<Outcome> {
    rounds(test, 10)
}

fn rounds(test: &TestContext, rounds: usize) -> Result<Outcome> {
    let site = Site::new(false)?;
    Store::hold_logs()?;
    remove_unused_images(&site)?;
    let volumes = &[("data", "{}")];
    let mut idle = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (_, id) = site.run(&Wanted { name, script: STAY, volumes, ..Wanted::default() })?;
        fs::write(volume_of(name, "data").join("small"), [b'x'; 12 << 10])?;
        idle.push(id);
    }
    Store::leave(LINE + ABOVE)?;
    let fields = format!(
        "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nevictionHard:\n  nodefs.available: \"{LINE}\"\n  memory.available: 20Mi\n"
    );
    let mut agent = site.agent_without_manifests(test, &fields, "")?;
    let mut names = Vec::new();
    for (number, (way, script, above)) in WAYS.iter().enumerate() {
        Store::drop_ballast()?;
        Store::leave(LINE + above)?;
        let mut took = Vec::new();
        let mut least = u64::MAX;
        for round in 0..rounds {
            let name = format!("w-{number}-{round}");
            let text = format!("until [ -e {GATE}/{name} ]; do sleep 0.2; done; {script}; {STAY}");
            let wanted = Wanted { name: &name, script: &text, volumes, ..Wanted::default() };
            let (pod, id) = site.run(&wanted)?;
            let before = agent.count("pressureRelieved");
            let watch = Watch::start();
            open_gate(&name)?;
            let ended = site.until_ended(&id).with_context(|| format!("{name}: {way}"));
            let seen = watch.stop();
            ended?;
            took.push(seen.below);
            least = least.min(seen.least);
            ensure!(seen.least > 0, "{way}: the disk was full");
            site.delete(&name)?;
            // What a kubelet does with a pod that was evicted.
            fs::remove_dir_all(volume_of(&name, "data"))?;
            site.containerd.remove_pod(&pod)?;
            fs::remove_dir_all(&pod.spec.log_directory)?;
            wait::seldom(SOON, "the pressure is over", || {
                agent.count("pressureRelieved") > before
            })?;
            names.push(format!("default/{name}"));
        }
        let decided = decided_after(agent.records(), rounds);
        let text = format!(
            "{way}: decided {decided:.0?} after the crossing was seen, from the crossing to the end of the container {took:.1?}, at least {} MiB left",
            least / MIB
        );
        runner::note(test, &text)?;
    }
    for id in &idle {
        ensure!(site.runs(id)?, "an idle pod was evicted: {:?}", evicted(agent.records()));
    }
    let chosen = evicted(agent.records());
    agent.stop()?;
    ensure!(chosen == names, "evicted {chosen:?}, expected {names:?}");
    Ok(Outcome::Passed)
}

/// Whom ebb chose, each once, in order.
pub(super) fn evicted(records: &[Value]) -> Vec<String> {
    let planned = records.iter().filter(|record| is(record, "decided"));
    let lists = planned.filter_map(|record| record.get("evict")?.as_array());
    let name = |evict: &Value| Some(evict.get("workload")?.get("name")?.as_str()?.to_owned());
    let mut names: Vec<String> = lists.flatten().filter_map(name).collect();
    names.dedup();
    names
}

/// How long after the crossings the last `count` evictions were decided.
pub(super) fn decided_after(records: &[Value], count: usize) -> Vec<Duration> {
    let decided = records.iter().rev().filter(|record| is(record, "decided"));
    let after = decided.filter_map(|record| record.get("afterMs")?.as_f64());
    let mut after: Vec<Duration> =
        after.take(count).map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect();
    after.reverse();
    after
}

/// Somebody who looks at the filesystem every few milliseconds.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
    least: Arc<AtomicU64>,
    below: Arc<AtomicU64>,
}

/// What that saw.
pub(super) struct Seen {
    /// Bytes left at the worst moment.
    pub(super) least: u64,
    /// From the crossing to the end.
    pub(super) below: Duration,
}

impl Watch {
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (least, below) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
        let (told, low, for_ms) = (Arc::clone(&stop), Arc::clone(&least), Arc::clone(&below));
        let thread = std::thread::spawn(move || {
            let mut crossed = None;
            while !told.load(Ordering::Relaxed) {
                if let Ok(available) = Store::available() {
                    low.fetch_min(available, Ordering::Relaxed);
                    if available < LINE {
                        crossed.get_or_insert_with(Instant::now);
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let ms = crossed.map_or(0, |at| at.elapsed().as_millis());
            for_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
        });
        Self { stop, thread, least, below }
    }

    pub(super) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has seen nothing, which fails the test.
        let _ = self.thread.join();
        Seen {
            least: match self.least.load(Ordering::Relaxed) {
                u64::MAX => 0,
                least => least,
            },
            below: Duration::from_millis(self.below.load(Ordering::Relaxed)),
        }
    }
}
