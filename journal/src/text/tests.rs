//! What records say to people.
use super::*;
use crate::guard_band::Band;
use crate::hook::HookOutcome;
use crate::note::PlanNote;
use ebb_policy::limits::RawEviction;
use ebb_policy::plan::{Note, Strength};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{History, Limits, Snapshot, Time, decide};

#[test]
fn amounts_have_the_unit_of_their_signal() {
    assert_eq!(amount(Signal::MemoryAvailable, 1536 << 20), "1.5 GiB");
    assert_eq!(amount(Signal::MemoryAvailable, 12), "12 B");
    assert_eq!(amount(Signal::PidAvailable, 2048), "2048");
    assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
}

#[test]
fn a_hook_that_had_no_say_stands_out_and_says_why() {
    let ended = |outcome, why: Option<&str>| {
        let (colour, said) = lines(&Record::HookEnded {
            workload: WorkloadKey { name: "shop/web-1".into(), ..WorkloadKey::default() },
            signal: Signal::MemoryAvailable,
            outcome,
            took_ms: 1.6,
            why: why.map(str::to_owned),
        });
        (colour, said.concat())
    };
    let answered = "hook before the eviction of shop/web-1 answered (2 ms)".to_owned();
    assert_eq!(ended(HookOutcome::Answered, None), ("", answered));
    let absent = "hook before the eviction of shop/web-1 is not there (2 ms): ENOENT".to_owned();
    assert_eq!(ended(HookOutcome::Absent, Some("ENOENT")), (YELLOW, absent));
}

#[test]
fn what_a_note_counts_has_the_unit_of_the_signal() {
    let covers = Note::TerminatingCovers { expected: 1036, need: 116 };
    let said =
        |signal| PlanNote { note: covers.clone(), signal, awaited: None, more: 0 }.to_string();
    assert!(said(Signal::PidAvailable).ends_with("free 1036 of 116 needed"));
    assert!(said(Signal::MemoryAvailable).ends_with("free 1.0 KiB of 116 B needed"));
}

#[test]
fn where_ebb_does_not_act_before_the_kubelet_is_told_with_what_to_write() {
    let band = |signal, has_room, change: Option<&str>| Band {
        signal,
        strength: Strength::Hard,
        kubelet: "10%".into(),
        ebb: change.map(|_| "9%".into()),
        needed: Some("more than 10%".into()),
        has_room,
        change: change.map(str::to_owned),
    };
    let mut guard_band = GuardBand {
        file: Some("/k.yaml".into()),
        errors: Vec::new(),
        thresholds: vec![band(Signal::PidAvailable, Some(true), None)],
    };
    let fine = lines(&Record::KubeletThresholds(guard_band.clone()));
    assert_eq!(fine, ("", vec!["kubelet's thresholds: read from /k.yaml".to_owned()]));
    guard_band.thresholds.extend([
        band(Signal::NodeFsAvailable, Some(false), Some("write that")),
        band(Signal::ImageFsAvailable, None, None),
    ]);
    let (colour, said) = lines(&Record::KubeletThresholds(guard_band.clone()));
    assert_eq!(
        (colour, &said[1..]),
        (
            YELLOW,
            &[
                "ebb does not act first: nodefs.available: the kubelet acts below 10%, ebb acts below 9%; more than 10% is needed; write that".to_owned(),
                "not compared, how much there is is not known: imagefs.available: the kubelet acts below 10%, ebb has no threshold that acts in time; more than 10% is needed".to_owned(),
            ][..]
        )
    );
    let assumed = GuardBand { errors: vec!["why".into()], ..GuardBand::default() };
    assert_eq!(
        lines(&Record::KubeletThresholds(assumed)),
        (
            YELLOW,
            vec![
                "kubelet's thresholds: the kubelet's defaults are assumed".to_owned(),
                "not read: why".to_owned()
            ]
        )
    );
    let json = serde_json::to_value(Record::KubeletThresholds(guard_band.clone())).unwrap();
    assert_eq!((&json["event"], &json["file"]), (&"kubeletThresholds".into(), &"/k.yaml".into()));
    assert!(json["thresholds"][2]["hasRoom"].is_null(), "{json}");
}

#[test]
fn an_oom_kill_is_told_with_whose_limit_it_was_and_as_fields() {
    let kill = |limit| Record::OomKill {
        comm: "leak".into(),
        pid: 7,
        cgroup: Some(42),
        path: Some("/apps/leak".into()),
        limit,
        killed_at: 2000,
        started_at: 1000,
        oom_score_adj: 300,
        not_told: 0,
    };
    let said = |limit| lines(&kill(limit)).1.concat();
    let who = "the kernel's OOM killer killed leak (pid 7, oom_score_adj 300) in /apps/leak";
    assert_eq!(said(OomConstraint::Node), format!("{who}: the node was out of memory"));
    let limit = OomConstraint::Cgroup { id: 9, path: Some("/apps".into()) };
    assert_eq!(said(limit.clone()), format!("{who}: /apps was at its limit"));
    let json = serde_json::to_value(kill(limit)).unwrap();
    assert_eq!(json["limit"], serde_json::json!({"kind": "cgroup", "id": 9, "path": "/apps"}));
    assert_eq!((&json["killedAt"], &json["oomScoreAdj"]), (&2000.into(), &300.into()));
    assert_eq!(OomConstraint::Unknown.for_policy(), None);
}

#[test]
fn without_colour_no_escape_is_written() {
    let entry = Entry::new(Time(3_723_004), Record::Stopping { why: "SIGTERM".into() });
    let mut sink = Text::new(Vec::new(), false);
    sink.take(&entry);
    assert_eq!(String::from_utf8(sink.to).unwrap(), "01:02:03.004 stopping: SIGTERM\n");
}

/// Whoever was handed a tree makes as many cgroups as he likes, with names of any length.
#[test]
fn any_number_of_workloads_at_their_own_limit_is_a_few_lines_of_a_decision() {
    let key = |n: u32| WorkloadKey { name: format!("/apps/{n}"), ..WorkloadKey::default() };
    let snapshot = Snapshot::at(Time(1));
    let limits = Limits::new(&RawEviction::default()).unwrap();
    let (mut plan, _) = decide(&snapshot, &limits, &History::default());
    plan.notes = (0..500).map(|n| Note::LocalPressure { workload: key(n) }).collect();
    plan.notes.push(Note::StallWithoutShortage);
    let notes: Vec<_> = crate::notes(&plan).iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 11, "{notes:#?}");
    assert_eq!(notes[9], "/apps/9 is at its own limit; and 490 more like this");
    assert_eq!(notes[10], "tasks wait although nothing is short");
    let told = lines(&Record::LocalPressure { workloads: vec![key(1), key(2)], more: 498 });
    assert_eq!(
        told.1,
        ["at their own limit, not the node's concern: /apps/1, /apps/2 and 498 more"]
    );
}
