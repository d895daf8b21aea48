//! A node made up at random, with a small range of figures so that equals and edges are frequent, and what becomes of it from pass to pass.
use ebb_policy::limits::RawEviction;
use ebb_policy::snapshot::{
    Container, ContainerKind, ContainerSpec, ContainerState, ContainerStats, FsLayout, FsUsage,
    Image, KubepodsMemory, LogDir, MemoryUsage, Observation, Phase, Preemption, Qos, ResourceList,
    Resources, RootMemory, Sandbox, State, Stats, Task, VolumeSpec, VolumeStats, VolumeType,
    Workload, WorkloadKey,
};
use ebb_policy::{Quantity, Secs, Signal, Snapshot, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A sequence of numbers that its seed decides (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).expect("an index fits")]
    }

    fn maybe<T>(&mut self, chance: u64, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
        self.percent(chance).then(|| make(self))
    }
}

/// A threshold's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Amount(u64),
    Percent(u32),
}

impl Value {
    fn text(self) -> String {
        match self {
            Value::Amount(amount) => amount.to_string(),
            Value::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// A threshold as configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configured {
    pub(super) signal: Signal,
    pub(super) is_in_soft: bool,
    pub(super) value: Value,
    pub(super) grace_ms: u64,
    pub(super) reclaim: Option<Value>,
}

/// A configuration.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) thresholds: Vec<Configured>,
    pub(super) transition_ms: u64,
    pub(super) max_pod_grace: i64,
    pub(super) enforces_pods: bool,
    pub(super) limits_storage: bool,
    pub(super) image_high: u64,
    pub(super) image_low: u64,
    pub(super) image_min_age_s: u64,
    pub(super) image_max_age_s: u64,
    pub(super) container_min_age_s: u64,
    pub(super) per_container: i64,
    pub(super) on_node: i64,
}

impl Rules {
    pub(super) fn random(random: &mut Random) -> Rules {
        let settable: Vec<Signal> =
            kubelets().filter(|s| *s != Signal::AllocatableMemoryAvailable).collect();
        let value = |random: &mut Random| {
            if random.percent(50) {
                Value::Amount(random.of(&[100, 150, 300]))
            } else {
                Value::Percent(random.of(&[5, 10, 30]))
            }
        };
        let mut thresholds = Vec::new();
        let reclaims: BTreeMap<Signal, Value> = settable
            .iter()
            .filter_map(|signal| Some((*signal, random.maybe(30, value)?)))
            .collect();
        for is_in_soft in [false, true] {
            for signal in &settable {
                if random.percent(if is_in_soft { 20 } else { 40 }) {
                    thresholds.push(Configured {
                        signal: *signal,
                        is_in_soft,
                        value: value(random),
                        grace_ms: if is_in_soft { random.of(&[0, 5_000, 15_000]) } else { 0 },
                        reclaim: reclaims.get(signal).copied(),
                    });
                }
            }
        }
        Rules {
            thresholds,
            transition_ms: random.of(&[0, 10_000, 30_000]),
            max_pod_grace: random.of(&[-1, 0, 5, 60]),
            enforces_pods: random.percent(70),
            limits_storage: random.percent(60),
            image_high: random.of(&[60, 80, 100]),
            image_low: random.of(&[40, 59]),
            image_min_age_s: random.of(&[0, 5, 20]),
            image_max_age_s: random.of(&[0, 0, 30]),
            container_min_age_s: random.of(&[0, 10]),
            per_container: random.of(&[-1, 0, 1, 2]),
            on_node: random.of(&[-1, -1, 0, 2]),
        }
    }

