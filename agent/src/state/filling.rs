//! Who fills a filesystem: what was seen with each of the last readings, and the difference between them.
//!
//! ```text
//!  what is left of each filesystem ──┐
//!  what pods' directories take up ───┼─► a sample with each reading near a threshold ─► over the last two seconds
//!  what pods' cgroups have written ──┘     how much each filesystem lost, and how much each pod added
//! ```
//! What a cgroup has written is `wbytes` of `io.stat` for the filesystem's device, which counts when it is written back,
//! and `file_dirty` of `memory.stat`, which counts until then: their sum is all that went into the page cache, no later than it did.
//! A log is written by the runtime, not by its pod, so for logs there are only the directories.

use crate::clock::{Boot, Clock};
use crate::sense::cgroup::Writes;
use crate::sense::disk::{DiskReading, FsReading};
use crate::sense::pod_dirs::{Figure, PodSizes};
use ebb_policy::snapshot::{DiskGrowth, FsFall, FsGrowth};
use ebb_policy::{Millis, Signal, Snapshot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What is compared is about this far apart.
const WINDOW: Duration = Duration::from_secs(2);

/// The rate of late is that of this time.
const LATE: Duration = Duration::from_millis(500);

/// Over less time than this a rate is noise.
const LEAST: Duration = Duration::from_millis(50);

/// Samples that are kept; readings are at least a tenth of a second apart.
const KEPT: usize = 32;

/// Samples further apart than this have nothing to do with one another.
const TOO_OLD: Duration = Duration::from_secs(30);

/// Samples of the last few seconds, the oldest first.
#[derive(Debug, Default)]
pub struct Filling {
    samples: VecDeque<Sample>,
}

/// What was seen at one moment.
#[derive(Debug)]
struct Sample {
    at: Boot,
    /// The filesystems of the node, the images and the writable layers.
    left: [Option<Left>; 3],
    /// By cgroup id, with the UID of the pod that it is of.
    written: BTreeMap<u64, (Arc<str>, Writes)>,
    dirs: BTreeMap<String, PodSizes>,
}

/// What is left of a filesystem.
#[derive(Clone, Copy, Debug)]
struct Left {
    device: u64,
    /// Under which device `io.stat` counts it.
    counted_as: Option<u64>,
    bytes: u64,
    inodes: Option<u64>,
}

impl Filling {
    /// Takes in what was seen with a reading; `counted_as` says under which device `io.stat` counts a filesystem.
    pub fn observe(
        &mut self,
        reading: &DiskReading,
        filesystems: [Option<&FsReading>; 3],
        counted_as: impl Fn(u64) -> Option<u64>,
        written: BTreeMap<u64, (Arc<str>, Writes)>,
    ) {
        let left = filesystems.map(|fs| {
            let fs = fs?;
            Some(Left {
                device: fs.device,
                counted_as: counted_as(fs.device),
                bytes: fs.available,
                inodes: fs.inodes_free,
            })
        });
        let dirs = reading.pods.clone().unwrap_or_default();
        let is_far = |sample: &Sample| reading.at.since(sample.at) > TOO_OLD;
        if self.samples.back().is_some_and(is_far) {
            self.samples.clear();
        }
        self.samples.push_back(Sample { at: reading.at, left, written, dirs });
        let is_spare = |second: &Sample| reading.at.since(second.at) >= WINDOW;
        while self.samples.len() > KEPT || self.samples.get(1).is_some_and(is_spare) {
            self.samples.pop_front();
        }
    }

    /// Time until the filesystem behind a signal is full at the rate of late; `None` when it does not fall, or was not seen twice.
    #[must_use]
    pub fn time_left(&self, signal: Signal) -> Option<Duration> {
        let place = match signal {
            Signal::NodeFsAvailable => 0,
            Signal::ImageFsAvailable => 1,
            Signal::ContainerFsAvailable => 2,
            _ => return None,
        };
        let rate = self.fall(place)?.bytes_per_second.filter(|rate| *rate > 0)?;
        let left = self.samples.back()?.left.get(place)?.as_ref()?.bytes;
        Some(Duration::from_millis(left.saturating_mul(1000) / rate))
    }

    /// Adds to a snapshot what each filesystem lost and what each pod added.
    pub fn fill(&self, snapshot: &mut Snapshot, clock: &Clock) {
        let Some(last) = self.samples.back() else { return };
        // A snapshot of another moment has figures that these do not explain.
        if snapshot.node.node_fs.is_none_or(|fs| fs.observed_at != Some(clock.time(last.at))) {
            return;
        }
        let node = &mut snapshot.node;
        let facts = [&mut node.node_fs, &mut node.image_fs, &mut node.container_fs];
        for (place, facts) in facts.into_iter().enumerate() {
            if let Some(facts) = facts {
                facts.fall = self.fall(place);
            }
        }
        let Some(over) = self.over() else { return };
        for workload in &mut snapshot.workloads {
            let Some(uid) = workload.key.uid.as_deref().filter(|_| workload.key.cgroup.is_none())
            else {
                continue;
            };
            if let Some(stats) = &mut workload.stats {
                stats.disk_growth = self.growth(uid, over);
            }
        }
    }

    /// The time between the samples that are compared.
    fn over(&self) -> Option<Millis> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let over = last.at.since(first.at);
        (!over.is_zero()).then(|| millis(over))
    }

    fn fall(&self, place: usize) -> Option<FsFall> {
        let of = |sample: &Sample| sample.left.get(place).copied().flatten();
        let last = self.samples.back()?;
        let now = of(last)?;
        let same = |sample: &&Sample| of(sample).is_some_and(|left| left.device == now.device);
        let before = self.samples.iter().rev().skip(1).take_while(same);
        let first = before.clone().last()?;
        let then = of(first)?;
        let late = before.take_while(|sample| last.at.since(sample.at) <= LATE).last();
        // Where readings are further apart, the one before this one is as late as it gets.
        let late = late.or_else(|| self.samples.iter().rev().nth(1))?;
        let (recent, elapsed) = (of(late)?, last.at.since(late.at));
        let rate = |then: u64, now: u64| {
            let fallen = u128::from(then.saturating_sub(now)) * 1_000_000_000;
            let rate = u64::try_from(fallen / elapsed.as_nanos().max(1)).unwrap_or(u64::MAX);
            (elapsed >= LEAST).then_some(rate)
        };
        let lost = |(then, now): (u64, u64)| then.saturating_sub(now);
        Some(FsFall {
            over: millis(last.at.since(first.at)),
            bytes: Some(lost((then.bytes, now.bytes))),
            inodes: then.inodes.zip(now.inodes).map(lost),
            bytes_per_second: rate(recent.bytes, now.bytes),
            inodes_per_second: recent
                .inodes
                .zip(now.inodes)
                .and_then(|(then, now)| rate(then, now)),
        })
    }

    fn growth(&self, uid: &str, over: Millis) -> Option<DiskGrowth> {
        let last = self.samples.back()?;
        let in_dirs = self.growth_of_dirs(uid, last);
        let (by_device, dirty) = self.growth_of_writes(uid, last);
        let grown = in_dirs.and_then(|growth| growth.grown).unwrap_or_default();
        let devices = last.left.map(|left| left.map(|left| left.device));
        let fs = |place: usize| {
            let left = last.left.get(place).copied().flatten()?;
            let is_nodes = devices.first().copied().flatten() == Some(left.device);
            let written = left.counted_as.and_then(|device| Some(by_device.as_ref()?.get(&device)));
            let written = written.map(|bytes| bytes.copied().unwrap_or_default());
            // What is dirty may be of any filesystem; what the directories grew by is of the node's.
            let others = if is_nodes { 0 } else { signed(grown) };
            let dirty = dirty.map(|dirty| dirty.saturating_sub(others));
            let sum = match (written, dirty) {
                (Some(written), Some(dirty)) => Some(signed(written).saturating_add(dirty)),
                (Some(written), None) => Some(signed(written)),
                (None, dirty) => dirty,
            };
            let own = in_dirs.filter(|_| is_nodes);
            let growth = FsGrowth {
                grown: own.and_then(|own| own.grown),
                inodes_grown: own.and_then(|own| own.inodes_grown),
                written: sum.map(|sum| u64::try_from(sum).unwrap_or(0)),
            };
            (growth != FsGrowth::default()).then_some(growth)
        };
        let growth = DiskGrowth { over, node_fs: fs(0), image_fs: fs(1), container_fs: fs(2) };
        let is_any =
            [growth.node_fs, growth.image_fs, growth.container_fs].iter().any(Option::is_some);
        is_any.then_some(growth)
    }

    /// By how much a pod's logs and volumes have grown; `None` when none was measured twice.
    fn growth_of_dirs(&self, uid: &str, last: &Sample) -> Option<FsGrowth> {
        let sizes = last.dirs.get(uid)?;
        let logs = sizes.logs.iter().filter_map(|(name, now)| {
            let then = self.samples.iter().find_map(|s| s.dirs.get(uid)?.logs.get(name))?;
            Some((then, now))
        });
        let volumes = sizes.volumes.iter().filter_map(|(name, now)| {
            let then = self.samples.iter().find_map(|s| s.dirs.get(uid)?.volumes.get(name))?;
            Some((then, now))
        });
        let mut sum: Option<FsGrowth> = None;
        for (then, now) in logs.chain(volumes).filter(|(then, now)| then.at < now.at) {
            let FsGrowth { grown, inodes_grown, written: _ } = sum.unwrap_or_default();
            let add = |sum: Option<u64>, of: fn(&Figure) -> Option<u64>| {
                let more = of(now)?.saturating_sub(of(then)?);
                Some(sum.unwrap_or_default().saturating_add(more))
            };
            sum = Some(FsGrowth {
                grown: add(grown, |figure| figure.usage.used_bytes).or(grown),
                inodes_grown: add(inodes_grown, |figure| figure.usage.inodes_used).or(inodes_grown),
                written: None,
            });
        }
        sum
    }

    /// What a pod's cgroups have written, by device, and by how much more of it is dirty.
    fn growth_of_writes(
        &self,
        uid: &str,
        last: &Sample,
    ) -> (Option<BTreeMap<u64, u64>>, Option<i64>) {
        let mut devices: Option<BTreeMap<u64, u64>> = None;
        let mut dirty: Option<i64> = None;
        for (id, (_, now)) in last.written.iter().filter(|(_, (owner, _))| &**owner == uid) {
            let then = self.samples.iter().find_map(|sample| sample.written.get(id));
            let Some((_, then)) = then else { continue };
            if let (Some(now), Some(then)) = (&now.devices, &then.devices) {
                let sum = devices.get_or_insert_default();
                for (device, total) in now {
                    let before = then.get(device).copied().unwrap_or_default();
                    *sum.entry(*device).or_default() += total.saturating_sub(before);
                }
            }
            if let (Some(now), Some(then)) = (now.dirty, then.dirty) {
                let more = signed(now).saturating_sub(signed(then));
                dirty = Some(dirty.unwrap_or_default().saturating_add(more));
            }
        }
        (devices, dirty)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
