//! One cgroup as a sweep shows it, whoever made the sweep.
use ebb_wire::told;

/// What one cgroup uses, itself and all below it. Bytes unless said; what nothing tells is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Its id: the inode of its directory.
    pub id: u64,
    /// The id of the cgroup above; `None` for the one at which the sweep began.
    pub parent: Option<u64>,
    /// How far below the one at which the sweep began.
    pub depth: u32,
    /// `memory.current`.
    pub usage: Option<Told>,
    /// `memory.min`; [`Told::NO_LIMIT`] for `max`, as the three below.
    pub min: Option<Told>,
    /// `memory.low`.
    pub low: Option<Told>,
    /// `memory.high`.
    pub high: Option<Told>,
    /// `memory.max`.
    pub max: Option<Told>,
    /// `memory.swap.current`.
    pub swap: Option<Told>,
    /// `low` of `memory.events`, a count, as those below.
    pub low_events: Option<Told>,
    /// `high`.
    pub high_events: Option<Told>,
    /// `max`.
    pub max_events: Option<Told>,
    /// `oom`.
    pub oom_events: Option<Told>,
    /// `oom_kill`.
    pub oom_kills: Option<Told>,
    /// `pids.current`: threads.
    pub pids: Option<Told>,
    /// `anon` of `memory.stat`.
    pub anon: Option<Told>,
    /// `file`.
    pub file: Option<Told>,
    /// `active_file`.
    pub active_file: Option<Told>,
    /// `inactive_file`.
    pub inactive_file: Option<Told>,
    /// `shmem`.
    pub shmem: Option<Told>,
    /// `kernel`.
    pub kernel: Option<Told>,
    /// `workingset_refault_file`: pages, cumulative.
    pub refaults: Option<Told>,
    /// `pgscan`: pages, cumulative.
    pub scans: Option<Told>,
}

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The value, in the unit that its field names.
    pub value: u64,
    /// Who says so.
    pub from: Source,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A function that the kernel offers to programs.
    Kfunc,
    /// A counter of the controller's, read where it is.
    Counter,
    /// The controller's statistics, read where they are after a flush.
    Rstat,
    /// A file of the cgroup.
    File,
}

impl Told {
    /// What stands for `max` in a limit.
    pub const NO_LIMIT: u64 = u64::MAX;
}

/// How the numbers of a record become those of a [`Swept`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    page: u64,
    stat: Source,
}

impl Units {
    pub(super) fn new(page: u64, stat: Source) -> Self {
        Self { page, stat }
    }

    /// The cgroup of a record, given the level at which the sweep began.
    pub(super) fn swept(&self, record: &ebb_wire::Swept, top: u32) -> Swept {
        let ebb_wire::Swept {
            cgroup,
            parent,
            level,
            told: groups,
            usage,
            min,
            low,
            high,
            max,
            swap,
            low_events,
            high_events,
            max_events,
            oom_events,
            oom_kills,
            pids,
            anon,
            file,
            active_file,
            inactive_file,
            shmem,
            kernel,
            refaults,
            scans,
        } = *record;
        let told = |group, value, from| (groups & group != 0).then_some(Told { value, from });
        let pages = |count: u64| told(told::MEMORY, count * self.page, Source::Counter);
        // The largest number of pages that the kernel can count is how it says that there is no limit.
        let unlimited = i64::MAX.unsigned_abs() / self.page;
        let limit = |count: u64| {
            let bytes = if count >= unlimited { Told::NO_LIMIT } else { count * self.page };
            told(told::MEMORY, bytes, Source::Counter)
        };
        let by_function = self.stat == Source::Kfunc;
        let events = if by_function { Source::Kfunc } else { Source::Counter };
        let event = |count| told(told::EVENTS, count, events);
        let unit = if by_function { 1 } else { self.page };
        let stat = |amount: u64| told(told::STAT, amount * unit, self.stat);
        Swept {
            id: cgroup,
            parent: (level > top).then_some(parent),
            depth: level.saturating_sub(top),
            usage: pages(usage),
            min: limit(min),
            low: limit(low),
            high: limit(high),
            max: limit(max),
            swap: pages(swap),
            low_events: event(low_events),
            high_events: event(high_events),
            max_events: event(max_events),
            oom_events: event(oom_events),
            oom_kills: event(oom_kills),
            pids: told(told::PIDS, pids, Source::Counter),
            anon: stat(anon),
            file: stat(file),
            active_file: stat(active_file),
            inactive_file: stat(inactive_file),
            shmem: stat(shmem),
            kernel: stat(kernel),
            refaults: told(told::STAT, refaults, self.stat),
            scans: told(told::SCANS, scans, self.stat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(told: u32) -> ebb_wire::Swept {
        ebb_wire::Swept {
            cgroup: 7,
            parent: 3,
            level: 4,
            told,
            usage: 2,
            high: 5,
            max: i64::MAX.unsigned_abs() / 4096,
            oom_kills: 9,
            anon: 1,
            refaults: 11,
            ..ebb_wire::Swept::default()
        }
    }

    #[test]
    fn pages_become_bytes_and_the_largest_count_is_no_limit() {
        let swept = Units::new(4096, Source::Rstat).swept(&record(told::MEMORY | told::STAT), 2);
        assert_eq!(swept.usage, Some(Told { value: 8192, from: Source::Counter }));
        assert_eq!(swept.high.map(|high| high.value), Some(20480));
        assert_eq!(swept.max.map(|max| max.value), Some(Told::NO_LIMIT));
        assert_eq!(swept.anon, Some(Told { value: 4096, from: Source::Rstat }));
        assert_eq!(swept.refaults.map(|refaults| refaults.value), Some(11), "a count stays one");
        assert_eq!((swept.depth, swept.parent), (2, Some(3)));
    }

    #[test]
    fn what_functions_tell_is_in_bytes_already() {
        let swept = Units::new(4096, Source::Kfunc).swept(&record(told::STAT), 4);
        assert_eq!(swept.anon, Some(Told { value: 1, from: Source::Kfunc }));
        assert_eq!((swept.depth, swept.parent), (0, None), "above the sweep is nothing");
    }

    #[test]
    fn what_was_not_told_is_unknown_and_not_what_was_left_in_the_record() {
        let swept = Units::new(4096, Source::Kfunc).swept(&record(told::PIDS), 4);
        assert_eq!((swept.usage, swept.oom_kills, swept.anon), (None, None, None));
        assert_eq!(swept.pids.map(|pids| pids.value), Some(0));
    }
}
