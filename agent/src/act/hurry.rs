//! Has those that were killed run before others for a moment, so that they end.
//!
//! A killed process ends itself: it needs a processor for that, and until it has had one, its cgroup is not empty, its
//! pod not over and, where `process_mrelease` does not do, its memory not free. A BestEffort pod has the least weight
//! that there is; on a node whose processors are busy its end takes seconds.
//!
//! ```text
//!  killing thread ──dying──► thread ebb-hurry: SCHED_RR ──► ended, or half a second is over: what they had before
//! ```
//! They are kept to half of the processors, as the thread is that takes back their memory: on the others goes on who must not wait.
//! What a hostile pod can make of it: its end may be a lot of work (shared memory mapped by many), which now goes before
//! that of others. So it has [`HURRIED_FOR`], and after it what it had before; whoever sees to that runs before it.
//! Nothing of it returns to its own code: it was killed.

use super::pidfd::PidFd;
use crate::clock::Boot;
use crate::threads::{Turn, keep_to, leave_half, run_first, schedule};
use nix::sched::CpuSet;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How long those that were killed go before others.
const HURRIED_FOR: Duration = Duration::from_millis(500);

/// How often it is looked for who has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Threads that go before others at a time, of all processes together. A process ends with its last thread.
const THREADS: usize = 4096;

/// Kills that may wait; what finds no room ends as it can.
const WAITING: usize = 64;

/// The way to the thread, which ends with the last of these.
#[derive(Clone, Debug)]
pub(super) struct Hurry(SyncSender<Vec<Arc<PidFd>>>);

impl Hurry {
    /// Starts the thread. `proc` is where processes are listed.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn start(proc: PathBuf) -> io::Result<Self> {
        let (sender, inbox) = sync_channel(WAITING);
        crate::threads::spawn("ebb-hurry", move || work_off(&inbox, &proc))?;
        Ok(Self(sender))
    }

    /// Has these processes, which were killed, run before others. Never waits.
    pub(super) fn give(&self, dying: Vec<Arc<PidFd>>) {
        if !dying.is_empty() {
            // Without a thread, or behind too many kills, they end as they can.
            let _ = self.0.try_send(dying);
        }
    }
}

/// One process that runs before others, and what its threads had before.
struct Hurried {
    process: Arc<PidFd>,
    threads: Vec<(i32, Before)>,
    since: Boot,
}

fn work_off(inbox: &Receiver<Vec<Arc<PidFd>>>, proc: &Path) {
    // An ordinary thread could not take back what it has given.
    if let Err(error) = run_first(Turn::AfterTheKill) {
        tracing::warn!(%error, "what is killed ends with the share of the processors that it had (no SCHED_FIFO)");
        return;
    }
    let mut given: VecDeque<Arc<PidFd>> = VecDeque::new();
    let mut hurried: Vec<Hurried> = Vec::new();
    let mut is_refused = false;
    while let Some(killed) = next(inbox, !given.is_empty(), !hurried.is_empty()) {
        given.extend(killed);
        // One at a time, so that whose time is over is let go meanwhile.
        if let Some(process) = given.pop_front() {
            let room = THREADS.saturating_sub(hurried.iter().map(|one| one.threads.len()).sum());
            let (one, refused) = hurry(process, room, proc);
            hurried.push(one);
            if let Some(error) = refused.filter(|_| !is_refused) {
                tracing::warn!(%error, "what is killed ends with the share of the processors that it had (no SCHED_RR)");
                is_refused = true;
            }
        }
        let now = Boot::now();
        hurried.retain(|one| {
            let is_over = now.since(one.since) >= HURRIED_FOR;
            if is_over {
                let_go(one, proc);
            }
            !is_over && !one.process.has_ended()
        });
    }
    hurried.iter().for_each(|one| let_go(one, proc));
}

/// Who was killed since; waits for that where there is nothing else to do. `None` when nobody kills any more.
fn next(
    inbox: &Receiver<Vec<Arc<PidFd>>>,
    has_more: bool,
    has_hurried: bool,
) -> Option<Vec<Arc<PidFd>>> {
    if !has_more && !has_hurried {
        return inbox.recv().ok();
    }
    match inbox.recv_timeout(if has_more { Duration::ZERO } else { LOOK }) {
        Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
        next => next.ok(),
    }
}

/// Has at most `room` threads of a process run before others, and why not, where that is refused.
fn hurry(process: Arc<PidFd>, room: usize, proc: &Path) -> (Hurried, Option<io::Error>) {
    let since = Boot::now();
    let (mut hurried, mut refused) = (Vec::new(), None);
    for thread in threads(&process, proc).into_iter().take(room) {
        let Some(policy) = Policy::of(thread).filter(|before| !before.goes_first()) else {
            continue;
        };
        // Before it is first: it is never first on all of them.
        let before = Before { policy, processors: leave_half(thread) };
        let given = Policy::FIRST.give(thread);
        // Where it is not, its number may have been given to another in between.
        let is_hurried = given.is_ok() && is_of(thread, &process, proc);
        if !is_hurried {
            before.give_back(thread, given.is_ok());
        }
        match given {
            Ok(()) if is_hurried => hurried.push((thread, before)),
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => refused = Some(error),
        }
    }
    (Hurried { process, threads: hurried, since }, refused)
}

