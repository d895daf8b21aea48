//! Pods put together from what the runtime, the manifests and the cgroups tell.
use super::*;
use crate::clock::Boot;
use crate::sense::runtime::PodDisk;
use ebb_policy::snapshot::{Container, Sandbox, VolumeStats};
use std::path::PathBuf;

fn pod(uid: &str, name: &str, ready: bool) -> PodSeen {
    PodSeen {
        sandbox: Sandbox {
            id: format!("s-{uid}"),
            pod_uid: uid.into(),
            ready,
            created_at: Time(1),
        },
        name: name.into(),
        is_static: false,
        cgroup: Some(format!("kubepods/pod{uid}/s-{uid}").into()),
    }
}

fn container(id: &str, uid: &str, state: ContainerState) -> ContainerSeen {
    let runs = state == ContainerState::Running;
    ContainerSeen {
        container: Container {
            id: id.into(),
            pod_uid: uid.into(),
            name: "main".into(),
            state,
            created_at: Time(1),
            sandbox_id: Some(format!("s-{uid}")),
            image: Some("sha256:a".into()),
        },
        cgroup: runs.then(|| format!("kubepods/pod{uid}/{id}").into()),
        asked: ebb_policy::cgroups::pod::Asked::default(),
        mounted_images: Vec::new(),
    }
}

fn inventory(pods: Vec<PodSeen>, containers: Vec<ContainerSeen>, exited: &[&str]) -> Inventory {
    let exited = exited.iter().map(|id| (*id).to_owned()).collect();
    Inventory { at: Boot(0), pods, containers, exited, images: None }
}

fn cgroup(path: &str, usage: u64) -> (PathBuf, Workload) {
    let memory = MemoryUsage { usage: Some(usage), ..MemoryUsage::default() };
    let stats = Stats { memory: Some(memory), process_count: Some(1), ..Stats::default() };
    let key = WorkloadKey { name: format!("/{path}"), ..WorkloadKey::default() };
    (path.into(), Workload { key, stats: Some(stats), ..Workload::default() })
}

fn snapshot(pods: &Pods, cgroups: Vec<(PathBuf, Workload)>) -> Snapshot {
    let mut snapshot = Snapshot::at(Time(100));
    let measured = cgroups.iter().map(|(path, workload)| Measured {
        path,
        since: Boot(0),
        owner: pods.owner(path),
        workload: workload.clone(),
    });
    pods.add_workloads(&mut snapshot, measured);
    pods.add_runtime(&mut snapshot);
    snapshot
}

fn one_pod() -> Pods {
    let mut pods = Pods::default();
    pods.observe(inventory(
        vec![pod("u1", "shop/web", true)],
        vec![
            container("c1", "u1", ContainerState::Running),
            container("c0", "u1", ContainerState::Exited),
        ],
        &["c0"],
    ));
    pods
}

#[test]
fn a_pod_uses_what_its_containers_and_its_sandbox_use_and_other_cgroups_stay_workloads() {
    let mut pods = one_pod();
    let cgroups = || {
        vec![
            cgroup("kubepods/podu1/c1/inner", 100),
            cgroup("kubepods/podu1/s-u1", 1),
            cgroup("system.slice/x.service", 7),
        ]
    };
    let seen = snapshot(&pods, cgroups());
    let mut names: Vec<_> = seen.workloads.iter().map(|w| w.key.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["/system.slice/x.service", "shop/web"]);
    let web = seen.workloads.iter().find(|w| w.key.name == "shop/web").unwrap();
    let stats = web.stats.as_ref().unwrap();
    assert_eq!((stats.memory.unwrap().usage, stats.process_count), (Some(101), Some(2)));
    pods.set_pods_only(true);
    assert_eq!(snapshot(&pods, cgroups()).workloads.len(), 1);
}

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Why each of the cgroups is protected that a snapshot has as workloads of their own.
fn protections(pods: &Pods, since: Boot, paths: &[&str]) -> Vec<Option<ProtectedReason>> {
    let mut snapshot = Snapshot::at(Time(100));
    let cgroups: Vec<_> = paths.iter().map(|path| cgroup(path, 1)).collect();
    let measured = cgroups.iter().map(|(path, workload)| Measured {
        path,
        since,
        owner: pods.owner(path),
        workload: workload.clone(),
    });
    pods.add_workloads(&mut snapshot, measured);
    let own = snapshot.workloads.iter().filter(|workload| workload.key.name.starts_with("/"));
    own.map(|workload| workload.protected).collect()
}