    pub(super) fn raw(&self) -> RawEviction {
        let list = |soft: bool| {
            let of = self.thresholds.iter().filter(move |t| t.is_in_soft == soft);
            of.map(|t| (t.signal.name().to_owned(), t.value.text())).collect::<BTreeMap<_, _>>()
        };
        let soft = self.thresholds.iter().filter(|t| t.is_in_soft);
        let graces = soft.map(|t| (t.signal.name().to_owned(), format!("{}ms", t.grace_ms)));
        let reclaims = self.thresholds.iter().filter_map(|t| Some((t.signal, t.reclaim?)));
        RawEviction {
            eviction_hard: Some(list(false)),
            eviction_soft: Some(list(true)),
            eviction_soft_grace_period: Some(graces.collect()),
            eviction_minimum_reclaim: Some(
                reclaims.map(|(signal, value)| (signal.name().to_owned(), value.text())).collect(),
            ),
            eviction_pressure_transition_period: Some(format!("{}ms", self.transition_ms)),
            eviction_max_pod_grace_period: Some(self.max_pod_grace),
            enforce_node_allocatable: Some(
                self.enforces_pods.then(|| "pods".to_owned()).into_iter().collect(),
            ),
            local_storage_capacity_isolation: Some(self.limits_storage),
            image_gc_high_threshold_percent: Some(self.image_high.cast_signed()),
            image_gc_low_threshold_percent: Some(self.image_low.cast_signed()),
            image_minimum_gc_age: Some(format!("{}s", self.image_min_age_s)),
            image_maximum_gc_age: Some(format!("{}s", self.image_max_age_s)),
            minimum_container_ttl_duration: Some(format!("{}s", self.container_min_age_s)),
            maximum_dead_containers_per_container: Some(self.per_container),
            maximum_dead_containers: Some(self.on_node),
            ..RawEviction::default()
        }
    }
}

/// A node that goes on from pass to pass.
pub(super) struct World {
    now: u64,
    started: u64,
    layout: FsLayout,
    names: u64,
    pods: Vec<Workload>,
    containers: Vec<Container>,
    sandboxes: Vec<Sandbox>,
    images: Vec<Image>,
    log_dirs: Vec<LogDir>,
}

impl World {
    pub(super) fn random(random: &mut Random) -> World {
        let now = 1_800_000_000_000;
        let mut world = World {
            now,
            started: now - random.of(&[0, 20_000, 100_000]),
            layout: random.of(&[
                FsLayout::Single,
                FsLayout::DedicatedImageFs,
                FsLayout::SplitImageFs,
            ]),
            names: 0,
            pods: Vec::new(),
            containers: Vec::new(),
            sandboxes: Vec::new(),
            images: Vec::new(),
            log_dirs: Vec::new(),
        };
        for _ in 0..random.below(6) {
            world.add_pod(random);
        }
        for _ in 0..random.below(5) {
            world.add_image(random);
        }
        world
    }

    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn add_pod(&mut self, random: &mut Random) {
        let name = self.name();
        let pod = pod(random, name, self.now);
        if random.percent(60) {
            for number in 0..random.below(4) {
                self.containers.push(Container {
                    id: format!("c{name}-{number}"),
                    pod_uid: format!("u{name}"),
                    name: format!("n{}", random.below(2)),
                    state: random.of(&[
                        ContainerState::Created,
                        ContainerState::Running,
                        ContainerState::Exited,
                        ContainerState::Exited,
                        ContainerState::Unknown,
                    ]),
                    created_at: Time(self.now - random.of(&[0, 5_000, 10_000, 20_000])),
                    sandbox_id: Some(format!("s{name}-{}", random.below(2))),
                    image: Some(format!("i{}", 1 + random.below(8))),
                });
            }
            for number in 0..random.below(3) {
                self.sandboxes.push(Sandbox {
                    id: format!("s{name}-{number}"),
                    pod_uid: format!("u{name}"),
                    ready: random.percent(40),
                    created_at: Time(self.now - random.of(&[1_000, 5_000])),
                });
            }
            self.log_dirs.push(LogDir { path: format!("d{name}"), pod_uid: format!("u{name}") });
        }
        // Now and then only the runtime knows of it.
        if random.percent(90) {
            self.pods.push(pod);
        }
    }

    fn add_image(&mut self, random: &mut Random) {
        let id = format!("i{}", 1 + random.below(8));
        if self.images.iter().all(|image| image.id != id) {
            self.images.push(Image {
                id,
                runtime_handler: None,
                tags: Vec::new(),
                size: random.below(150),
                layers: None,
                pinned: random.percent(15),
                last_used: None,
                first_detected: None,
            });
        }
    }

