//! What holds where the configuration says nothing, for each mode.

use super::{Mode, section::TextMaps};
use ebb_policy::Signal;
use ebb_policy::limits::{Options, RawEviction};
use std::collections::BTreeMap;

/// How little swap must be left for memory to count as short, as earlyoom has it.
const SWAP_LOW: &str = "10%";

/// The hard threshold on available memory, which a kubelet keeps from pods when it checks reservations.
pub(super) fn hard_memory(eviction: &RawEviction, mode: Mode) -> Option<String> {
    if mode != Mode::Kubernetes {
        return None;
    }
    let merges = eviction.merge_default_eviction_settings == Some(true);
    match &eviction.eviction_hard {
        Some(given) if given.contains_key("memory.available") || !merges => {
            given.get("memory.available").cloned()
        }
        _ => Some("100Mi".to_owned()),
    }
}

/// ebb's options where the configuration says nothing.
pub(super) fn defaults(mode: Mode) -> Options {
    match mode {
        // What differs from the kubelet there: nobody is evicted for nothing, or for figures from before the crossing.
        Mode::Kubernetes => Options::beside_kubelet(),
        Mode::Standalone => Options {
            percentage_at_most: [
                (Signal::MemoryAvailable, ebb_policy::Quantity::bytes(1 << 30)),
                (Signal::PidAvailable, ebb_policy::Quantity::count(4000)),
            ]
            .into(),
            ..Options::standalone()
        },
    }
}

/// Thresholds of a machine without Kubernetes: a twentieth of its memory (but no more than a gibibyte) and of its task ids (but no more than 4000).
pub(super) fn standalone_thresholds() -> BTreeMap<String, String> {
    [("memory.available", "5%"), ("pid.available", "5%")]
        .map(|(signal, value)| (signal.to_owned(), value.to_owned()))
        .into()
}

/// Where memory alone does not decide: with swap left a machine without Kubernetes has memory left. A kubelet does not look at swap.
pub(super) fn also_below(eviction: &RawEviction, mode: Mode) -> Option<TextMaps> {
    let memory = Signal::MemoryAvailable.name();
    let maps = [&eviction.eviction_hard, &eviction.eviction_soft];
    let is_on = |text: &String| text != "0%" && text != "100%";
    let is_set = maps.into_iter().flatten().any(|map| map.get(memory).is_some_and(is_on));
    let swap = (Signal::SwapAvailable.name().to_owned(), SWAP_LOW.to_owned());
    (mode == Mode::Standalone && is_set).then(|| [(memory.to_owned(), [swap].into())].into())
}
