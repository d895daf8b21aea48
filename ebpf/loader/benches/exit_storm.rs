//! How many exits are lost when processes end as fast as this machine can make them, with rings of several sizes, and what
//! each program costs whoever runs into it.
//!
//! The storm's processes share their maker's memory, as after vfork(2): copying page tables would take longer than all that is
//! measured here.
//!
//! Prints two tables in Markdown, and in lines that begin with `figure` what `cargo xtask bench` keeps as numbers. Needs root and the BPF objects. The reader shares the machine with the storm, one process per
//! CPU making others that end at once, which is the worst that a fork bomb can do to it.
use ebb_probes::{Cost, KernelEvent, Meter, Options, ProbeSet, Probes, share, survey};
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Processes per CPU.
const EACH: usize = 20_000;

/// Bytes of stack for a process that does nothing.
const STACK: usize = 64 * 1024;

/// Reclaims that are only played.
const RECLAIMS: usize = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("| vital ring | exits | exits/s | delivered | lost | reader's CPU |");
    println!("|---|---|---|---|---|---|");
    let meter = Meter::start()?;
    let mut costs = (String::new(), 0, 0);
    for kib in [4, 64, 512] {
        let options = Options { vital_bytes: kib * 1024, ..Options::default() };
        let set = ProbeSet::for_host(&survey(), &options);
        let mut probes = runtime.block_on(async { Probes::attach(&set, &options) })?;
        let began = Instant::now();
        let storms: Vec<Pid> = (0..cpus).map(|_| storm()).collect::<Result<_, _>>()?;
        let mut events = Vec::new();
        let (mut delivered, mut ended, mut took) = (0u64, 0, Duration::ZERO);
        let before = cpu_time();
        runtime.block_on(async {
            // The storms' own exits come last; after them the ring is read until it stays empty.
            while tokio::time::timeout(Duration::from_millis(500), probes.next(&mut events))
                .await
                .is_ok()
            {
                for event in events.drain(..) {
                    if let KernelEvent::Exit { pid, .. } = event {
                        delivered += 1;
                        if storms.iter().any(|storm| u32::try_from(storm.as_raw()) == Ok(pid)) {
                            ended += 1;
                            took = began.elapsed();
                        }
                    }
                }
            }
        });
        let cpu = cpu_time() - before;
        for storm in storms {
            waitpid(storm, None)?;
        }
        if ended < cpus {
            took = began.elapsed();
        }
        let lost = probes.lost()?.exits;
        let total = delivered + lost;
        println!(
            "| {kib} KiB | {total} | {:.0} | {delivered} | {lost} | {:.0} % |",
            total as f64 / took.as_secs_f64(),
            100.0 * cpu.as_secs_f64() / took.as_secs_f64(),
        );
        // To be short of memory for it would be unkind to everything else on this machine.
        for _ in 0..RECLAIMS {
            probes.play_direct_reclaim()?;
        }
        let own = meter.own()?;
        let found = probes.costs()?;
        let alone: Vec<Cost> = found.iter().map(|cost| cost.without(&own)).collect();
        if kib == 512 {
            for cost in &alone {
                if let Some(each) = cost.each() {
                    println!("figure lower ns {each} program {}", cost.program);
                }
            }
        }
        let mut rows = rows(&probes, &found)?;
        let each = own.each().unwrap_or(0);
        writeln!(
            rows,
            "| *one that does nothing* | raw_tp/sched_process_fork | {} | {each} |",
            own.runs
        )?;
        costs = (rows, share(&alone, 10_000, 1000), share(&found, 10_000, 1000));
    }
    let (rows, alone, found) = costs;
    let percent = |share: u64| format!("{}.{:02} %", share / 10_000, share / 100 % 100);
    println!("figure! lower % {} all programs, of one core", alone as f64 / 1e4);
    println!("\n| program | hook | runs | ns per run |\n|---|---|---|---|\n{rows}");
    println!(
        "At 10,000 forks and 1,000 direct reclaims a second the programs attached here take {} of one core, and {} as measured, which is with what the measuring takes of each run: the row of the program that does nothing.",
        percent(alone),
        percent(found)
    );
    Ok(())
}

/// A table row per attached program that has run.
fn rows(probes: &Probes, costs: &[Cost]) -> Result<String, Box<dyn Error>> {
    let mut rows = String::new();
    for cost in costs {
        let probe = probes.status().iter().find(|probe| probe.name == cost.program);
        if let (Some(probe), Some(each)) = (probe, cost.each()) {
            let Cost { program, runs, .. } = cost;
            writeln!(rows, "| {program} | {} | {runs} | {each} |", probe.hook)?;
        }
    }
    Ok(rows)
}

/// A process that makes others which end at once.
fn storm() -> nix::Result<Pid> {
    // SAFETY: this process has one thread here (the runtime is single-threaded), so the child may do what it likes.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let mut stack = vec![0; STACK];
            for _ in 0..EACH {
                let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
                // SAFETY: the new process does nothing but end, on a stack of its own, and its maker waits until it has.
                match unsafe {
                    clone(Box::new(|| 0), &mut stack, flags, Some(Signal::SIGCHLD as i32))
                } {
                    Ok(child) => {
                        let _ = waitpid(child, None);
                    }
                    Err(_) => break,
                }
            }
            // SAFETY: as above.
            unsafe { nix::libc::_exit(0) }
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
