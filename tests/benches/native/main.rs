//! How long the way through user space is on this machine, from a crossed threshold to the look that sees it, to the decision and to what a dry run does in place of the kill; and what looking costs while nothing happens.
//!
//! The threshold is some hundred MiB below what is available, and a [`hog`] crosses it. Every run has an agent of its own, without
//! BPF and in a dry run, so nobody is killed and nothing is left of one run in the next.
//!
//! A dry run asks for no real-time priority, and waits for a processor as others do. Half of the cases give its threads from outside
//! what those of an agent that enforces have near a threshold: the same program, the same way, without anybody being killed.
//!
//! Prints a line of numbers for each case, and one for all hogs together. `--ebb PROGRAM`, given several times, compares other builds in alternation; `--runs N` makes shorter or longer series.
mod bare;
mod held_up;
mod hog;
mod idle;

use ebb_agent::threads::precede;
use ebb_tests::fake_node::PATIENCE;
use hog::{Crossing, FLOOR, MIB, MOST, PAST};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Runs of each case.
const RUNS: usize = 30;
/// Rates in MiB/s; 0 is as fast as it can.
const RATES: [u64; 4] = [1024, 2048, 4096, 0];
/// What is left above the threshold when a hog begins, in turn.
const HEADROOMS: [u64; 3] = [128 * MIB, 256 * MIB, 512 * MIB];
/// The hog begins after one part or another of this time, so that it meets the agent at every moment of its waits.
const PHASES: Duration = Duration::from_millis(400);
/// The golden section: its multiples, less their whole parts, are spread evenly however many there are.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Nanoseconds from the crossing within which it is to be acted on.
const GOAL: u64 = 1_000_000;
/// An agent that has not acted by then has lost the run.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// A hog that was not given a processor for as long as [`GOAL`] just when it crossed the threshold cannot tell when that was.
const KNOWN_TO: u64 = GOAL;
/// Where a processor did not run anything for as long as [`GOAL`] about the crossing, the run tells nothing of ebb: nanoseconds before it and after.
const BEFORE: u64 = 5_000_000;
const AFTER: u64 = 20_000_000;
/// Others use this machine too: what they take must not cross the threshold in the hog's place, nor keep it from a processor then.
const TRIES: usize = 10;

/// The moments in the log of the agent, which its records have by the millisecond only.
const LOG: &str = "warn,ebb_agent::run::look=debug";

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    /// MiB a second; 0 is as fast as it can.
    rate: u64,
    threads: usize,
    /// Whether another process keeps a processor busy.
    is_beside_busy: bool,
    scheduled: Scheduled,
}

/// How the agent's threads, and the bare ones, get a processor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheduled {
    /// As a dry run's: in turns, like all others.
    InTurns,
    /// As those of an agent that enforces: before whatever is not real-time.
    First,
}

impl Scheduled {
    /// As an argument of this program, and a number of its lines.
    fn number(self) -> u8 {
        u8::from(self == Scheduled::First)
    }
}

/// Nanoseconds from the crossing on.
#[derive(Clone, Copy)]
struct Timed {
    crossing: Crossing,
    seen: u64,
    decided: u64,
    acted: u64,
    /// What two bare threads took for the same.
    bare: u64,
    /// Whom to end was decided before the crossing was seen.
    is_ahead: bool,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["hog", rate, threads] => {
            be_another_service();
            hog::main(number(rate) * MIB, usize::try_from(number(threads)).expect("threads"));
        }
        ["bare", first] => {
            be_another_service();
            bare::main(number(first) > 0);
        }
        ["held-up"] => {
            be_another_service();
            held_up::main();
        }
        ["burn"] => {
            be_another_service();
            burn();
        }
        // As `cargo test --benches` calls it, there is nothing to be measured.
        args if args.contains(&"--bench") => bench(args),
        _ => {}
    }
}

