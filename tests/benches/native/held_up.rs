//! Whether this machine ran at all: a thread on each processor that goes before everything else, and notes when it woke late.
//!
//! The host of a virtual machine gives its processors to others now and then, for 4 to 40 ms. Nothing in the machine can do anything
//! about that, and its own counter (`steal` in proc_stat(5)) tells of it in steps of 10 ms.

use crate::hog::boot_ns;
use ebb_agent::threads::schedule;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::BufRead as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_micros(400);
/// Nanoseconds between two looks that are remembered.
const LATE: u64 = 900_000;
/// How many of them.
const KEPT: usize = 10_000;
/// Above ebb's, which go up to 4.
const PRIORITY: i32 = 50;

/// From when to when a processor did not run it.
type Gap = (u64, u64);

/// Says for each `FROM TO` that it is told, in nanoseconds of `CLOCK_BOOTTIME`, how long a processor did not run it at most in between.
pub(crate) fn main() {
    let gaps = Arc::new(Mutex::new(VecDeque::<Gap>::with_capacity(KEPT)));
    for cpu in 0..thread::available_parallelism().map_or(1, usize::from) {
        let gaps = Arc::clone(&gaps);
        thread::spawn(move || look(cpu, &gaps));
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let (from, to) = line.split_once(' ').expect("two moments");
        let (from, to): (u64, u64) = (crate::number(from), crate::number(to));
        // A gap is known once it is over.
        thread::sleep(EVERY * 4);
        let gaps = gaps.lock().expect("nobody panics with it");
        let within = |&(start, end): &Gap| end.min(to).saturating_sub(start.max(from));
        println!("{}", gaps.iter().map(within).max().unwrap_or(0));
    }
}

fn look(cpu: usize, gaps: &Mutex<VecDeque<Gap>>) {
    let mut only = CpuSet::new();
    only.set(cpu).expect("a processor");
    sched_setaffinity(Pid::from_raw(0), &only).expect("it is there");
    schedule(0, libc::SCHED_FIFO, PRIORITY).expect("this takes CAP_SYS_NICE");
    let mut last = boot_ns();
    loop {
        thread::sleep(EVERY);
        let now = boot_ns();
        if now - last > LATE {
            let mut gaps = gaps.lock().expect("nobody panics with it");
            if gaps.len() == KEPT {
                gaps.pop_front();
            }
            gaps.push_back((last, now));
        }
        last = now;
    }
}
