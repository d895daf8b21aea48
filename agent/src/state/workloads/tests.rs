//! Pods put together from what the runtime, the manifests and the cgroups tell.
use super::*;
use crate::clock::Boot;
use crate::pods::Described;
use crate::sense::pod_dirs::PodSizes;
use crate::sense::runtime::{ContainerSeen, DiskUsage, Inventory, PodSeen};
use ebb_journal::Payload;
use ebb_policy::snapshot::{Container, MemoryUsage, Sandbox, WorkloadKey};
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
        is_of_api_server: false,
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
        asked: ebb_model::pod::Asked::default(),
        mounted_images: Vec::new(),
    }
}

fn inventory(pods: Vec<PodSeen>, containers: Vec<ContainerSeen>, exited: &[&str]) -> Inventory {
    let exited = exited.iter().map(|id| (*id).to_owned()).collect();
    Inventory { at: Boot(0), pods, containers, exited, images: None }
}

fn all_of(pods: Vec<Workload>) -> Described {
    Described { pods, is_complete: true }
}

fn cgroup(path: &str, usage: u64) -> (PathBuf, Workload) {
    let memory = MemoryUsage { usage: Some(usage), ..MemoryUsage::default() };
    let stats = Stats { memory: Some(memory), process_count: Some(1), ..Stats::default() };
    let key = WorkloadKey { name: format!("/{path}"), ..WorkloadKey::default() };
    (path.into(), Workload { key, stats: Some(stats), ..Workload::default() })
}

fn snapshot(pods: &PodBook, cgroups: Vec<(PathBuf, Workload)>) -> Snapshot {
    snapshot_with(pods, &PodStorage::default(), cgroups)
}

fn snapshot_with(
    pods: &PodBook,
    storage: &PodStorage,
    cgroups: Vec<(PathBuf, Workload)>,
) -> Snapshot {
    let mut snapshot = Snapshot::at(Time(100));
    let owners: Vec<_> = cgroups.iter().map(|(path, _)| pods.owner(path)).collect();
    let measured = cgroups.iter().zip(&owners).map(|((path, workload), owner)| Measured {
        named: path,
        since: Boot(0),
        owner: owner.as_ref(),
        workload: workload.clone(),
        fate: Fate::Runs,
    });
    add_workloads(
        pods,
        storage,
        &mut snapshot,
        measured,
        &PodRests::default(),
        &Clock::of_process(),
    );
    pods.fill(&mut snapshot);
    snapshot
}

