//! The maps that both halves of the kernel side write to, by name.
//!
//! Whichever object is loaded first creates them and later ones are given their file descriptors: aya can create maps
//! but not be given any, so the Rust half goes first when it is there. Readers depend on descriptors, not on a loader.
use crate::Options;
use crate::attach::{Refusal, keep};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Ring for OOM kills and exits.
pub(crate) const VITAL: &str = "VITAL";
/// Ring for everything else.
pub(crate) const EVENTS: &str = "EVENTS";
/// Records that found no room: per kind and CPU.
pub(crate) const LOST: &str = "LOST";
/// [`ebb_wire::Counters`] by cgroup id.
pub(crate) const CGROUPS: &str = "CGROUPS";
/// [`ebb_wire::NodeCounters`] by NUMA node.
pub(crate) const NODES: &str = "NODES";

/// The maps that forget the key that was longest not used when they are full.
const KEYED: [&str; 6] = [CGROUPS, "ENDED", "MEMCG_RECLAIMS", "MEMORY_GATES", "RECLAIMS", "STALLS"];

/// Each CPU sets up to 128 free places of such a map aside for itself; with fewer than that to go round, CPUs take
/// each other's keys away long before the map is full.
const KEYS_PER_CPU: u32 = 256;

/// Descriptors of the maps that exist so far, and the sizes of those that do not.
pub(crate) struct SharedMaps {
    fds: BTreeMap<String, OwnedFd>,
    sizes: Vec<(&'static str, u32)>,
}

impl SharedMaps {
    pub(crate) fn new(options: &Options) -> Self {
        let cpus = aya::util::nr_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
        let keyed = options.cgroups.max(cpus.saturating_mul(KEYS_PER_CPU));
        let mut sizes = vec![(VITAL, options.vital_bytes), (EVENTS, options.events_bytes)];
        sizes.extend(KEYED.map(|name| (name, keyed)));
        Self { fds: BTreeMap::new(), sizes }
    }

    /// Sizes that differ from what the objects say.
    pub(crate) fn sizes(&self) -> &[(&'static str, u32)] {
        &self.sizes
    }

    pub(crate) fn max_entries(&self, name: &str) -> Option<u32> {
        self.sizes.iter().find(|(n, _)| *n == name).map(|(_, entries)| *entries)
    }

    pub(crate) fn get(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.fds.get(name).map(AsFd::as_fd)
    }

    /// Keep a map that was created, unless there is one of this name. Private maps of an object are kept too, because
    /// an object that has to be loaded in parts must see the same ones in each; global variables are not.
    pub(crate) fn insert(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), Refusal> {
        if !name.contains('.') && !self.fds.contains_key(name) {
            self.fds.insert(name.to_owned(), keep(fd, name)?);
        }
        Ok(())
    }
}
