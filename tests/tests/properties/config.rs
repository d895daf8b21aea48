//! Configurations made up at random, valid ones.
use ebb_policy::Signal;
use ebb_policy::limits::{
    ActiveCache, AfterEviction, Forecast, ImageOrder, ImageReach, Ladder, Limits, Options, Quirks,
    Ranking, RawEviction, Victims,
};
use proptest::collection::btree_map;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// Signals that can be set.
pub(crate) fn signals() -> Vec<Signal> {
    Signal::ALL.into_iter().filter(|signal| *signal != Signal::AllocatableMemoryAvailable).collect()
}

fn value() -> impl Strategy<Value = String> {
    let values = [
        "100Mi", "5%", "0.5%", "99.9%", "1", "0%", "100%", "1e30", "7Ei", "10Gi", "250m", "33.33%",
    ];
    select(values.map(str::to_owned).to_vec())
}

fn by_signal(
    value: impl Strategy<Value = String>,
) -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(select(signals()).prop_map(|signal| signal.name().to_owned()), value, 0..6)
}

fn options() -> impl Strategy<Value = Options> {
    let numbers = (1..5_u32, 0..4_u32, 0..30_u32, 0..60_u32);
    (any::<[bool; 17]>(), numbers).prop_map(|(flags, numbers)| {
        let (max_victims, max_evictions_per_minute, min_freed_of_threshold, min_freed_of_need) =
            numbers;
        let mut flags = flags.into_iter().cycle();
        let mut flag = || flags.next().unwrap_or_default();
        Options {
            ranking: if flag() { Ranking::Attributed } else { Ranking::Kubelet },
            victims: if flag() { Victims::Enough } else { Victims::One },
            after_eviction: if flag() { AfterEviction::Continue } else { AfterEviction::Wait },
            active_cache: if flag() {
                ActiveCache::Used
            } else {
                ActiveCache::ReclaimableUnlessRefaulting
            },
            images_under_pressure: if flag() {
                ImageReach::All
            } else {
                ImageReach::ToLowThreshold
            },
            image_order: if flag() {
                ImageOrder::LeastRecentlyUsed
            } else {
                ImageOrder::LeastToPullAgain
            },
            max_victims,
            max_evictions_per_minute,
            min_freed_of_threshold,
            min_freed_of_need,
            count_terminating: flag(),
            preferences: flag(),
            spread_owners: flag(),
            disruption_budgets: flag(),
            disk_attribution: flag(),
            forecast: Forecast { enabled: flag(), ..Forecast::default() },
            ladder: Ladder { enabled: flag(), ..Ladder::default() },
            quirks: Quirks {
                inodes_above_byte_request: flag(),
                writable_layer_unlimited_on_image_fs: flag(),
                no_reclaim_for_node_fs: flag(),
                container_fs_from_second_pass: flag(),
                ..Quirks::default()
            },
            ..Options::kubelet()
        }
    })
}

/// Limits as written.
pub(crate) fn raw() -> BoxedStrategy<RawEviction> {
    let grace = select(["0", "1ms", "90s", "1h30m"].map(str::to_owned).to_vec());
    let soft = btree_map(
        select(signals()).prop_map(|signal| signal.name().to_owned()),
        (value(), grace),
        0..4,
    );
    let ages = (of(select(vec!["0s", "2m"])), of(select(vec!["0s", "1h"])));
    (
        of(by_signal(value())),
        soft,
        by_signal(value()),
        options(),
        (of(-2..90_i64), of(-1..3_i64), of(-1..5_i64)),
        ages,
    )
        .prop_map(
            |(
                hard,
                soft,
                reclaim,
                options,
                (grace, per_container, on_node),
                (min_age, max_age),
            )| {
                // A minimum reclaim of "0%" is refused; everything else that a threshold may be, it may be too.
                let reclaim = reclaim.into_iter().filter(|(_, value)| value != "0%").collect();
                let (soft, graces): (BTreeMap<_, _>, BTreeMap<_, _>) = soft
                    .into_iter()
                    .map(|(signal, (value, grace))| ((signal.clone(), value), (signal, grace)))
                    .unzip();
                RawEviction {
                    eviction_hard: hard,
                    eviction_soft: Some(soft),
                    eviction_soft_grace_period: Some(graces),
                    eviction_minimum_reclaim: Some(reclaim),
                    eviction_max_pod_grace_period: grace,
                    maximum_dead_containers_per_container: per_container,
                    maximum_dead_containers: on_node,
                    image_minimum_gc_age: min_age.map(str::to_owned),
                    image_maximum_gc_age: max_age.map(str::to_owned),
                    options: Some(options),
                    ..RawEviction::default()
                }
            },
        )
        .boxed()
}

/// Checked limits.
pub(crate) fn limits() -> BoxedStrategy<Limits> {
    raw().prop_map(|raw| Limits::new(&raw).expect("what is made up is valid")).boxed()
}
