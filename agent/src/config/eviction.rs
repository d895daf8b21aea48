//! The kubelet's fields on eviction and garbage collection: read and printed under the kubelet's own names.
use super::{section::Section, tree::Node};
use ebb_policy::limits::RawEviction;
use std::collections::BTreeMap;

/// Reads the fields; `options`, `also_below` and `memory_pressure`, which are ebb's own, are left to the caller.
pub(super) fn read(section: &mut Section<'_>) -> RawEviction {
    RawEviction {
        eviction_hard: section.text_map("evictionHard"),
        eviction_soft: section.text_map("evictionSoft"),
        eviction_soft_grace_period: section.text_map("evictionSoftGracePeriod"),
        eviction_minimum_reclaim: section.text_map("evictionMinimumReclaim"),
        merge_default_eviction_settings: section.flag("mergeDefaultEvictionSettings"),
        eviction_pressure_transition_period: section.text("evictionPressureTransitionPeriod"),
        eviction_max_pod_grace_period: section.integer("evictionMaxPodGracePeriod"),
        enforce_node_allocatable: section.texts("enforceNodeAllocatable"),
        local_storage_capacity_isolation: section.flag("localStorageCapacityIsolation"),
        image_gc_high_threshold_percent: section.integer("imageGCHighThresholdPercent"),
        image_gc_low_threshold_percent: section.integer("imageGCLowThresholdPercent"),
        image_minimum_gc_age: section.text("imageMinimumGCAge"),
        image_maximum_gc_age: section.text("imageMaximumGCAge"),
        minimum_container_ttl_duration: section.text("minimumContainerTTLDuration"),
        maximum_dead_containers_per_container: section.integer("maximumDeadContainersPerContainer"),
        maximum_dead_containers: section.integer("maximumDeadContainers"),
        also_below: None,
        memory_pressure: Vec::new(),
        options: None,
    }
}

/// Prints the fields that are set.
pub(super) fn print(raw: &RawEviction) -> Vec<(String, Node)> {
    let RawEviction {
        eviction_hard,
        eviction_soft,
        eviction_soft_grace_period,
        eviction_minimum_reclaim,
        merge_default_eviction_settings,
        eviction_pressure_transition_period,
        eviction_max_pod_grace_period,
        enforce_node_allocatable,
        local_storage_capacity_isolation,
        image_gc_high_threshold_percent,
        image_gc_low_threshold_percent,
        image_minimum_gc_age,
        image_maximum_gc_age,
        minimum_container_ttl_duration,
        maximum_dead_containers_per_container,
        maximum_dead_containers,
        also_below: _,
        memory_pressure: _,
        options: _,
    } = raw;
    let text = |value: &Option<String>| value.clone().map(Node::Text);
    let fields = [
        ("evictionHard", eviction_hard.as_ref().map(text_map)),
        ("evictionSoft", eviction_soft.as_ref().map(text_map)),
        ("evictionSoftGracePeriod", eviction_soft_grace_period.as_ref().map(text_map)),
        ("evictionMinimumReclaim", eviction_minimum_reclaim.as_ref().map(text_map)),
        ("mergeDefaultEvictionSettings", merge_default_eviction_settings.map(Node::Bool)),
        ("evictionPressureTransitionPeriod", text(eviction_pressure_transition_period)),
        ("evictionMaxPodGracePeriod", eviction_max_pod_grace_period.map(Node::Integer)),
        ("enforceNodeAllocatable", enforce_node_allocatable.as_deref().map(texts)),
        ("localStorageCapacityIsolation", local_storage_capacity_isolation.map(Node::Bool)),
        ("imageGCHighThresholdPercent", image_gc_high_threshold_percent.map(Node::Integer)),
        ("imageGCLowThresholdPercent", image_gc_low_threshold_percent.map(Node::Integer)),
        ("imageMinimumGCAge", text(image_minimum_gc_age)),
        ("imageMaximumGCAge", text(image_maximum_gc_age)),
        ("minimumContainerTTLDuration", text(minimum_container_ttl_duration)),
        (
            "maximumDeadContainersPerContainer",
            maximum_dead_containers_per_container.map(Node::Integer),
        ),
        ("maximumDeadContainers", maximum_dead_containers.map(Node::Integer)),
    ];
    fields.into_iter().filter_map(|(key, node)| Some((key.to_owned(), node?))).collect()
}

/// A list of texts.
pub(super) fn texts(list: &[String]) -> Node {
    Node::List(list.iter().map(|text| Node::Text(text.clone()).into()).collect())
}

/// A map of texts.
pub(super) fn text_map(map: &BTreeMap<String, String>) -> Node {
    let entry = |(key, text): (&String, &String)| (key.clone(), Node::Text(text.clone()).into());
    Node::Map(map.iter().map(entry).collect())
}
