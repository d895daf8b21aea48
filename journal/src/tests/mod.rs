//! Every record is written and read back as the same, and says the same then.

mod made;

use crate::*;
use ebb_policy::Time;
use made::records;
use proptest::prelude::*;

/// The place of a record's kind among all; a kind that is new does not compile until it has one, and is made above.
fn kind(record: &Record) -> usize {
    match record {
        Record::Started { .. } => 0,
        Record::ThresholdCrossed { .. } => 1,
        Record::MemoryPressureAboveLimit { .. } => 2,
        Record::MemoryPressureRelieved { .. } => 3,
        Record::Decided { .. } => 4,
        Record::EvictionDeferred { .. } => 5,
        Record::Warned { .. } => 6,
        Record::Evicted(_) => 7,
        Record::StepTaken(_) => 8,
        Record::ReflexArmed { .. } => 9,
        Record::ReflexFired { .. } => 10,
        Record::NotDone { .. } => 11,
        Record::Terminated { .. } => 12,
        Record::PressureRelieved { .. } => 13,
        Record::OomKill { .. } => 14,
        Record::LocalPressure { .. } => 15,
        Record::Lost { .. } => 16,
        Record::Dropped { .. } => 17,
        Record::Runtime { .. } => 18,
        Record::KubeletThresholds(_) => 19,
        Record::ApiServer { .. } => 20,
        Record::EvictionTold { .. } => 21,
        Record::EvictionRefused { .. } => 22,
        Record::Inventory { .. } => 23,
        Record::Collecting { .. } => 24,
        Record::Removed { .. } => 25,
        Record::NotRemoved { .. } => 26,
        Record::Collected { .. } => 27,
        Record::Reloaded { .. } => 28,
        Record::Cgroups { .. } => 29,
        Record::OrphanedPodCgroups { .. } => 30,
        Record::Degraded { .. } => 31,
        Record::Panicked { .. } => 32,
        Record::Stopping { .. } => 33,
        Record::ApiClientRefused { .. } => 34,
        Record::HookCalled { .. } => 35,
        Record::HookEnded { .. } => 36,
    }
}

const KINDS: usize = 37;

proptest! {
    #[test]
    fn what_is_written_as_json_reads_back_as_the_same_and_says_the_same(
        at in any::<u64>(),
        record in records(),
    ) {
        let entry = Entry::new(Time(at), record);
        let line = json::line(&entry);
        prop_assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
        let back: Entry = serde_json::from_slice(&line).unwrap();
        prop_assert_eq!(&back, &entry);
        prop_assert_eq!(text::line(&back, true), text::line(&entry, true));
        prop_assert_eq!(back.record.workloads(), entry.record.workloads());
        prop_assert_eq!(json::line(&back), line);
    }

    #[test]
    fn a_name_makes_no_line_of_its_own(record in records()) {
        let said = text::line(&Entry::new(Time(0), record), false);
        let said = String::from_utf8(said).unwrap();
        let mut lines = said.lines();
        prop_assert!(lines.next().unwrap().starts_with("00:00:00.000 "));
        prop_assert!(lines.all(|line| line.starts_with("              ")), "{}", said);
    }
}

#[test]
fn every_kind_of_record_is_among_those_that_are_tried() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = [false; KINDS];
    for _ in 0..2000 {
        let record = records().new_tree(&mut runner).unwrap().current();
        seen[kind(&record)] = true;
    }
    let missing: Vec<usize> = (0..KINDS).filter(|at| !seen[*at]).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn json_carries_the_words_of_what_is_typed() {
    let why = NotDone::NotNeeded { available: 2, threshold: 1 };
    let job = Job {
        number: 1,
        target: Target::Process { pid: 7, start: 9 },
        step: Step::Rung(Rung::Release),
        need: None,
        decision: None,
    };
    let record = Record::NotDone { job, workload: None, why: why.clone().into() };
    let json = serde_json::to_value(Entry::new(Time(5), record)).unwrap();
    let expected = serde_json::json!({
        "at": 5,
        "event": "notDone",
        "job": {
            "number": 1,
            "target": {"kind": "process", "pid": 7, "start": 9},
            "step": {"kind": "release"},
            "need": null,
        },
        "workload": null,
        "why": "not needed any more: 2 available, threshold 1",
    });
    assert_eq!(json, expected);
    let typed = Worded::from(why.clone());
    assert_eq!(typed.typed(), Some(&why));
    let back: Worded<NotDone> = serde_json::from_value(json["why"].clone()).unwrap();
    assert_eq!((back.typed(), &back), (None, &typed));
}
