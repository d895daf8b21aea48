//! ebb's own section: what it does beyond the kubelet, read over the defaults of its mode and printed in full.
use super::{
    section::Section,
    tree::{Node, Placed},
};
use ebb_policy::{
    Millis, Quantity, Signal,
    limits::{
        ActiveCache, AfterEviction, Forecast, ImageOrder, ImageReach, Ladder, Options, Quirks,
        Ranking, Victims,
    },
};
use std::collections::BTreeMap;

const RANKINGS: [(&str, Ranking); 2] =
    [("kubelet", Ranking::Kubelet), ("attributed", Ranking::Attributed)];
const VICTIMS: [(&str, Victims); 2] = [("one", Victims::One), ("enough", Victims::Enough)];
const AFTERS: [(&str, AfterEviction); 2] =
    [("wait", AfterEviction::Wait), ("continue", AfterEviction::Continue)];
const CACHES: [(&str, ActiveCache); 2] = [
    ("used", ActiveCache::Used),
    ("reclaimableUnlessRefaulting", ActiveCache::ReclaimableUnlessRefaulting),
];
const REACHES: [(&str, ImageReach); 2] =
    [("all", ImageReach::All), ("toLowThreshold", ImageReach::ToLowThreshold)];
const IMAGE_ORDERS: [(&str, ImageOrder); 2] = [
    ("leastRecentlyUsed", ImageOrder::LeastRecentlyUsed),
    ("leastToPullAgain", ImageOrder::LeastToPullAgain),
];

/// Reads the options over `defaults`.
pub(super) fn read(section: &mut Section<'_>, defaults: Options) -> Options {
    Options {
        ranking: section.choice("ranking", &RANKINGS).unwrap_or(defaults.ranking),
        victims: section.choice("victims", &VICTIMS).unwrap_or(defaults.victims),
        max_victims: section.number("maxVictims", "from 1 on").unwrap_or(defaults.max_victims),
        max_evictions_per_minute: section
            .number("maxEvictionsPerMinute", "from 0 on")
            .unwrap_or(defaults.max_evictions_per_minute),
        min_freed_of_threshold: section
            .percent("minFreedOfThreshold")
            .unwrap_or(defaults.min_freed_of_threshold),
        min_freed_of_need: section.percent("minFreedOfNeed").unwrap_or(defaults.min_freed_of_need),
        after_eviction: section.choice("afterEviction", &AFTERS).unwrap_or(defaults.after_eviction),
        count_terminating: section.flag("countTerminating").unwrap_or(defaults.count_terminating),
        preferences: section.flag("preferences").unwrap_or(defaults.preferences),
        spread_owners: section.flag("spreadOwners").unwrap_or(defaults.spread_owners),
        disruption_budgets: section
            .flag("disruptionBudgets")
            .unwrap_or(defaults.disruption_budgets),
        disk_attribution: section.flag("diskAttribution").unwrap_or(defaults.disk_attribution),
        active_cache: section.choice("activeCache", &CACHES).unwrap_or(defaults.active_cache),
        images_under_pressure: section
            .choice("imagesUnderPressure", &REACHES)
            .unwrap_or(defaults.images_under_pressure),
        image_order: section.choice("imageOrder", &IMAGE_ORDERS).unwrap_or(defaults.image_order),
        forecast: section
            .section("forecast")
            .map_or(defaults.forecast, |s| forecast(s, defaults.forecast)),
        ladder: section.section("ladder").map_or(defaults.ladder, |s| ladder(s, defaults.ladder)),
        percentage_at_most: bounds(section).unwrap_or(defaults.percentage_at_most),
        monitoring_period: section
            .duration("monitoringPeriod")
            .unwrap_or(defaults.monitoring_period),
        container_gc_period: section
            .duration("containerGCPeriod")
            .unwrap_or(defaults.container_gc_period),
        image_gc_period: section.duration("imageGCPeriod").unwrap_or(defaults.image_gc_period),
        quirks: section.section("quirks").map_or(defaults.quirks, |s| quirks(s, defaults.quirks)),
    }
}