#[test]
fn where_only_pods_may_be_ended_nobody_is_before_the_runtime_has_told() {
    let mut pods = Pods::default();
    pods.set_pods_only(true);
    let paths = ["kubepods/podu1/c1", "system.slice/x.service"];
    let unlisted = Some(ProtectedReason::Unlisted);
    assert_eq!(protections(&pods, Boot(0), &paths), [unlisted, unlisted]);
    pods.observe(inventory(Vec::new(), Vec::new(), &[]));
    assert_eq!(protections(&pods, Boot(0), &paths), []);
}

#[test]
fn beside_a_runtime_what_may_be_its_container_waits_until_it_is_listed_or_has_not_been_for_a_minute()
 {
    let mut pods = Pods::default();
    let scope = format!("system.slice/docker-{ID}.scope");
    let paths = [scope.as_str(), "system.slice/x.service"];
    assert_eq!(protections(&pods, Boot(0), &paths), [None, None], "there is no runtime");
    pods.expect_runtime();
    let unlisted = Some(ProtectedReason::Unlisted);
    assert_eq!(protections(&pods, Boot(0), &paths), [unlisted, None]);
    let listed_at = |seconds: u64| {
        let at = Boot(seconds * 1_000_000_000);
        Inventory { at, ..inventory(Vec::new(), Vec::new(), &[]) }
    };
    pods.observe(listed_at(59));
    assert_eq!(protections(&pods, Boot(0), &paths), [unlisted, None]);
    pods.observe(listed_at(60));
    assert_eq!(protections(&pods, Boot(0), &paths), [None, None], "it is not the runtime's");
    assert_eq!(protections(&pods, Boot(1), &paths), [unlisted, None], "a younger one may be");
}

#[test]
fn a_listed_container_whose_cgroup_is_not_told_is_never_a_workload_of_its_own() {
    let mut pods = Pods::default();
    pods.expect_runtime();
    let seen = ContainerSeen { cgroup: None, ..container(ID, "u1", ContainerState::Running) };
    let list = inventory(vec![pod("u1", "shop/web", true)], vec![seen], &[]);
    pods.observe(Inventory { at: Boot(u64::MAX), ..list });
    let path = format!("k8s.io/{ID}/inner");
    assert_eq!(protections(&pods, Boot(0), &[&path]), [Some(ProtectedReason::Unlisted)]);
    let seen = snapshot(&pods, Vec::new());
    assert_eq!(seen.workloads[0].protected, Some(ProtectedReason::NothingRuns), "none to end");
}

#[test]
fn what_has_a_pods_name_is_for_ending_only_when_the_runtime_has_told_of_it() {
    let mut pods = Pods::default();
    pods.expect_runtime();
    pods.observe(Inventory { at: Boot(u64::MAX), ..inventory(Vec::new(), Vec::new(), &[]) });
    let (path, mut workload) = cgroup("kubepods/pod0a1b/anything", 1);
    workload.key.uid = Some("0a1b".into());
    let mut snapshot = Snapshot::at(Time(100));
    let measured = Measured { path: &path, since: Boot(0), owner: None, workload };
    pods.add_workloads(&mut snapshot, [measured].into_iter());
    assert_eq!(snapshot.workloads[0].protected, Some(ProtectedReason::Unlisted));
}

