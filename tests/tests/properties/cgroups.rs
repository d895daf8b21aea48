//! Properties of the cgroup tree: names lead back, applying a plan twice changes nothing, and the order of writes is safe on the way.
use ebb_model::Amounts;
use ebb_model::pod::{Asked, Container, Pod, Resources, Source};
use ebb_policy::Quantity;
use ebb_policy::cgroups::compare::{Difference, Found, Kind, Live, differences};
use ebb_policy::cgroups::names::{CgroupName, Driver, PodTree};
use ebb_policy::cgroups::order::{Direction, writes};
use ebb_policy::cgroups::{Level, Node, Options, RawCgroups, plan};
use ebb_policy::snapshot::{ContainerKind, Qos};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn driver() -> impl Strategy<Value = Driver> {
    prop_oneof![Just(Driver::Cgroupfs), Just(Driver::Systemd)]
}

fn class() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::Guaranteed), Just(Qos::Burstable), Just(Qos::BestEffort)]
}

/// A small hierarchy: parents by index, each below an earlier one (or the root, which has no limit).
fn parents() -> impl Strategy<Value = Vec<Option<usize>>> {
    prop::collection::vec(any::<prop::sample::Index>(), 1..12).prop_map(|picks| {
        let pick = |(n, pick): (usize, prop::sample::Index)| {
            let at = pick.index(n + 1);
            at.checked_sub(1)
        };
        picks.into_iter().enumerate().map(pick).collect()
    })
}

/// Limits in which no child has more than its parent.
fn nested(parents: &[Option<usize>], wishes: &[u64]) -> Vec<u64> {
    let mut limits: Vec<u64> = Vec::new();
    for (parent, wish) in parents.iter().zip(wishes) {
        let most = parent.map_or(u64::MAX, |parent| limits[parent]);
        limits.push((*wish).min(most));
    }
    limits
}

fn path(parents: &[Option<usize>], n: usize) -> String {
    format!("{}/c{n}", parents[n].map(|parent| path(parents, parent)).unwrap_or_default())
}

/// The least limit on the way from a cgroup to the root.
fn effective(parents: &[Option<usize>], limits: &[u64], n: usize) -> u64 {
    parents[n].map_or(limits[n], |parent| limits[n].min(effective(parents, limits, parent)))
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "max".to_owned() } else { limit.to_string() }
}

fn amount() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(prop_oneof![Just(0_u64), 1_u64..4000])
}

fn resources() -> impl Strategy<Value = Resources> {
    (amount(), amount(), amount(), amount()).prop_map(|(cpu, memory, more_cpu, more_memory)| {
        let list = |cpu: Option<u64>, memory: Option<u64>| {
            let mut amounts = Amounts::none();
            if let Some(milli) = cpu {
                amounts.set("cpu", format!("{milli}m").parse().expect("it is well formed"));
            }
            if let Some(mib) = memory {
                amounts.set("memory", Quantity::bytes(mib << 20));
            }
            amounts
        };
        let limit =
            |request: Option<u64>, more: Option<u64>| more.map(|m| request.unwrap_or(0) + m);
        Resources {
            requests: list(cpu, memory),
            limits: list(limit(cpu, more_cpu), limit(memory, more_memory)),
        }
    })
}

/// A pod's containers, and what it asks for as a whole.
type MadeUp = (Vec<(ContainerKind, Resources)>, Option<Resources>);

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let kind = prop_oneof![
        Just(ContainerKind::Regular),
        Just(ContainerKind::Init),
        Just(ContainerKind::Sidecar)
    ];
    let container = (kind, resources());
    let containers = prop::collection::vec(container, 1..4);
    prop::collection::vec((containers, prop::option::of(resources())), 0..6).prop_map(|pods| {
        let pod = |(n, (containers, whole)): (usize, MadeUp)| {
            let container =
                |(m, (kind, resources)): (usize, (ContainerKind, Resources))| Container {
                    name: format!("c{m}"),
                    kind,
                    resources,
                    id: Some(format!("containerd://id{n}x{m}").parse().expect("it is well formed")),
                    asked: Asked::default(),
                };
            let mut pod = Pod {
                namespace: "test".to_owned(),
                name: format!("p{n}"),
                uid: format!("uid-{n}"),
                resources: whole,
                containers: containers.into_iter().enumerate().map(container).collect(),
                ..Pod::default()
            };
            pod.apply_defaults();
            pod
        };
        pods.into_iter().enumerate().map(pod).collect()
    })
}

