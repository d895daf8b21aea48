//! Has those that were killed run before others for a moment, so that they end.
//!
//! A killed process ends itself: it needs a processor for that, and until it has had one, its cgroup is not empty, its
//! pod not over and, where `process_mrelease` does not do, its memory not free. A BestEffort pod has the least weight
//! that there is; on a node whose processors are busy its end takes seconds.
//!
//! ```text
//!  killing thread ──dying──► thread ebb-hurry: SCHED_RR ──► ended, or half a second is over: what they had before
//! ```
//! What a hostile pod can make of it: its end may be a lot of work (shared memory mapped by many), which now goes before
//! that of others. So it has [`HURRIED_FOR`], and after it what it had before. Nothing of it returns to its own code: it
//! was killed.

use super::pidfd::PidFd;
use super::self_protection::{Turn, run_first};
use crate::clock::Boot;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How long the dying go before others.
const HURRIED_FOR: Duration = Duration::from_millis(500);

/// How often it is looked for who has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Threads of one process that are hurried at most; one with more ends as it can.
const THREADS_OF_ONE: usize = 256;

/// Kills that may wait; what finds no room ends as it can.
const WAITING: usize = 64;

/// The way to the thread, which ends with the last of these.
#[derive(Clone)]
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
        let _ = self.0.try_send(dying);
    }
}

/// One process that runs before others, and what its threads had before.
struct Hurried {
    process: Arc<PidFd>,
    threads: Vec<(i32, i32)>,
    since: Boot,
}

fn work_off(inbox: &Receiver<Vec<Arc<PidFd>>>, proc: &Path) {
    let _ = run_first(Turn::AfterTheKill);
    let mut hurried: Vec<Hurried> = Vec::new();
    loop {
        let next = if hurried.is_empty() {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(LOOK)
        };
        match next {
            Ok(dying) => hurried.extend(dying.into_iter().map(|process| hurry(process, proc))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                hurried.iter().for_each(|one| let_go(one, proc));
                return;
            }
        }
        let now = Boot::now();
        hurried.retain(|one| {
            if one.process.has_ended() {
                return false;
            }
            let is_over = now.since(one.since) >= HURRIED_FOR;
            if is_over {
                let_go(one, proc);
            }
            !is_over
        });
    }
}

fn hurry(process: Arc<PidFd>, proc: &Path) -> Hurried {
    let before = |thread| {
        let policy = policy(thread)?;
        // Real-time already, or with a deadline: it does not wait for anybody.
        let is_ordinary =
            [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        (is_ordinary && set(&process, thread, libc::SCHED_RR, policy, proc))
            .then_some((thread, policy))
    };
    let threads = threads(&process, proc).into_iter().filter_map(before).collect();
    Hurried { process, threads, since: Boot::now() }
}

fn let_go(one: &Hurried, proc: &Path) {
    for (thread, before) in &one.threads {
        if policy(*thread) == Some(libc::SCHED_RR) && is_of(*thread, &one.process, proc) {
            set(&one.process, *thread, *before, libc::SCHED_RR, proc);
        }
    }
}

/// Gives a thread a policy, and takes it back where it turns out not to be one of the process: its number may have been given to another in between.
fn set(process: &PidFd, thread: i32, policy: i32, before: i32, proc: &Path) -> bool {
    let is_set = set_policy(thread, policy).is_ok();
    if is_set && !is_of(thread, process, proc) {
        let _ = set_policy(thread, before);
        return false;
    }
    is_set
}

/// Whether the thread is one of the process. While that is held and there, nobody else has its number.
fn is_of(thread: i32, process: &PidFd, proc: &Path) -> bool {
    let is_listed = proc.join(format!("{}/task/{thread}", process.pid())).exists();
    is_listed && process.is_there()
}

fn threads(process: &PidFd, proc: &Path) -> Vec<i32> {
    let listed = fs::read_dir(proc.join(format!("{}/task", process.pid())));
    let names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let threads: Vec<i32> =
        names.filter_map(|name| name.to_str()?.parse().ok()).take(THREADS_OF_ONE).collect();
    // What was listed is of this process only if it was there throughout.
    if process.is_there() { threads } else { Vec::new() }
}

fn policy(thread: i32) -> Option<i32> {
    // SAFETY: sched_getscheduler takes an integer and touches no memory of ours.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    (policy >= 0).then_some(policy & !libc::SCHED_RESET_ON_FORK)
}

/// Ordinary policies have no priority; a thread's nice value stays what it is.
fn set_policy(thread: i32, policy: i32) -> io::Result<()> {
    let priority = if policy == libc::SCHED_RR { Turn::AfterTheKill as i32 } else { 0 };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters outlive the call, which copies them.
    let result = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Arc<PidFd>) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let held = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        (child, Arc::new(held))
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_number_that_is_anothers_keeps_its_policy() {
        let proc = Path::new("/proc");
        let (first, held) = sleeper();
        let (second, other) = sleeper();
        assert_eq!(threads(&held, proc), [held.pid()]);
        assert!(!set(&held, other.pid(), libc::SCHED_RR, libc::SCHED_OTHER, proc));
        assert_eq!(policy(other.pid()), Some(libc::SCHED_OTHER));
        end(first);
        assert!(threads(&held, proc).is_empty());
        assert!(!is_of(held.pid(), &held, proc));
        end(second);
    }

    #[test]
    fn who_does_not_end_has_what_it_had_before_when_the_time_is_over() {
        let proc = Path::new("/proc");
        let (child, held) = sleeper();
        set_policy(held.pid(), libc::SCHED_BATCH).unwrap();
        let one = hurry(Arc::clone(&held), proc);
        // Where the kernel rations real-time by cgroup it refuses, and nothing has changed.
        let hurried = if one.threads.is_empty() { libc::SCHED_BATCH } else { libc::SCHED_RR };
        assert_eq!(policy(held.pid()), Some(hurried));
        let_go(&one, proc);
        assert_eq!(policy(held.pid()), Some(libc::SCHED_BATCH));

        let given = Boot::now();
        let hurry = Hurry::start(proc.to_owned()).unwrap();
        hurry.give(vec![Arc::clone(&held)]);
        while Boot::now().since(given) < HURRIED_FOR
            || policy(held.pid()) != Some(libc::SCHED_BATCH)
        {
            std::thread::sleep(LOOK);
        }
        end(child);
    }
}
