//! What every cgroup of a subtree uses, in one pass: by a program where the kernel runs one over the tree, else from files.
//!
//! ```text
//!  Sweep::open ─► first of: kernel functions · counters and statistics · counters ─► read ─► Swept, one per cgroup
//!                 none: Refused says why of each                     read_files ─► Swept, the same from files
//! ```
//! A sweep takes one system call for the whole tree, shows it as it was at one moment, and opens no file of any cgroup.
//! Each value says where it comes from ([`Source`]); what no source tells is `None`. Pressure totals are not among them:
//! the kernel brings them up to date when their file is read, and not before.
mod files;
mod record;

pub use files::read_files;
pub use record::{Source, Swept, Told};

use crate::attach::Refusal;
use crate::core_tier::{SWEEP_OBJECT, Walk};
use crate::host::HostSupport;
use nix::unistd::{SysconfVar, sysconf};
use record::Units;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// Room for this many cgroups to begin with.
const ROOM: u32 = 1024;

/// Room is not made for more cgroups than this: their records would take 48 MiB.
const MOST: usize = 262_144;

/// One program that sweeps, and what it takes.
struct Way {
    program: &'static str,
    /// Kernel functions that it calls.
    calls: &'static [&'static str],
    /// Whether it reads kernel memory at addresses that the verifier does not follow.
    peeks: bool,
    /// Where its statistics come from.
    stat: Source,
}

/// In order of preference.
const WAYS: [Way; 3] = [
    Way {
        program: "sweep_kfuncs",
        calls: &[
            "bpf_get_mem_cgroup",
            "bpf_mem_cgroup_flush_stats",
            "bpf_mem_cgroup_memory_events",
            "bpf_mem_cgroup_page_state",
            "bpf_mem_cgroup_vm_events",
            "bpf_put_mem_cgroup",
        ],
        peeks: false,
        stat: Source::Kfunc,
    },
    Way {
        program: "sweep_rstat",
        calls: &["cgroup_rstat_flush"],
        peeks: true,
        stat: Source::Rstat,
    },
    Way { program: "sweep_counters", calls: &[], peeks: true, stat: Source::Rstat },
];

/// The iterator itself, as the kernel's types name it.
const ITERATOR: &str = "bpf_iter_cgroup";

/// Why this host does not sweep: the reason of each way, the best way first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// Programs, each with its reason.
    pub reasons: Vec<(&'static str, String)>,
}

/// A sweep that did not succeed; the next one may.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The kernel did not run the program over the whole subtree.
    #[error("cannot sweep the cgroup tree")]
    Walk(#[source] io::Error),
    /// More cgroups than there will be room for.
    #[error("cannot sweep {found} cgroups: there is room for {MOST}")]
    TooMany {
        /// How many there were.
        found: usize,
    },
    /// More room was needed and could not be made.
    #[error("cannot make room for {found} cgroups: {why}")]
    Room {
        /// How many there were.
        found: usize,
        /// What was attempted, and the kernel's answer.
        why: String,
    },
}

/// A subtree that can be swept again and again. Dropping it unloads the program.
pub struct Sweep {
    walk: Walk,
    way: &'static Way,
    root: File,
    units: Units,
    told: u32,
}

impl Sweep {
    /// Prepare for the cgroup at `root` and all below it, by the best way that this host offers.
    ///
    /// # Errors
    /// Says of each way why it was not taken.
    pub fn open(root: &Path, host: &HostSupport) -> Result<Self, Refused> {
        let mut reasons = Vec::new();
        for way in &WAYS {
            match way.obstacle(host).map_or_else(|| Self::open_by(way, root), Err) {
                Ok(sweep) => return Ok(sweep),
                Err(reason) => reasons.push((way.program, reason)),
            }
        }
        Err(Refused { reasons })
    }

