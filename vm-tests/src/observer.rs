//! The stopwatch of races: when did available memory cross a line, who killed whom, when was the memory back.
//!
//! ```text
//! /proc/meminfo, every 2 ms ──► samples: crossing and recovery, by interpolation between two of them
//! tracefs signal_generate   ──► kills: microsecond time stamps, sender and victim, whoever sent it
//! an ordinary thread        ──► how long others got no processor at most
//! ```
//! The sampler goes before everybody, also before who is killed: it would see neither crossing nor recovery otherwise.
//! Both clocks are CLOCK_MONOTONIC. The kernel stamps the signals, so an observer that is late misses nothing, and
//! ebb and every peer are measured by the same two files.
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const INSTANCE: &str = "/sys/kernel/tracing/instances/observer";
const SAMPLE_EVERY: Duration = Duration::from_millis(2);
/// Nanoseconds between two looks at whether there is a processor for others.
const NAP: u64 = 1_000_000;
/// What two readers of `MemAvailable` may differ by at a crossing: a MiB, for what leaks between two samples and what the kernel's per-CPU counters hold back.
const APART: u64 = 1 << 20;

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) type Nanos = u64;

/// Available memory at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: Nanos,
    /// `MemAvailable` in bytes.
    pub(crate) available: u64,
}

/// A signal that ends or asks to end, as the kernel saw it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) at: Nanos,
    /// SIGTERM or SIGKILL.
    pub(crate) signal: i32,
    /// Name of the thread that sent it.
    pub(crate) sender: String,
    pub(crate) victim: Pid,
}

/// A running observer; it runs until the process ends. There can be only one.
#[derive(Debug)]
pub(crate) struct Observer {
    samples: Arc<Mutex<Vec<Sample>>>,
    kills: Receiver<Kill>,
    /// Nanoseconds that an ordinary thread waited at most.
    waited: Arc<AtomicU64>,
}

impl Observer {
    /// Start both clocks.
    pub(crate) fn start() -> Result<Self> {
        stay_resident()?;
        let kills = watch_signals()?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&samples);
        std::thread::spawn(move || {
            if let Err(error) = go_first().and_then(|()| sample(&shared)) {
                eprintln!("observer: {error:#}");
            }
        });
        let waited = Arc::new(AtomicU64::new(0));
        let longest = Arc::clone(&waited);
        std::thread::spawn(move || {
            if let Err(error) = wait_as_others(&longest) {
                eprintln!("observer: {error:#}");
            }
        });
        Ok(Self { samples, kills, waited })
    }

    /// Forget what was seen so far: a new race begins.
    pub(crate) fn begin(&self) -> Result<()> {
        self.take_samples()?;
        while self.kills.try_recv().is_ok() {}
        self.waited.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// How long an ordinary thread, which sleeps and then wants a processor, waited for one at most since the race began.
    pub(crate) fn others_waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// The next kill, waiting for it for at most `limit`.
    pub(crate) fn next_kill(&self, limit: Duration) -> Option<Kill> {
        self.kills.recv_timeout(limit).ok()
    }

    /// Whether there is a sample after `at`.
    pub(crate) fn has_sampled_after(&self, at: Nanos) -> bool {
        let samples = self.samples.lock();
        samples.is_ok_and(|samples| samples.last().is_some_and(|last| last.at > at))
    }

    /// Every sample since the last time.
    pub(crate) fn take_samples(&self) -> Result<Vec<Sample>> {
        let samples = self.samples.lock().map(|mut samples| std::mem::take(&mut *samples));
        samples.ok().context("the sampler panicked")
    }
}

/// When the available memory first fell below `line` after `from`, between the two samples around it.
pub(crate) fn fell_below(samples: &[Sample], line: u64, from: Nanos) -> Option<Nanos> {
    crossing(samples, from, |sample| sample.available < line, line)
}

/// When it first rose to `line` again after `from`.
pub(crate) fn rose_to(samples: &[Sample], line: u64, from: Nanos) -> Option<Nanos> {
    crossing(samples, from, |sample| sample.available >= line, line)
}