    /// What became of the node since the last pass, and how it is now.
    pub(super) fn step(&mut self, random: &mut Random, rules: &Rules) -> Snapshot {
        self.now += random.of(&[0, 1_000, 5_000, 10_000, 30_000]);
        for pod in &mut self.pods {
            change(random, pod, self.now);
        }
        self.pods.retain(|pod| match pod.state {
            State::Terminated { .. } => !random.percent(30),
            _ => true,
        });
        if random.percent(30) {
            self.add_pod(random);
        }
        if random.percent(30) {
            self.add_image(random);
        }
        let seen = |random: &mut Random, now| Observation {
            available: random.of(&[0, 49, 50, 99, 100, 149, 150, 151, 250, 300, 301, 600, 900]),
            capacity: Some(1_000),
            observed_at: random.maybe(80, |random| Time(now - random.of(&[0, 0, 1_000, 30_000]))),
        };
        let mut tasks = vec![Task::Eviction];
        tasks.extend(random.maybe(40, |_| Task::ContainerGc));
        tasks.extend(random.maybe(40, |_| Task::ImageGc));
        let mut snapshot = Snapshot {
            agent_started_at: Some(Time(self.started)),
            sources_ready: random.percent(80),
            layout: Some(self.layout),
            workloads: self.pods.clone(),
            containers: self.containers.clone(),
            sandboxes: self.sandboxes.clone(),
            images: self.images.clone(),
            log_dirs: self.log_dirs.clone(),
            tasks: Some(tasks),
            ..Snapshot::at(Time(self.now))
        };
        // Mostly signals that a threshold is about, or of its filesystem.
        for signal in kubelets() {
            let is_watched = rules.thresholds.iter().any(|t| t.signal == signal);
            if random.percent(if is_watched { 60 } else { 25 }) {
                snapshot.signals.insert(signal, seen(random, self.now));
            }
        }
        if random.percent(40) {
            snapshot.node.memory_total = Some(1_000);
            snapshot.node.memory_root = Some(RootMemory {
                anon: Some(random.below(700)),
                file: Some(random.below(500)),
                inactive_file: random.maybe(70, |random| random.below(800)),
                ..RootMemory::default()
            });
            snapshot.node.memory_kubepods = Some(KubepodsMemory {
                limit: random.maybe(80, |_| 1_000),
                working_set: random
                    .maybe(50, |random| random.of(&[0, 700, 900, 950, 1_000, 1_200])),
                usage: Some(random.below(1_500)),
                inactive_file: random.maybe(50, |random| random.below(1_000)),
            });
            snapshot.node.memory_observed_at = random.maybe(70, |_| Time(self.now));
        }
        snapshot.preemption = random.maybe(25, |random| Preemption {
            key: WorkloadKey { name: "new".into(), ..WorkloadKey::default() },
            priority: random.maybe(80, |random| random.of(&[1_000, 2_000_000_000, 2_000_001_000])),
            static_pod: random.percent(30),
            mirror: random.percent(10),
            missing: ResourceList {
                cpu: random.maybe(50, |random| cpu(random.below(200))),
                memory: random.maybe(60, |random| Quantity::bytes(random.below(120))),
                ephemeral_storage: random.maybe(30, |random| Quantity::bytes(random.below(80))),
            },
            missing_pods: random.of(&[0, 0, 1, 2]),
        });
        snapshot
    }