fn bounds(section: &mut Section<'_>) -> Option<BTreeMap<Signal, Quantity>> {
    let place = section.value("percentageAtMost")?;
    let texts = section.text_map("percentageAtMost")?;
    let mut bounds = BTreeMap::new();
    for (name, text) in texts {
        let key = format!("percentageAtMost[{name:?}]");
        match (Signal::from_name(&name), text.parse::<Quantity>()) {
            (Some(signal), Ok(bound)) => {
                bounds.insert(signal, bound);
            }
            (None, _) => section.refuse(
                &key,
                place,
                "unknown eviction signal",
                "write a signal such as memory.available",
            ),
            (_, Err(error)) => {
                section.refuse(
                    &key,
                    place,
                    &format!("{text:?}: {error}"),
                    "write a quantity such as \"2Gi\"",
                );
            }
        }
    }
    Some(bounds)
}

fn forecast(mut section: Section<'_>, defaults: Forecast) -> Forecast {
    let forecast = Forecast {
        enabled: section.flag("enabled").unwrap_or(defaults.enabled),
        grace_period: section.duration("gracePeriod").unwrap_or(defaults.grace_period),
        horizon: section.duration("horizon").unwrap_or(defaults.horizon),
    };
    section.finish();
    forecast
}

fn ladder(mut section: Section<'_>, defaults: Ladder) -> Ladder {
    let ladder = Ladder {
        enabled: section.flag("enabled").unwrap_or(defaults.enabled),
        warn: section.duration("warn").unwrap_or(defaults.warn),
        reclaim: section.duration("reclaim").unwrap_or(defaults.reclaim),
        throttle: section.duration("throttle").unwrap_or(defaults.throttle),
        freeze: section.duration("freeze").unwrap_or(defaults.freeze),
        reclaim_deadline: section.duration("reclaimDeadline").unwrap_or(defaults.reclaim_deadline),
        max_freeze: section.duration("maxFreeze").unwrap_or(defaults.max_freeze),
    };
    section.finish();
    ladder
}

fn quirks(mut section: Section<'_>, defaults: Quirks) -> Quirks {
    let mut flag = |key, default| section.flag(key).unwrap_or(default);
    let quirks = Quirks {
        inodes_above_byte_request: flag(
            "inodesAboveByteRequest",
            defaults.inodes_above_byte_request,
        ),
        writable_layer_unlimited_on_image_fs: flag(
            "writableLayerUnlimitedOnImageFs",
            defaults.writable_layer_unlimited_on_image_fs,
        ),
        no_reclaim_for_node_fs: flag("noReclaimForNodeFs", defaults.no_reclaim_for_node_fs),
        container_fs_from_second_pass: flag(
            "containerFsFromSecondPass",
            defaults.container_fs_from_second_pass,
        ),
        never_used_image_is_old: flag("neverUsedImageIsOld", defaults.never_used_image_is_old),
    };
    section.finish();
    quirks
}

