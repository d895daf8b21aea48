//! Snapshots made up at random: few workloads, many states, figures from nothing to the largest number there is.
use ebb_policy::snapshot::{
    Container, ContainerKind, ContainerSpec, ContainerState, ContainerStats, DiskGrowth,
    DisruptionBudget, FsFacts, FsFall, FsGrowth, FsLayout, FsUsage, Image, KernelCounts,
    KubepodsMemory, LocalLimit, LogDir, LogLink, MemoryUsage, NodeFacts, Observation, OwnerRef,
    Phase, Preference, PressureEvidence, ProtectedReason, ResourceList, RootMemory, Sandbox, State,
    Stats, Termination, VolumeSpec, VolumeStats, VolumeType, Workload, WorkloadKey, WorkloadKind,
};
use ebb_policy::{Millis, Quantity, Secs, Signal, Snapshot, Time};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

/// "Now" of every snapshot, with room before and after it.
const NOW: u64 = 1_800_000_000_000;

/// A figure: small, ordinary, or at the edge of what a number can hold.
pub(crate) fn figure() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..100_u64,
        8 => 0..(1_u64 << 34),
        1 => select(vec![0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1]),
    ]
}

/// A moment around "now", now and then at the ends of time.
fn moment() -> impl Strategy<Value = Time> {
    prop_oneof![
        8 => (NOW - 10_000_000..NOW + 100_000).prop_map(Time),
        1 => select(vec![Time(0), Time(u64::MAX), Time(NOW)]),
    ]
}

fn quantity() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        figure().prop_map(|bytes| Quantity::bytes(bytes.min(i64::MAX as u64))),
        select(vec!["100Mi", "1", "0", "1e30", "-5Gi", "250m", "8Ei"])
            .prop_map(|text| text.parse().expect("a quantity")),
    ]
}

fn amounts() -> impl Strategy<Value = ResourceList> {
    (of(quantity()), of(quantity()), of(quantity())).prop_map(|(cpu, memory, ephemeral_storage)| {
        ResourceList { cpu, memory, ephemeral_storage }
    })
}

fn memory() -> BoxedStrategy<MemoryUsage> {
    let figures =
        (of(figure()), of(figure()), of(figure()), of(figure()), of(figure()), of(figure()));
    figures
        .prop_map(|(usage, working_set, anon, file, inactive_file, low)| MemoryUsage {
            usage,
            working_set,
            anon,
            file,
            inactive_file,
            low,
            shmem: anon,
            ..MemoryUsage::default()
        })
        .boxed()
}

fn disk() -> impl Strategy<Value = FsUsage> {
    (of(figure()), of(figure()))
        .prop_map(|(used_bytes, inodes_used)| FsUsage { used_bytes, inodes_used })
}

fn kernel_counts() -> impl Strategy<Value = KernelCounts> {
    (of(moment()), of(figure()), of(figure()), of(figure())).prop_map(
        |(at, stall_us, direct_reclaims, own_reclaims)| KernelCounts {
            at,
            stall_us,
            direct_reclaims,
            own_reclaims,
        },
    )
}

fn stats() -> BoxedStrategy<Stats> {
    let container = (of(memory()), of(disk()), of(disk()));
    let growth = (of(figure()), of(figure()), of(figure()))
        .prop_map(|(grown, inodes_grown, written)| FsGrowth { grown, inodes_grown, written });
    let on_disk = (of(moment()), of(growth));
    let seen = (of(memory()), of(kernel_counts()), of(moment()), on_disk);
    (seen, of(figure()), of(figure()), vec(container, 0..3), of(disk()))
        .prop_map(
            |(
                (memory, kernel_counts, observed_at, (disk_observed_at, growth)),
                process_count,
                ephemeral_storage,
                containers,
                volume,
            )| {
                Stats {
                    observed_at,
                    memory,
                    kernel_counts,
                    process_count,
                    ephemeral_storage,
                    containers: (0..)
                        .zip(containers)
                        .map(|(n, (memory, rootfs, logs)): (u32, _)| ContainerStats {
                            name: format!("c{n}"),
                            memory,
                            rootfs,
                            logs,
                        })
                        .collect(),
                    volumes: volume
                        .map(|volume| VolumeStats {
                            name: "v".into(),
                            used_bytes: volume.used_bytes,
                            inodes_used: volume.inodes_used,
                        })
                        .into_iter()
                        .collect(),
                    disk_observed_at,
                    disk_growth: growth.map(|growth| DiskGrowth {
                        over: Millis(2000),
                        node_fs: Some(growth),
                        image_fs: Some(growth),
                        container_fs: None,
                    }),
                }
            },
        )
        .boxed()
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        5 => Just(State::Active),
        1 => (of(moment()), of(moment())).prop_map(|(since, deadline)| State::Terminating { since, deadline }),
        1 => of(moment()).prop_map(|at| State::Terminated { at }),
    ]
}