/// When the line was crossed by which somebody was killed at `killed`. Who kills may see the crossing between two samples: then it counts as the moment of the kill.
pub(crate) fn crossed_before(
    samples: &[Sample],
    line: u64,
    from: Nanos,
    killed: Nanos,
) -> Option<Nanos> {
    let seen = fell_below(samples, line, from).filter(|at| *at <= killed);
    seen.or_else(|| is_near(samples, line, killed).then_some(killed))
}

/// Whether there are samples around `at`: a sampler that got no processor time then cannot tell what was crossed.
pub(crate) fn is_watched(samples: &[Sample], at: Nanos) -> bool {
    let near = |sample: &&Sample| Duration::from_nanos(sample.at.abs_diff(at)) < SAMPLE_EVERY * 2;
    let (before, after) = samples.split_at(samples.partition_point(|sample| sample.at <= at));
    before.last().is_some_and(|last| near(&last)) && after.first().is_some_and(|next| near(&next))
}

/// Whether the line was so near at `at` that another reader, a sample earlier or later, may have seen it crossed.
fn is_near(samples: &[Sample], line: u64, at: Nanos) -> bool {
    let around =
        samples.iter().filter(|s| Duration::from_nanos(s.at.abs_diff(at)) < SAMPLE_EVERY * 2);
    around.map(|sample| sample.available).any(|available| available < line + APART)
}

fn crossing(
    samples: &[Sample],
    from: Nanos,
    beyond: impl Fn(&Sample) -> bool,
    line: u64,
) -> Option<Nanos> {
    let start = samples.partition_point(|sample| sample.at < from);
    let samples = samples.get(start..)?;
    let found = samples.iter().position(&beyond)?;
    let after = samples.get(found)?;
    let Some(before) = found.checked_sub(1).and_then(|at| samples.get(at)) else {
        return Some(after.at);
    };
    let whole = before.available.abs_diff(after.available).max(1);
    let part = before.available.abs_diff(line).min(whole);
    let span = u128::from(after.at - before.at) * u128::from(part) / u128::from(whole);
    Some(before.at + u64::try_from(span).unwrap_or(0))
}

/// CLOCK_MONOTONIC now.
pub(crate) fn now() -> Result<Nanos> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    let nanos = Duration::from(time).as_nanos();
    u64::try_from(nanos).context("the clock is past its range")
}

/// Where memory runs out and nobody acts, whatever is read from disk again and again stands still for minutes, and so would the clocks.
fn stay_resident() -> Result<()> {
    let on_fault = MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault;
    mlockall(all).context("cannot stay in memory")
}

/// Has this thread run before all others.
fn go_first() -> Result<()> {
    let first = libc::sched_param { sched_priority: 99 };
    // SAFETY: the parameters are read during the call, and nothing else is.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
    Errno::result(result).map(drop).context("the sampler cannot go first")
}

fn wait_as_others(longest: &AtomicU64) -> Result<()> {
    loop {
        let due = now()? + NAP;
        std::thread::sleep(Duration::from_nanos(NAP));
        longest.fetch_max(now()?.saturating_sub(due), Ordering::Relaxed);
    }
}

fn sample(samples: &Mutex<Vec<Sample>>) -> Result<()> {
    let file = File::open("/proc/meminfo").context("cannot open /proc/meminfo")?;
    let mut text = [0_u8; 512];
    loop {
        let length = file.read_at(&mut text, 0).context("cannot read /proc/meminfo")?;
        let at = now()?;
        // MemAvailable is the third line.
        let available = text
            .get(..length)
            .and_then(|text| std::str::from_utf8(text).ok())
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemAvailable:")))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        let available = available.context("/proc/meminfo has no MemAvailable")? * 1024;
        let mut samples = samples.lock().ok().context("nobody reads the samples any more")?;
        samples.push(Sample { at, available });
        drop(samples);
        std::thread::sleep(SAMPLE_EVERY);
    }
}