#[test]
fn a_pod_is_kept_for_a_protected_container_or_for_none_running_and_not_for_its_sandbox() {
    let pods = one_pod();
    let protected = |path| {
        let (path, mut workload) = cgroup(path, 1);
        workload.protected = Some(ProtectedReason::Runtime);
        (path, workload)
    };
    let of = |cgroups| snapshot(&pods, cgroups).workloads[0].protected;
    let sandbox = || protected("kubepods/podu1/s-u1");
    assert_eq!(of(vec![sandbox(), cgroup("kubepods/podu1/c1", 1)]), None);
    assert_eq!(of(vec![protected("kubepods/podu1/c1")]), Some(ProtectedReason::Runtime));
    assert_eq!(of(vec![sandbox()]), Some(ProtectedReason::NothingRuns));
    assert_eq!(of(Vec::new()), Some(ProtectedReason::NothingRuns));
}

/// There would be nothing to end of it, again and again.
#[test]
fn what_an_ended_container_left_in_its_cgroup_does_not_make_its_pod_one_that_runs() {
    let mut pods = Pods::default();
    let path = "kubepods/podu1/c1";
    let ended = container("c1", "u1", ContainerState::Exited);
    let ended = ContainerSeen { cgroup: Some(path.into()), ..ended };
    pods.observe(inventory(vec![pod("u1", "shop/web", true)], vec![ended], &[]));
    let seen = snapshot(&pods, vec![cgroup(path, 100)]);
    assert_eq!(seen.workloads[0].protected, Some(ProtectedReason::NothingRuns));
    assert!(pods.payloads("u1", Path::new("/cg"), |_| Some(42)).is_empty());
}

#[test]
fn a_pod_that_the_operators_own_list_leaves_out_is_kept_for_that() {
    let pods = one_pod();
    let told = |living: &str| {
        let mut seen = snapshot(&pods, Vec::new());
        pods.tell_unchosen(&mut seen, |path| path == Path::new(living));
        seen.workloads[0].protected
    };
    assert_eq!(told("kubepods/podu1/c1"), Some(ProtectedReason::Configured));
    let over = Some(ProtectedReason::NothingRuns);
    assert_eq!(told("kubepods/podu1/s-u1"), over, "the sandbox alone is nothing to end");
    assert_eq!(told(""), over, "its list of what runs may be old");
}

#[test]
fn a_manifest_gives_a_pod_its_requests_and_its_absence_means_deleted() {
    let mut pods = one_pod();
    assert!(!snapshot(&pods, Vec::new()).sources_ready, "nobody has said which pods there are");
    assert!(!snapshot(&pods, Vec::new()).workloads[0].deleted);
    let spec = |name: &str| Workload {
        key: WorkloadKey { name: name.into(), ..WorkloadKey::default() },
        priority: Some(7),
        ..Workload::default()
    };
    pods.observe_manifests(vec![spec("shop/web"), spec("shop/later")]);
    let seen = snapshot(&pods, Vec::new());
    assert!(seen.sources_ready);
    let names: Vec<_> = seen.workloads.iter().map(|w| (w.key.name.as_str(), w.deleted)).collect();
    assert_eq!(names, [("shop/web", false), ("shop/later", false)]);
    assert_eq!(seen.workloads[0].priority, Some(7));
    assert_eq!(seen.workloads[0].key.uid.as_deref(), Some("u1"));
    pods.observe_manifests(Vec::new());
    assert!(snapshot(&pods, Vec::new()).workloads[0].deleted);
}

#[test]
fn a_static_pod_is_found_under_its_name_without_the_nodes() {
    let mut pods = Pods::default();
    let is_static = PodSeen { is_static: true, ..pod("u1", "kube-system/etcd-node-1", true) };
    pods.observe(inventory(vec![is_static], Vec::new(), &[]));
    let key = WorkloadKey { name: "kube-system/etcd".into(), ..WorkloadKey::default() };
    pods.observe_manifests(vec![Workload { key, priority: Some(3), ..Workload::default() }]);
    let seen = snapshot(&pods, Vec::new());
    assert_eq!(seen.workloads.len(), 1);
    assert!(seen.workloads[0].static_pod && !seen.workloads[0].deleted);
    assert_eq!(seen.workloads[0].priority, Some(3));
}

