//! Which records of the kernel found no room.

use std::fmt;

/// A kind of the kernel side's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Exits of processes.
    Exits,
    /// Kills by the kernel's OOM killer.
    OomKills,
    /// Changes of `memory.events`.
    MemoryEvents,
    /// Cgroups made, removed, filled and emptied.
    CgroupChanges,
    /// Wakes of kswapd.
    KswapdWakes,
    /// Such as could not be decoded.
    Corrupt,
}

/// How many were lost of each kind; kinds of which none was are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub Vec<(Loss, u64)>);

/// For people: `1 OOM kills, 3 cgroup changes`.
impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (loss, count)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let kind = match loss {
                Loss::Exits => "exits",
                Loss::OomKills => "OOM kills",
                Loss::MemoryEvents => "memory events",
                Loss::CgroupChanges => "cgroup changes",
                Loss::KswapdWakes => "kswapd wakes",
                Loss::Corrupt => "corrupt",
            };
            write!(f, "{comma}{count} {kind}")?;
        }
        Ok(())
    }
}
