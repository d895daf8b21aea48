//! Taking back the memory of who was killed (`process_mrelease`), beside the thread that kills.
//!
//! ```text
//!  killing thread ──give──► bounded queue ──► thread ebb-release (one; another when it hangs, four at most)
//!       ▲                                          │
//!       └──── waits 200 ms at most for a batch ◄───┘
//! ```
//! The call waits for the `mmap_lock` of the killed process, which one of its threads may hold for as long as it likes:
//! one that maps a FUSE file past the page cache holds it until the file's owner has answered for the pages that are being read.

use super::pidfd::PidFd;
use crate::clock::Boot;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads at most. Who hangs hangs for as long as somebody else wants, so their number is what this may cost.
const THREADS: usize = 4;

/// Processes that may wait: a cgroup has 64 of them held at most, a plan has a handful of cgroups.
const WAITING: usize = 1024;

/// A call that takes this long hangs, or is about a process so large that the next decision cannot wait for it.
const PATIENCE: Duration = Duration::from_millis(200);

/// One process whose memory is to be taken back; a seam, so that one that hangs can be played.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// The way to the threads.
#[derive(Clone)]
pub(super) struct Releaser(Arc<Handle>);

/// Ends the threads when nobody can give them work any more.
struct Handle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    given: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Work)>,
    /// When each thread began what it does now; `None` while it waits.
    threads: Vec<Option<Boot>>,
    /// What is given now belongs to this batch, of which so many are not done.
    batch: u64,
    pending: usize,
    /// When the last of it was given.
    given: Option<Boot>,
    /// What found no room.
    dropped: u64,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// For how much longer what was given is waited for, at `now`.
    fn patience(&self, now: Boot) -> Duration {
        let passed = self.given.map_or(PATIENCE, |given| now.since(given));
        if self.pending == 0 { Duration::ZERO } else { PATIENCE.saturating_sub(passed) }
    }

    fn hanging(&self, now: Boot) -> usize {
        let busy = self.threads.iter().flatten();
        busy.filter(|since| now.since(**since) > PATIENCE).count()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.given.notify_all();
    }
}

impl Releaser {
    /// Starts the first thread.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn start() -> io::Result<Self> {
        let releaser = Self(Arc::new(Handle(Arc::default())));
        releaser.add_thread()?;
        Ok(releaser)
    }

    /// Has the memory of these processes taken back. Never waits: what finds no room is left to the kernel, and counted.
    pub(super) fn give(&self, dying: Vec<Arc<PidFd>>) {
        self.give_work(dying.into_iter().map(|process| -> Work {
            Box::new(move || {
                // One that is gone has given its memory back itself.
                let _ = process.release_memory();
            })
        }));
    }

    fn give_work(&self, work: impl Iterator<Item = Work>) {
        let mut state = self.0.0.state();
        let mut any = false;
        for work in work {
            any = true;
            if state.queue.len() < WAITING {
                let batch = state.batch;
                state.queue.push_back((batch, work));
                state.pending += 1;
            } else {
                state.dropped += 1;
            }
        }
        if any {
            state.given = Some(Boot::now());
        }
        drop(state);
        if any {
            self.0.0.given.notify_one();
            self.attend(Boot::now());
        }
    }

    /// Waits until what was given has been dealt with, but not long after it was: whether more must be killed is to be judged by what that has freed.
    pub(super) fn wait(&self) {
        let shared = &self.0.0;
        let state = shared.state();
        let left = state.patience(Boot::now());
        let (mut state, waited) = shared
            .done
            .wait_timeout_while(state, left, |state| state.pending > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && state.pending > 0 {
            // It is waited for once.
            state.batch += 1;
            state.pending = 0;
        }
        drop(state);
        self.attend(Boot::now());
    }

    /// Starts another thread when all there are hang while something waits.
    pub(super) fn attend(&self, now: Boot) {
        let state = self.0.0.state();
        let threads = state.threads.len();
        let is_needed = !state.queue.is_empty() && state.hanging(now) == threads;
        drop(state);
        if is_needed && threads < THREADS {
            // Without another thread it waits for one that comes back; the kernel frees the memory as it can.
            let _ = self.add_thread();
        }
    }

    /// Whether a thread is at work at the moment, or something waits for one.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.0.0.state();
        !state.queue.is_empty() || state.threads.iter().any(Option::is_some)
    }

    /// What an operator should know, if anything; the same words for as long as nothing changes.
    pub(super) fn trouble(&self, now: Boot) -> Option<String> {
        let state = self.0.0.state();
        let (hanging, dropped) = (state.hanging(now), state.dropped);
        (hanging > 0 || dropped > 0).then(|| {
            format!(
                "the memory of killed processes is freed by the kernel alone: {hanging} of at most {THREADS} calls of process_mrelease hang, {dropped} processes found no room in the queue"
            )
        })
    }

    fn add_thread(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.0.0);
        let mut state = self.0.0.state();
        let number = state.threads.len();
        crate::threads::spawn("ebb-release", move || work_off(&shared, number))?;
        state.threads.push(None);
        Ok(())
    }
}