fn containers() -> BoxedStrategy<Vec<ContainerSpec>> {
    let kind = select(vec![
        ContainerKind::Regular,
        ContainerKind::Init,
        ContainerKind::Sidecar,
        ContainerKind::Ephemeral,
    ]);
    vec((kind, amounts(), amounts()), 0..3)
        .prop_map(|specs| {
            let named = |(n, (kind, requests, limits)): (u32, _)| ContainerSpec {
                name: format!("c{n}"),
                kind,
                start_order: Some(n),
                requests,
                limits,
            };
            (0..).zip(specs).map(named).collect()
        })
        .boxed()
}

fn workload() -> BoxedStrategy<Workload> {
    let who = (
        of(select(vec![-1, 0, 1, i32::MIN, i32::MAX, 1_999_999_999, 2_000_000_000])),
        prop::bool::weighted(0.1),
        of(select(vec![
            ProtectedReason::Agent,
            ProtectedReason::Init,
            ProtectedReason::Configured,
            ProtectedReason::Annotated,
        ])),
        select(vec![Preference::Prefer, Preference::Neutral, Preference::Avoid]),
        select(vec![
            Phase::Running,
            Phase::Running,
            Phase::Pending,
            Phase::Succeeded,
            Phase::Failed,
        ]),
        state(),
        any::<[bool; 2]>(),
    );
    let termination = of((moment(), moment(), of(figure()), of(moment()), any::<[bool; 2]>()));
    let asked = (
        containers(),
        of(amounts()),
        of(amounts()),
        of(0..400_u64),
        of(quantity()),
        of(quantity()),
    );
    let others = (of(0..3_u8), of(0..3_u32), any::<bool>(), of(figure()), of(moment()));
    (who, termination, prop::option::weighted(0.8, stats()), asked, others)
        .prop_map(|(who, termination, stats, asked, others)| {
            let (priority, static_pod, protected, preference, phase, state, [deleted, evicted]) =
                who;
            let (containers, requests, overhead, grace, memory_request, size_limit) = asked;
            let (owner, budget, at_limit, shared_memory, restarted_at) = others;
            Workload {
                priority,
                static_pod,
                protected,
                preference,
                phase,
                state,
                deleted,
                evicted,
                termination: termination.map(
                    |(since, deadline, expected_free, kill_at, [restarted, dry_run])| Termination {
                        since,
                        deadline,
                        expected_free,
                        kill_at,
                        restarted,
                        dry_run,
                    },
                ),
                restarted: restarted_at,
                stats,
                local_limit: Some(LocalLimit { at_limit, ..LocalLimit::default() }),
                containers,
                pod_resources: requests.map(|requests| {
                    Box::new(ebb_policy::snapshot::Resources { requests, ..Default::default() })
                }),
                overhead: overhead.map(Box::new),
                volumes: vec![VolumeSpec {
                    name: "v".into(),
                    volume_type: VolumeType::EmptyDir,
                    medium: None,
                    size_limit,
                }],
                termination_grace: grace.map(Secs),
                owner: owner.map(|owner| OwnerRef {
                    kind: "ReplicaSet".into(),
                    name: format!("r{owner}"),
                    uid: None,
                }),
                disruption_budget: budget.map(|left| DisruptionBudget {
                    name: format!("b{left}"),
                    disruptions_allowed: left,
                }),
                can_reclaim: true,
                shared_memory,
                memory_request,
                ..Workload::default()
            }
        })
        .boxed()
}

fn workloads() -> BoxedStrategy<Vec<Workload>> {
    vec(workload(), 0..7)
        .prop_map(|workloads| {
            let named = |(n, workload): (u32, Workload)| Workload {
                key: WorkloadKey {
                    name: format!("w{n}"),
                    uid: Some(format!("u{n}")),
                    ..WorkloadKey::default()
                },
                kind: WorkloadKind::Pod,
                ..workload
            };
            (0..).zip(workloads).map(named).collect()
        })
        .boxed()
}

/// What is observed of one signal.
pub(crate) fn observation() -> impl Strategy<Value = Observation> {
    (figure(), of(figure()), of(moment())).prop_map(|(available, capacity, observed_at)| {
        Observation { available, capacity, observed_at }
    })
}

fn facts() -> BoxedStrategy<NodeFacts> {
    let fs = || {
        let fall = (of(figure()), of(figure())).prop_map(|(lost, rate)| FsFall {
            over: Millis(2000),
            bytes: lost,
            inodes: lost,
            bytes_per_second: rate,
            inodes_per_second: rate,
        });
        of((of(figure()), of(figure()), of(figure()), of(figure()), of(fall))).prop_map(|fs| {
            fs.map(|(available, capacity, inodes_free, inodes, fall)| FsFacts {
                available,
                capacity,
                inodes_free,
                inodes,
                observed_at: None,
                fall,
            })
        })
    };
    let root = (of(figure()), of(figure()), of(figure()), of(figure()), of(figure()));
    let kubepods = (of(figure()), of(figure()), of(figure()));
    (of(figure()), of(root), of(kubepods), of(figure()), of(figure()), (fs(), fs(), fs()))
        .prop_map(
            |(
                memory_total,
                root,
                kubepods,
                threads_max,
                tasks,
                (node_fs, image_fs, container_fs),
            )| {
                NodeFacts {
                    memory_total,
                    memory_root: root.map(|(usage, anon, file, inactive_file, refaults)| {
                        RootMemory { usage, anon, file, inactive_file, active_file: file, refaults }
                    }),
                    memory_kubepods: kubepods.map(|(limit, working_set, usage)| KubepodsMemory {
                        limit,
                        working_set,
                        usage,
                        inactive_file: usage,
                    }),
                    threads_max,
                    tasks,
                    node_fs,
                    image_fs,
                    container_fs,
                    ..NodeFacts::default()
                }
            },
        )
        .boxed()
}

