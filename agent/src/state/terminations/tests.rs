//! What counts as terminating, for how long, and what it is taken to free.
use super::*;
use ebb_journal::Payload;
use ebb_policy::snapshot::{MemoryUsage, Stats};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

fn cgroup(populated: u8) -> (tempfile::TempDir, Target) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cgroup.events"), format!("populated {populated}\n")).unwrap();
    let id = fs::metadata(dir.path()).unwrap().ino();
    let path = dir.path().to_owned();
    (dir, Target::Cgroup { id, path })
}

fn key(name: &str) -> WorkloadKey {
    WorkloadKey { name: name.into(), ..WorkloadKey::default() }
}

fn of(terminations: &Terminations, clock: &Clock) -> Option<snapshot::Termination> {
    of_at(terminations, clock, Boot::now())
}

fn of_at(terminations: &Terminations, clock: &Clock, now: Boot) -> Option<snapshot::Termination> {
    let workload = Workload { key: key("a"), ..Workload::default() };
    terminations.of(&workload, false, clock, now)
}

fn pod(cgroups: &[Target]) -> Target {
    let payload = |target: &Target| match target {
        Target::Cgroup { id, path } => Payload { id: *id, path: path.clone() },
        other => panic!("{other:?}"),
    };
    Target::Pod { uid: "u".into(), payloads: cgroups.iter().map(payload).collect() }
}

const MEMORY: Cause = of_signal(Signal::MemoryAvailable, 7);

const fn of_signal(signal: Signal, frees: u64) -> Cause {
    Cause { signal: Some(signal), expected_free: Some(frees), decision: None }
}

#[test]
fn a_grace_that_is_cut_short_goes_on_where_nobody_was_killed_after_all() {
    let ((_a, first), (_b, second)) = (cgroup(1), cgroup(1));
    let (both, rest) = (pod(&[first.clone(), second]), pod(&[first]));
    let grace = Duration::from_secs(30);
    let mut terminations = Terminations::default();
    assert!(!terminations.begin(key("a"), both.clone(), grace, MEMORY));
    let kill_at = terminations.get(&both).unwrap().kill_at;
    let clock = Clock::of_process();
    assert_eq!(of(&terminations, &clock).unwrap().kill_at, kill_at.map(|at| clock.time(at)));
    // One of its containers has ended meanwhile.
    assert!(terminations.begin(key("a"), rest.clone(), Duration::ZERO, MEMORY));
    assert_eq!(of(&terminations, &clock).unwrap().kill_at, None);
    assert!(terminations.take_overdue(kill_at.unwrap().plus(grace)).is_empty());
    assert!(terminations.cancel(&rest));
    assert_eq!(terminations.get(&rest).unwrap().kill_at, kill_at);
    // What was started beside it since is another eviction.
    let (_c, third) = cgroup(1);
    assert!(!terminations.begin(key("a"), pod(&[third]), Duration::ZERO, MEMORY));
    assert_eq!(terminations.get(&rest).unwrap().kill_at, kill_at);
}

#[test]
fn a_machine_that_sleeps_takes_nobodys_time() {
    let ((_a, asked), (_b, killed)) = (cgroup(1), cgroup(1));
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), asked.clone(), Duration::from_secs(30), MEMORY);
    terminations.begin(key("b"), killed.clone(), Duration::ZERO, MEMORY);
    let slept = Duration::from_secs(3600);
    let woken = Boot::now().plus(slept);
    terminations.note_standstill(slept, woken);
    assert!(terminations.take_overdue(woken).is_empty());
    let (gone, stuck) = terminations.look(Path::new("/proc"), woken);
    assert!(gone.is_empty() && stuck.is_empty(), "{gone:?} {stuck:?}");
    assert_eq!(terminations.take_overdue(woken.plus(Duration::from_secs(31))), [asked]);
}