fn bench(args: &[&str]) {
    let of = |name: &str| {
        let name = name.to_owned();
        args.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].to_owned())
    };
    let mut programs: Vec<PathBuf> = of("--ebb").map(PathBuf::from).collect();
    if programs.is_empty() {
        programs.push(ebb_tests::program::build(true).expect("ebb is built"));
    }
    let runs = of("--runs").next().map_or(RUNS, |n| usize::try_from(number(&n)).expect("runs"));
    let meminfo = File::open("/proc/meminfo").expect("what is available");
    let most = HEADROOMS.iter().max().expect("headrooms") + PAST + MOST as u64;
    assert!(hog::available(&meminfo) > FLOOR + most, "too little memory for this is available");
    touch_once();
    for of_a_kind in kinds() {
        series(&programs, &of_a_kind, runs, &meminfo);
    }
    for (program, ebb) in programs.iter().enumerate() {
        for idle::Used { headroom, ns, waits } in idle::of_files(ebb) {
            println!("idle {program} {headroom} {ns} {waits}");
        }
        for (is_told, idle::Used { headroom, ns, waits }) in idle::here(ebb, &meminfo) {
            println!("calm {program} {} {headroom} {ns} {waits}", u8::from(is_told));
        }
    }
}

/// All runs of cases that differ in the hog alone.
fn series(programs: &[PathBuf], cases: &[Case], runs: usize, meminfo: &File) {
    let mut all: Vec<(Vec<Timed>, usize)> = programs.iter().map(|_| Default::default()).collect();
    for case in cases.iter().copied() {
        let mut bare = Talking::start(&["bare", &case.scheduled.number().to_string()]);
        bare.wait_for("ready");
        let mut held_up = Talking::start(&["held-up"]);
        held_up.wait_for("ready");
        let mut beside = Beside { bare, held_up };
        let busy = case.is_beside_busy.then(|| Talking::start(&["burn"]));
        let mut timed: Vec<Vec<Timed>> = programs.iter().map(|_| Vec::new()).collect();
        let mut lost = vec![0; programs.len()];
        for n in 0..runs {
            for (program, ebb) in programs.iter().enumerate() {
                match run(ebb, case, n, meminfo, &mut beside) {
                    Attempt::Timed(run) => timed[program].push(run),
                    Attempt::Lost => lost[program] += 1,
                    Attempt::Spoiled(why) => eprintln!("left out: {why}, {TRIES} times"),
                }
            }
        }
        drop(busy);
        for (program, timed) in timed.into_iter().enumerate() {
            println!("{}", row(program, case, &timed, lost[program]));
            all[program].0.extend(timed);
            all[program].1 += lost[program];
        }
    }
    let Some(any) = cases.first().map(|first| Case { rate: 0, threads: 0, ..*first }) else {
        return;
    };
    for (program, (timed, lost)) in all.iter().enumerate() {
        println!("{}", row(program, any, timed, *lost));
    }
}

/// The cases, those together that differ in the hog alone.
fn kinds() -> Vec<Vec<Case>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let one = RATES.map(|rate| (rate, 1));
    let all = (cores > 1).then_some((0, cores));
    let hogs: Vec<_> = one.into_iter().chain(all).collect();
    let kinds = [Scheduled::InTurns, Scheduled::First]
        .into_iter()
        .flat_map(|scheduled| [false, true].map(|is_beside_busy| (scheduled, is_beside_busy)));
    let of_a_kind = |(scheduled, is_beside_busy)| {
        let case = |(rate, threads)| Case { rate, threads, is_beside_busy, scheduled };
        hogs.iter().copied().map(case).collect()
    };
    kinds.map(of_a_kind).collect()
}

/// Has the host of a virtual machine give it the memory that is used here, so that taking it is as fast in the first run as in the last.
fn touch_once() {
    for _ in 0..2 {
        let mut hog = Talking::start(&["hog", "0", "1"]);
        hog.wait_for("ready");
        hog.say("0");
        hog.answer(PATIENCE);
    }
}

/// One crossing with an agent of its own, as often as others spoil it.
fn run(ebb: &Path, case: Case, n: usize, meminfo: &File, beside: &mut Beside) -> Attempt {
    let mut last = attempt(ebb, case, n, meminfo, beside);
    for _ in 1..TRIES {
        let Attempt::Spoiled(why) = last else { break };
        eprintln!("again: {why}");
        last = attempt(ebb, case, n, meminfo, beside);
    }
    last
}