    fn open_by(way: &'static Way, root: &Path) -> Result<Self, String> {
        let opened = File::open(root);
        let root = opened.map_err(|error| format!("opening {}: {error}", root.display()))?;
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u64::try_from(bytes).ok());
        let page = page.ok_or("the size of a page is unknown")?;
        let walk = Walk::open(way.program, root.as_fd(), ROOM);
        let walk = walk.map_err(|Refusal(reason)| reason)?;
        let mut sweep = Self { walk, way, root, units: Units::new(page, way.stat), told: 0 };
        // Whether it can be run is part of whether it is offered.
        sweep.read(&mut Vec::new()).map_err(|error| match &error {
            SweepError::Walk(source) => format!("{error}: {source}"),
            _ => error.to_string(),
        })?;
        Ok(sweep)
    }

    /// Replace `into` by what every cgroup uses now, parents before their children.
    ///
    /// # Errors
    /// When the tree was not swept to its end; `into` is then empty.
    pub fn read(&mut self, into: &mut Vec<Swept>) -> Result<(), SweepError> {
        into.clear();
        let mut found = self.walk.run().map_err(SweepError::Walk)?;
        while found > self.walk.room() {
            self.make_room(found)?;
            found = self.walk.run().map_err(SweepError::Walk)?;
        }
        into.reserve(found);
        let records = (0..found).filter_map(|index| self.walk.record(index));
        let mut top = None;
        let mut told = 0;
        for record in records {
            let top = *top.get_or_insert(record.level);
            told |= record.told;
            into.push(self.units.swept(&record, top));
        }
        self.told |= told;
        Ok(())
    }

    /// Name of the program that sweeps.
    pub fn program(&self) -> &'static str {
        self.way.program
    }

    /// Where `memory.stat` values come from; `None` while no cgroup's were told, which then are to be read from files.
    pub fn stat(&self) -> Option<Source> {
        (self.told & ebb_wire::told::STAT != 0).then_some(self.way.stat)
    }

    fn make_room(&mut self, found: usize) -> Result<(), SweepError> {
        if found > MOST {
            return Err(SweepError::TooMany { found });
        }
        let entries = u32::try_from((found * 2).next_power_of_two().min(MOST));
        let entries = entries.map_err(|_| SweepError::TooMany { found })?;
        let walk = Walk::open(self.way.program, self.root.as_fd(), entries);
        self.walk = walk.map_err(|Refusal(why)| SweepError::Room { found, why })?;
        Ok(())
    }
}

impl Way {
    /// The first reason against it, if there is one.
    fn obstacle(&self, host: &HostSupport) -> Option<String> {
        let calls = [ITERATOR].into_iter().chain(self.calls.iter().copied());
        host.obstacle(SWEEP_OBJECT, calls, self.peeks)
    }
}

impl fmt::Display for Refused {
    /// The reason that stands for all of them: the simplest way's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reasons.last() {
            Some((_, reason)) => f.write_str(reason),
            None => f.write_str("there is no way"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::CALLED;
    use crate::host::{Capabilities, Lockdown, Presence, survey};

    /// A host that offers everything.
    fn host() -> HostSupport {
        HostSupport {
            btf: Presence::Present,
            capabilities: Capabilities { sys_admin: true, ..Capabilities::default() },
            lockdown: None,
            functions: CALLED.iter().copied().collect(),
            objects: vec![SWEEP_OBJECT.to_owned()],
            ..survey()
        }
    }

    fn obstacles(host: &HostSupport) -> [Option<String>; 3] {
        WAYS.each_ref().map(|way| way.obstacle(host))
    }

    #[test]
    fn a_host_with_everything_has_all_ways() {
        assert_eq!(obstacles(&host()), [None, None, None]);
    }

    #[test]
    fn every_function_that_a_way_calls_is_looked_up() {
        for name in WAYS.iter().flat_map(|way| way.calls).chain([&ITERATOR]) {
            assert!(CALLED.contains(name), "{name} is not looked up");
        }
    }

    #[test]
    fn lockdown_leaves_the_way_that_reads_no_memory() {
        let host = HostSupport { lockdown: Some(Lockdown::Confidentiality), ..host() };
        let [kfuncs, rstat, counters] = obstacles(&host);
        assert_eq!(kfuncs, None);
        assert!(rstat.is_some() && counters.is_some());
    }

    #[test]
    fn a_kernel_without_the_iterator_is_named_as_such() {
        let mut host = host();
        host.functions.remove(ITERATOR);
        let Err(refused) = Sweep::open(Path::new("/sys/fs/cgroup"), &host) else {
            panic!("it sweeps without the iterator");
        };
        assert_eq!(refused.reasons.len(), 3);
        assert_eq!(refused.to_string(), "this kernel has no function bpf_iter_cgroup");
    }
}
