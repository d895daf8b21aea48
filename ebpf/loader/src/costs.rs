//! What programs cost whoever runs into them, as the kernel measures it while somebody asks it to: see [`Probes::costs`](crate::Probes::costs).
use aya::sys::{Stats, enable_stats};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel measures as long as this is held. It needs privileges, and costs each run two looks at a clock, which are part of what it finds.
#[derive(Debug)]
pub struct Meter {
    /// Closing it ends the measuring.
    _held: OwnedFd,
}

/// What one program has cost so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Its name.
    pub program: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// For how long, all together.
    pub time: Duration,
}

impl Meter {
    /// Have the kernel measure.
    ///
    /// # Errors
    /// When the kernel does not let this process ask for it.
    pub fn start() -> io::Result<Self> {
        let held = enable_stats(Stats::RunTime).map_err(io::Error::other)?;
        Ok(Self { _held: held })
    }
}

impl Cost {
    /// Nanoseconds a run; `None` when it never ran.
    #[must_use]
    pub fn each(&self) -> Option<u64> {
        let total = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        total.checked_div(self.runs)
    }
}

/// Programs that run when a task is made and ends, and when one reclaims memory or waits for it.
const FORK: [&str; 3] = ["fork", "exit_live", "exit_group_dead"];
const RECLAIM: [&str; 4] =
    ["direct_reclaim_begin", "direct_reclaim_end", "memstall_enter", "memstall_leave"];

/// The share of one core, in millionths, that so many forks (with their exits) and direct reclaims (with the waiting that each is) a second take at these costs.
#[must_use]
pub fn share(costs: &[Cost], forks: u64, reclaims: u64) -> u64 {
    let each = |programs: &[&str]| -> u64 {
        let of = costs.iter().filter(|cost| programs.contains(&cost.program));
        of.filter_map(Cost::each).sum()
    };
    (forks * each(&FORK) + reclaims * each(&RECLAIM)) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_what_a_second_is_made_of() {
        let cost = |program, runs, ns| Cost { program, runs, time: Duration::from_nanos(ns) };
        let costs = [cost("fork", 10, 2000), cost("exit_live", 10, 3000), cost("exec", 1, 900)];
        // 10,000 times 500 ns are 5 ms a second.
        assert_eq!(share(&costs, 10_000, 1000), 5000);
        let costs = [cost("direct_reclaim_begin", 2, 2000), cost("memstall_leave", 0, 0)];
        assert_eq!(share(&costs, 10_000, 1000), 1000);
        assert_eq!(costs[1].each(), None);
    }
}
