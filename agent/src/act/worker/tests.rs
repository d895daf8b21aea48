//! The threads as a whole: one that hangs, and a loop that hangs.

use super::super::kill::{Ended, Executor};
use super::super::marks::Marks;
use super::super::pidfd::PidFd;
use super::super::tests::{LITTLE, NEED, PLENTY, actor, end, sleeper};
use super::super::victim::Victim;
use super::super::{Method, Mode, Need};
use super::*;
use crate::act::NotDone;
use crate::act::standby::{Candidate, LastResort};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Mutex;
use std::sync::mpsc::{Sender as Notify, channel};

/// A hand that tells when it is asked to kill, and hangs until it is let go.
struct Hangs {
    began: Notify<()>,
    let_go: Mutex<Receiver<()>>,
}

impl Executor for Hangs {
    fn kill(&self, _: Victim) -> io::Result<(Ended, Vec<Arc<PidFd>>)> {
        self.began.send(()).unwrap();
        let _ = self.let_go.lock().unwrap().recv();
        Ok((Ended { method: Method::Signal, at: Boot::now() }, Vec::new()))
    }

    fn terminate(&self, _: Victim) -> io::Result<Ended> {
        unreachable!("nobody is asked to")
    }

    fn step(&self, _: Victim, _: Rung, _: &Marks) -> io::Result<Ended> {
        unreachable!("nobody is slowed down")
    }
}

fn crew(quick: Actor) -> (Vec<tempfile::TempDir>, Crew) {
    let (proc, spare) = actor(LITTLE, Mode::Enforce);
    let (slow_proc, slow) = actor(LITTLE, Mode::DryRun);
    (vec![proc, slow_proc], Crew { quick, spares: vec![spare], slow })
}

fn job(number: u64, target: &Target) -> Job {
    Job { number, target: target.clone(), step: Step::Kill, need: Some(NEED), decision: None }
}

fn left<const N: usize>(need: Need, targets: [Target; N]) -> LastResort {
    let candidates = targets.map(|target| Candidate { target, may_move: false }).into();
    LastResort { need, candidates, decision: None }
}

#[test]
fn a_thread_that_hangs_while_it_kills_is_taken_over_from_and_the_next_job_is_done() {
    let (first_child, first) = sleeper();
    let (mut second_child, second) = sleeper();
    let (_proc, mut quick) = actor(LITTLE, Mode::Enforce);
    let (began, begun) = channel();
    let (let_go, hung) = channel();
    quick.hand = Box::new(Hangs { began, let_go: Mutex::new(hung) });
    let (_procs, crew) = crew(quick);
    let (results, mut told) = tokio::sync::mpsc::channel(8);
    let jobs = start(crew, Arc::default(), results).unwrap();
    jobs.give(job(1, &first)).unwrap();
    begun.recv().unwrap();
    jobs.give(job(2, &second)).unwrap();
    let acted = told.blocking_recv().unwrap();
    assert_eq!(acted.job.number, 1);
    assert!(matches!(acted.result, Err(NotDone::Hung)), "{acted:?}");
    // Where the machine stands still within a kill, that is said to hang before it is told.
    let mut done = || loop {
        let Acted { job, result, .. } = told.blocking_recv().unwrap();
        match result {
            Ok(_) => break job.number,
            Err(why) => assert!(matches!(why, NotDone::Hung), "{why:?}"),
        }
    };
    assert_eq!(done(), 2);
    assert_eq!(second_child.wait().unwrap().signal(), Some(libc::SIGKILL));
    // The one that comes back says what it did after all, and can take over in its turn.
    drop(let_go);
    assert_eq!(done(), 1);
    end(first_child);
}

