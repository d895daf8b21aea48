//! What the programs only count: read on demand, in batches.
use crate::attach::Running;
use crate::catalogue::Fact;
use crate::core_tier;
use crate::shared_maps::{CGROUPS, LOST, NODES, SharedMaps};
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use ebb_wire::{Counters, NodeCounters, kind};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// Running totals; what no attached program counts is `None`.
///
/// A total smaller than the last one has started again at 0: the map holds a bounded number of cgroups and
/// forgets the one that was longest idle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// By cgroup id. A cgroup that is missing has not been counted yet.
    pub cgroups: HashMap<u64, CgroupTotals>,
    /// kswapd wakes by NUMA node; a node that is missing has had none.
    pub kswapd_wakes: Option<BTreeMap<u32, u64>>,
}

/// Running totals of one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CgroupTotals {
    /// Tasks created, threads included.
    pub forks: Option<u64>,
    /// Programs started.
    pub execs: Option<u64>,
    /// Nanoseconds that its tasks waited for memory, summed over tasks.
    pub stall_ns: Option<u64>,
    /// How often its tasks reclaimed memory themselves because the node was short.
    pub direct_reclaims: Option<u64>,
    /// Nanoseconds spent in that.
    pub direct_reclaim_ns: Option<u64>,
    /// How often its tasks had to read page cache again soon after its eviction: once for a folio, which newer kernels
    /// make of many pages.
    pub refaults: Option<u64>,
    /// How often memory was reclaimed from it because of a limit of its own, or on request.
    pub memcg_reclaims: Option<u64>,
    /// Nanoseconds spent in that.
    pub memcg_reclaim_ns: Option<u64>,
    /// Pages that it gave back.
    pub reclaimed_pages: Option<u64>,
    /// Changes of its `memory.events`.
    pub memory_events: Option<u64>,
}

/// Records that were not delivered, over all CPUs: the ring had no room, or the kernel skipped the program because it was
/// already running on that CPU (some of those runs would have sent nothing, so these are upper bounds).
/// After a loss the state of the node is what the files say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Of [`KernelEvent::Exit`](crate::KernelEvent::Exit).
    pub exits: u64,
    /// Of [`KernelEvent::OomKill`](crate::KernelEvent::OomKill).
    pub oom_kills: u64,
    /// Of [`KernelEvent::MemoryEvent`](crate::KernelEvent::MemoryEvent).
    pub memory_events: u64,
    /// Of [`KernelEvent::Cgroup`](crate::KernelEvent::Cgroup).
    pub cgroups: u64,
    /// Of [`KernelEvent::KswapdWake`](crate::KernelEvent::KswapdWake).
    pub kswapd_wakes: u64,
    /// Delivered, but not a record.
    pub corrupt: u64,
}

/// A map that is there cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TotalsError {
    /// The map cannot be opened or looked into.
    #[error("cannot read the BPF map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// What the kernel answered.
        source: MapError,
    },
    /// The kernel does not say how many runs of a program it skipped.
    #[error("cannot ask the kernel about a BPF program")]
    Program(#[source] io::Error),
    /// The map cannot be read in batches.
    #[error("cannot read the BPF map {name} in batches")]
    Batch {
        /// Its name.
        name: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl Lost {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { exits, oom_kills, memory_events, cgroups, kswapd_wakes, corrupt } = self;
        exits + oom_kills + memory_events + cgroups + kswapd_wakes + corrupt
    }
}

impl CgroupTotals {
    fn new(counters: Counters, live: impl Fn(Fact) -> bool) -> Self {
        let told = |fact, total| live(fact).then_some(total);
        Self {
            forks: told(Fact::Forks, counters.forks),
            execs: told(Fact::Execs, counters.execs),
            stall_ns: told(Fact::MemoryStall, counters.stall_ns),
            direct_reclaims: told(Fact::DirectReclaim, counters.direct_reclaims),
            direct_reclaim_ns: told(Fact::DirectReclaim, counters.direct_reclaim_ns),
            refaults: told(Fact::Refaults, counters.refaults),
            memcg_reclaims: told(Fact::MemcgReclaim, counters.memcg_reclaims),
            memcg_reclaim_ns: told(Fact::MemcgReclaim, counters.memcg_reclaim_ns),
            reclaimed_pages: told(Fact::MemcgReclaim, counters.reclaimed_pages),
            memory_events: told(Fact::MemoryEvents, counters.memory_events),
        }
    }
}

/// The records lost in the kernel; those that could not be read are the caller's to add.
pub(crate) fn lost<'a>(
    maps: &SharedMaps,
    programs: impl Iterator<Item = &'a Running>,
) -> Result<Lost, TotalsError> {
    let mut lost = without_room(maps)?;
    for Running { fact, fd, .. } in programs {
        let skipped = core_tier::skipped_runs(fd.as_fd()).map_err(TotalsError::Program)?;
        match fact {
            Fact::Exits => lost.exits += skipped,
            Fact::OomKills => lost.oom_kills += skipped,
            Fact::MemoryEvents => lost.memory_events += skipped,
            Fact::KswapdWakes => lost.kswapd_wakes += skipped,
            Fact::CgroupsCreated
            | Fact::CgroupsRemoved
            | Fact::CgroupsRenamed
            | Fact::CgroupsReleased
            | Fact::CgroupsPopulated => lost.cgroups += skipped,
            // These send no records.
            Fact::OomLimits
            | Fact::MemcgReclaim
            | Fact::Forks
            | Fact::Execs
            | Fact::MemoryStall
            | Fact::DirectReclaim
            | Fact::Refaults => {}
        }
    }
    Ok(lost)
}

