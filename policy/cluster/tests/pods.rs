//! The pod collector, case by case, as kube-controller-manager's was measured to behave, and the limits that it does not have.

use ebb_policy_cluster::pods::{Collector, Deletion, Limits, Node, Phase, Pod, Reason, Round};
use ebb_policy_cluster::{Kind, Time, Uid};
use std::collections::BTreeMap;

const READY: Node = Node { ready: true, out_of_service: false };

fn pod(name: &str, phase: Phase, created: u64) -> Pod {
    Pod {
        uid: Uid::new(name),
        namespace: "ns".into(),
        name: name.into(),
        resource_version: "1".into(),
        created: Time(created),
        ended: None,
        deleting_since: None,
        grace_seconds: None,
        controller: None,
        node: Some("here".into()),
        phase,
        reason: String::new(),
        held: false,
    }
}

fn round(limits: &Limits, pods: &[Pod], here: Node) -> Round {
    let nodes = BTreeMap::from([("here".to_owned(), here)]);
    Collector::new(limits.clone()).collect(pods, &nodes, Time(1_000))
}

fn names(deletions: &[Deletion]) -> Vec<(&str, Reason)> {
    deletions.iter().map(|deletion| (deletion.name.as_str(), deletion.reason)).collect()
}

#[test]
fn above_the_threshold_evicted_pods_go_first_and_then_the_oldest() {
    let evicted = Pod { reason: "Evicted".into(), ..pod("evicted", Phase::Failed, 9) };
    let pods = [
        pod("new", Phase::Succeeded, 8),
        pod("old", Phase::Failed, 1),
        pod("running", Phase::Running, 0),
        evicted,
    ];
    let limits = Limits { terminated: Some(1), ..Limits::default() };
    let found = round(&limits, &pods, READY);
    let goes = [("evicted", Reason::Terminated), ("old", Reason::Terminated)];
    assert_eq!(names(&found.deletions), goes);
    assert!(found.deletions.iter().all(|deletion| deletion.mark.is_none()));
    let off = Limits { terminated: None, ..Limits::default() };
    assert_eq!(round(&off, &pods, READY), Round::default());
}

#[test]
fn pods_of_a_missing_node_go_after_its_quarantine_and_a_look_up() {
    let mut collector = Collector::new(Limits::default());
    let pods = [pod("p", Phase::Running, 0), pod("done", Phase::Succeeded, 0)];
    let at = |collector: &mut Collector, now| collector.collect(&pods, &BTreeMap::new(), Time(now));
    let first = at(&mut collector, 1_000);
    assert_eq!((first.deletions.len(), first.due), (0, Some(Time(41_000))));
    assert!(at(&mut collector, 40_999).confirm.is_empty());
    let over = at(&mut collector, 41_000);
    assert_eq!((over.deletions.len(), over.confirm.len()), (0, 1));
    collector.answer_node("here", false, Time(41_001));
    let found = at(&mut collector, 41_002);
    assert_eq!(names(&found.deletions), [("done", Reason::Orphaned), ("p", Reason::Orphaned)]);
    let marks: Vec<_> =
        found.deletions.iter().map(|d| d.mark.map(|m| m.disruption_target)).collect();
    assert_eq!(marks, [None, Some(Some("PodGC: node no longer exists"))]);
}

/// A node may be made anew under its name, and a watch of pods may be ahead of that of nodes.
#[test]
fn a_look_up_holds_for_ten_seconds_and_is_not_asked_for_where_only_a_finalizer_keeps_a_pod() {
    let mut collector = Collector::new(Limits::default());
    let pods = [pod("p", Phase::Running, 0)];
    let at = |collector: &mut Collector, pods: &[Pod], now| {
        collector.collect(pods, &BTreeMap::new(), Time(now))
    };
    at(&mut collector, &pods, 0);
    collector.answer_node("here", false, Time(40_000));
    let found = at(&mut collector, &pods, 49_999);
    assert_eq!((found.deletions.len(), found.due), (1, Some(Time(50_000))));
    let over = at(&mut collector, &pods, 50_000);
    assert_eq!((over.deletions.len(), over.confirm.len()), (0, 1));
    let forced =
        Pod { deleting_since: Some(Time(1)), grace_seconds: Some(0), ..pod("p", Phase::Failed, 0) };
    assert_eq!(at(&mut collector, &[forced], 60_000), Round::default());
    // Another pod on it begins a quarantine of its own.
    let found = at(&mut collector, &pods, 70_000);
    assert_eq!((found.confirm.len(), found.due), (0, Some(Time(110_000))));
}

#[test]
fn a_node_that_a_look_up_finds_is_in_quarantine_again() {
    let mut collector = Collector::new(Limits::default());
    let pods = [pod("p", Phase::Running, 0)];
    collector.collect(&pods, &BTreeMap::new(), Time(0));
    collector.answer_node("here", true, Time(40_000));
    let found = collector.collect(&pods, &BTreeMap::new(), Time(40_000));
    assert_eq!((found.deletions.len(), found.due), (0, Some(Time(80_000))));
}