    /// Evicted pods begin to terminate, and what was removed is gone.
    pub(super) fn apply(
        &mut self,
        random: &mut Random,
        evicted: &[String],
        removed: &BTreeSet<String>,
    ) {
        for pod in &mut self.pods {
            if evicted.contains(&pod.key.name) {
                let now = Time(self.now);
                pod.state = State::Terminating {
                    since: Some(now),
                    deadline: Some(now.plus(ebb_policy::Millis(1_000 * random.below(40)))),
                };
                pod.evicted = true;
            }
        }
        // What could not be removed is there again.
        let stays = |random: &mut Random, kind: &str, id: &str| {
            !removed.contains(&format!("{kind} {id}")) || random.percent(20)
        };
        self.containers.retain(|c| stays(random, "container", &c.id));
        self.sandboxes.retain(|s| stays(random, "sandbox", &s.id));
        self.images.retain(|i| stays(random, "image", &i.id));
        self.log_dirs.retain(|d| stays(random, "logs", &d.path));
    }
}

fn cpu(thousandths: u64) -> Quantity {
    format!("{thousandths}m").parse().expect("a quantity")
}

fn amounts(random: &mut Random) -> ResourceList {
    ResourceList {
        cpu: random.maybe(50, |random| cpu(random.of(&[0, 50, 100]))),
        memory: random.maybe(60, |random| Quantity::bytes(random.of(&[0, 20, 30, 50]))),
        ephemeral_storage: random.maybe(50, |random| Quantity::bytes(random.of(&[0, 20, 30, 50]))),
    }
}

fn disk(random: &mut Random) -> FsUsage {
    FsUsage {
        used_bytes: random.maybe(90, |random| random.of(&[0, 10, 20, 30])),
        inodes_used: random.maybe(90, |random| random.of(&[0, 1, 10, 30])),
    }
}

fn stats(random: &mut Random, pod: &Workload) -> Stats {
    Stats {
        memory: random.maybe(90, |random| MemoryUsage {
            working_set: random.maybe(90, |random| random.of(&[0, 20, 30, 50, 60])),
            ..MemoryUsage::default()
        }),
        process_count: random.maybe(90, |random| random.below(4)),
        ephemeral_storage: random.maybe(80, |random| random.of(&[0, 20, 40, 60, 100])),
        containers: pod
            .containers
            .iter()
            .map(|c| ContainerStats {
                name: c.name.clone(),
                memory: None,
                rootfs: random.maybe(90, disk),
                logs: random.maybe(90, disk),
            })
            .collect(),
        volumes: pod.volumes.iter().filter_map(|volume| volume_stats(random, volume)).collect(),
        ..Stats::default()
    }
}

fn volume_stats(random: &mut Random, volume: &VolumeSpec) -> Option<VolumeStats> {
    let FsUsage { used_bytes, inodes_used } = disk(random);
    let name = volume.name.clone();
    random.maybe(90, |_| VolumeStats { name, used_bytes, inodes_used })
}

fn pod(random: &mut Random, name: u64, now: u64) -> Workload {
    let mut containers = Vec::new();
    for (number, kind) in [
        (0, ContainerKind::Regular),
        (1, ContainerKind::Regular),
        (2, ContainerKind::Init),
        (3, ContainerKind::Sidecar),
        (4, ContainerKind::Init),
    ] {
        if number == 0 || random.percent(25) {
            containers.push(ContainerSpec {
                name: format!("m{number}"),
                kind,
                start_order: None,
                requests: amounts(random),
                limits: amounts(random),
            });
        }
    }
    let kinds = [
        VolumeType::EmptyDir,
        VolumeType::HostPath,
        VolumeType::ConfigMap,
        VolumeType::Secret,
        VolumeType::Ephemeral,
    ];
    let volumes = (0..random.below(3)).map(|number| VolumeSpec {
        name: format!("v{number}"),
        volume_type: random.of(&kinds),
        size_limit: random.maybe(30, |random| Quantity::bytes(random.of(&[0, 10, 20]))),
        medium: random.maybe(15, |_| "Memory".to_owned()),
    });
    let volumes = volumes.collect();
    let mut pod = Workload {
        key: WorkloadKey {
            name: format!("ns/p{name:03}"),
            uid: Some(format!("u{name}")),
            ..WorkloadKey::default()
        },
        qos: Some(random.of(&[Qos::BestEffort, Qos::Burstable, Qos::Guaranteed])),
        priority: random
            .maybe(60, |random| random.of(&[-10, 0, 0, 100, 2_000_000_000, 2_000_001_000])),
        static_pod: random.percent(8),
        mirror: random.percent(4),
        containers,
        volumes,
        pod_resources: random.maybe(20, |random| {
            Box::new(Resources { requests: amounts(random), limits: amounts(random) })
        }),
        overhead: random.maybe(20, |random| Box::new(amounts(random))),
        termination_grace: random.maybe(60, |random| Secs(random.of(&[0, 3, 30, 100]))),
        ..Workload::default()
    };
    pod.stats = random.maybe(85, |random| stats(random, &pod));
    change(random, &mut pod, now);
    pod
}

/// What a pod becomes between two passes.
fn change(random: &mut Random, pod: &mut Workload, now: u64) {
    if random.percent(30) {
        pod.stats = random.maybe(85, |random| stats(random, pod));
    }
    if random.percent(5) {
        pod.phase = random.of(&[Phase::Running, Phase::Succeeded, Phase::Failed]);
    }
    if random.percent(3) {
        pod.deleted = true;
    }
    pod.state = match pod.state {
        State::Active if random.percent(4) => State::Terminating {
            since: random.maybe(70, |_| Time(now)),
            deadline: random.maybe(70, |random| Time(now + random.below(20_000))),
        },
        State::Active if random.percent(3) => State::Terminated { at: None },
        State::Terminating { .. } if random.percent(40) => State::Terminated { at: None },
        state => state,
    };
}

/// The signals that the kubelet has.
fn kubelets() -> impl Iterator<Item = Signal> {
    Signal::ALL.into_iter().filter(|signal| !signal.is_beyond_kubelet())
}
