//! A process that takes memory until it is far enough below a threshold, and knows when it crossed that.
//!
//! Each of its threads reads what is available right before it touches the next piece, so that nothing beside it has to take a
//! processor for that. The crossing is the last of these readings that was not below: never later than the true one, and
//! earlier by one piece at most.
use nix::libc::{MADV_HUGEPAGE, MADV_NOHUGEPAGE, madvise};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::BufRead as _;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;
/// It goes on until this much is gone below the threshold.
pub(crate) const PAST: u64 = 512 * MIB;
/// Less than this is never left available, whatever was asked.
pub(crate) const FLOOR: u64 = 4096 * MIB;
/// The most that all of its threads take together.
pub(crate) const MOST: usize = 2 << 30;
const HUGE: usize = 2 << 20;
/// What is touched between two readings where pages are small.
const SMALL_PIECE: usize = 64 << 10;
const PAGE: usize = 4096;
/// Faster than this one thread takes memory in huge pages only.
const SMALL_UP_TO: u64 = 1024 * MIB;

/// What a hog takes between two of its readings, and what the kernel takes off the count of free pages for it in one batch, is less than this. A virtual machine takes 64 MiB off it for a tenth of a second while it tells its host which pages are free: to ebb they are available on, and it is no crossing.
const AT_ONCE: u64 = 32 * MIB;
/// What was taken off before the hog began is given back by then.
const AFTERWARDS: Duration = Duration::from_millis(250);
const AFTERWARDS_EVERY: Duration = Duration::from_millis(2);

/// What a hog has to say of one crossing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crossing {
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    pub(crate) at: u64,
    /// Until the next reading, which was below.
    pub(crate) gap: u64,
    /// Bytes a second from the first reading to the last.
    pub(crate) rate: u64,
    /// How long one reading took on average.
    pub(crate) reading: u64,
}

impl Crossing {
    /// As [`main`] prints it; `None` when it was not crossed, more than once, or by others.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        let &[at, gap, rate, reading] = numbers.as_slice() else { return None };
        Some(Self { at, gap, rate, reading })
    }
}

/// One reading: how much was available, and the time just before and after it.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: u64,
    after: u64,
    available: u64,
}

impl Reading {
    fn now(meminfo: &File) -> Self {
        let before = boot_ns();
        let available = available(meminfo);
        Self { before, after: boot_ns(), available }
    }
}

/// A hog of `threads` that take `rate` bytes a second together, or all they can for 0: it says when it is ready, begins when it is told the threshold, says when that was crossed, and ends with its input.
pub(crate) fn main(rate: u64, threads: usize) {
    let regions: Vec<Region> = (0..threads).map(|_| Region::new(MOST / threads, rate)).collect();
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    let Some(Ok(line)) = lines.next() else { return };
    let threshold: u64 = line.parse().expect("a threshold in bytes");
    let is_over = AtomicBool::new(false);
    let share = rate / threads as u64;
    let mut readings: Vec<Reading> = thread::scope(|scope| {
        let take = |region| scope.spawn(|| take(region, share, threshold, &is_over));
        let taking: Vec<_> = regions.into_iter().map(take).collect();
        taking.into_iter().flat_map(|thread| thread.join().expect("a thread of the hog")).collect()
    });
    readings.sort_by_key(|reading| reading.before);
    let crossing = crossing(&readings, threshold);
    readings.extend(afterwards());
    match crossing.filter(|_| is_steady(&readings)) {
        Some(Crossing { at, gap, rate, reading }) => println!("{at} {gap} {rate} {reading}"),
        None => println!("not crossed once, or not by this"),
    }
    // What was taken is there until the end of the input.
    while let Some(Ok(_)) = lines.next() {}
}

/// What is available once the hog has taken what it takes.
fn afterwards() -> Vec<Reading> {
    let meminfo = File::open("/proc/meminfo").expect("what is available");
    let until = Instant::now() + AFTERWARDS;
    let mut readings = Vec::new();
    while Instant::now() < until {
        readings.push(Reading::now(&meminfo));
        thread::sleep(AFTERWARDS_EVERY);
    }
    readings
}