/// The same pod with nothing but what a runtime tells for certain.
fn as_a_runtime_tells(pod: &Pod) -> Pod {
    let container = |container: &Container| Container {
        name: container.name.clone(),
        id: container.id.clone(),
        ..Container::default()
    };
    Pod {
        source: Source::Runtime,
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        qos: Some(pod.qos()),
        containers: pod.containers.iter().map(container).collect(),
        ..Pod::default()
    }
}

fn node() -> Node {
    let capacity = [("cpu", "8"), ("memory", "16Gi"), ("pid", "30000"), ("hugepages-2Mi", "1Gi")];
    let capacity = capacity
        .into_iter()
        .map(|(name, text)| (name, text.parse().expect("it is well formed")))
        .collect();
    Node { capacity, swap: Some(Quantity::bytes(1 << 30)), ..Node::default() }
}

fn options(driver: Driver, limited_swap: bool, tiered: bool) -> Options {
    let raw = RawCgroups {
        cgroup_driver: Some(
            if driver == Driver::Systemd { "systemd" } else { "cgroupfs" }.to_owned(),
        ),
        swap_behavior: Some(if limited_swap { "LimitedSwap" } else { "NoSwap" }.to_owned()),
        feature_gates: [("MemoryQoS".to_owned(), true)].into(),
        memory_reservation_policy: Some(
            if tiered { "TieredReservation" } else { "None" }.to_owned(),
        ),
        qos_reserved: Some([("memory".to_owned(), "30%".to_owned())].into()),
        pod_pids_limit: Some(100),
        ..RawCgroups::default()
    };
    Options::new(&raw).expect("it is well formed")
}

