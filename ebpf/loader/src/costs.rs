//! What programs cost whoever runs into them, as the kernel measures it while somebody asks it to: see [`Probes::costs`](crate::Probes::costs).
use crate::core_tier::Nothing;
use aya::sys::{Stats, enable_stats};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel measures as long as this is held. It needs privileges, and costs each run two looks at a clock, one of which is part of what it finds: see [`Meter::own`].
#[derive(Debug)]
pub struct Meter {
    /// Closing it ends the measuring.
    _held: OwnedFd,
    nothing: Nothing,
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
        Ok(Self { _held: held, nothing: Nothing::attach()? })
    }

    /// What it has found of a program that does nothing and runs wherever a task is made: that much of every run is the measuring itself.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn own(&self) -> io::Result<Cost> {
        self.nothing.cost()
    }
}

impl Cost {
    /// Nanoseconds a run; `None` when it never ran.
    #[must_use]
    pub fn each(&self) -> Option<u64> {
        let total = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        total.checked_div(self.runs)
    }

    /// The same without what the measuring took of each run.
    #[must_use]
    pub fn without(self, own: &Self) -> Self {
        let measuring = own.each().unwrap_or(0).saturating_mul(self.runs);
        Self { time: self.time.saturating_sub(Duration::from_nanos(measuring)), ..self }
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

    #[test]
    fn what_the_measuring_takes_is_taken_off_each_run_and_never_more_than_there_is() {
        let cost = |runs, ns| Cost { program: "fork", runs, time: Duration::from_nanos(ns) };
        assert_eq!(cost(10, 2000).without(&cost(4, 200)), cost(10, 1500));
        assert_eq!(cost(10, 300).without(&cost(4, 200)), cost(10, 0));
        assert_eq!(cost(10, 300).without(&cost(0, 0)), cost(10, 300));
    }
}