fn without_room(maps: &SharedMaps) -> Result<Lost, TotalsError> {
    let failed = |source| TotalsError::Map { name: LOST, source };
    let Some(data) = open(maps, LOST)? else { return Ok(Lost::default()) };
    let array: PerCpuArray<_, u64> = Map::PerCpuArray(data).try_into().map_err(failed)?;
    let of = |kind: u16| -> Result<u64, TotalsError> {
        Ok(array.get(&u32::from(kind), 0).map_err(failed)?.iter().sum())
    };
    Ok(Lost {
        exits: of(kind::EXIT)?,
        oom_kills: of(kind::OOM_KILL)?,
        memory_events: of(kind::MEMORY_EVENT)?,
        cgroups: of(kind::CGROUP)? + of(kind::CGROUP_NAMED)?,
        kswapd_wakes: of(kind::KSWAPD_WAKE)?,
        corrupt: 0,
    })
}

/// All totals, given which facts are being told.
pub(crate) fn read(maps: &SharedMaps, live: impl Fn(Fact) -> bool) -> Result<Totals, TotalsError> {
    let mut totals = Totals::default();
    if let Some(map) = maps.get(CGROUPS) {
        let add = |cgroup, bytes: &[u8]| {
            if let Ok(counters) = Counters::read_from_bytes(bytes) {
                totals.cgroups.insert(cgroup, CgroupTotals::new(counters, &live));
            }
        };
        core_tier::read_all(map, size_of::<Counters>(), add)
            .map_err(|source| TotalsError::Batch { name: CGROUPS, source })?;
    }
    if live(Fact::KswapdWakes) {
        totals.kswapd_wakes = kswapd_wakes(maps)?;
    }
    Ok(totals)
}

fn kswapd_wakes(maps: &SharedMaps) -> Result<Option<BTreeMap<u32, u64>>, TotalsError> {
    /// A node's counters as aya wants them: plain bytes.
    type Bytes = [u8; size_of::<NodeCounters>()];
    let failed = |source| TotalsError::Map { name: NODES, source };
    let Some(data) = open(maps, NODES)? else { return Ok(None) };
    let array: Array<_, Bytes> = Map::Array(data).try_into().map_err(failed)?;
    let mut wakes = BTreeMap::new();
    for (node, bytes) in (0..).zip(array.iter()) {
        let mut counters = NodeCounters::default();
        counters.as_mut_bytes().copy_from_slice(&bytes.map_err(failed)?);
        if counters.kswapd_wakes > 0 {
            wakes.insert(node, counters.kswapd_wakes);
        }
    }
    Ok(Some(wakes))
}

fn open(maps: &SharedMaps, name: &'static str) -> Result<Option<MapData>, TotalsError> {
    let Some(fd) = maps.get(name) else { return Ok(None) };
    let failed = |source| TotalsError::Map { name, source };
    let fd = fd.try_clone_to_owned().map_err(|error| failed(MapError::IoError(error)))?;
    MapData::from_fd(fd).map(Some).map_err(failed)
}