/// A tracing instance of our own: nobody else's settings are touched.
fn watch_signals() -> Result<Receiver<Kill>> {
    let set = |file: &str, text: &str| {
        let path = format!("{INSTANCE}/{file}");
        fs::write(&path, text).with_context(|| format!("cannot write {text} to {path}"))
    };
    if fs::metadata(INSTANCE).is_err() {
        fs::create_dir(INSTANCE).context("cannot create a tracing instance")?;
    }
    set("trace_clock", "mono")?;
    set("trace", "")?;
    set("events/signal/signal_generate/filter", "sig==9 || sig==15")?;
    set("events/signal/signal_generate/enable", "1")?;
    set("tracing_on", "1")?;
    let pipe = File::open(format!("{INSTANCE}/trace_pipe")).context("cannot open trace_pipe")?;
    let (sender, kills) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let Some(kill) = parse(&line)
                && sender.send(kill).is_err()
            {
                break;
            }
        }
    });
    Ok(kills)
}

/// `     ebb-123     [001] d..1.    12.345678: signal_generate: sig=9 errno=0 code=0 comm=x pid=145 grp=1 res=0`
fn parse(line: &str) -> Option<Kill> {
    let (before, after) = line.split_once(": signal_generate: ")?;
    let (seconds, fraction) = before.split_whitespace().last()?.split_once('.')?;
    let micros = seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?;
    let (task, _) = before.split_once(" [")?;
    let (sender, _) = task.trim().rsplit_once('-')?;
    let value = |key: &str| {
        let (_, rest) = after.rsplit_once(key)?;
        rest.split_whitespace().next()?.parse::<i32>().ok()
    };
    Some(Kill {
        at: micros * 1000,
        signal: after.strip_prefix("sig=")?.split_whitespace().next()?.parse().ok()?,
        sender: sender.to_owned(),
        victim: Pid::from_raw(value(" pid=")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_line_is_a_kill() {
        let line = "        early-oom-17      [001] d..1.    12.345678: signal_generate: sig=9 errno=0 code=0 comm=a pid=b c pid=145 grp=1 res=0";
        let kill = Kill {
            at: 12_345_678_000,
            signal: 9,
            sender: "early-oom".into(),
            victim: Pid::from_raw(145),
        };
        assert_eq!(parse(line), Some(kill));
        assert_eq!(parse("CPU:1 [LOST 3 EVENTS]"), None);
    }

    #[test]
    fn a_crossing_lies_between_two_samples() {
        let at = |at, available| Sample { at, available };
        let samples = [at(0, 100), at(10, 80), at(20, 60), at(30, 60), at(40, 200)];
        assert_eq!(fell_below(&samples, 70, 0), Some(15));
        assert_eq!(fell_below(&samples, 10, 0), None);
        assert_eq!(rose_to(&samples, 130, 30), Some(35));
    }

    #[test]
    fn a_moment_is_watched_with_a_sample_on_either_side_of_it() {
        let sample = |ms: u64| Sample { at: ms * 1_000_000, available: 0 };
        let samples = [sample(0), sample(2), sample(30), sample(32)];
        let is_watched = |ms: u64| is_watched(&samples, ms * 1_000_000);
        assert!(is_watched(1) && is_watched(31));
        assert!(!is_watched(3), "nobody looked after it");
        assert!(!is_watched(29), "nor before it");
        assert!(!is_watched(33), "nor at the end");
    }

    #[test]
    fn near_is_near_in_time_and_in_memory() {
        let sample = |ms: u64, mib: u64| Sample { at: ms * 1_000_000, available: mib << 20 };
        let samples = [sample(0, 110), sample(2, 102), sample(10, 100)];
        let is_near = |line: u64, ms: u64| is_near(&samples, line << 20, ms * 1_000_000);
        assert!(is_near(102, 3));
        assert!(!is_near(101, 3), "a whole MiB above it");
        assert!(!is_near(102, 6), "no sample around");
    }
}
