//! Which key of a ranking placed one candidate before the next: read off the plan, so that it can be told of a recorded one.
//!
//! It compares as `rank` does, by the keys that a plan shows.
use crate::{
    Signal,
    plan::{RankKey, Ranked},
    rank::growth_class,
    signal::Resource,
};
use core::mem::discriminant;

/// The key that placed `first` before `next`, who comes after it in the same ranking; `None` where they are equal in every key, so that who they are decides.
pub fn decided_by<'a>(first: &'a Ranked, next: &Ranked) -> Option<&'a RankKey> {
    let fills = |of: &Ranked| matches!(of.keys.first(), Some(RankKey::Filled { .. }));
    // Who fills the filesystem comes first; between two who do, how much comes last.
    let is_last = fills(first) && fills(next);
    let resource = first.signal.map_or(Resource::Memory, Signal::resource);
    let (filled, rest) = first.keys.split_at(usize::from(is_last));
    rest.iter().chain(filled).find(|key| {
        let same = |other: &&RankKey| discriminant(*other) == discriminant(*key);
        differ(key, next.keys.iter().find(same), resource)
    })
}

/// Whether the ranking tells a key from the same one of another candidate, who may have none.
fn differ(key: &RankKey, other: Option<&RankKey>, resource: Resource) -> bool {
    use RankKey::{ExceedsRequest, Filled, Growth, PagesScanned, Restarted, Swapped};
    let class = |rate: i64| growth_class(Some(rate), resource);
    match (key, other) {
        // What is swapped out is part of the usage, which has a key of its own.
        (Swapped { .. }, _) => false,
        (Growth { per_second }, None) => class(*per_second) > 0,
        (Filled { .. } | Restarted { .. } | PagesScanned { .. }, None) => true,
        (_, None) => false,
        (ExceedsRequest { exceeds, .. }, Some(ExceedsRequest { exceeds: other, .. })) => {
            exceeds != other
        }
        (Growth { per_second }, Some(Growth { per_second: other })) => {
            class(*per_second) != class(*other)
        }
        (Filled { added, .. }, Some(Filled { added: other, .. })) => added != other,
        (PagesScanned { per_second, .. }, Some(PagesScanned { per_second: other, .. })) => {
            per_second != other
        }
        (key, Some(other)) => key != other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Millis, Signal, Time, snapshot::WorkloadKey};
    use alloc::{vec, vec::Vec};

    fn candidate(keys: Vec<RankKey>) -> Ranked {
        let workload = WorkloadKey::default();
        Ranked { place: 1, workload, signal: Some(Signal::MemoryAvailable), keys }
    }

    #[test]
    fn the_first_key_in_which_two_candidates_differ_is_the_one_that_decided() {
        let exceeds = |usage| RankKey::ExceedsRequest { exceeds: true, usage, request: 0 };
        let keys = |usage, priority, per_second| {
            vec![
                RankKey::Stats { found: true },
                exceeds(usage),
                RankKey::Priority { priority },
                RankKey::Growth { per_second },
                RankKey::AboveRequest { above: 7 },
            ]
        };
        let one = candidate(keys(9, 0, 40 << 20));
        let decided = |other| decided_by(&one, &candidate(other)).copied();
        assert_eq!(decided(keys(4, 1, 0)), Some(RankKey::Priority { priority: 0 }));
        assert_eq!(decided(keys(4, 0, 0)), Some(RankKey::Growth { per_second: 40 << 20 }));
        // Growth of the same class decides nothing, nor does usage by itself.
        assert_eq!(decided(keys(4, 0, 41 << 20)), None);
        assert_eq!(
            decided(vec![RankKey::Stats { found: false }]),
            Some(RankKey::Stats { found: true })
        );
    }

    #[test]
    fn between_two_who_fill_the_filesystem_how_much_comes_last() {
        let filled = |added| RankKey::Filled { added, over: Millis(1000), percent: 50 };
        let keys = |added, priority| vec![filled(added), RankKey::Priority { priority }];
        let one = candidate(keys(9, 0));
        let decided = |other| decided_by(&one, &candidate(other)).copied();
        assert_eq!(decided(keys(4, 1)), Some(RankKey::Priority { priority: 0 }));
        assert_eq!(decided(keys(4, 0)), Some(filled(9)));
        assert_eq!(decided(vec![RankKey::Priority { priority: 0 }]), Some(filled(9)));
    }

    #[test]
    fn what_was_evicted_before_and_started_again_is_told_from_its_equal() {
        let again = RankKey::Restarted { at: Time(7) };
        let one = candidate(vec![RankKey::Priority { priority: 0 }, again]);
        let other = candidate(vec![RankKey::Priority { priority: 0 }]);
        assert_eq!(decided_by(&one, &other), Some(&again));
    }
}
