//! The actor on real processes and fake cgroups.
use super::*;
use crate::sense::process::Process;
use ebb_policy::StallShare;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command};

pub(super) const PLENTY: &str = "MemTotal: 1000 kB\nMemAvailable: 900 kB\n";
pub(super) const LITTLE: &str = "MemTotal: 1000 kB\nMemAvailable: 10 kB\n";
pub(super) const NEED: Need = Need::MemoryBelow { bytes: 100 * 1024 };

pub(super) fn sleeper() -> (Child, Target) {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let start = Process::read(Path::new("/proc"), pid).unwrap().id.start_time;
    (child, Target::Process { pid, start })
}

/// An actor that sees real processes but a made-up amount of memory.
pub(super) fn actor(meminfo: &str, mode: Mode) -> (tempfile::TempDir, Actor) {
    let proc = tempfile::tempdir().unwrap();
    fs::write(proc.path().join("meminfo"), meminfo).unwrap();
    let roots = Roots { proc: proc.path().into(), cgroup: proc.path().into() };
    let mut actor = Actor::new(&roots, Measure::MemAvailable, mode).unwrap();
    actor.roots.proc = "/proc".into();
    (proc, actor)
}

fn job(target: Target) -> Job {
    Job { number: 1, target, step: Step::Kill, need: Some(NEED), decision: None }
}