fn one_pod() -> PodBook {
    let mut pods = PodBook::default();
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

/// A pod with one sandbox at a time: what is new beside a sandbox that is listed is another container.
#[test]
fn a_container_that_no_list_names_is_the_pods_whose_sandbox_is_listed_beside_it() {
    const UID: &str = "770a2805-2357-495f-adcc-80291e4d7da7";
    let of_pod = format!("kubepods/besteffort/pod{UID}");
    let named = format!("s-{UID}");
    let sandbox = |ready: bool| PodSeen {
        cgroup: Some(format!("{of_pod}/{named}").into()),
        ..pod(UID, "shop/web", ready)
    };
    let new = PathBuf::from(format!("{of_pod}/{ID}"));
    let owner = |sandboxes: Vec<PodSeen>, containers: Vec<ContainerSeen>| {
        let mut pods = PodBook::default();
        pods.observe(inventory(sandboxes, containers, &[]));
        pods.owner(&new.join("inner"))
    };
    let found = owner(vec![sandbox(true)], Vec::new()).unwrap();
    assert!(found.is_payload && &*found.uid == UID);
    let unlisted = found.unlisted.unwrap();
    assert_eq!(unlisted.cgroup, new);
    assert_eq!(unlisted.sandbox, Path::new(&format!("{of_pod}/{named}")));
    assert_eq!(owner(vec![sandbox(false)], Vec::new()), None, "it may be the next sandbox");
    let elsewhere = PodSeen { cgroup: Some(format!("elsewhere/{named}").into()), ..sandbox(true) };
    assert_eq!(owner(vec![elsewhere], Vec::new()), None);
    let scope = format!("{of_pod}/crio-{named}.scope");
    let of_crio = PodSeen { cgroup: Some(scope.into()), ..sandbox(true) };
    assert_eq!(owner(vec![of_crio], Vec::new()), None, "that runtime names containers otherwise");
    // The runtime has listed it, and not said where it is.
    let listed = |state| ContainerSeen { cgroup: None, ..container(ID, UID, state) };
    assert!(owner(vec![sandbox(true)], vec![listed(ContainerState::Running)]).is_some());
    assert_eq!(owner(vec![sandbox(true)], vec![listed(ContainerState::Exited)]), None);
    let mut unplaced = sandbox(true);
    (unplaced.sandbox.id, unplaced.cgroup) = (ID.into(), None);
    assert_eq!(owner(vec![sandbox(true), unplaced], Vec::new()), None, "it is a sandbox");
}

/// Why each of the cgroups is protected that a snapshot has as workloads of their own.
fn protections(pods: &PodBook, since: Boot, paths: &[&str]) -> Vec<Option<ProtectedReason>> {
    let mut snapshot = Snapshot::at(Time(100));
    let cgroups: Vec<_> = paths.iter().map(|path| cgroup(path, 1)).collect();
    let owners: Vec<_> = cgroups.iter().map(|(path, _)| pods.owner(path)).collect();
    let measured = cgroups.iter().zip(&owners).map(|((path, workload), owner)| Measured {
        named: path,
        since,
        owner: owner.as_ref(),
        workload: workload.clone(),
        fate: Fate::Runs,
    });
    add_workloads(
        pods,
        &PodStorage::default(),
        &mut snapshot,
        measured,
        &PodRests::default(),
        &Clock::of_process(),
    );
    let own = snapshot.workloads.iter().filter(|workload| workload.key.name.starts_with("/"));
    own.map(|workload| workload.protected).collect()
}

#[test]
fn where_only_pods_may_be_ended_nobody_is_before_the_runtime_has_told() {
    let mut pods = PodBook::default();
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
    let mut pods = PodBook::default();
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
    let mut pods = PodBook::default();
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
fn what_has_a_pods_name_and_is_not_listed_for_a_minute_is_a_workload_of_its_own() {
    let mut pods = PodBook::default();
    pods.expect_runtime();
    let (path, mut workload) = cgroup("kubepods/pod0a1b/anything", 1);
    workload.key.uid = Some("0a1b".into());
    let mut seen_at = |seconds: u64| {
        let at = Boot(seconds * 1_000_000_000);
        pods.observe(Inventory { at, ..inventory(Vec::new(), Vec::new(), &[]) });
        let mut snapshot = Snapshot::at(Time(100));
        let (owner, workload) = (None, workload.clone());
        let measured = Measured { named: &path, since: Boot(0), owner, workload, fate: Fate::Runs };
        add_workloads(
            &pods,
            &PodStorage::default(),
            &mut snapshot,
            [measured].into_iter(),
            &PodRests::default(),
            &Clock::of_process(),
        );
        snapshot.workloads[0].protected
    };
    assert_eq!(seen_at(59), Some(ProtectedReason::Unlisted), "the runtime may still list it");
    assert_eq!(seen_at(60), None);
}

/// A name of their own choice hides nobody from a minute's memory shortage.
#[test]
fn a_containers_name_that_a_user_chose_does_not_wait_for_the_runtime() {
    let mut pods = PodBook::default();
    pods.expect_runtime();
    let (_, workload) = cgroup(&format!("user.slice/user@7.service/docker-{ID}.scope"), 1);
    let named = Path::new("user.slice/user@7.service");
    let mut snapshot = Snapshot::at(Time(100));
    let measured = Measured { named, since: Boot(0), owner: None, workload, fate: Fate::Runs };
    add_workloads(
        &pods,
        &PodStorage::default(),
        &mut snapshot,
        [measured].into_iter(),
        &PodRests::default(),
        &Clock::of_process(),
    );
    assert_eq!(snapshot.workloads[0].protected, None);
}

#[test]
fn a_container_that_is_protected_does_not_protect_the_other_containers_of_its_pod() {
    let mut pods = PodBook::default();
    let running = |id| container(id, "u1", ContainerState::Running);
    let both = vec![running("c1"), running("c2")];
    pods.observe(inventory(vec![pod("u1", "shop/web", true)], both, &[]));
    let (path, mut spared) = cgroup("kubepods/podu1/c1", 1);
    spared.protected = Some(ProtectedReason::OomScoreAdj);
    let other = || cgroup("kubepods/podu1/c2", 1);
    let of = |cgroups| snapshot(&pods, cgroups).workloads[0].protected;
    assert_eq!(of(vec![(path.clone(), spared.clone()), other()]), None);
    assert_eq!(of(vec![(path, spared)]), Some(ProtectedReason::OomScoreAdj));
}

/// What the operator has said of the pod holds for all of it; but a pod of which nothing runs keeps nobody.
#[test]
fn a_pod_that_its_annotation_protects_stays_protected_whatever_runs_in_it() {
    let mut pods = one_pod();
    let mut spec = Workload::default();
    spec.key.name = "shop/web".to_owned();
    spec.key.uid = Some("u1".to_owned());
    spec.protected = Some(ProtectedReason::Annotated);
    pods.observe_described(Described { pods: vec![spec], is_complete: false });
    let of = |cgroups| snapshot(&pods, cgroups).workloads[0].protected;
    assert_eq!(of(vec![cgroup("kubepods/podu1/c1", 1)]), Some(ProtectedReason::Annotated));
    assert_eq!(of(Vec::new()), Some(ProtectedReason::NothingRuns));
}

/// There would be nothing to end of it, again and again.
#[test]
fn what_an_ended_container_left_in_its_cgroup_does_not_make_its_pod_one_that_runs() {
    let mut pods = PodBook::default();
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
        tell_unchosen(&pods, &mut seen, |path| path == Path::new(living));
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
    pods.observe_described(all_of(vec![spec("shop/web"), spec("shop/later")]));
    let seen = snapshot(&pods, Vec::new());
    assert!(seen.sources_ready);
    let names: Vec<_> = seen.workloads.iter().map(|w| (w.key.name.as_str(), w.deleted)).collect();
    assert_eq!(names, [("shop/web", false), ("shop/later", false)]);
    assert_eq!(seen.workloads[0].priority, Some(7));
    assert_eq!(seen.workloads[0].key.uid.as_deref(), Some("u1"));
    pods.observe_described(all_of(Vec::new()));
    assert!(snapshot(&pods, Vec::new()).workloads[0].deleted);
}

/// It may be the one that cannot be read.
#[test]
fn a_pod_without_a_manifest_is_not_deleted_while_one_cannot_be_read() {
    let mut pods = one_pod();
    pods.note_evicted("u1", std::iter::empty());
    let partly = Described { pods: Vec::new(), is_complete: false };
    pods.observe_described(partly);
    let seen = snapshot(&pods, Vec::new());
    assert!(!seen.sources_ready && !seen.workloads[0].deleted);
    assert!(!seen.workloads[0].evicted, "who sees to its end may want to read how it ended");
    assert!(pods.is_anothers("u1"));
    pods.observe_described(all_of(Vec::new()));
    let seen = snapshot(&pods, Vec::new());
    assert!(seen.sources_ready && seen.workloads[0].deleted);
}

#[test]
fn a_static_pod_is_found_under_its_name_without_the_nodes() {
    let mut pods = PodBook::default();
    let is_static = PodSeen { is_static: true, ..pod("u1", "kube-system/etcd-node-1", true) };
    pods.observe(inventory(vec![is_static], Vec::new(), &[]));
    let key = WorkloadKey { name: "kube-system/etcd".into(), ..WorkloadKey::default() };
    pods.observe_described(all_of(vec![Workload {
        key,
        priority: Some(3),
        ..Workload::default()
    }]));
    let seen = snapshot(&pods, Vec::new());
    assert_eq!(seen.workloads.len(), 1);
    assert!(seen.workloads[0].static_pod && !seen.workloads[0].deleted);
    assert_eq!(seen.workloads[0].priority, Some(3));
}

/// Its author has made another pod that calls itself its mirror: a static pod is never evicted.
#[test]
fn a_pod_that_is_run_for_the_api_server_has_no_mirror() {
    for is_of_api_server in [true, false] {
        let mut pods = PodBook::default();
        let leak = PodSeen { is_of_api_server, ..pod("u1", "shop/leak", true) };
        pods.observe(inventory(vec![leak], Vec::new(), &[]));
        let key = WorkloadKey {
            name: "shop/other".into(),
            uid: Some("u1".into()),
            ..WorkloadKey::default()
        };
        let mirror = Workload { key, mirror: true, priority: Some(9), ..Workload::default() };
        pods.observe_described(Described { pods: vec![mirror], is_complete: false });
        let seen = snapshot(&pods, Vec::new());
        let found: Vec<_> = seen.workloads.iter().map(|w| w.key.name.as_str()).collect();
        assert_eq!(found, ["shop/leak"]);
        let leak = &seen.workloads[0];
        let expected = if is_of_api_server { (false, None) } else { (true, Some(9)) };
        assert_eq!((leak.mirror, leak.priority), expected);
    }
}

#[test]
fn what_ebb_has_ended_counts_as_evicted_until_nothing_of_it_is_left() {
    let mut pods = one_pod();
    pods.note_evicted("u1", std::iter::empty());
    pods.observe(inventory(
        vec![pod("u1", "shop/web", false)],
        vec![container("c1", "u1", ContainerState::Exited)],
        &["c1"],
    ));
    let seen = snapshot(&pods, Vec::new());
    assert!(seen.workloads[0].evicted && seen.workloads[0].is_finished());
    assert_eq!(pods.names().len(), 1, "what it has on disk is measured until it is gone");
    assert_eq!(seen.exited, ["c1"], "c0 is gone from the list");
    pods.observe(inventory(Vec::new(), Vec::new(), &[]));
    pods.observe(inventory(vec![pod("u1", "shop/web", true)], Vec::new(), &[]));
    assert!(!snapshot(&pods, Vec::new()).workloads[0].evicted, "a new pod of the same UID");
}

#[test]
fn an_evicted_pod_that_has_another_sandbox_was_started_again() {
    let mut pods = PodBook::default();
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
fn an_evicted_pod_that_has_another_container_was_started_again_in_its_sandbox() {
    let mut pods = one_pod();
    pods.note_evicted("u1", std::iter::empty());
    let dead = container("c1", "u1", ContainerState::Exited);
    let list = |containers| inventory(vec![pod("u1", "shop/web", true)], containers, &[]);
    pods.observe(list(vec![dead.clone()]));
    assert_eq!(pods.only_sandboxes_left(), ["u1"]);
    let next = container("c2", "u1", ContainerState::Running);
    pods.observe(list(vec![dead.clone(), next]));
    assert!(pods.evicted().is_empty());
    let next = container("c2", "u1", ContainerState::Exited);
    pods.observe(list(vec![dead, next]));
    assert!(pods.only_sandboxes_left().is_empty(), "it ended by itself");
}

#[test]
fn what_an_evicted_pod_left_behind_stays_while_its_kubelet_or_its_manifest_is_there() {
    let ended = || {
        let containers = vec![container("c1", "u1", ContainerState::Exited)];
        inventory(vec![pod("u1", "shop/web", false)], containers, &["c1"])
    };
    let evicted = || {
        let mut pods = one_pod();
        pods.note_evicted("u1", std::iter::empty());
        pods
    };
    let mut alone = evicted();
    alone.observe(ended());
    assert!(snapshot(&alone, Vec::new()).workloads[0].evicted);
    let mut beside_a_kubelet = evicted();
    beside_a_kubelet.set_pods_only(true);
    let mut with_manifest = evicted();
    let key = WorkloadKey { name: "shop/web".into(), ..WorkloadKey::default() };
    with_manifest.observe_described(all_of(vec![Workload { key, ..Workload::default() }]));
    for mut pods in [beside_a_kubelet, with_manifest] {
        pods.observe(ended());
        let left = &snapshot(&pods, Vec::new()).workloads[0];
        assert!(!left.evicted && !left.is_finished() && pods.is_anothers("u1"));
        pods.observe_described(all_of(Vec::new()));
        let left = &snapshot(&pods, Vec::new()).workloads[0];
        assert!(left.deleted && left.is_finished(), "its manifest is gone");
    }
}

/// A container that has been killed stays in the runtime's list for a moment, and its cgroup longer.
#[test]
fn a_pod_is_judged_by_what_runs_and_not_by_what_is_on_its_way_out() {
    let mut pods = PodBook::default();
    pods.observe(inventory(
        vec![pod("u1", "shop/web", true)],
        vec![
            container("c1", "u1", ContainerState::Running),
            container("c2", "u1", ContainerState::Running),
        ],
        &[],
    ));
    let of = |fates: [(Fate, bool); 2]| {
        let mut snapshot = Snapshot::at(Time(100));
        let paths = [("kubepods/podu1/c1", 1000), ("kubepods/podu1/c2", 10)];
        let cgroups = paths.map(|(path, usage)| cgroup(path, usage));
        let owners = paths.map(|(path, _)| pods.owner(Path::new(path)));
        let seen = cgroups.iter().zip(&owners).zip(fates);
        let measured = seen.map(|(((path, workload), owner), (fate, lives))| {
            let protected = (!lives).then_some(ProtectedReason::NothingRuns);
            let workload = Workload { protected, ..workload.clone() };
            let owner = owner.as_ref();
            Measured { named: path, since: Boot(0), owner, workload, fate }
        });
        let running = add_workloads(
            &pods,
            &PodStorage::default(),
            &mut snapshot,
            measured,
            &PodRests::default(),
            &Clock::of_process(),
        );
        let usage = snapshot.workloads[0].stats.as_ref().and_then(|stats| stats.memory?.usage);
        (running.contains("u1"), snapshot.workloads[0].protected, usage)
    };
    let nothing = Some(ProtectedReason::NothingRuns);
    use Fate::{Runs, Terminated, Terminating};
    assert_eq!(of([(Runs, true), (Runs, true)]), (true, None, Some(1010)));
    assert_eq!(of([(Terminating, true), (Runs, true)]), (true, None, Some(10)));
    assert_eq!(of([(Terminated, true), (Runs, true)]), (true, None, Some(10)));
    assert_eq!(of([(Terminating, true), (Terminating, true)]), (false, None, Some(1010)));
    assert_eq!(of([(Terminated, true), (Terminated, true)]), (false, nothing, None));
    assert_eq!(of([(Runs, false), (Runs, false)]), (false, nothing, Some(1010)));
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

fn figure(bytes: u64, at: u64) -> Figure {
    let usage = FsUsage { used_bytes: Some(bytes), inodes_used: Some(1) };
    Figure { usage, at: Boot(at), is_whole: true }
}

#[test]
fn disk_is_the_sum_of_layers_logs_and_volumes_and_unknown_without_any() {
    let (pods, mut storage) = (one_pod(), PodStorage::default());
    assert_eq!(snapshot_with(&pods, &storage, Vec::new()).workloads[0].stats, None);
    let used = |bytes| figure(bytes, 5);
    storage.observe_usage(DiskUsage {
        layers: [("c1".to_owned(), used(10)), ("c0".to_owned(), used(20))].into(),
        pods: [(
            "u1".to_owned(),
            PodSizes {
                logs: [("main".to_owned(), used(100))].into(),
                volumes: [("v".to_owned(), used(1000))].into(),
                volume_names: vec!["v".to_owned()],
            },
        )]
        .into(),
    });
    let seen = snapshot_with(&pods, &storage, Vec::new());
    let stats = seen.workloads[0].stats.as_ref().unwrap();
    assert_eq!(stats.ephemeral_storage, Some(1130));
    assert_eq!(stats.containers.len(), 1, "one name, two attempts");
    assert_eq!(
        stats.containers[0].rootfs,
        Some(FsUsage { used_bytes: Some(30), inodes_used: Some(2) })
    );
    assert_eq!(stats.memory, None);
}

#[test]
fn volumes_are_the_pods_own_without_any_manifest_and_what_was_measured_last_counts() {
    let (pods, mut storage) = (one_pod(), PodStorage::default());
    let sizes = |volume: Option<Figure>| PodSizes {
        volumes: volume.map(|figure| ("v".to_owned(), figure)).into_iter().collect(),
        volume_names: vec!["v".to_owned()],
        ..PodSizes::default()
    };
    storage.observe_sizes([("u1".to_owned(), sizes(Some(figure(2000, 9_000_000))))].into());
    let walked = [("u1".to_owned(), sizes(Some(figure(1000, 4_000_000))))].into();
    storage.observe_usage(DiskUsage { layers: BTreeMap::new(), pods: walked });
    let seen = snapshot_with(&pods, &storage, Vec::new());
    let pod = &seen.workloads[0];
    assert_eq!(pod.volumes.len(), 1);
    assert!(pod.volumes[0].is_local());
    let stats = pod.stats.as_ref().unwrap();
    assert_eq!(stats.volumes[0].used_bytes, Some(2000), "what is older does not replace it");
    // It is there and too large to be told at once: unknown, not gone and not small.
    let mut storage = PodStorage::default();
    storage.observe_sizes([("u1".to_owned(), sizes(None))].into());
    let seen = snapshot_with(&pods, &storage, Vec::new());
    assert_eq!(seen.workloads[0].volumes.len(), 1);
    assert!(seen.workloads[0].stats.as_ref().is_none_or(|stats| stats.volumes.is_empty()));
}

#[test]
fn what_is_there_at_least_counts_where_it_is_more_and_is_never_a_measure_since_a_crossing() {
    let (pods, mut storage) = (one_pod(), PodStorage::default());
    let least = |bytes, at| Figure { is_whole: false, ..figure(bytes, at) };
    let volume = |figure| PodSizes {
        volumes: [("v".to_owned(), figure)].into(),
        volume_names: vec!["v".to_owned()],
        ..PodSizes::default()
    };
    let seen = |storage: &PodStorage| {
        let seen = snapshot_with(&pods, storage, Vec::new());
        let stats = seen.workloads[0].stats.clone().unwrap();
        (stats.volumes[0].used_bytes, stats.disk_observed_at)
    };
    let walked = |figure| DiskUsage {
        pods: [("u1".to_owned(), volume(figure))].into(),
        ..DiskUsage::default()
    };
    let time = |at| Some(Clock::of_process().time(Boot(at)));
    storage.observe_usage(walked(figure(2000, 3_000_000)));
    storage.observe_usage(walked(least(1000, 9_000_000)));
    assert_eq!(seen(&storage), (Some(2000), time(3_000_000)), "all of it was known");
    storage.observe_usage(walked(least(5000, 12_000_000)));
    assert_eq!(seen(&storage), (Some(5000), time(0)));
    storage.observe_usage(walked(figure(100, 15_000_000)));
    assert_eq!(seen(&storage), (Some(100), time(15_000_000)));
}

#[test]
fn figures_on_disk_are_as_old_as_the_oldest_of_them() {
    let (pods, mut storage) = (one_pod(), PodStorage::default());
    let layers =
        [("c1".to_owned(), figure(10, 7_000_000)), ("c0".to_owned(), figure(20, 3_000_000))];
    storage.observe_usage(DiskUsage { layers: layers.into(), pods: BTreeMap::new() });
    let clock = Clock::of_process();
    let seen = snapshot_with(&pods, &storage, Vec::new());
    let stats = seen.workloads[0].stats.as_ref().unwrap();
    assert_eq!(stats.disk_observed_at, Some(clock.time(Boot(3_000_000))));
}
