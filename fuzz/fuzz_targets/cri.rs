//! Any bytes as answers and events of a container runtime, and what ebb makes of them: a snapshot that can be decided on.
//!
//! The input is a list of answers, each with a byte for its kind and two for its length.
#![no_main]
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::sense::runtime::{ContainerSeen, Inventory, PodSeen};
use ebb_agent::state::Pods;
use ebb_cri::fuzz::{Answer, answer};
use ebb_cri::{Container, ContainerState, Sandbox};
use ebb_policy::limits::{Limits, Options, RawEviction};
use ebb_policy::snapshot;
use ebb_policy::{History, Snapshot, Time, decide};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

static LIMITS: LazyLock<Limits> = LazyLock::new(|| {
    let raw = RawEviction { options: Some(Options::kubelet()), ..RawEviction::default() };
    Limits::new(&raw).expect("the limits are valid")
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
    let mut pods = Pods::default();
    pods.expect_runtime();
    pods.observe(inventory.clone());
    // A list that says the same again changes nothing.
    pods.observe(inventory);
    let mut snapshot = Snapshot::at(Time(1_700_000_000_000));
    let running = pods.add_workloads(&mut snapshot, std::iter::empty(), &Clock::of_process());
    assert!(running.is_empty(), "nothing was measured, and {running:?} runs");
    pods.add_runtime(&mut snapshot);
    for name in pods.names() {
        let _ = (pods.parts(&name.uid), pods.is_anothers(&name.uid));
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