/// What the runtime has, and the logs beside it.
type Runtime = (Vec<Container>, Vec<Sandbox>, Vec<Image>, Vec<LogDir>, Vec<LogLink>);

fn runtime() -> BoxedStrategy<Runtime> {
    let states = || {
        select(vec![
            ContainerState::Created,
            ContainerState::Running,
            ContainerState::Exited,
            ContainerState::Unknown,
        ])
    };
    let container = (0..9_u32, 0..2_u32, states(), moment(), 0..4_u32, 0..4_u32);
    let sandbox = (0..9_u32, any::<bool>(), moment());
    let layers = of(vec((0..6_u32).prop_map(|n| Arc::from(format!("l{n}"))), 0..4));
    let image = (figure(), prop::bool::weighted(0.2), of(moment()), of(moment()), layers);
    let link = (any::<bool>(), of(states()), any::<bool>());
    (
        vec(container, 0..7),
        vec(sandbox, 0..5),
        vec(image, 0..6),
        vec(0..9_u32, 0..4),
        vec(link, 0..4),
    )
        .prop_map(|(containers, sandboxes, images, dirs, links)| {
            let containers = (0..).zip(containers).map(
                |(n, (pod, name, state, created_at, sandbox, image)): (u32, _)| Container {
                    id: format!("c{n}"),
                    pod_uid: format!("u{pod}"),
                    name: format!("n{name}"),
                    state,
                    created_at,
                    sandbox_id: Some(format!("s{sandbox}")),
                    image: Some(format!("i{image}")),
                },
            );
            let sandboxes = (0..).zip(sandboxes).map(|(n, (pod, ready, created_at)): (u32, _)| {
                Sandbox { id: format!("s{n}"), pod_uid: format!("u{pod}"), ready, created_at }
            });
            let images = (0..).zip(images).map(
                |(n, (size, pinned, last_used, first_detected, layers)): (u32, _)| Image {
                    layers,
                    id: format!("i{n}"),
                    runtime_handler: None,
                    tags: Vec::new(),
                    size,
                    pinned,
                    last_used,
                    first_detected,
                },
            );
            let dirs = (0..).zip(dirs).map(|(n, pod): (u32, u32)| LogDir {
                path: format!("d{n}"),
                pod_uid: format!("u{pod}"),
            });
            let links = (0..).zip(links).map(
                |(n, (target_exists, container_state, status_failed)): (u32, _)| LogLink {
                    path: format!("l{n}"),
                    target_exists,
                    container_state,
                    status_failed,
                },
            );
            (
                containers.collect(),
                sandboxes.collect(),
                images.collect(),
                dirs.collect(),
                links.collect(),
            )
        })
        .boxed()
}

/// A node.
pub(crate) fn snapshot() -> BoxedStrategy<Snapshot> {
    let signals = btree_map(select(Signal::ALL.to_vec()), observation(), 0..9);
    let layout =
        of(select(vec![FsLayout::Single, FsLayout::DedicatedImageFs, FsLayout::SplitImageFs]));
    let pressure = of((of(figure()), of(figure())));
    let sizes = btree_map((0..6_u32).prop_map(|n| Arc::from(format!("l{n}"))), figure(), 0..6);
    let runtime = (runtime(), sizes);
    (workloads(), signals, layout, facts(), runtime, any::<bool>(), pressure, of(moment()))
        .prop_map(
            |(
                workloads,
                signals,
                layout,
                node,
                runtime,
                sources_ready,
                pressure,
                agent_started_at,
            )| {
                let ((containers, sandboxes, images, log_dirs, log_links), layers) = runtime;
                Snapshot {
                    workloads,
                    signals,
                    layout,
                    node,
                    containers,
                    sandboxes,
                    images,
                    layers,
                    log_dirs,
                    log_links,
                    sources_ready,
                    agent_started_at,
                    exited: vec!["c0".into(), "c3".into()],
                    pressure: pressure.map(|(memory_some_us, io_some_us)| PressureEvidence {
                        memory_some_us,
                        io_some_us,
                        ..PressureEvidence::default()
                    }),
                    ..Snapshot::at(Time(NOW))
                }
            },
        )
        .boxed()
}