/// A loop that was held up while it decided, and again when the victim was killed: it is noticed as one.
#[test]
fn who_is_chosen_within_such_a_time_has_its_own_from_when_that_is_over() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    let held_up = Duration::from_secs(7);
    let now = Boot::now().plus(held_up);
    // It was looked at before, and holds what it held.
    terminations.look(Path::new("/proc"), Boot::now());
    terminations.note_standstill(held_up + Duration::from_secs(3), now);
    let stuck = |terminations: &mut Terminations, at| terminations.look(Path::new("/proc"), at).1;
    assert!(stuck(&mut terminations, now).is_empty());
    assert!(stuck(&mut terminations, now.plus(KILLED_COUNTS_FOR / 2)).is_empty());
    assert_eq!(stuck(&mut terminations, now.plus(KILLED_COUNTS_FOR * 2)).len(), 1);
}

#[test]
fn who_is_chosen_after_the_machine_slept_has_its_own_time_and_no_more() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target.clone(), Duration::from_secs(30), MEMORY);
    // The machine slept before that, and it is noticed only now.
    terminations.note_standstill(Duration::from_secs(3600), Boot::now());
    assert_eq!(terminations.take_overdue(Boot::now().plus(Duration::from_secs(31))), [target]);
}

#[test]
fn who_is_chosen_for_something_else_in_its_grace_is_awaited_by_both() {
    let (_dir, target) = cgroup(1);
    let (memory, disk) = (Signal::MemoryAvailable, Signal::NodeFsAvailable);
    let mut terminations = Terminations::default();
    let grace = Duration::from_secs(1);
    terminations.begin(key("a"), target.clone(), grace, of_signal(disk, 9));
    assert!(terminations.awaits(disk) && !terminations.awaits(memory));
    terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
    assert!(terminations.awaits(disk) && terminations.awaits(memory));
    assert_eq!(terminations.get(&target).unwrap().signals().collect::<Vec<_>>(), [memory, disk]);
    terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
    assert_eq!(terminations.get(&target).unwrap().signals().collect::<Vec<_>>(), [memory, disk]);
}

#[test]
fn a_termination_counts_until_it_is_seen_to_be_gone() {
    let (dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    let clock = Clock::of_process();
    assert_eq!(of(&terminations, &clock).unwrap().expected_free, Some(7));
    assert!(terminations.look(Path::new("/proc"), Boot::now()).0.is_empty());
    fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
    let (gone, stuck) = terminations.look(Path::new("/proc"), Boot::now());
    assert_eq!((gone.len(), stuck.len()), (1, 0));
    assert!(terminations.is_empty());
}

/// One of its processes hangs and holds a byte; the others held six.
#[test]
fn for_the_next_need_a_termination_counts_with_what_it_holds_still() {
    let (dir, target) = cgroup(1);
    fs::write(dir.path().join("memory.current"), "1\n").unwrap();
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    let clock = Clock::of_process();
    let expected = |terminations: &mut Terminations| {
        terminations.look(Path::new("/proc"), Boot::now());
        of(terminations, &clock).unwrap().expected_free
    };
    assert_eq!(expected(&mut terminations), Some(7), "free pages may be counted late");
    terminations.note_memory_is_back();
    assert_eq!(expected(&mut terminations), Some(1));
}

#[test]
fn a_pod_that_has_ended_has_no_memory_to_give_but_counts_until_its_remains_can_be_gone() {
    let (_dir, ended) = cgroup(0);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), pod(&[ended]), Duration::ZERO, MEMORY);
    let now = Boot::now();
    assert_eq!(terminations.look(Path::new("/proc"), now).0.len(), 1);
    let clock = Clock::of_process();
    let seen = of(&terminations, &clock).unwrap();
    assert_eq!(seen.expected_free, Some(0));
    assert_eq!(seen.deadline, clock.time(now.plus(REMAINS_COUNT_FOR)));
    assert!(terminations.is_empty(), "there is nothing to wait for");
    let later = now.plus(REMAINS_COUNT_FOR);
    assert!(of_at(&terminations, &clock, later).is_none());
}