#[test]
fn what_ebb_has_ended_counts_as_evicted_until_nothing_of_it_is_left() {
    let mut pods = one_pod();
    pods.note_evicted("u1");
    pods.observe(inventory(
        vec![pod("u1", "shop/web", false)],
        vec![container("c1", "u1", ContainerState::Exited)],
        &["c1"],
    ));
    let seen = snapshot(&pods, Vec::new());
    assert!(seen.workloads[0].evicted && seen.workloads[0].is_finished());
    assert_eq!(seen.exited, ["c1"], "c0 is gone from the list");
    pods.observe(inventory(Vec::new(), Vec::new(), &[]));
    pods.observe(inventory(vec![pod("u1", "shop/web", true)], Vec::new(), &[]));
    assert!(!snapshot(&pods, Vec::new()).workloads[0].evicted, "a new pod of the same UID");
}

#[test]
fn an_evicted_pod_that_has_another_sandbox_was_started_again() {
    let mut pods = Pods::default();
    pods.remember_evicted([("u1".to_owned(), ["s-u1".to_owned()].into())].into());
    pods.observe(inventory(vec![pod("u1", "shop/web", true)], Vec::new(), &[]));
    assert!(snapshot(&pods, Vec::new()).workloads[0].evicted, "an earlier run ended it");
    assert_eq!(pods.only_sandboxes_left(), ["u1"]);
    let mut next = pod("u1", "shop/web", true);
    next.sandbox.id = "s-u1-again".into();
    let old = pod("u1", "shop/web", false);
    pods.observe(inventory(vec![old, next], Vec::new(), &[]));
    assert!(!snapshot(&pods, Vec::new()).workloads[0].evicted);
    assert!(pods.only_sandboxes_left().is_empty() && pods.evicted().is_empty());
}

#[test]
fn the_containers_that_run_are_what_is_ended_and_the_sandbox_never_is() {
    let pods = one_pod();
    let payloads = pods.payloads("u1", Path::new("/cg"), |path| {
        (path == Path::new("kubepods/podu1/c1")).then_some(42)
    });
    assert_eq!(payloads, [Payload { id: 42, path: "/cg/kubepods/podu1/c1".into() }]);
    assert_eq!(pods.parts("u1"), (vec!["c1".to_owned()], vec!["s-u1".to_owned()]));
}

#[test]
fn disk_is_the_sum_of_layers_logs_and_volumes_and_unknown_without_any() {
    let mut pods = one_pod();
    assert_eq!(snapshot(&pods, Vec::new()).workloads[0].stats, None);
    let used = |bytes| FsUsage { used_bytes: Some(bytes), inodes_used: Some(1) };
    pods.observe_usage(DiskUsage {
        layers: [("c1".to_owned(), used(10)), ("c0".to_owned(), used(20))].into(),
        pods: [(
            "u1".to_owned(),
            PodDisk {
                logs: [("main".to_owned(), used(100))].into(),
                volumes: vec![VolumeStats {
                    name: "v".into(),
                    used_bytes: Some(1000),
                    inodes_used: None,
                }],
            },
        )]
        .into(),
    });
    let seen = snapshot(&pods, Vec::new());
    let stats = seen.workloads[0].stats.as_ref().unwrap();
    assert_eq!(stats.ephemeral_storage, Some(1130));
    assert_eq!(stats.containers.len(), 1, "one name, two attempts");
    assert_eq!(
        stats.containers[0].rootfs,
        Some(FsUsage { used_bytes: Some(30), inodes_used: Some(2) })
    );
    assert_eq!(stats.memory, None);
}
