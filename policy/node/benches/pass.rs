//! How long a decision takes: 110, 1,000 and 10,000 pods under memory pressure, the same without pressure, room for a critical pod that takes most of 1,000 to 8,000, and 10,000 images under disk pressure.
//!
//! Goals: below 100 µs for 110 pods, below 10 ms for 10,000, and no worse than n log n in between.
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ebb_policy::limits::{ImageOrder, ImageReach, Limits, Options, RawEviction};
use ebb_policy::snapshot::{
    ContainerSpec, ContainerStats, FsLayout, Image, MemoryUsage, Observation, Preemption, Qos,
    ResourceList, Stats, Task, Workload, WorkloadKey,
};
use ebb_policy::{History, Quantity, Signal, Snapshot, Time, decide};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

const NOW: u64 = 1_800_000_000_000;

/// A fixed sequence that looks random, so that every run measures the same.
fn scattered(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) >> 34
}

fn pod(number: u64) -> Workload {
    let working_set = scattered(number);
    let memory = MemoryUsage {
        working_set: Some(working_set),
        usage: Some(working_set),
        ..MemoryUsage::default()
    };
    let requests = ResourceList {
        memory: Some(Quantity::bytes(scattered(number + 1))),
        ..ResourceList::default()
    };
    Workload {
        key: WorkloadKey {
            name: format!("namespace-{}/pod-{number}-7f9c4d5b6-x2x4z", number % 37),
            uid: Some(format!("{:032x}", u128::from(number) << 64 | u128::from(scattered(number)))),
            ..WorkloadKey::default()
        },
        priority: i32::try_from(scattered(number + 2) % 3).ok(),
        stats: Some(Stats {
            observed_at: Some(Time(NOW)),
            memory: Some(memory),
            process_count: Some(scattered(number + 3) % 100),
            containers: (0..2)
                .map(|c| ContainerStats {
                    name: format!("c{c}"),
                    memory: Some(memory),
                    ..ContainerStats::default()
                })
                .collect(),
            ..Stats::default()
        }),
        containers: (0..2)
            .map(|c| ContainerSpec { name: format!("c{c}"), requests, ..ContainerSpec::default() })
            .collect(),
        ..Workload::default()
    }
}

fn node(pods: u64, available: u64) -> Snapshot {
    let seen = Observation { available, capacity: Some(64 << 30), observed_at: Some(Time(NOW)) };
    Snapshot {
        layout: Some(FsLayout::Single),
        signals: [(Signal::MemoryAvailable, seen)].into(),
        workloads: (0..pods).map(pod).collect(),
        ..Snapshot::at(Time(NOW))
    }
}

/// A node on which a critical pod lacks nine tenths of the memory and CPU that all pods asked for.
fn crowded(pods: u64) -> Snapshot {
    let mut node = node(pods, 32 << 30);
    let (mut memory, mut cpu) = (0, 0);
    for (number, pod) in (0..pods).zip(&mut node.workloads) {
        let asked = (scattered(number + 4), scattered(number + 5) % 4_000);
        pod.qos = Some(Qos::Burstable);
        pod.containers.truncate(1);
        pod.containers[0].requests.memory = Some(Quantity::bytes(asked.0));
        pod.containers[0].requests.cpu = format!("{}m", asked.1).parse().ok();
        (memory, cpu) = (memory + asked.0, cpu + asked.1);
    }
    node.preemption = Some(Preemption {
        key: WorkloadKey { name: "kube-system/critical".into(), ..WorkloadKey::default() },
        priority: Some(2_000_001_000),
        static_pod: false,
        mirror: false,
        missing: ResourceList {
            memory: Some(Quantity::bytes(memory / 10 * 9)),
            cpu: format!("{}m", cpu / 10 * 9).parse().ok(),
            ephemeral_storage: None,
        },
        missing_pods: 0,
    });
    node
}

/// The `n`th layer of an image: the first half is shared, by ever fewer images.
fn layer(image: u64, n: u64) -> String {
    let group = if n < 5 { image >> (10 - 2 * n) } else { image };
    format!("sha256:{n:02x}{group:062x}")
}

