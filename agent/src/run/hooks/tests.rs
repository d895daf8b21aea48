//! For how long evictions are put off, whoever is first at each look; time is an argument.

use super::*;

const DEADLINE: Duration = Duration::from_secs(2);
const MEMORY: Signal = Signal::MemoryAvailable;

fn at(ms: u64) -> Boot {
    Boot(ms * 1_000_000)
}

fn key(name: impl ToString) -> WorkloadKey {
    WorkloadKey { name: name.to_string(), ..WorkloadKey::default() }
}

/// Without a thread: what would be called is noted by [`ask`].
fn hooks() -> Hooks {
    Hooks::new(tokio::sync::mpsc::channel(1).0, false).unwrap()
}

/// What the loop does when somebody is to be asked about.
fn ask(hooks: &mut Hooks, workload: &WorkloadKey, signal: Signal, (now, until): (Boot, Boot)) {
    hooks.needs.get_mut(&signal).unwrap().asked.insert(workload.clone());
    hooks.calls += 1;
    hooks.flight = Some(Flight {
        number: hooks.calls,
        workload: workload.clone(),
        signal,
        called: now,
        until,
        is_over: false,
        is_told_stuck: false,
    });
}

#[test]
fn a_workload_is_asked_about_once_and_goes_when_that_is_over() {
    let mut hooks = hooks();
    let a = key("a");
    assert_eq!(hooks.turn(&a, MEMORY, at(0), DEADLINE), Turn::Ask(at(2_000)));
    ask(&mut hooks, &a, MEMORY, (at(0), at(2_000)));
    assert_eq!(hooks.turn(&a, MEMORY, at(20), DEADLINE), Turn::Wait);
    hooks.flight = None;
    assert_eq!(hooks.turn(&a, MEMORY, at(500), DEADLINE), Turn::Evict);
}

#[test]
fn another_workload_that_is_first_then_is_asked_about_within_what_is_left_of_the_deadline() {
    let mut hooks = hooks();
    let (a, b) = (key("a"), key("b"));
    hooks.turn(&a, MEMORY, at(0), DEADLINE);
    ask(&mut hooks, &a, MEMORY, (at(0), at(2_000)));
    assert_eq!(hooks.turn(&b, MEMORY, at(20), DEADLINE), Turn::Wait, "one at a time");
    hooks.flight = None;
    assert_eq!(hooks.turn(&b, MEMORY, at(500), DEADLINE), Turn::Ask(at(2_000)));
    ask(&mut hooks, &b, MEMORY, (at(500), at(2_000)));
    // The first is first again: it had its call, and waits for nobody else's.
    assert_eq!(hooks.turn(&a, MEMORY, at(600), DEADLINE), Turn::Evict);
}

/// Told the other way round, the eviction would seem to have waited for nobody; and on disk it would be decided by what was there before the call.
#[test]
fn a_call_whose_deadline_passes_within_a_look_is_ended_before_the_eviction() {
    let mut hooks = hooks();
    let a = key("a");
    hooks.turn(&a, MEMORY, at(0), DEADLINE);
    ask(&mut hooks, &a, MEMORY, (at(0), at(2_000)));
    assert_eq!(hooks.turn(&a, MEMORY, at(2_001), DEADLINE), Turn::Wait);
    assert_eq!(hooks.due(), Some(at(2_000)), "the next look is due");
    hooks.flight.as_mut().unwrap().is_over = true;
    assert_eq!(hooks.turn(&a, MEMORY, at(2_001), DEADLINE), Turn::Evict);
}

/// Each look finds another first, and each call ends at once, at its deadline, or never.
#[test]
fn who_changes_places_puts_no_eviction_off_for_longer_than_one_deadline() {
    for answers_after in [0, 1, 30, 700, u64::MAX] {
        let mut hooks = hooks();
        let mut asked = 0;
        let gone = (0..1_000).map(|n| n * 10).find(|ms| {
            let now = at(*ms);
            if let Some(flight) = &mut hooks.flight {
                if now.since(flight.called) >= Duration::from_millis(answers_after) {
                    hooks.flight = None;
                } else if now >= flight.until {
                    // What `end_overdue_hook` does; the thread never comes back.
                    flight.is_over = true;
                }
            }
            let first = key(ms);
            match hooks.turn(&first, MEMORY, now, DEADLINE) {
                Turn::Evict => true,
                Turn::Wait => false,
                Turn::Ask(until) => {
                    asked += 1;
                    ask(&mut hooks, &first, MEMORY, (now, until));
                    false
                }
            }
        });
        assert_eq!(gone, Some(2_000), "answering after {answers_after} ms, {asked} calls");
        assert!(asked >= 1);
    }
}

/// Two signals are short at once, and the hook of the first hangs: the second has its own deadline, and waits for nothing else.
#[test]
fn a_call_for_another_signal_puts_an_eviction_off_for_no_longer_than_its_own_deadline() {
    let mut hooks = hooks();
    let (a, b) = (key("a"), key("b"));
    hooks.turn(&a, MEMORY, at(0), DEADLINE);
    ask(&mut hooks, &a, MEMORY, (at(0), at(2_000)));
    let pids = Signal::PidAvailable;
    assert_eq!(hooks.turn(&b, pids, at(1_500), DEADLINE), Turn::Wait);
    hooks.flight.as_mut().unwrap().is_over = true;
    assert_eq!(hooks.turn(&b, pids, at(2_010), DEADLINE), Turn::Wait, "the thread is on its way");
    assert_eq!(hooks.turn(&b, pids, at(2_300), DEADLINE), Turn::Evict, "the thread hangs");
    hooks.flight = None;
    assert_eq!(hooks.turn(&b, pids, at(2_300), DEADLINE), Turn::Ask(at(3_500)));
    assert_eq!(hooks.turn(&b, pids, at(3_500), DEADLINE), Turn::Evict);
}

fn status(signal: Signal, strength: Strength, state: ThresholdState) -> ThresholdStatus {
    ThresholdStatus {
        signal,
        strength,
        state,
        threshold: None,
        available: None,
        by_minimum_reclaim: false,
        since: None,
        grace_left: None,
        also_below: None,
    }
}

#[test]
fn a_need_lasts_until_its_threshold_is_met_no_more_whatever_else_is_judged() {
    let (soft, hard) = (Strength::Soft, Strength::Hard);
    let (mut plan, _) = ebb_policy::decide(
        &ebb_policy::Snapshot::at(ebb_policy::Time(1)),
        &ebb_policy::Limits::new(&ebb_policy::limits::RawEviction::default()).unwrap(),
        &ebb_policy::History::default(),
    );
    let mut lasts = |thresholds: &[ThresholdStatus]| {
        let mut hooks = hooks();
        hooks.turn(&key("a"), MEMORY, at(0), DEADLINE);
        plan.thresholds = thresholds.to_vec();
        hooks.settle(&plan);
        hooks.needs.contains_key(&MEMORY)
    };
    for state in [ThresholdState::Met, ThresholdState::Stale, ThresholdState::Unobserved] {
        assert!(lasts(&[status(MEMORY, soft, state)]), "{state:?}");
    }
    for state in [ThresholdState::Clear, ThresholdState::Grace] {
        assert!(!lasts(&[status(MEMORY, soft, state)]), "{state:?}");
        let met = status(MEMORY, hard, ThresholdState::Met);
        assert!(!lasts(&[status(MEMORY, soft, state), met]), "{state:?}");
    }
    assert!(lasts(&[]), "a pass that judges nothing says nothing");
    assert!(lasts(&[status(Signal::PidAvailable, soft, ThresholdState::Clear)]));
}
