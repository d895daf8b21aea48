//! What is observed for each signal: given by the snapshot, else derived from facts about the node by the kubelet's formulas.
use crate::{
    History, Signal,
    limits::{ActiveCache, Options},
    plan::Note,
    snapshot::{FsFacts, NodeFacts, Observation, RootMemory, Snapshot},
    swap,
};
use alloc::{collections::BTreeMap, vec::Vec};

/// Bytes of a page, for counters of pages.
const PAGE: u64 = 4096;

/// Observations by signal.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

pub(crate) fn observe(
    snapshot: &Snapshot,
    options: &Options,
    history: &History,
    notes: &mut Vec<Note>,
) -> Observations {
    let mut observations = given(snapshot);
    if options.active_cache == ActiveCache::ReclaimableUnlessRefaulting {
        count_active_cache(snapshot, history, &mut observations, notes);
    }
    with_swap(&snapshot.node, &mut observations);
    observations
}

/// What a snapshot says of each signal, given or derived; page cache in use counts as used.
pub fn observed(snapshot: &Snapshot) -> BTreeMap<Signal, Observation> {
    let mut observations = given(snapshot);
    with_swap(&snapshot.node, &mut observations);
    observations
}

fn given(snapshot: &Snapshot) -> Observations {
    let mut observations = derived(&snapshot.node);
    observations.extend(&snapshot.signals);
    observations
}

fn derived(node: &NodeFacts) -> Observations {
    let mut observations = Observations::new();
    if let (Some(total), Some(used)) = (node.memory_total, node.memory_root.and_then(working_set)) {
        observations.insert(
            Signal::MemoryAvailable,
            Observation {
                available: total.saturating_sub(used),
                capacity: Some(total),
                observed_at: node.memory_observed_at,
            },
        );
    }
    if let Some(pods) = node.memory_kubepods
        && let Some(limit) = pods.limit
        && let Some(used) = pods
            .working_set
            .or_else(|| Some(pods.usage?.saturating_sub(pods.inactive_file.unwrap_or_default())))
    {
        // A working set above the limit leaves less than nothing: the kubelet's figure is negative there, and below every threshold as zero is.
        observations.insert(
            Signal::AllocatableMemoryAvailable,
            Observation {
                available: limit.saturating_sub(used),
                capacity: Some(limit),
                observed_at: node.memory_observed_at,
            },
        );
    }
    let most = [node.pid_max, node.threads_max].into_iter().flatten().min();
    if let (Some(most), Some(tasks)) = (most, node.tasks.or(node.processes)) {
        observations.insert(
            Signal::PidAvailable,
            Observation {
                available: most.saturating_sub(tasks),
                capacity: Some(most),
                observed_at: node.pids_observed_at,
            },
        );
    }
    for (facts, bytes, inodes) in [
        (node.node_fs, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (node.image_fs, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        (node.container_fs, Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
    ] {
        filesystem(facts.unwrap_or_default(), bytes, inodes, &mut observations);
    }
    observations
}

/// Whether the node has swap and it is known how much is left.
pub(crate) fn tells_swap(snapshot: &Snapshot) -> bool {
    let NodeFacts { swap_total, swap_free, zram, .. } = snapshot.node;
    snapshot.signals.contains_key(&Signal::SwapAvailable)
        || swap::available(swap_total, swap_free, zram).is_some()
}

/// Adds what swap can still take, and memory with it. Without swap memory with swap is memory alone; of swap that is unknown nothing follows.
fn with_swap(node: &NodeFacts, observations: &mut Observations) {
    let NodeFacts { swap_total, swap_free, zram, memory_observed_at: observed_at, .. } = *node;
    if let Some(available) = swap::available(swap_total, swap_free, zram) {
        let seen = Observation { available, capacity: swap_total, observed_at };
        observations.entry(Signal::SwapAvailable).or_insert(seen);
    }
    let swap = observations.get(&Signal::SwapAvailable).copied();
    let swap = match swap {
        Some(Observation { available, capacity, .. }) => Some((available, capacity)),
        None => (swap_total == Some(0)).then_some((0, Some(0))),
    };
    let memory = observations.get(&Signal::MemoryAvailable).copied();
    if let (Some((swap, swap_capacity)), Some(memory)) = (swap, memory) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let together = Observation {
            available: memory.available.saturating_add(swap),
            capacity: sum(memory.capacity, swap_capacity),
            observed_at: memory.observed_at,
        };
        observations.entry(Signal::MemoryWithSwapAvailable).or_insert(together);
    }
}

/// Usage of the root cgroup without inactive page cache. On cgroup v2 the root has no usage; anonymous memory and page cache stand for it, which leaves out kernel memory as the kubelet does.
fn working_set(root: RootMemory) -> Option<u64> {
    let usage = root.usage.or_else(|| Some(root.anon?.saturating_add(root.file?)))?;
    Some(usage.saturating_sub(root.inactive_file.unwrap_or_default()))
}

fn filesystem(facts: FsFacts, bytes: Signal, inodes: Signal, observations: &mut Observations) {
    let FsFacts { available, capacity, inodes_free, inodes: all_inodes, observed_at, fall: _ } =
        facts;
    if let (Some(available), Some(_)) = (available, capacity) {
        observations.insert(bytes, Observation { available, capacity, observed_at });
    }
    if let (Some(available), Some(_)) = (inodes_free, all_inodes) {
        observations.insert(inodes, Observation { available, capacity: all_inodes, observed_at });
    }
}

/// Counts page cache in use as available, unless reclaim has been bringing it back: then it is needed.
///
/// "Bringing back" means that more than a hundredth of it refaulted per second since the last pass; without a last pass it counts as used.
fn count_active_cache(
    snapshot: &Snapshot,
    history: &History,
    observations: &mut Observations,
    notes: &mut Vec<Note>,
) {
    let root = snapshot.node.memory_root.unwrap_or_default();
    let (Some(active), Some(refaults)) = (root.active_file, root.refaults) else { return };
    let (Some(before), Some(at)) = (history.totals.refaults, history.totals.at) else { return };
    let Some(memory) = observations.get_mut(&Signal::MemoryAvailable) else { return };
    let elapsed = snapshot.taken_at.since(at).0.max(1);
    let came_back = refaults.saturating_sub(before).saturating_mul(PAGE);
    if u128::from(came_back) * 1000 * 100 > u128::from(active) * u128::from(elapsed) {
        notes.push(Note::ActiveCacheNeeded);
        return;
    }
    let most = memory.capacity.unwrap_or(u64::MAX);
    memory.available = memory.available.saturating_add(active).min(most);
    notes.push(Note::ActiveCacheReclaimable { bytes: active });
}
