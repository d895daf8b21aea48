//! `/proc/meminfo`: the node's memory, in bytes.
//!
//! One read of this file costs no flush of per-cgroup statistics, unlike the root's `memory.stat`, so it is what the fast path looks at.

use ebb_policy::snapshot::ZramFacts;
use std::io;

/// The node's memory as the kernel counts it, in bytes; a line the kernel does not print is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Usable memory (`MemTotal`).
    pub total: u64,
    /// Pages on the free lists (`MemFree`).
    pub free: Option<u64>,
    /// The kernel's own estimate of what can be given out without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// What shows nowhere in this file: the total less what is free and what has any use that is listed. Among it are the per-processor lists of free pages and what drivers hold.
    pub unaccounted: Option<u64>,
    /// Anonymous pages (`AnonPages`).
    pub anon: Option<u64>,
    /// Page cache as the memory controller counts it: `Cached` + `Buffers` + `SwapCached`, so tmpfs and shared memory are in it.
    pub file: Option<u64>,
    /// `Inactive(file)`.
    pub inactive_file: Option<u64>,
    /// `Active(file)`.
    pub active_file: Option<u64>,
    /// tmpfs and shared memory (`Shmem`).
    pub shmem: Option<u64>,
    /// Reclaimable slab (`SReclaimable`).
    pub slab_reclaimable: Option<u64>,
    /// Unreclaimable slab (`SUnreclaim`).
    pub slab_unreclaimable: Option<u64>,
    /// Swap space (`SwapTotal`); 0 is a node without swap.
    pub swap_total: Option<u64>,
    /// Swap space left (`SwapFree`).
    pub swap_free: Option<u64>,
    /// Memory that zswap takes for its swapped pages (`Zswap`).
    pub zswap: Option<u64>,
    /// Swap on zram, which `meminfo` does not tell apart: see [`super::zram`].
    pub zram: Option<ZramFacts>,
}

/// Other uses of memory by the kernel and on its behalf; older kernels have some of them. Stacks may be counted twice, as they lie in vmalloc's memory.
const KERNEL: [&str; 7] =
    ["KernelStack", "PageTables", "SecPageTables", "Percpu", "VmallocUsed", "Hugetlb", "Balloon"];

/// What "available memory" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// As the kubelet computes it: see [`MemInfo::working_set_available`].
    WorkingSet,
    /// `MemAvailable`, the kernel's own estimate: active page cache counts as available, kernel memory does not.
    MemAvailable,
}