proptest! {
    #[test]
    fn what_a_runtime_does_not_tell_is_never_planned_otherwise(
        pods in pods(),
        seen in any::<u8>(),
        driver in driver(),
        tiered in any::<bool>(),
    ) {
        let options = options(driver, false, tiered);
        let known = plan(&options, &node(), &pods).expect("it is well formed");
        let by_path = |path: &Option<String>| known.cgroups.iter().find(|c| c.path == *path);
        let told: Vec<Pod> = pods
            .iter()
            .enumerate()
            .map(|(n, pod)| if seen >> n & 1 == 1 { as_a_runtime_tells(pod) } else { pod.clone() })
            .collect();
        for cgroup in plan(&options, &node(), &told).expect("it is well formed").cgroups {
            let other = by_path(&cgroup.path).expect("it has the same cgroups");
            for (file, value) in &cgroup.values {
                let planned = other.values.get(file).map(|value| &value.value);
                prop_assert_eq!(planned, Some(&value.value), "{:?} {}", cgroup.path, file);
            }
        }
    }

    #[test]
    fn the_name_of_a_pod_leads_back_to_it(
        driver in driver(),
        qos in class(),
        uid in "[a-zA-Z0-9][a-zA-Z0-9.-]{0,40}",
        root in prop::collection::vec("[a-z][a-z0-9-]{0,8}", 0..3),
    ) {
        prop_assume!(!uid.contains("pod"));
        let root = CgroupName::from_path(&root.join("/")).unwrap();
        let tree = PodTree::below(&root, driver).unwrap();
        let name = tree.pod(&uid, qos).unwrap();
        let path = name.path(driver);
        prop_assert_eq!(tree.parse_pod(&path), Some((uid, qos)));
        prop_assert_eq!(CgroupName::parse(&path, driver), Some(name));
        prop_assert!(path.starts_with('/') && !path.contains("//") && !path.contains("/../"));
    }

    #[test]
    fn whatever_is_read_as_a_pod_is_named_so(driver in driver(), path in "(/(kubepods|burstable|besteffort|pod[a-z0-9_-]{0,6}|kubepods[a-z_-]{0,12}\\.slice)){1,4}") {
        let tree = PodTree::below(&CgroupName::root(), driver).unwrap();
        if let Some((uid, qos)) = tree.parse_pod(&path) {
            prop_assert_eq!(tree.pod(&uid, qos).unwrap().path(driver), path);
        }
    }

    #[test]
    fn no_limit_dips_on_the_way_and_no_child_exceeds_its_parent(
        (parents, old, new) in parents().prop_flat_map(|parents| {
            let wish = || prop_oneof![1 => Just(u64::MAX), 4 => (1_u64..50).prop_map(|n| n << 20)];
            let wishes = || prop::collection::vec(wish(), parents.len());
            (Just(parents.clone()), wishes(), wishes())
        }),
    ) {
        let (old, new) = (nested(&parents, &old), nested(&parents, &new));
        let difference = |n: usize| Difference {
            kind: Kind::Value,
            path: path(&parents, n),
            level: Level::Pod,
            pod: None,
            container: None,
            file: Some("memory.max".to_owned()),
            expected: Some(shown(new[n])),
            found: Some(shown(old[n])),
            rule: None,
        };
        let changed: Vec<usize> = (0..parents.len()).filter(|n| old[*n] != new[*n]).collect();
        let found: Vec<Difference> = changed.iter().rev().map(|n| difference(*n)).collect();
        let places: BTreeMap<String, usize> = (0..parents.len()).map(|n| (path(&parents, n), n)).collect();
        let mut now = old.clone();
        let writes = writes(&found);
        prop_assert_eq!(writes.len(), changed.len());
        for write in &writes {
            let n = places[&write.path];
            prop_assert_eq!(write.direction == Direction::Lower, new[n] < old[n]);
            now[n] = new[n];
            for (n, parent) in parents.iter().enumerate() {
                let least = effective(&parents, &old, n).min(effective(&parents, &new, n));
                prop_assert!(effective(&parents, &now, n) >= least, "{} dips after {:?}", path(&parents, n), write);
                if let Some(parent) = parent {
                    prop_assert!(now[n] <= now[*parent], "{} exceeds its parent after {:?}", path(&parents, n), write);
                }
            }
        }
        prop_assert_eq!(now, new);
    }

    #[test]
    fn applying_a_plan_twice_changes_nothing(
        pods in pods(),
        driver in driver(),
        limited_swap: bool,
        tiered: bool,
        start in prop_oneof![Just("max"), Just("0"), Just("4096"), Just("max 100000")],
    ) {
        let node = node();
        let plan = plan(&options(driver, limited_swap, tiered), &node, &pods).unwrap();
        let mut live: Live = plan.cgroups.iter().filter_map(|cgroup| {
            let files = cgroup.values.keys().map(|file| (file.clone(), start.to_owned()));
            Some((cgroup.path.clone()?, Found { files: files.collect(), ..Found::default() }))
        }).collect();
        prop_assert_eq!(live.len(), plan.cgroups.len(), "paths are unique");
        for write in writes(&differences(&plan, &live, &node)) {
            let files = &mut live.get_mut(&write.path).unwrap().files;
            files.insert(write.file.clone(), write.value.clone());
        }
        prop_assert_eq!(differences(&plan, &live, &node), []);
    }

    #[test]
    fn every_value_is_one_that_the_kernel_takes(pods in pods(), driver in driver(), limited_swap: bool, tiered: bool) {
        let plan = plan(&options(driver, limited_swap, tiered), &node(), &pods).unwrap();
        for cgroup in &plan.cgroups {
            for (file, value) in &cgroup.values {
                let number = || value.value.parse::<u64>();
                match file.as_str() {
                    "cpu.weight" => prop_assert!((1..=10_000).contains(&number().unwrap())),
                    "memory.oom.group" => prop_assert_eq!(number().unwrap(), 1),
                    "cpu.max" => {
                        let (quota, period) = value.value.split_once(' ').unwrap();
                        prop_assert!(quota == "max" || quota.parse::<u64>().unwrap() >= 1000);
                        prop_assert!((1000..=1_000_000).contains(&period.parse::<u64>().unwrap()));
                    }
                    "cpuset.cpus" => prop_assert_eq!(&value.value, "0-7"),
                    _ => prop_assert!(number().is_ok(), "{} = {}", file, value.value),
                }
            }
            if let Some(score) = &cgroup.oom_score_adj {
                prop_assert!((-1000..=1000).contains(&score.value));
            }
        }
    }
}
