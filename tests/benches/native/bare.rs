//! What the machine allows whoever looks: two threads that do nothing else, with the priority and the turns that ebb's have.
//!
//! One wakes every quarter of a millisecond, as ebb does right above a threshold, and wakes the other, as ebb wakes the thread that kills.
//! From a moment on until the other has woken for it: nobody who looks as often, and hands over once, does without that.
//! Both real-time, or neither, as ebb's threads are in the same run.

use crate::hog::boot_ns;
use ebb_agent::threads::{Turn, precede, schedule, take_short_turns};
use nix::libc;
use std::collections::VecDeque;
use std::io::BufRead as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Between two looks; ebb's shortest.
const EVERY: Duration = Duration::from_micros(250);
/// Looks that are remembered: five seconds.
const KEPT: usize = 20_000;

/// Has a thread go before whatever is not real-time, and before ebb's loop, as the one that kills does; 0 is the calling thread.
pub(crate) fn be_first_to_kill(thread: i32) {
    schedule(thread, libc::SCHED_FIFO, Turn::Kill as i32).expect("this takes CAP_SYS_NICE");
}

/// Says for each moment that it is told, in nanoseconds of `CLOCK_BOOTTIME`, how many of them it took from there on.
pub(crate) fn main(is_first: bool) {
    // SAFETY: it takes integers; 0 is this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    // Linux before 6.12 does not listen, to ebb neither.
    let _ = take_short_turns(0);
    let looked = Arc::new(AtomicU64::new(0));
    let all = Arc::new(Mutex::new(VecDeque::with_capacity(KEPT)));
    let woken = {
        let (looked, all) = (Arc::clone(&looked), Arc::clone(&all));
        thread::spawn(move || {
            if is_first {
                be_first_to_kill(0);
            }
            let mut last = 0;
            loop {
                thread::park();
                let look = looked.load(Ordering::Acquire);
                if look != last {
                    let mut all = all.lock().expect("nobody panics with it");
                    if all.len() == KEPT {
                        all.pop_front();
                    }
                    all.push_back((look, boot_ns()));
                    last = look;
                }
            }
        })
    };
    thread::spawn(move || {
        if is_first {
            precede(0, true).expect("this takes CAP_SYS_NICE");
        }
        loop {
            thread::sleep(EVERY);
            looked.store(boot_ns(), Ordering::Release);
            woken.thread().unpark();
        }
    });
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let moment: u64 = line.expect("a line").parse().expect("a moment");
        let woken = loop {
            let first =
                |all: &VecDeque<(u64, u64)>| all.iter().find(|(look, _)| *look >= moment).copied();
            if let Some((_, woken)) = first(&all.lock().expect("nobody panics with it")) {
                break woken;
            }
            thread::sleep(EVERY);
        };
        println!("{}", woken - moment);
    }
}