#[test]
fn a_loop_that_breaks_its_word_below_the_threshold_is_stood_in_for() {
    let (mut hog_child, hog) = sleeper();
    let (_proc, quick) = actor(LITTLE, Mode::Enforce);
    let (_procs, crew) = crew(quick);
    let (results, mut told) = tokio::sync::mpsc::channel(8);
    let standby = Arc::new(Standby::default());
    let jobs = start(crew, Arc::clone(&standby), results).unwrap();
    let gone = Target::Process { pid: i32::MAX, start: 1 };
    standby.leave(Some(left(NEED, [gone, hog.clone()])));
    standby.beat(Duration::ZERO);
    // And is never heard of again.
    let acted = told.blocking_recv().unwrap();
    assert!(acted.by_watchdog && acted.result.is_ok(), "{acted:?}");
    // Until its parent has waited for it, it may be killed again.
    assert!(jobs.stood_in() >= 1, "the loop can see it before it is told");
    assert_eq!(acted.job.target, hog);
    assert_eq!(hog_child.wait().unwrap().signal(), Some(libc::SIGKILL));
    standby.beat(Duration::from_secs(3600));
}

#[test]
fn in_place_of_a_stuck_loop_one_is_killed_at_a_time() {
    let (mut hog_child, hog) = sleeper();
    let (mut other_child, other) = sleeper();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let gone = Target::Process { pid: i32::MAX, start: 1 };
    let resort = left(NEED, [gone, hog.clone(), other]);
    let acted = watchdog::stand_in(&resort, &mut actor, &mut HeldUp::default()).unwrap();
    assert_eq!(acted.job.target, hog);
    assert_eq!(hog_child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(other_child.try_wait().unwrap().is_none());
    end(other_child);
}

#[test]
fn nobody_is_killed_in_place_of_a_stuck_loop_without_need() {
    let (mut child, target) = sleeper();
    let resort = left(NEED, [target.clone()]);
    let (_proc, mut plenty) = actor(PLENTY, Mode::Enforce);
    assert!(watchdog::stand_in(&resort, &mut plenty, &mut HeldUp::default()).is_none());
    let (_proc, mut unknown) = actor("MemTotal: 1000 kB\n", Mode::Enforce);
    assert!(watchdog::stand_in(&resort, &mut unknown, &mut HeldUp::default()).is_none());
    assert!(child.try_wait().unwrap().is_none());
    let (_proc, mut little) = actor(LITTLE, Mode::Enforce);
    let none = left(Need::MemoryBelow { bytes: 1 }, [target]);
    assert!(watchdog::stand_in(&none, &mut little, &mut HeldUp::default()).is_none());
    end(child);
}

#[test]
fn nobody_is_killed_in_place_of_a_stuck_loop_behind_one_that_may_have_moved() {
    let (mut child, innocent) = sleeper();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let gone = Target::Process { pid: i32::MAX, start: 1 };
    let mut resort = left(NEED, [gone, innocent]);
    resort.candidates[0].may_move = true;
    assert!(watchdog::stand_in(&resort, &mut actor, &mut HeldUp::default()).is_none());
    assert!(child.try_wait().unwrap().is_none());
    resort.candidates[0].may_move = false;
    assert!(watchdog::stand_in(&resort, &mut actor, &mut HeldUp::default()).is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn nobody_goes_in_place_of_an_exiting_candidate_until_that_takes_too_long() {
    let (mut child, second) = sleeper();
    let exiting = || {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        std::fs::write(dir.path().join("cgroup.events"), "populated 1\n").unwrap();
        let id = dir.path().metadata().unwrap().ino();
        let target = Target::Cgroup { id, path: dir.path().to_owned() };
        (dir, target)
    };
    let [(_one, first), (_two, other)] = [exiting(), exiting()];
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let resort = left(NEED, [first.clone(), other.clone(), second.clone()]);
    let mut held_up = HeldUp::default();
    // Each has its own time, and once that is over it stays over.
    for hangs in [&first, &other] {
        for _ in 0..2 {
            assert!(watchdog::stand_in(&resort, &mut actor, &mut held_up).is_none());
            assert!(child.try_wait().unwrap().is_none(), "it went in its place");
        }
        let since = held_up.awaited.get_mut(hangs).unwrap();
        *since = Boot(since.0.saturating_sub(10_000_000_000));
    }
    let acted = watchdog::stand_in(&resort, &mut actor, &mut held_up).unwrap();
    assert_eq!(acted.job.target, second);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}