fn work_off(shared: &Shared, number: usize) {
    // Below the thread that kills, before everything else: what a dying process holds is what the node needs.
    let _ = crate::threads::run_first(crate::threads::Turn::AfterTheKill);
    // Taking back a GiB takes a while, in which others need a processor, too.
    let _ = crate::threads::leave_half(0);
    loop {
        let waiting =
            shared.given.wait_while(shared.state(), |state| state.queue.is_empty() && !state.over);
        let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
        let Some((batch, work)) = state.queue.pop_front() else { return };
        if let Some(since) = state.threads.get_mut(number) {
            *since = Some(Boot::now());
        }
        drop(state);
        work();
        let mut state = shared.state();
        if let Some(since) = state.threads.get_mut(number) {
            *since = None;
        }
        if state.batch == batch {
            state.pending = state.pending.saturating_sub(1);
            if state.pending == 0 {
                shared.done.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Work that hangs until its sender is dropped.
    fn hangs() -> (Sender<()>, Work) {
        let (let_go, hung): (_, Receiver<()>) = channel();
        let work = Box::new(move || {
            let _ = hung.recv();
        });
        (let_go, work)
    }

    fn tells(done: &Sender<()>) -> Work {
        let done = done.clone();
        Box::new(move || done.send(()).unwrap())
    }

    impl Releaser {
        /// For how long it would be waited now.
        fn patience(&self) -> Duration {
            self.0.0.state().patience(Boot::now())
        }
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let begun = Boot::now();
        while !holds() {
            assert!(Boot::now().since(begun) < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_hangs_holds_up_neither_the_killer_nor_the_next_process() {
        let releaser = Releaser::start().unwrap();
        let (let_go, hung) = hangs();
        let (done, seen) = channel();
        releaser.give_work([hung, tells(&done)].into_iter());
        releaser.wait();
        // The hung call may have begun late; the watchdog too looks again and again.
        while seen.recv_timeout(PATIENCE).is_err() {
            releaser.attend(Boot::now());
        }
        assert_eq!(releaser.patience(), Duration::ZERO, "it is waited for once");
        // The other thread has told before it is at rest.
        until(|| releaser.trouble(Boot::now().plus(PATIENCE)).unwrap().contains("1 of at most 4"));
        drop(let_go);
    }

    #[test]
    fn what_was_given_long_ago_is_not_waited_for() {
        let releaser = Releaser::start().unwrap();
        let (let_go, hung) = hangs();
        releaser.give_work(std::iter::once(hung));
        let given = releaser.0.0.state().given.unwrap();
        assert_eq!(releaser.0.0.state().patience(given), PATIENCE);
        releaser.0.0.state().given = Some(Boot(0));
        assert_eq!(releaser.patience(), Duration::ZERO);
        drop(let_go);
    }

    #[test]
    fn threads_that_hang_are_few_and_what_finds_no_room_is_counted() {
        let releaser = Releaser::start().unwrap();
        let mut held = Vec::new();
        let (began, begun) = channel();
        for number in 0..THREADS * 2 {
            let (let_go, hung) = hangs();
            held.push(let_go);
            let began = began.clone();
            let tells = Box::new(move || {
                began.send(()).unwrap();
                hung();
            });
            releaser.give_work(std::iter::once::<Work>(tells));
            let mut has_begun = number >= THREADS;
            while !has_begun {
                releaser.attend(Boot::now().plus(PATIENCE * 2));
                has_begun = begun.recv_timeout(PATIENCE).is_ok();
            }
            releaser.attend(Boot::now().plus(PATIENCE * 2));
        }
        releaser.give_work((0..WAITING).map(|_| -> Work { Box::new(|| {}) }));
        let state = releaser.0.0.state();
        assert_eq!(state.threads.len(), THREADS);
        assert!(state.queue.len() <= WAITING && state.dropped > 0, "{}", state.dropped);
    }

    #[test]
    fn what_does_not_hang_is_done_when_the_wait_is_over() {
        let releaser = Releaser::start().unwrap();
        let (done, seen) = channel();
        releaser.give_work((0..64).map(|_| tells(&done)));
        while releaser.is_busy() {
            releaser.wait();
        }
        assert_eq!(seen.try_iter().count(), 64);
        // One is enough, unless it was kept from running for so long that it seemed to hang.
        assert!(releaser.0.0.state().threads.len() <= THREADS);
    }
}
