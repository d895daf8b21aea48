//! Swap on zram: what it holds, and how much memory it takes for that.
//!
//! ```text
//!  SwapTotal has changed ─► /proc/swaps ─► which devices are zram ─► /sys/block/zramN/mm_stat, kept open
//! ```
//! On a node without zram this reads a file whenever the size of swap changes, and nothing else.

use super::Roots;
use super::file::KeptFile;
use ebb_policy::snapshot::ZramFacts;
use std::path::{Path, PathBuf};

/// Reads the node's zram devices again and again.
#[derive(Debug)]
pub struct ZramSensor {
    swaps: Option<KeptFile>,
    block: PathBuf,
    /// `SwapTotal` when the devices were looked for last.
    looked_at: Option<u64>,
    devices: Vec<Device>,
}

#[derive(Debug)]
struct Device {
    name: String,
    stat: Option<KeptFile>,
}

/// A line of `/proc/swaps`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    name: &'a str,
    size: u64,
    used: u64,
}

impl ZramSensor {
    /// Opens what there is; sysfs is taken to be mounted beside procfs.
    #[must_use]
    pub fn open(roots: &Roots) -> Self {
        let beside = roots.proc.parent().map(|parent| parent.join("sys/block"));
        let block = beside.filter(|dir| dir.is_dir()).unwrap_or_else(|| "/sys/block".into());
        let swaps = KeptFile::open(&roots.proc.join("swaps")).ok();
        Self { swaps, block, looked_at: None, devices: Vec::new() }
    }

    /// Reads all devices; `None` when none of the node's swap is on zram. `swap_total` is `SwapTotal`, in bytes.
    pub fn read(&mut self, swap_total: Option<u64>, buffer: &mut Vec<u8>) -> Option<ZramFacts> {
        let is_known = self.looked_at == swap_total;
        self.looked_at = swap_total;
        if swap_total.is_none_or(|total| total == 0) || is_known && self.devices.is_empty() {
            self.devices.clear();
            return None;
        }
        let text = self.swaps.as_ref()?.read(buffer).ok()?;
        let mut facts = ZramFacts { total: 0, used: 0, stored: Some(0), memory: Some(0) };
        let mut devices = Vec::new();
        for line in text.lines().skip(1).filter_map(parse) {
            let Some(name) = zram(line.name) else { continue };
            facts.total = facts.total.saturating_add(line.size);
            facts.used = facts.used.saturating_add(line.used);
            let open = self.devices.iter().position(|device| device.name == name);
            devices.push(match open {
                Some(open) => self.devices.swap_remove(open),
                None => Device::open(name, &self.block),
            });
        }
        self.devices = devices;
        for device in &self.devices {
            let (stored, memory) = device.read(buffer).unzip();
            facts.stored = facts.stored.zip(stored).map(|(sum, more)| sum.saturating_add(more));
            facts.memory = facts.memory.zip(memory).map(|(sum, more)| sum.saturating_add(more));
        }
        (!self.devices.is_empty()).then_some(facts)
    }
}

impl Device {
    fn open(name: &str, block: &Path) -> Self {
        let stat = KeptFile::open(&block.join(name).join("mm_stat")).ok();
        Self { name: name.to_owned(), stat }
    }

    /// What it holds and what it takes, bytes: the first and the third column of `mm_stat`.
    fn read(&self, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
        let text = self.stat.as_ref()?.read_value(buffer).ok()?;
        let mut columns = text.split_ascii_whitespace().map(|column| column.parse().ok());
        Some((columns.next()??, columns.nth(1)??))
    }
}

/// The name of a zram device, given its path.
fn zram(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let number = name.strip_prefix("zram")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// A line such as `/dev/zram0  partition  8388604  1024  100`, which counts KiB.
fn parse(line: &str) -> Option<Line<'_>> {
    let mut columns = line.split_ascii_whitespace();
    let (name, _) = (columns.next()?, columns.next()?);
    let mut kib = || columns.next()?.parse::<u64>().ok()?.checked_mul(1024);
    Some(Line { name, size: kib()?, used: kib()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    // The form of a 6.12 kernel.
    const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
    const DISK: &str = "/dev/vda2                               partition\t2000\t\t100\t\t-2\n";
    const ZRAM: &str = "/dev/zram0                              partition\t4000\t\t800\t\t100\n";
    const STAT: &str =
        "  819200   200000   262144        0   300000       12        0        0        0\n";

    fn node(swaps: &str) -> (tempfile::TempDir, ZramSensor) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/block/zram0")).unwrap();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("sys/block/zram0/mm_stat"), STAT).unwrap();
        fs::write(dir.path().join("proc/swaps"), swaps).unwrap();
        let roots = Roots { proc: dir.path().join("proc"), cgroup: dir.path().into() };
        let sensor = ZramSensor::open(&roots);
        (dir, sensor)
    }

    #[test]
    fn zram_is_told_apart_from_a_disk_and_counted_by_what_it_takes() {
        let (_dir, mut sensor) = node(&format!("{HEAD}{DISK}{ZRAM}"));
        let facts = ZramFacts {
            total: 4000 << 10,
            used: 800 << 10,
            stored: Some(819_200),
            memory: Some(262_144),
        };
        assert_eq!(sensor.read(Some(6000 << 10), &mut Vec::new()), Some(facts));
    }

    #[test]
    fn one_that_is_added_late_is_found_when_the_size_of_swap_changes() {
        let (dir, mut sensor) = node(HEAD);
        let mut buffer = Vec::new();
        assert_eq!(sensor.read(Some(0), &mut buffer), None);
        let write = |text: &str| fs::write(dir.path().join("proc/swaps"), text).unwrap();
        write(&format!("{HEAD}{DISK}"));
        assert_eq!(sensor.read(Some(2000 << 10), &mut buffer), None);
        write(&format!("{HEAD}{DISK}{ZRAM}"));
        let found = sensor.read(Some(6000 << 10), &mut buffer);
        assert_eq!(found.map(|zram| zram.used), Some(800 << 10));
        write(&format!("{HEAD}{DISK}"));
        assert_eq!(sensor.read(Some(2000 << 10), &mut buffer), None, "swapoff");
    }

    #[test]
    fn what_a_device_does_not_tell_is_unknown() {
        let (dir, mut sensor) = node(&format!("{HEAD}{ZRAM}"));
        fs::write(dir.path().join("sys/block/zram0/mm_stat"), "819200 many\n").unwrap();
        let facts = sensor.read(Some(4000 << 10), &mut Vec::new()).unwrap();
        assert_eq!((facts.stored, facts.memory, facts.used), (None, None, 800 << 10));
        assert_eq!(zram("/dev/zramble"), None);
    }
}