impl MemInfo {
    /// Available memory in bytes, by either meaning; `None` when the kernel does not print what that takes.
    #[must_use]
    pub fn available_by(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::WorkingSet => self.working_set_available(),
            Measure::MemAvailable => self.available,
        }
    }

    /// Bytes that swap can still take off memory; `None` without swap, or when it is not told: see [`ebb_policy::swap`].
    #[must_use]
    pub fn swap_available(&self) -> Option<u64> {
        ebb_policy::swap::available(self.swap_total, self.swap_free, self.zram)
    }

    /// Available memory and swap together, bytes; without swap memory alone.
    #[must_use]
    pub fn with_swap_available(&self, measure: Measure) -> Option<u64> {
        let swap = match self.swap_total? {
            0 => 0,
            _ => self.swap_available()?,
        };
        Some(self.available_by(measure)?.saturating_add(swap))
    }

    /// Memory that zswap and zram take for swapped pages, bytes; `None` when neither is told.
    #[must_use]
    pub fn swap_in_memory(&self) -> Option<u64> {
        let zram = self.zram.and_then(|zram| zram.memory);
        let parts = [zram, self.zswap].into_iter().flatten();
        parts.reduce(u64::saturating_add)
    }

    /// Parses the file's text.
    ///
    /// # Errors
    /// `InvalidData` when there is no `MemTotal`: then nothing that follows means anything.
    pub fn parse(text: &str) -> io::Result<Self> {
        let mut info = Self::default();
        let mut total = None;
        let (mut cached, mut buffers, mut swap_cached) = (None, None, None);
        let mut kernel: u64 = 0;
        for line in text.lines() {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let bytes = || {
                let kib = rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
                kib.checked_mul(1024)
            };
            let slot = match key {
                "MemTotal" => &mut total,
                "MemFree" => &mut info.free,
                "MemAvailable" => &mut info.available,
                "AnonPages" => &mut info.anon,
                "Cached" => &mut cached,
                "Buffers" => &mut buffers,
                "SwapCached" => &mut swap_cached,
                "Inactive(file)" => &mut info.inactive_file,
                "Active(file)" => &mut info.active_file,
                "Shmem" => &mut info.shmem,
                "SReclaimable" => &mut info.slab_reclaimable,
                "SUnreclaim" => &mut info.slab_unreclaimable,
                "SwapTotal" => &mut info.swap_total,
                "SwapFree" => &mut info.swap_free,
                "Zswap" => &mut info.zswap,
                key if KERNEL.contains(&key) => {
                    kernel = kernel.saturating_add(bytes().unwrap_or(0));
                    continue;
                }
                _ => continue,
            };
            *slot = bytes();
        }
        info.total = total
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "meminfo has no MemTotal"))?;
        info.file = match (cached, buffers) {
            (Some(c), Some(b)) => {
                Some(c.saturating_add(b).saturating_add(swap_cached.unwrap_or(0)))
            }
            _ => None,
        };
        info.unaccounted = info.less_accounted(kernel);
        Ok(info)
    }

    /// The total less everything that is told of, `kernel` among it; `None` where what is most of it is not told.
    fn less_accounted(&self, kernel: u64) -> Option<u64> {
        let pages = self.free?.saturating_add(self.anon?).saturating_add(self.file?);
        let slab = self.slab_reclaimable?.saturating_add(self.slab_unreclaimable?);
        let other = kernel.saturating_add(self.zswap.unwrap_or(0));
        Some(self.total.saturating_sub(pages).saturating_sub(slab).saturating_sub(other))
    }

    /// The kubelet's `memory.available`: total − (anon + file − inactive file).
    ///
    /// The kubelet reads anon and file from the root's `memory.stat`; these are the same counters without the flush.
    /// Kernel memory is not counted and active page cache counts as used, as there (k/k #43916).
    #[must_use]
    pub fn working_set_available(&self) -> Option<u64> {
        let used = self.anon?.saturating_add(self.file?);
        Some(self.total.saturating_sub(used.saturating_sub(self.inactive_file?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Captured with `cat /proc/meminfo` in a 1.5 GB guest on 6.12, shortened to the lines that are read.
    const GUEST: &str = "MemTotal:        1503856 kB\nMemFree:         1350000 kB\nMemAvailable:    1380000 kB\nBuffers:            2000 kB\nCached:            50000 kB\nSwapCached:            0 kB\nActive(file):      10000 kB\nInactive(file):    30000 kB\nAnonPages:         20000 kB\nShmem:              1000 kB\nSReclaimable:      12000 kB\nSUnreclaim:        15000 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n";

    #[test]
    fn working_set_leaves_out_inactive_file_only() {
        let info = MemInfo::parse(GUEST).unwrap();
        let used = (20000 + 50000 + 2000 - 30000) * 1024;
        assert_eq!(info.working_set_available(), Some(1_503_856 * 1024 - used));
        assert_eq!(info.swap_total, Some(0));
    }

    #[test]
    fn what_shows_nowhere_is_what_no_line_tells_of() {
        let listed = 1_350_000 + 20_000 + 52_000 + 27_000;
        let unaccounted = |text: &str| MemInfo::parse(text).unwrap().unaccounted;
        assert_eq!(unaccounted(GUEST), Some((1_503_856 - listed) * 1024));
        let more = format!(
            "{GUEST}KernelStack: 2000 kB\nPercpu: 500 kB\nHugetlb: 8192 kB\nZswap: 100 kB\n"
        );
        assert_eq!(unaccounted(&more), Some((1_503_856 - listed - 10_792) * 1024));
        let unlisted = GUEST.replace("AnonPages", "Others");
        assert_eq!(unaccounted(&unlisted), None);
    }

    #[test]
    fn a_missing_line_is_unknown_and_a_missing_total_is_an_error() {
        let info = MemInfo::parse("MemTotal: 100 kB\n").unwrap();
        assert_eq!(info.available, None);
        assert_eq!(info.working_set_available(), None);
        assert!(MemInfo::parse("MemFree: 100 kB\n").is_err());
    }

    #[test]
    fn a_value_that_is_no_number_is_unknown() {
        let info = MemInfo::parse("MemTotal: 100 kB\nMemFree: many kB\n").unwrap();
        assert_eq!(info.free, None);
    }
}
