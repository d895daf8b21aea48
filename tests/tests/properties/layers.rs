//! Which images go when their layers are known, held against every other choice that there is.
use ebb_policy::limits::{ImageOrder, Limits, Options, RawEviction};
use ebb_policy::plan::Action;
use ebb_policy::snapshot::{Container, ContainerState, Image, Observation, Task};
use ebb_policy::{History, Signal, Snapshot, Time, decide};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;

const NOW: Time = Time(10_000_000);
const CAPACITY: u64 = 2_000;

/// Images by the layers that they have, and whether each is in use.
type Shelf = Vec<(BTreeSet<usize>, bool)>;

/// Bytes of each layer: powers of two and their neighbours make sums that few choices hit exactly.
const SIZES: [u64; 8] = [1, 3, 8, 17, 33, 128, 511, 1000];

fn node(shelf: &Shelf, wanted: u64) -> Snapshot {
    let image = |(n, (layers, _)): (usize, &(BTreeSet<usize>, bool))| Image {
        id: format!("i{n}"),
        runtime_handler: None,
        tags: Vec::new(),
        size: layers.iter().map(|layer| SIZES[*layer]).sum(),
        layers: Some(layers.iter().map(|layer| format!("l{layer}").into()).collect()),
        pinned: false,
        last_used: Some(Time(n as u64)),
        first_detected: Some(Time(0)),
    };
    let user = |(n, _): (usize, _)| Container {
        id: format!("c{n}"),
        pod_uid: "u".into(),
        name: "n".into(),
        state: ContainerState::Running,
        created_at: Time(1),
        sandbox_id: None,
        image: Some(format!("i{n}")),
    };
    let available = CAPACITY / 10 * 9 - wanted;
    let seen = Observation { available, capacity: Some(CAPACITY), observed_at: Some(NOW) };
    Snapshot {
        signals: [(Signal::ImageFsAvailable, seen)].into(),
        images: shelf.iter().enumerate().map(image).collect(),
        layers: SIZES.iter().enumerate().map(|(n, size)| (format!("l{n}").into(), *size)).collect(),
        containers: shelf.iter().enumerate().filter(|(_, image)| image.1).map(user).collect(),
        tasks: Some(vec![Task::ImageGc]),
        ..Snapshot::at(NOW)
    }
}

/// Collects from "any use at all" down to a tenth, so that exactly `wanted` bytes are too many.
fn limits() -> Limits {
    let options = Options { image_order: ImageOrder::LeastToPullAgain, ..Options::kubelet() };
    Limits::new(&RawEviction {
        image_gc_high_threshold_percent: Some(11),
        image_gc_low_threshold_percent: Some(10),
        options: Some(options),
        ..RawEviction::default()
    })
    .expect("the thresholds are in order")
}

/// Bytes that go with the images of `set`.
fn freed(shelf: &Shelf, set: &BTreeSet<usize>) -> u64 {
    let stays = shelf.iter().enumerate().filter(|(n, _)| !set.contains(n));
    let held: BTreeSet<usize> = stays.flat_map(|(_, image)| image.0.clone()).collect();
    let gone: BTreeSet<usize> = set.iter().flat_map(|n| shelf[*n].0.clone()).collect();
    gone.difference(&held).map(|layer| SIZES[*layer]).sum()
}

/// Every set of images that are not in use.
fn choices(shelf: &Shelf) -> impl Iterator<Item = BTreeSet<usize>> {
    let free: Vec<usize> = (0..shelf.len()).filter(|n| !shelf[*n].1).collect();
    (0..1_u32 << free.len()).map(move |mask| {
        let chosen = free.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0);
        chosen.map(|(_, n)| *n).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1024), ..ProptestConfig::default() })]

    #[test]
    fn the_set_frees_enough_if_any_does_and_little_more_than_the_best(
        shelf in vec((btree_set(0..8_usize, 1..5), prop::bool::weighted(0.2)), 1..9),
        wanted in 21..1750_u64,
    ) {
        let (plan, _) = decide(&node(&shelf, wanted), &limits(), &History::default());
        let mut chosen = BTreeSet::new();
        let mut predicted = 0;
        for action in &plan.actions {
            let Action::RemoveImage(image) = action else { panic!("{action:?}") };
            chosen.insert(image.id[1..].parse::<usize>().unwrap());
            predicted += image.frees.unwrap();
        }
        prop_assert!(chosen.iter().all(|n| !shelf[*n].1), "an image in use goes");
        let frees = freed(&shelf, &chosen);
        prop_assert_eq!(predicted, frees, "what is predicted is what goes");
        let best = choices(&shelf).map(|set| freed(&shelf, &set)).filter(|sum| *sum >= wanted).min();
        match best {
            None => {
                let most = choices(&shelf).map(|set| freed(&shelf, &set)).max().unwrap_or(0);
                prop_assert_eq!(frees, most, "when nothing is enough, everything that helps goes");
            }
            Some(best) => {
                prop_assert!(frees >= wanted, "{frees} of {wanted} although {best} is possible");
                let without = |n: &usize| {
                    let rest: BTreeSet<usize> = chosen.iter().copied().filter(|m| m != n).collect();
                    frees - freed(&shelf, &rest)
                };
                let least = chosen.iter().map(without).min().unwrap_or(0);
                prop_assert!(frees < wanted + least, "something in it is superfluous");
                prop_assert!(frees < best + least, "{frees} where {best} is possible");
            }
        }
    }
}