/// Whether nothing but a hog moved what is available.
fn is_steady(readings: &[Reading]) -> bool {
    let moved = |pair: &[Reading]| pair[0].available.abs_diff(pair[1].available);
    readings.windows(2).all(|pair| moved(pair) <= AT_ONCE)
}

fn crossing(readings: &[Reading], threshold: u64) -> Option<Crossing> {
    let below = readings.iter().position(|reading| reading.available < threshold)?;
    let (before, after) = (readings.get(below.checked_sub(1)?)?, readings.get(below)?);
    // Where others gave memory back at that time it was crossed more than once.
    let is_once = readings.iter().skip(below).all(|reading| reading.available < threshold);
    if !is_once {
        return None;
    }
    let (first, last) = (readings.first()?, readings.last()?);
    let fallen = u128::from(first.available.saturating_sub(last.available));
    let rate = fallen * 1_000_000_000 / u128::from((last.before - first.before).max(1));
    let took: u64 = readings.iter().map(|reading| reading.after - reading.before).sum();
    Some(Crossing {
        at: before.before,
        gap: after.before - before.before,
        rate: u64::try_from(rate).ok()?,
        reading: took / readings.len() as u64,
    })
}

/// Memory that nobody has touched.
struct Region {
    at: NonNull<u8>,
    length: usize,
    piece: usize,
    step: usize,
}

// SAFETY: it is the only one that knows of its mapping.
unsafe impl Send for Region {}

impl Region {
    fn new(length: usize, rate: u64) -> Self {
        let size = NonZeroUsize::new(length + HUGE).expect("a length");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe { mmap_anonymous(None, size, access, flags) }.expect("a mapping");
        let is_small = rate > 0 && rate <= SMALL_UP_TO;
        let advice = if is_small { MADV_NOHUGEPAGE } else { MADV_HUGEPAGE };
        // SAFETY: advice on a mapping that is ours alone.
        unsafe { madvise(at.as_ptr(), size.get(), advice) };
        let first: NonNull<u8> = at.cast();
        // SAFETY: the mapping is longer than `length` by one such page.
        let at = unsafe { first.add(first.as_ptr().align_offset(HUGE)) };
        let (piece, step) = if is_small { (SMALL_PIECE, PAGE) } else { (HUGE, HUGE) };
        Self { at, length, piece, step }
    }

    fn touch(&self, offset: usize) {
        for page in (offset..offset + self.piece).step_by(self.step) {
            // SAFETY: within the mapping.
            unsafe { self.at.add(page).write_volatile(1) };
        }
    }
}

/// Takes one piece after the other, each when it is due, until enough is gone or another thread says so.
fn take(region: Region, rate: u64, threshold: u64, is_over: &AtomicBool) -> Vec<Reading> {
    let meminfo = File::open("/proc/meminfo").expect("what is available");
    let mut readings = Vec::with_capacity(region.length / region.piece + 1);
    let begun = boot_ns();
    for offset in (0..region.length).step_by(region.piece) {
        // At no rate it is due at once.
        let due = begun + (offset as u64 * 1_000_000_000).checked_div(rate).unwrap_or(0);
        while boot_ns() < due {
            std::hint::spin_loop();
        }
        let reading = Reading::now(&meminfo);
        readings.push(reading);
        let available = reading.available;
        let is_enough = available < threshold.saturating_sub(PAST) || available < FLOOR;
        if is_enough || is_over.load(Ordering::Relaxed) {
            is_over.store(true, Ordering::Relaxed);
            break;
        }
        region.touch(offset);
    }
    readings
}

/// `MemAvailable` in bytes.
pub(crate) fn available(meminfo: &File) -> u64 {
    let mut buffer = [0; 256];
    let length = meminfo.read_at(&mut buffer, 0).expect("what is available");
    let text = buffer.get(..length).unwrap_or_default();
    let text = std::str::from_utf8(text).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("MemAvailable");
    kib.parse::<u64>().expect("a number") * 1024
}

/// Nanoseconds of `CLOCK_BOOTTIME`, as the agent counts them.
pub(crate) fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock");
    u64::try_from(Duration::from(now).as_nanos()).expect("no more than 64 bits")
}
