//! What programs that look at the kernel's counters have to be told of this machine.
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::time::Duration;

/// How many NUMA nodes there can be, those that may be added later included.
pub(crate) fn possible_nodes() -> Result<u32, &'static str> {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/possible");
    // Without the directory the kernel knows of no other node than the first.
    let count = nodes.map_or(Some(1), |text| highest(&text)?.checked_add(1));
    count.ok_or("the number of NUMA nodes is unknown")
}

/// Bytes of a page; more than 0.
pub(crate) fn page_size() -> Result<i64, &'static str> {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    page.filter(|page| *page > 0).ok_or("the size of a page is unknown")
}

/// The time by which programs count, which goes on while the machine is suspended.
pub(crate) fn boot_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

/// The highest number in a list such as `0-3,5`.
fn highest(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_list_is_the_highest() {
        assert_eq!(highest("0\n"), Some(0));
        assert_eq!(highest("0-3\n"), Some(3));
        assert_eq!(highest("0-1,6"), Some(6));
        assert_eq!(highest(""), None);
    }
}