fn let_go(one: &Hurried, proc: &Path) {
    for (thread, before) in &one.threads {
        if Policy::of(*thread) == Some(Policy::FIRST) && is_of(*thread, &one.process, proc) {
            before.give_back(*thread, true);
        }
    }
}

/// Whether the thread is one of the process. While that is held and there, nobody else has its number.
fn is_of(thread: i32, process: &PidFd, proc: &Path) -> bool {
    let is_listed = proc.join(format!("{}/task/{thread}", process.pid())).exists();
    is_listed && process.is_there()
}

fn threads(process: &PidFd, proc: &Path) -> Vec<i32> {
    let listed = fs::read_dir(proc.join(format!("{}/task", process.pid())));
    let names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let threads: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    // What was listed is of this process only if it was there throughout.
    if process.is_there() { threads } else { Vec::new() }
}

/// What a thread had before it was hurried.
struct Before {
    policy: Policy,
    /// Those that it might use; `None` where that was not changed.
    processors: Option<CpuSet>,
}

impl Before {
    /// Gives it back to whoever has the thread's number, `with_policy` if that was changed.
    fn give_back(&self, thread: i32, with_policy: bool) {
        if with_policy {
            let _ = self.policy.give(thread);
        }
        if let Some(processors) = &self.processors {
            let _ = keep_to(thread, processors);
        }
    }
}

/// How a thread is scheduled, as the kernel has it: the policy, and whether what it makes begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy(i32);

impl Policy {
    /// Before all that is not real-time; what somebody makes who has it wrongly has it not.
    const FIRST: Self = Self(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);

    fn of(thread: i32) -> Option<Self> {
        // SAFETY: sched_getscheduler takes an integer and touches no memory of ours.
        let policy = unsafe { libc::sched_getscheduler(thread) };
        (policy >= 0).then_some(Self(policy))
    }

    /// Real-time, or with a deadline: it waits for nobody who is not.
    fn goes_first(self) -> bool {
        let kind = self.0 & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&kind)
    }

    /// Gives a thread this policy. Ordinary ones have no priority; the nice value stays what it is.
    fn give(self, thread: i32) -> io::Result<()> {
        schedule(thread, self.0, if self.goes_first() { Turn::Killed as i32 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{end, sleeper};
    use super::*;
    use nix::sched::sched_getaffinity;
    use nix::unistd::Pid;
    use std::process::Child;

    const SOON: Duration = Duration::from_secs(60);

    fn held() -> (Child, Arc<PidFd>) {
        let (child, _) = sleeper();
        let held = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        (child, Arc::new(held))
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Boot::now();
        while !holds() {
            assert!(Boot::now().since(begun) < SOON, "{what}");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn nobody_is_hurried_for_another_whose_number_it_has() {
        let proc = Path::new("/proc");
        let (first, held) = held();
        let (second, other) = self::held();
        assert_eq!(threads(&held, proc), [held.pid()]);
        assert!(is_of(held.pid(), &held, proc) && !is_of(other.pid(), &held, proc));
        end(first);
        // It was waited for: whoever has the number now is another.
        assert!(threads(&held, proc).is_empty() && !is_of(held.pid(), &held, proc));
        let one = Hurried {
            process: held,
            threads: vec![(
                other.pid(),
                Before { policy: Policy(libc::SCHED_BATCH), processors: None },
            )],
            since: Boot::now(),
        };
        let_go(&one, proc);
        assert_eq!(Policy::of(other.pid()), Some(Policy(libc::SCHED_OTHER)));
        end(second);
    }

    #[test]
    fn who_does_not_end_has_what_it_had_before_when_the_time_is_over() {
        let proc = Path::new("/proc");
        let (child, held) = held();
        let batch = Policy(libc::SCHED_BATCH);
        batch.give(held.pid()).unwrap();
        let processors = || -> Vec<usize> {
            let those = sched_getaffinity(Pid::from_raw(held.pid())).unwrap();
            (0..CpuSet::count()).filter(|cpu| those.is_set(*cpu).unwrap()).collect()
        };
        let all = processors();
        assert!(hurry(Arc::clone(&held), 0, proc).0.threads.is_empty(), "there was no room");
        let (one, refused) = hurry(Arc::clone(&held), 1, proc);
        // Where the kernel rations real-time by cgroup, or without the right to, nothing has changed.
        let expected = if refused.is_some() { batch } else { Policy::FIRST };
        assert_eq!(Policy::of(held.pid()), Some(expected));
        let is_halved = refused.is_none() && all.len() > 1;
        assert_eq!(processors() != all, is_halved, "{:?} of {all:?}", processors());
        let_go(&one, proc);
        assert_eq!((Policy::of(held.pid()), processors()), (Some(batch), all.clone()));

        let hurry = Hurry::start(proc.to_owned()).unwrap();
        hurry.give(vec![Arc::clone(&held)]);
        if refused.is_none() {
            until("it is hurried", || {
                let is_first = Policy::of(held.pid()) == Some(Policy::FIRST);
                if !is_first {
                    // Its time may have been over before anybody here has looked.
                    hurry.give(vec![Arc::clone(&held)]);
                }
                is_first
            });
        }
        until("it is let go", || Policy::of(held.pid()) == Some(batch));
        end(child);
    }
}
