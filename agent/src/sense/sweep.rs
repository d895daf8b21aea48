//! What all cgroups use, read in one pass over the tree where the kernel runs a program for that, and from files where it does not.
//!
//! A sweep replaces some eight files of each workload by one system call for all of them. `memory.stat`, on
//! kernels that have no functions for it, is still read from the workload's own file; its pressure is not known until all its files are read.
//! The kernel walks the tree under a lock which whoever makes a cgroup holds too, and who makes one may wait for memory: so this is for calm times, and
//! near a threshold each workload is read by itself.

use super::cgroup::Usage;
use ebb_probes::{HostSupport, Source, Sweep, Swept, Told};
use std::collections::HashMap;
use std::path::Path;

/// Sweeps, or does not.
#[derive(Default)]
pub struct Sweeper {
    sweep: Option<Sweep>,
    swept: Vec<Swept>,
    places: HashMap<u64, usize>,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("swept", &self.swept.len()).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// Sweeps the tree at `root` by the best way that the host offers.
    ///
    /// # Errors
    /// Why files have to be read instead.
    pub fn open(root: &Path, host: &HostSupport) -> Result<Self, String> {
        let sweep = Sweep::open(root, host).map_err(|refused| refused.to_string())?;
        Ok(Self { sweep: Some(sweep), ..Self::default() })
    }

    /// Where values come from, for people; `None` where files are all there is.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        let sweep = self.sweep.as_ref()?;
        let stat = match sweep.stat() {
            Some(Source::Kfunc) => "memory.stat by kernel function",
            Some(_) => "memory.stat by the kernel's statistics",
            None => "memory.stat from files",
        };
        Some(format!("cgroups in one sweep: counters by iterator, {stat}, pressure from files"))
    }

    /// Sweeps now; afterwards [`Self::of`] tells what was found. A sweep that fails is the last: files do not fail.
    pub fn sweep(&mut self) {
        self.forget();
        let Some(sweep) = &mut self.sweep else { return };
        if let Err(error) = sweep.read(&mut self.swept) {
            tracing::warn!(%error, "cgroups are read from files from now on");
            self.sweep = None;
            return;
        }
        self.places.extend(self.swept.iter().enumerate().map(|(place, cgroup)| (cgroup.id, place)));
    }

    /// Lets go of what the last sweep found.
    pub fn forget(&mut self) {
        self.swept.clear();
        self.places.clear();
    }

    /// What the last sweep found of the cgroup `id`; `None` when it was not there, or nothing was swept.
    #[must_use]
    pub fn of(&self, id: u64) -> Option<&Swept> {
        self.swept.get(*self.places.get(&id)?)
    }
}

impl Usage {
    /// Takes over what a sweep told; the rest stays as it is.
    pub fn take(&mut self, swept: &Swept) {
        let told = |told: Option<Told>| told.map(|told| told.value);
        // In a limit `max` is a number of its own there.
        let limit = |limit: Option<Told>| {
            told(limit).map(|bytes| (bytes != Told::NO_LIMIT).then_some(bytes))
        };
        self.current = told(swept.usage);
        self.swap = told(swept.swap);
        self.min = told(swept.min);
        self.low = told(swept.low);
        self.max = limit(swept.max);
        self.high = limit(swept.high);
        self.max_events = told(swept.max_events);
        self.oom_kills = told(swept.oom_kills);
        self.pids = told(swept.pids);
        if swept.anon.is_some() {
            self.anon = told(swept.anon);
            self.file = told(swept.file);
            self.active_file = told(swept.active_file);
            self.inactive_file = told(swept.inactive_file);
            self.shmem = told(swept.shmem);
            self.kernel = told(swept.kernel);
            self.refaults = told(swept.refaults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: u64) -> Option<Told> {
        Some(Told { value, from: Source::Counter })
    }

    #[test]
    fn what_a_sweep_does_not_tell_stays_as_the_files_said() {
        let mut usage = Usage { anon: Some(5), current: Some(1), ..Usage::default() };
        let swept =
            Swept { usage: told(9), max: told(Told::NO_LIMIT), high: told(7), ..Swept::default() };
        usage.take(&swept);
        assert_eq!((usage.current, usage.anon), (Some(9), Some(5)));
        assert_eq!((usage.max, usage.high), (Some(None), Some(Some(7))));
        assert_eq!(usage.pids, None, "no counter, no value");
    }

    #[test]
    fn without_a_sweep_nothing_is_found_and_nothing_is_shown() {
        let mut sweeper = Sweeper::default();
        sweeper.sweep();
        assert!(sweeper.of(1).is_none() && sweeper.shown().is_none());
    }
}