#[test]
fn what_is_started_again_under_the_same_uid_is_not_terminating_and_the_killed_cgroups_are() {
    let (dir, killed) = cgroup(1);
    let Target::Cgroup { id, .. } = killed else { unreachable!() };
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), pod(&[killed]), Duration::ZERO, MEMORY);
    assert!(terminations.has(id) && !terminations.has(id + 1));
    let workload = Workload { key: key("a"), ..Workload::default() };
    let clock = Clock::of_process();
    let seen = terminations.of(&workload, true, &clock, Boot::now()).unwrap();
    assert!(seen.restarted, "the rest is a candidate");
    assert_eq!(seen.expected_free, Some(7), "what was killed still counts");
    fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
    terminations.look(Path::new("/proc"), Boot::now());
    assert!(terminations.had(id) && !terminations.has(id));
    assert!(terminations.of(&workload, true, &clock, Boot::now()).is_none(), "it is over");
    assert!(terminations.evicted(&workload.key).is_some());
}

#[test]
fn a_would_be_victim_of_a_dry_run_counts_with_what_it_holds_for_as_long_as_it_runs() {
    let (dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
    terminations.only_pretended(&target);
    assert!(terminations.is_empty() && terminations.next_change().is_none());
    let holds = |bytes: u64| Workload {
        key: key("a"),
        stats: Some(Stats {
            memory: Some(MemoryUsage { usage: Some(bytes), ..MemoryUsage::default() }),
            ..Stats::default()
        }),
        ..Workload::default()
    };
    let clock = Clock::of_process();
    let proc = Path::new("/proc");
    for (hours, bytes) in [(0, 7), (1, 900), (100, 3)] {
        let now = Boot::now().plus(Duration::from_secs(hours * 3600));
        assert_eq!(terminations.look(proc, now), (Vec::new(), Vec::new()));
        let seen = terminations.of(&holds(bytes), false, &clock, now).unwrap();
        assert_eq!((seen.expected_free, seen.dry_run), (Some(bytes), true));
        assert!(seen.deadline > clock.time(now));
    }
    fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
    assert_eq!(terminations.look(proc, Boot::now()).0.len(), 1);
    assert!(terminations.of(&holds(7), false, &clock, Boot::now()).is_none());
    assert!(terminations.evicted(&key("a")).is_none(), "nobody evicted it");
}

#[test]
fn a_termination_past_its_deadline_is_told_once_and_then_remembered_for_a_while() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    terminations.look(Path::new("/proc"), Boot::now());
    let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
    assert_eq!(terminations.look(Path::new("/proc"), late).1.len(), 1);
    assert_eq!(terminations.look(Path::new("/proc"), late).1.len(), 0);
    assert!(!terminations.is_empty());
    terminations.look(Path::new("/proc"), late.plus(STUCK_FOR));
    assert!(terminations.is_empty());
}

/// Its grace is over, and it ends between the look that sees it and the kill.
#[test]
fn a_kill_that_finds_nothing_takes_back_only_what_was_not_told_to_end() {
    let proc = Path::new("/proc");
    for (grace, is_shot, ends) in [(0, false, 0), (1, false, 1), (0, true, 1)] {
        let (dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        let grace = Duration::from_secs(grace);
        terminations.begin(key("a"), target.clone(), grace, MEMORY);
        if is_shot {
            terminations.note_told(&target);
        }
        terminations.take_overdue(Boot::now().plus(grace));
        assert!(terminations.look(proc, Boot::now()).0.is_empty());
        fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
        terminations.found_none(&target);
        let (gone, _) = terminations.look(proc, Boot::now());
        assert_eq!(gone.len(), ends, "{grace:?}, by the reflex: {is_shot}");
        assert!(terminations.is_empty());
    }
}

#[test]
fn a_termination_that_gets_smaller_is_not_stuck() {
    let (dir, target) = cgroup(1);
    let processes = |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    processes(900);
    let proc = Path::new("/proc");
    terminations.look(proc, Boot::now());
    processes(400);
    let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
    assert!(terminations.look(proc, late).1.is_empty(), "400 of 900 are left");
    let later = late.plus(KILLED_COUNTS_FOR * 2);
    assert!(terminations.awaits_anybody());
    assert_eq!(terminations.look(proc, later).1.len(), 1, "still 400");
    // Or one process that hangs would keep ebb from deciding ahead for a minute.
    assert!(!terminations.awaits_anybody() && !terminations.is_empty());
}

#[test]
fn a_termination_that_could_not_be_looked_at_in_time_gets_time_to_be() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
    assert!(terminations.look(Path::new("/proc"), late).1.is_empty(), "the first look");
    let later = late.plus(KILLED_COUNTS_FOR * 2);
    assert_eq!(terminations.look(Path::new("/proc"), later).1.len(), 1);
}