fn images(count: u64) -> Snapshot {
    // As the agent has them: each layer's id once.
    let layers: BTreeMap<Arc<str>, u64> = (0..count)
        .flat_map(|number| (0..10).map(move |n| (layer(number, n).into(), scattered(number + n))))
        .collect();
    let shared = |name: String| layers.get_key_value(name.as_str()).map(|(name, _)| name.clone());
    let image = |number| Image {
        id: format!("sha256:{:064x}", number),
        runtime_handler: None,
        tags: Vec::new(),
        size: scattered(number),
        layers: (0..10).map(|n| shared(layer(number, n))).collect(),
        pinned: false,
        last_used: Some(Time(NOW - 1_000_000 - scattered(number))),
        first_detected: Some(Time(0)),
    };
    let seen = Observation { available: 1, capacity: Some(1 << 40), observed_at: Some(Time(NOW)) };
    Snapshot {
        layout: Some(FsLayout::Single),
        signals: [(Signal::ImageFsAvailable, seen)].into(),
        images: (0..count).map(image).collect(),
        layers: layers.clone(),
        ..Snapshot::at(Time(NOW))
    }
}

fn limits(options: Options) -> Limits {
    Limits::new(&RawEviction { options: Some(options), ..RawEviction::default() })
        .expect("the defaults are valid")
}

fn passes(criterion: &mut Criterion) {
    let history = History::default();
    let kubelet = limits(Options::kubelet());
    let attributed = limits(Options::standalone());
    for (name, limits, available) in [
        ("memory short, the kubelet's ranking", &kubelet, 1),
        ("memory short, attributed ranking", &attributed, 1),
        ("nothing short", &kubelet, 32 << 30),
    ] {
        let mut group = criterion.benchmark_group(name);
        for pods in [110, 1_000, 10_000] {
            let node = node(pods, available);
            // The second pass on the same node: growth is known, nothing is seen for the first time.
            let (_, known) = decide(&node, limits, &history);
            let known = History { waiting: None, last_observations: Default::default(), ..known };
            group.bench_with_input(BenchmarkId::from_parameter(pods), &node, |bencher, node| {
                bencher.iter(|| decide(black_box(node), limits, &known));
            });
        }
        group.finish();
    }
    let mut group = criterion.benchmark_group("room for a critical pod");
    for pods in [1_000, 4_000, 8_000] {
        let node = crowded(pods);
        group.bench_with_input(BenchmarkId::from_parameter(pods), &node, |bencher, node| {
            bencher.iter(|| decide(black_box(node), &kubelet, &history));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("images to remove");
    for count in [1_000, 10_000] {
        let node = images(count);
        group.bench_with_input(BenchmarkId::from_parameter(count), &node, |bencher, node| {
            bencher.iter(|| decide(black_box(node), &kubelet, &history));
        });
    }
    group.finish();
    let by_layers = limits(Options {
        image_order: ImageOrder::LeastToPullAgain,
        images_under_pressure: ImageReach::ToLowThreshold,
        ..Options::kubelet()
    });
    let mut group = criterion.benchmark_group("images to remove, by layers");
    for count in [1_000, 10_000] {
        let mut node = images(count);
        // Half of what there is has to go.
        let total: u64 = node.layers.values().sum();
        let half = Observation {
            available: total * 3 / 10,
            capacity: Some(total),
            observed_at: Some(Time(NOW)),
        };
        node.tasks = Some(vec![Task::ImageGc]);
        node.signals = [(Signal::ImageFsAvailable, half)].into();
        let policy = RawEviction {
            image_gc_high_threshold_percent: Some(60),
            image_gc_low_threshold_percent: Some(20),
            options: Some(by_layers.options().clone()),
            ..RawEviction::default()
        };
        let limits = Limits::new(&policy).expect("the thresholds are in order");
        group.bench_with_input(BenchmarkId::from_parameter(count), &node, |bencher, node| {
            bencher.iter(|| decide(black_box(node), &limits, &history));
        });
    }
    group.finish();
}

criterion_group!(benches, passes);
criterion_main!(benches);