/// Prints every option.
pub(super) fn print(options: &Options) -> Vec<(String, Placed)> {
    let Options {
        ranking,
        victims,
        max_victims,
        max_evictions_per_minute,
        min_freed_of_threshold,
        min_freed_of_need,
        after_eviction,
        count_terminating,
        preferences,
        spread_owners,
        disruption_budgets,
        disk_attribution,
        active_cache,
        images_under_pressure,
        image_order,
        forecast,
        ladder,
        percentage_at_most,
        monitoring_period,
        container_gc_period,
        image_gc_period,
        quirks,
    } = options;
    let bound = |(signal, bound): (&Signal, &Quantity)| {
        (signal.name().to_owned(), Node::Text(bound.to_string()).into())
    };
    entries([
        ("ranking", word(&RANKINGS, *ranking)),
        ("victims", word(&VICTIMS, *victims)),
        ("maxVictims", Node::Integer((*max_victims).into())),
        ("maxEvictionsPerMinute", Node::Integer((*max_evictions_per_minute).into())),
        ("minFreedOfThreshold", Node::Integer((*min_freed_of_threshold).into())),
        ("minFreedOfNeed", Node::Integer((*min_freed_of_need).into())),
        ("afterEviction", word(&AFTERS, *after_eviction)),
        ("countTerminating", Node::Bool(*count_terminating)),
        ("preferences", Node::Bool(*preferences)),
        ("spreadOwners", Node::Bool(*spread_owners)),
        ("disruptionBudgets", Node::Bool(*disruption_budgets)),
        ("diskAttribution", Node::Bool(*disk_attribution)),
        ("activeCache", word(&CACHES, *active_cache)),
        ("imagesUnderPressure", word(&REACHES, *images_under_pressure)),
        ("imageOrder", word(&IMAGE_ORDERS, *image_order)),
        ("forecast", print_forecast(forecast)),
        ("ladder", print_ladder(ladder)),
        ("percentageAtMost", Node::Map(percentage_at_most.iter().map(bound).collect())),
        ("monitoringPeriod", length(*monitoring_period)),
        ("containerGCPeriod", length(*container_gc_period)),
        ("imageGCPeriod", length(*image_gc_period)),
        ("quirks", print_quirks(quirks)),
    ])
}

fn print_forecast(forecast: &Forecast) -> Node {
    let Forecast { enabled, grace_period, horizon } = forecast;
    Node::Map(entries([
        ("enabled", Node::Bool(*enabled)),
        ("gracePeriod", length(*grace_period)),
        ("horizon", length(*horizon)),
    ]))
}

fn print_ladder(ladder: &Ladder) -> Node {
    let Ladder { enabled, warn, reclaim, throttle, freeze, reclaim_deadline, max_freeze } = ladder;
    Node::Map(entries([
        ("enabled", Node::Bool(*enabled)),
        ("warn", length(*warn)),
        ("reclaim", length(*reclaim)),
        ("throttle", length(*throttle)),
        ("freeze", length(*freeze)),
        ("reclaimDeadline", length(*reclaim_deadline)),
        ("maxFreeze", length(*max_freeze)),
    ]))
}

fn print_quirks(quirks: &Quirks) -> Node {
    let Quirks {
        inodes_above_byte_request,
        writable_layer_unlimited_on_image_fs,
        no_reclaim_for_node_fs,
        container_fs_from_second_pass,
        never_used_image_is_old,
    } = quirks;
    Node::Map(entries([
        ("inodesAboveByteRequest", Node::Bool(*inodes_above_byte_request)),
        ("writableLayerUnlimitedOnImageFs", Node::Bool(*writable_layer_unlimited_on_image_fs)),
        ("noReclaimForNodeFs", Node::Bool(*no_reclaim_for_node_fs)),
        ("containerFsFromSecondPass", Node::Bool(*container_fs_from_second_pass)),
        ("neverUsedImageIsOld", Node::Bool(*never_used_image_is_old)),
    ]))
}

/// Named values as the entries of a section.
pub(super) fn entries<const N: usize>(named: [(&str, Node); N]) -> Vec<(String, Placed)> {
    named.into_iter().map(|(key, node)| (key.to_owned(), node.into())).collect()
}

/// A duration in a form that reads back exactly.
pub(super) fn length(length: Millis) -> Node {
    Node::Text(if length.0.is_multiple_of(1000) {
        format!("{}s", length.0 / 1000)
    } else {
        format!("{}ms", length.0)
    })
}

/// The word for a choice.
pub(super) fn word<T: PartialEq>(words: &[(&str, T)], value: T) -> Node {
    let found = words.iter().find(|(_, choice)| *choice == value);
    found.map_or(Node::Null, |(word, _)| Node::Text((*word).to_owned()))
}