pub(super) fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_is_killed_when_it_is_needed() {
    let (mut child, target) = sleeper();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let ended = actor.perform(job(target)).result.unwrap();
    assert_eq!(ended.method, Method::Signal);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn nothing_is_killed_once_the_pressure_has_gone() {
    let (mut child, target) = sleeper();
    let (_proc, mut actor) = actor(PLENTY, Mode::Enforce);
    let acted = actor.perform(job(target));
    assert!(matches!(acted.result, Err(NotDone::NotNeeded { .. })), "{acted:?}");
    assert!(child.try_wait().unwrap().is_none());
    end(child);
}

#[test]
fn swap_that_has_room_again_is_a_need_that_has_gone() {
    let swap = |free: u64| format!("{LITTLE}SwapTotal: 1000 kB\nSwapFree: {free} kB\n");
    let both = Need::MemoryAndSwapBelow { bytes: 100 << 10, swap: 200 << 10 };
    let with = Need::MemoryWithSwapBelow { bytes: 300 << 10 };
    let alone = Need::SwapBelow { bytes: 200 << 10 };
    for need in [both.clone(), with.clone(), alone.clone()] {
        let check = |meminfo: &str| actor(meminfo, Mode::Enforce).1.check_need(&need);
        assert!(check(&swap(100)).is_ok(), "{need:?}");
        assert!(matches!(check(&swap(800)), Err(NotDone::NotNeeded { .. })), "{need:?}");
    }
    let none = format!("{LITTLE}SwapTotal: 0 kB\nSwapFree: 0 kB\n");
    let check = |need| actor(&none, Mode::Enforce).1.check_need(need);
    assert!(check(&both).is_ok() && check(&with).is_ok(), "memory alone decides");
    assert!(matches!(check(&alone), Err(NotDone::UnknownNeed { .. })));
    let enough = format!("{PLENTY}SwapTotal: 1000 kB\nSwapFree: 100 kB\n");
    let acted = actor(&enough, Mode::Enforce).1.check_need(&both);
    assert!(matches!(acted, Err(NotDone::NotNeeded { .. })), "{acted:?}");
}

#[test]
fn memory_pressure_that_has_gone_is_no_reason_to_kill_nor_is_one_that_is_not_told() {
    let (mut child, target) = sleeper();
    let (dir, mut actor) = actor(LITTLE, Mode::Enforce);
    let need = Need::MemoryPressureAbove { cgroup: "/a/b".into(), limit: StallShare(6000) };
    let job = || Job {
        number: 1,
        target: target.clone(),
        step: Step::Kill,
        need: Some(need.clone()),
        decision: None,
    };
    let acted = actor.perform(job());
    assert!(matches!(acted.result, Err(NotDone::UnknownNeed { .. })), "{acted:?}");
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let says = |avg10: &str| {
        let text = format!("some avg10=99.00 total=1\nfull avg10={avg10} avg60=99.00 total=1\n");
        fs::write(dir.path().join("a/b/memory.pressure"), text).unwrap();
    };
    says("60.00");
    let acted = actor.perform(job());
    assert!(matches!(acted.result, Err(NotDone::PressureGone { .. })), "{acted:?}");
    assert!(child.try_wait().unwrap().is_none());
    says("60.01");
    assert_eq!(actor.perform(job()).result.unwrap().method, Method::Signal);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn unknown_need_is_no_reason_to_kill() {
    let (mut child, target) = sleeper();
    let (_proc, mut actor) = actor("MemTotal: 1000 kB\n", Mode::Enforce);
    let acted = actor.perform(job(target));
    assert!(matches!(acted.result, Err(NotDone::UnknownNeed { .. })), "{acted:?}");
    assert!(child.try_wait().unwrap().is_none());
    end(child);
}

#[test]
fn a_dry_run_checks_everything_and_kills_nothing() {
    let (mut child, target) = sleeper();
    let (_proc, mut dry) = actor(LITTLE, Mode::DryRun);
    assert_eq!(dry.perform(job(target.clone())).result.unwrap().method, Method::DryRun);
    let (_proc, mut dry_without_need) = actor(PLENTY, Mode::DryRun);
    assert!(dry_without_need.perform(job(target)).result.is_err());
    assert!(child.try_wait().unwrap().is_none());
    end(child);
}

#[test]
fn terminate_asks_and_does_not_force() {
    let (mut child, target) = sleeper();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let mut job = job(target);
    job.step = Step::Terminate;
    assert_eq!(actor.perform(job).result.unwrap().method, Method::Terminate);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn a_process_that_cgroup_kill_overlooks_is_signalled_too() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _) = sleeper();
    fs::write(dir.path().join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
    // A file that takes the write and kills nobody, as the kernel's does to a process whose first thread has exited.
    fs::write(dir.path().join("cgroup.kill"), "").unwrap();
    let id = fs::metadata(dir.path()).unwrap().ino();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let target = Target::Cgroup { id, path: dir.path().to_owned() };
    assert_eq!(actor.perform(job(target)).result.unwrap().method, Method::CgroupKill);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn where_there_is_no_cgroup_kill_every_process_is_signalled_until_the_cgroup_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let events = dir.path().join("cgroup.events");
    let (mut first, _) = sleeper();
    let (mut second, _) = sleeper();
    fs::write(dir.path().join("cgroup.procs"), format!("{}\n{}\n", first.id(), second.id()))
        .unwrap();
    fs::write(dir.path().join("cgroup.freeze"), "0\n").unwrap();
    fs::write(&events, "populated 1\n").unwrap();
    let id = fs::metadata(dir.path()).unwrap().ino();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    let target = Target::Cgroup { id, path: dir.path().to_owned() };
    // The kernel would say that the cgroup is empty; here the reaping of the two does.
    let reaper = std::thread::spawn(move || {
        let both = [first.wait().unwrap().signal(), second.wait().unwrap().signal()];
        fs::write(events, "populated 0\n").unwrap();
        both
    });
    let ended = actor.perform(job(target)).result.unwrap();
    assert_eq!(ended.method, Method::FreezeAndSignal);
    assert_eq!(reaper.join().unwrap(), [Some(libc::SIGKILL); 2]);
    let thawed = fs::read_to_string(dir.path().join("cgroup.freeze")).unwrap();
    assert!(thawed.starts_with('0'), "a directory that is used again must not be left frozen");
}

#[test]
fn a_victim_held_ahead_is_ended_by_its_job_and_by_no_other() {
    let (mut child, target) = sleeper();
    let (mut bystander, other) = sleeper();
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    actor.hold_ready(&other);
    assert!(actor.perform(job(target)).result.is_ok());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(bystander.try_wait().unwrap().is_none(), "holding ends nobody");
    assert!(!actor.ready.is_holding(), "a hold that did not fit is let go");
    actor.hold_ready(&other);
    assert!(actor.perform(job(other)).result.is_ok());
    assert_eq!(bystander.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_cgroup_whose_processes_changed_since_it_was_held_is_checked_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (child, Target::Process { pid, .. }) = sleeper() else { unreachable!() };
    fs::write(dir.path().join("cgroup.procs"), format!("{pid}\n")).unwrap();
    fs::write(dir.path().join("cgroup.stat"), "nr_descendants 0\n").unwrap();
    fs::write(dir.path().join("cgroup.kill"), "").unwrap();
    let id = fs::metadata(dir.path()).unwrap().ino();
    let target = Target::Cgroup { id, path: dir.path().into() };
    let (_proc, mut actor) = actor(LITTLE, Mode::Enforce);
    actor.hold_ready(&target);
    // Meanwhile somebody who must not die has joined it.
    fs::write(dir.path().join("cgroup.procs"), format!("{pid}\n{}\n", std::process::id())).unwrap();
    let acted = actor.perform(job(target));
    assert!(matches!(acted.result, Err(NotDone::Refused(Refusal::Protected { .. }))), "{acted:?}");
    assert_eq!(fs::read_to_string(dir.path().join("cgroup.kill")).unwrap(), "");
    end(child);
}