#[test]
fn a_node_that_comes_back_ends_its_quarantine() {
    let mut collector = Collector::new(Limits::default());
    let pods = [pod("p", Phase::Running, 0)];
    collector.collect(&pods, &BTreeMap::new(), Time(0));
    collector.collect(&pods, &BTreeMap::from([("here".into(), READY)]), Time(30_000));
    assert_eq!(collector.collect(&pods, &BTreeMap::new(), Time(41_000)).due, Some(Time(81_000)));
}

#[test]
fn a_terminating_pod_that_was_never_scheduled_goes() {
    let waiting = Pod { node: None, ..pod("waiting", Phase::Pending, 0) };
    let going = Pod {
        deleting_since: Some(Time(1)),
        name: "going".into(),
        uid: Uid::new("g"),
        ..waiting.clone()
    };
    let found = round(&Limits::default(), &[waiting, going], READY);
    assert_eq!(names(&found.deletions), [("going", Reason::Unscheduled)]);
    assert!(found.deletions[0].mark.is_some());
}

#[test]
fn terminating_pods_go_from_a_node_that_is_not_ready_and_out_of_service() {
    let going = Pod { deleting_since: Some(Time(1)), ..pod("going", Phase::Running, 0) };
    let pods = [going, pod("running", Phase::Running, 0)];
    let on =
        |ready, out_of_service| round(&Limits::default(), &pods, Node { ready, out_of_service });
    assert_eq!(names(&on(false, true).deletions), [("going", Reason::OutOfService)]);
    assert_eq!(on(true, true).deletions, []);
    assert_eq!(on(false, false).deletions, []);
}

#[test]
fn a_pod_that_only_a_finalizer_keeps_is_not_deleted_again() {
    let gone = Pod {
        deleting_since: Some(Time(1)),
        grace_seconds: Some(0),
        node: None,
        ..pod("p", Phase::Failed, 0)
    };
    assert_eq!(round(&Limits::default(), &[gone], READY).deletions, []);
}

#[test]
fn limits_by_namespace_controller_age_and_reason_hold_only_where_they_are_set() {
    let job = Some((Kind::new("batch/v1", "Job"), Uid::new("job")));
    let set = Some((Kind::new("apps/v1", "ReplicaSet"), Uid::new("set")));
    let pods = [
        Pod { controller: job, ..pod("job", Phase::Failed, 1) },
        Pod { controller: set.clone(), ended: Some(Time(900)), ..pod("set-1", Phase::Failed, 2) },
        Pod { controller: set, ended: Some(Time(100)), ..pod("set-2", Phase::Failed, 3) },
        Pod {
            reason: "Evicted".into(),
            ended: Some(Time(950)),
            ..pod("evicted", Phase::Failed, 4)
        },
    ];
    let with = |limits: Limits| round(&limits, &pods, READY);
    let none = Limits::default();
    assert_eq!(with(none.clone()), Round::default());
    let found = with(Limits { age: Some(500), keep_failed_of_jobs: true, ..none.clone() });
    assert_eq!(
        (names(&found.deletions), found.due),
        (vec![("set-2", Reason::Age)], Some(Time(1_400)))
    );
    let by_reason = |reason: &str, age| [(reason.to_owned(), age)].into();
    let found = with(Limits { age_by_reason: by_reason("Evicted", 50), ..none.clone() });
    assert_eq!(names(&found.deletions), [("evicted", Reason::AgeByReason)]);
    let found = with(Limits { age_by_reason: by_reason("Evicted", 60), ..none.clone() });
    assert_eq!((names(&found.deletions), found.due), (vec![], Some(Time(1_010))));
    let found = with(Limits { age_by_reason: by_reason("NodeShutdown", 1), ..none.clone() });
    assert_eq!(found, Round::default());
    let found = with(Limits { per_controller: Some(1), ..none.clone() });
    assert_eq!(names(&found.deletions), [("set-1", Reason::Controller)]);
    let found = with(Limits { per_namespace: Some(2), ..none });
    assert_eq!(
        names(&found.deletions),
        [("evicted", Reason::Namespace), ("job", Reason::Namespace)]
    );
}

/// Whoever makes a pod writes the uid of its owner.
#[test]
fn a_controller_named_in_another_namespace_costs_nobody_in_the_first() {
    let kind = Kind::new("batch/v1", "Job");
    let of = |name: &str, namespace: &str, created| Pod {
        controller: Some((kind.clone(), Uid::new("job"))),
        namespace: namespace.into(),
        ..pod(name, Phase::Failed, created)
    };
    let pods = [of("result", "ns", 1), of("a", "other", 2), of("b", "other", 3)];
    let limits = Limits { per_controller: Some(2), terminated: None, ..Limits::default() };
    assert_eq!(round(&limits, &pods, READY).deletions, []);
}