/// Policy counts in milliseconds: in the one of the deadline it must not give up what a look would give more time.
#[test]
fn a_termination_counts_for_policy_until_a_look_says_otherwise() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
    let clock = Clock::of_process();
    let proc = Path::new("/proc");
    terminations.look(proc, Boot::now());
    let deadline = terminations.all[0].deadline;
    assert!(terminations.look(proc, deadline).1.is_empty());
    assert!(of(&terminations, &clock).unwrap().deadline > clock.time(deadline));
    let late = deadline.plus(Duration::from_millis(5));
    let seen = |terminations: &Terminations| of_at(terminations, &clock, late).unwrap().deadline;
    assert!(seen(&terminations) > clock.time(late), "not looked at yet");
    assert_eq!(terminations.look(proc, late).1.len(), 1);
    assert!(seen(&terminations) <= clock.time(late));
}

#[test]
fn for_task_ids_the_dead_count_until_somebody_has_waited_for_them() {
    let (dir, target) = cgroup(0);
    let Target::Cgroup { id, .. } = target else { unreachable!() };
    let ids = |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
    ids(900);
    let proc = Path::new("/proc");
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
    assert_eq!(terminations.look(proc, Boot::now()).0.len(), 1, "they hold no memory");
    terminations.begin(key("a"), target, Duration::ZERO, of_signal(Signal::PidAvailable, 900));
    assert!(terminations.look(proc, Boot::now()).0.is_empty());
    assert_eq!(terminations.being_reaped(), [id]);
    let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
    assert_eq!(terminations.look(proc, late).1.len(), 1, "nobody waits for them");
    assert!(terminations.being_reaped().is_empty());
    ids(0);
    assert_eq!(terminations.look(proc, late).0.len(), 1);
}

#[test]
fn what_another_resource_should_give_back_is_not_taken_for_memory() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(
        key("a"),
        target,
        Duration::ZERO,
        of_signal(Signal::NodeFsAvailable, 1 << 40),
    );
    assert_eq!(of(&terminations, &Clock::of_process()).unwrap().expected_free, None);
}

/// A kill that hung for longer than the deadline, and then came through.
#[test]
fn what_is_killed_after_its_deadline_counts_from_then_on() {
    let (_dir, target) = cgroup(1);
    let proc = Path::new("/proc");
    let clock = Clock::of_process();
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
    terminations.look(proc, Boot::now());
    let late = terminations.all[0].deadline.plus(Duration::from_secs(1));
    assert_eq!(terminations.look(proc, late).1.len(), 1);
    let counts = |terminations: &Terminations| {
        of_at(terminations, &clock, late).unwrap().deadline > clock.time(late)
    };
    assert!(!counts(&terminations), "its time is over");
    terminations.note_killed(&target, late);
    assert!(counts(&terminations));
    let later = late.plus(KILLED_COUNTS_FOR * 2);
    assert!(terminations.look(proc, later).1.is_empty(), "it was not looked at since");
    let later = later.plus(KILLED_COUNTS_FOR * 2);
    assert_eq!(terminations.look(proc, later).1.len(), 1, "it does not go");
}

#[test]
fn what_was_asked_is_killed_once_when_its_grace_is_over() {
    let (_dir, target) = cgroup(1);
    let mut terminations = Terminations::default();
    terminations.begin(key("a"), target.clone(), Duration::from_secs(5), MEMORY);
    assert!(terminations.take_overdue(Boot::now()).is_empty() && !terminations.are_dying());
    let after = Boot::now().plus(Duration::from_secs(6));
    assert_eq!(terminations.take_overdue(after), [target]);
    assert!(terminations.take_overdue(after).is_empty() && terminations.are_dying());
}
