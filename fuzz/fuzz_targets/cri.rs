//! Any bytes as answers and events of a container runtime, and what ebb makes of them: a snapshot that can be decided on, and pods whose cgroups can be planned.
//!
//! The input is a list of answers, each with a byte for its kind and two for its length.
#![no_main]
use ebb_agent::clock::Boot;
use ebb_agent::config::{Beside, Patterns};
use ebb_agent::pods::sources::Sources;
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::CgroupLayout;
use ebb_agent::sense::meminfo::Measure;
use ebb_agent::sense::runtime::{ContainerSeen, Inventory, PodSeen};
use ebb_agent::state::NodeState;
use ebb_agent::state::rules::Rules;
use ebb_cri::fuzz::{Answer, answer};
use ebb_cri::{Container, ContainerState, Sandbox};
use ebb_policy::cgroups::{CgroupName, Driver, PodTree};
use ebb_policy::limits::{Limits, Options, RawEviction};
use ebb_policy::snapshot;
use ebb_policy::{History, Time, decide};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

static LIMITS: LazyLock<Limits> = LazyLock::new(|| {
    let raw = RawEviction { options: Some(Options::kubelet()), ..RawEviction::default() };
    Limits::new(&raw).expect("the limits are valid")
});

static RULES: LazyLock<Rules> =
    LazyLock::new(|| Rules::new(&Patterns::default()).expect("no pattern is a wrong one"));

static TREES: LazyLock<Vec<PodTree>> = LazyLock::new(|| {
    let below = |driver| PodTree::below(&CgroupName::root(), driver).expect("the root is a place");
    [Driver::Cgroupfs, Driver::Systemd].map(below).into()
});

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut inventory = Inventory {
        at: Boot(0),
        pods: Vec::new(),
        containers: Vec::new(),
        exited: Vec::new(),
        images: None,
    };
    let mut cgroup = None;
    while let [kind, low, high, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (one, next) = tail.split_at(length);
        rest = next;
        match answer(*kind, one) {
            Some(Answer::Containers(list)) => {
                inventory.containers.extend(list.into_iter().map(|one| seen(one, &cgroup)));
            }
            Some(Answer::Sandboxes(list)) => {
                inventory.pods.extend(list.into_iter().map(|one| pod(one, &cgroup)));
            }
            Some(Answer::Container(Some(status))) => {
                if let Some(path) = &status.cgroup {
                    assert!(path.starts_with('/'), "{path}");
                }
                cgroup = status.cgroup.map(|path| PathBuf::from(path.trim_start_matches('/')));
            }
            Some(_) | None => {}
        }
    }
    let roots = Roots { cgroup: "/nowhere".into(), ..Roots::default() };
    let layout = CgroupLayout::Unified { root: roots.cgroup.clone() };
    let mut state = NodeState::new(roots, layout, Measure::MemAvailable, RULES.clone());
    state.pods_mut().expect_runtime();
    state.observe_inventory(inventory.clone());
    // A list that says the same again changes nothing.
    state.observe_inventory(inventory.clone());
    let snapshot = state.snapshot(Boot::now());
    for pod in &snapshot.workloads {
        assert_eq!(pod.protected, Some(snapshot::ProtectedReason::NothingRuns), "{}", pod.key.name);
    }
    let pods = state.pods();
    for name in pods.names() {
        let _ = (pods.parts(&name.uid), pods.is_anothers(&name.uid));
    }
    // The same list, as the reconciler of cgroups takes it: every pod is one that was listed.
    let sources = Sources::now(None, Some(inventory.into()));
    let known = sources.known(Beside::Nobody).map(|known| known.uids).unwrap_or_default();
    for tree in TREES.iter() {
        for pod in sources.pods(tree) {
            assert!(known.contains(&pod.uid), "{}", pod.uid);
        }
    }
    let (plan, _) = decide(&snapshot, &LIMITS, &History::default());
    assert_eq!(plan.evictions().count(), 0, "of nobody it is known that they use anything");
});

fn seen(from: Container, cgroup: &Option<PathBuf>) -> ContainerSeen {
    ContainerSeen {
        container: snapshot::Container {
            pod_uid: from.pod.map_or_else(|| from.sandbox.clone(), |pod| pod.uid),
            name: from.name,
            state: match from.state {
                ContainerState::Created => snapshot::ContainerState::Created,
                ContainerState::Running => snapshot::ContainerState::Running,
                ContainerState::Exited => snapshot::ContainerState::Exited,
                ContainerState::Unknown => snapshot::ContainerState::Unknown,
            },
            created_at: Time(0),
            image: Some(from.image.reference),
            sandbox_id: Some(from.sandbox),
            id: from.id,
        },
        cgroup: cgroup.clone(),
        mounted_images: Vec::new(),
        asked: Default::default(),
    }
}

fn pod(from: Sandbox, cgroup: &Option<PathBuf>) -> PodSeen {
    PodSeen {
        name: format!("{}/{}", from.pod.namespace, from.pod.name),
        is_static: false,
        is_of_api_server: false,
        cgroup: cgroup.clone(),
        sandbox: snapshot::Sandbox {
            pod_uid: from.pod.uid,
            ready: from.ready,
            created_at: Time(0),
            id: from.id,
        },
    }
}