/// What became of one crossing.
enum Attempt {
    Timed(Timed),
    /// ebb did not act.
    Lost,
    /// It cannot be told when it was, as others used this machine too.
    Spoiled(&'static str),
}

/// What looks beside ebb.
struct Beside {
    bare: Talking,
    held_up: Talking,
}

fn attempt(ebb: &Path, case: Case, n: usize, meminfo: &File, beside: &mut Beside) -> Attempt {
    let dir = tempfile::tempdir().expect("a directory");
    let headroom = HEADROOMS[n % HEADROOMS.len()];
    let (rate, threads) = (case.rate.to_string(), case.threads.to_string());
    let mut hog = Talking::start(&["hog", &rate, &threads]);
    hog.wait_for("ready");
    let threshold = hog::available(meminfo).saturating_sub(headroom);
    let mut agent = Agent::start(ebb, dir.path(), threshold);
    agent.wait("started");
    if case.scheduled == Scheduled::First {
        agent.put_first();
    }
    #[expect(clippy::cast_precision_loss, reason = "a few runs")]
    thread::sleep(PHASES.mul_f64((n as f64 * GOLDEN).fract()));
    let left = hog::available(meminfo).saturating_sub(threshold);
    if left < headroom / 2 || left > headroom * 2 {
        return Attempt::Spoiled("the headroom is another");
    }
    let began = hog::boot_ns();
    hog.say(&threshold.to_string());
    let Some(crossing) = Crossing::parse(&hog.answer(PATIENCE)) else {
        return Attempt::Spoiled("the hog has not crossed the threshold, or not once and alone");
    };
    if crossing.gap > KNOWN_TO {
        return Attempt::Spoiled("the hog got no processor at the crossing");
    }
    beside.bare.say(&crossing.at.to_string());
    let bare = number(&beside.bare.answer(PATIENCE));
    let has_evicted = agent.has_evicted();
    // From the readings on that the last decision ahead is made of.
    let from = crossing.at.saturating_sub(BEFORE);
    beside.held_up.say(&format!("{from} {}", hog::boot_ns().min(crossing.at + AFTER)));
    if number(&beside.held_up.answer(PATIENCE)) > GOAL {
        return Attempt::Spoiled("this machine was not given a processor");
    }
    if !has_evicted {
        return Attempt::Lost;
    }
    drop(hog);
    let (crossed, log) = (agent.first("thresholdCrossed"), agent.end());
    // On the agent's own scale moments are counted from the crossing as it estimates it.
    let Some(estimated) = log.iter().find_map(|line| crossed_at(line)) else {
        return Attempt::Lost;
    };
    let after = |ms: &Value| estimated + ns(ms);
    let seen = after(&crossed["seenAfterMs"]);
    if estimated < began {
        return Attempt::Spoiled("it was crossed before the hog began");
    }
    let decided = after(&agent.first("decided")["afterMs"]);
    let acted = after(&agent.first("evicted")["afterMs"]);
    let from = |at: u64| at.saturating_sub(crossing.at);
    let is_ahead = decided < seen;
    let decided = decided.max(seen);
    let (seen, decided, acted) = (from(seen), from(decided), from(acted));
    Attempt::Timed(Timed { crossing, seen, decided, acted, bare, is_ahead })
}

fn ns(ms: &Value) -> u64 {
    let ms = ms.as_f64().expect("milliseconds");
    u64::try_from(Duration::from_secs_f64(ms / 1000.0).as_nanos()).expect("no more than 64 bits")
}

/// The moment of a crossing, as the log tells it.
fn crossed_at(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("crossed_ns=")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `run PROGRAM RATE THREADS BUSY FIRST RUNS`, without threads for all hogs together; then the rate in fact in MiB/s, how many were decided ahead, acted on within a millisecond, and lost, and in nanoseconds the longest gap about a crossing, the mean of a reading, and p50 and p99 to each moment.
fn row(program: usize, case: Case, timed: &[Timed], lost: usize) -> String {
    let sorted = |of: &dyn Fn(&Timed) -> u64| {
        let mut all: Vec<u64> = timed.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    let part = |all: &[u64], hundredths: usize| {
        let place = (all.len() * hundredths).div_ceil(100).saturating_sub(1);
        all.get(place).copied().unwrap_or(0)
    };
    let rate = part(&sorted(&|run| run.crossing.rate), 50) / MIB;
    let ahead = timed.iter().filter(|run| run.is_ahead).count();
    let soon = timed.iter().filter(|run| run.acted <= GOAL).count();
    let gap = part(&sorted(&|run| run.crossing.gap), 100);
    let reading = part(&sorted(&|run| run.crossing.reading), 50);
    let moments: [&dyn Fn(&Timed) -> u64; 4] =
        [&|run| run.seen, &|run| run.decided, &|run| run.acted, &|run| run.bare];
    let times: Vec<String> = moments
        .into_iter()
        .map(|of| {
            let all = sorted(of);
            format!("{} {}", part(&all, 50), part(&all, 99))
        })
        .collect();
    let Case { rate: asked, threads, is_beside_busy, scheduled } = case;
    format!(
        "run {program} {asked} {threads} {} {} {} {rate} {ahead} {soon} {lost} {gap} {reading} {}",
        u8::from(is_beside_busy),
        scheduled.number(),
        timed.len() + lost,
        times.join(" ")
    )
}

/// Another process of this program, that is told and tells lines and ends with its input.
struct Talking {
    /// Closed before the process is waited for.
    input: Option<ChildStdin>,
    output: Receiver<String>,
    _process: Running,
}

impl Talking {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("this program again");
        let output = lines(process.stdout.take().expect("its output"));
        Self { input: process.stdin.take(), output, _process: Running(process) }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it listens");
    }

    fn answer(&mut self, within: Duration) -> String {
        self.output.recv_timeout(within).expect("an answer")
    }

    fn wait_for(&mut self, line: &str) {
        assert_eq!(self.answer(PATIENCE), line);
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        self.input = None;
        // It has ended, and its memory is back, once its output is closed.
        while self.output.recv_timeout(PATIENCE).is_ok() {}
    }
}

fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// A running agent on this machine, in a dry run.
struct Agent {
    process: Running,
    records: Receiver<String>,
    log: Receiver<String>,
    seen: Vec<Value>,
}

impl Agent {
    /// With a threshold so high that one percent of it may be more than the hog has at the crossing, which would then not be why the machine is short.
    fn start(ebb: &Path, dir: &Path, threshold: u64) -> Self {
        let config = dir.join("ebb.yaml");
        let text = format!(
            "evictionHard:\n  memory.available: \"{threshold}\"\nebb:\n  memoryAvailable: memAvailable\n  minFreedOfThreshold: 0\n"
        );
        fs::write(&config, text).expect("a configuration");
        let mut command = Command::new(ebb);
        command.args(["run", "--leave-out", "all", "--output", "json", "--config"]).arg(&config);
        // No runtime of this host is found.
        command.arg("--host-root").arg(dir).arg("--state").arg(dir.join("state"));
        command.env("RUST_LOG", LOG).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the agent starts");
        let records = lines(process.stdout.take().expect("its records"));
        let log = lines(process.stderr.take().expect("its log"));
        Self { process: Running(process), records, log, seen: Vec::new() }
    }

    /// Gives its threads what those of an agent that enforces have near a threshold: who kills goes before the loop, and the loop before whatever is not real-time.
    fn put_first(&self) {
        let id = self.process.0.id();
        let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("its threads");
        for task in tasks.map(|task| task.expect("a thread")) {
            let name = fs::read_to_string(task.path().join("comm")).expect("a name");
            let thread = task.file_name().to_string_lossy().parse().expect("a thread's id");
            if name.trim() == "ebb-act" {
                bare::be_first_to_kill(thread);
            } else if thread == id.cast_signed() {
                precede(thread, true).expect("this takes CAP_SYS_NICE");
            }
        }
    }

    /// Waits for a record of that kind, for as long as it takes.
    fn wait(&mut self, event: &str) {
        assert!(self.has_told(event, PATIENCE), "no {event} among {:#?}", self.seen);
    }

    fn has_evicted(&mut self) -> bool {
        self.has_told("evicted", LOST_AFTER)
    }

    fn has_told(&mut self, event: &str, within: Duration) -> bool {
        let until = Instant::now() + within;
        while let Ok(line) =
            self.records.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.seen.push(serde_json::from_str(&line).expect("a record"));
            if self.seen.last().is_some_and(|record| record["event"] == event) {
                return true;
            }
        }
        false
    }

    /// The first record of that kind.
    fn first(&self, event: &str) -> Value {
        let first = self.seen.iter().find(|record| record["event"] == event);
        first.unwrap_or_else(|| panic!("no {event} among {:#?}", self.seen)).clone()
    }

    /// Ends it; returns what it logged.
    fn end(&mut self) -> Vec<String> {
        self.process.0.kill().expect("it is there");
        self.log.iter().collect()
    }
}

/// Between services the kernel divides processors as it does between sessions, where nice values of one say nothing to the other.
fn be_another_service() {
    nix::unistd::setsid().expect("a session of its own");
}

/// Keeps one processor busy until the end of the input.
fn burn() {
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}
