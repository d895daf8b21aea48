//! How long the reflex takes from a crossed line to the signal and to the end of the process, and what watching costs beside reading files.
//!
//! Prints a table in Markdown, and in lines that begin with `figure` the same as numbers, which `cargo xtask bench` takes out. Needs root, the BPF objects, a cgroup v2 hierarchy and huge pages for anonymous memory: one
//! touch of such a page moves the kernel's counter at once, so the moment of the crossing is known to a fraction of a millisecond.
use ebb_probes::{Armament, Gauge, Meter, Reflex, survey};
use nix::libc::{MADV_HUGEPAGE, MADV_NOHUGEPAGE, madvise};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::ptr::NonNull;
use std::time::Duration;

const ROUNDS: usize = 200;
/// Checks in the kernel, and wake-ups of user space, that are measured.
const CHECKS: usize = 20_000;
const WAKES: usize = 5_000;
const HUGE: usize = 2 << 20;
/// What a leak goes on to take, in small pages.
const SMALL: usize = 64 << 20;
/// Nobody is left waiting for a shot that does not come.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// What is said to be available; only the change matters.
const AVAILABLE: u64 = 1 << 40;
/// The line is this far below: crossed by two huge pages, and not by one.
const ROOM: u64 = 3 << 20;
/// Falls by what processes take, and by nothing else.
const GAUGE: Gauge =
    Gauge { free: 0, inactive_file: 0, active_file: 0, anon: -1, file: 0, slab_reclaimable: 0 };

fn main() -> Result<(), Box<dyn Error>> {
    let mut reflex = match Reflex::open(&survey()) {
        Ok(reflex) => reflex,
        Err(why) => {
            println!("This host has no reflex: {why}.");
            return Ok(());
        }
    };
    let cgroup = hierarchy()?.join(format!("ebb-bench-{}", std::process::id()));
    fs::create_dir(&cgroup)?;
    let measured = measure(&mut reflex, &cgroup);
    let checks = checks(&mut reflex, &cgroup);
    fs::remove_dir(&cgroup)?;
    let [mut to_shot, mut to_end, mut arming] = measured?;
    let (check, runs) = checks?;
    println!("| | p50 | p99 | most |\n|---|---|---|---|");
    row("from the crossing to the signal", &mut to_shot);
    row("from the crossing to the end of the process", &mut to_end);
    row("arming anew", &mut arming);
    row("one look at /proc/meminfo", &mut looks()?);
    println!(
        "\nOne check of the line in the kernel takes {check} ns ({runs} runs, as the kernel measures it); to be woken for it and look at /proc/meminfo takes user space {} ns of processor time.",
        woken_looks()?.as_nanos()
    );
    Ok(())
}

/// What one check in the kernel takes while somebody is named and the line is far away, in nanoseconds, and of how many runs.
fn checks(reflex: &mut Reflex, cgroup: &Path) -> Result<(u64, u64), Box<dyn Error>> {
    let mut victim = Command::new("sleep").arg("1000").spawn()?;
    let found = (|| -> Result<(u64, u64), Box<dyn Error>> {
        fs::write(cgroup.join("cgroup.procs"), victim.id().to_string())?;
        let armament = Armament {
            cgroup: fs::metadata(cgroup)?.ino(),
            processes: vec![identity(&victim)?],
            gauge: Gauge {
                free: 1,
                inactive_file: 1,
                active_file: 1,
                slab_reclaimable: 1,
                ..Gauge::default()
            },
            line: 0,
            unexplained: None,
            lease: Duration::from_secs(60),
        };
        reflex.arm(&armament, || Ok(AVAILABLE))?;
        let _meter = Meter::start()?;
        for _ in 0..CHECKS {
            reflex.pull(|| Ok(AVAILABLE))?;
        }
        let costs = reflex.costs()?;
        let pulls = costs.into_iter().find(|cost| cost.program == "reflex_measure");
        let pulls = pulls.ok_or("the check was not measured")?;
        reflex.disarm()?;
        Ok((pulls.each().ok_or("the check never ran")?, pulls.runs))
    })();
    victim.kill()?;
    victim.wait()?;
    found
}

/// Processor time of a thread that is woken for each look, per look.
fn woken_looks() -> Result<Duration, Box<dyn Error>> {
    let (bell, woken) = std::sync::mpsc::sync_channel::<()>(0);
    let looker = std::thread::spawn(move || {
        let file = fs::File::open("/proc/meminfo").ok()?;
        let mut text = [0; 8192];
        let began = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        let mut looks = 0;
        while woken.recv().is_ok() {
            let length = file.read_at(&mut text, 0).ok()?;
            std::hint::black_box(std::str::from_utf8(text.get(..length)?).ok()?);
            looks += 1;
        }
        let ended = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        (Duration::from(ended) - Duration::from(began)).checked_div(looks)
    });
    for _ in 0..WAKES {
        bell.send(())?;
        // Long enough for the other to be asleep again.
        std::thread::sleep(Duration::from_micros(200));
    }
    drop(bell);
    looker.join().ok().flatten().ok_or_else(|| "the looks could not be measured".into())
}

fn measure(reflex: &mut Reflex, cgroup: &Path) -> Result<[Vec<Duration>; 3], Box<dyn Error>> {
    let (mut to_shot, mut to_end, mut arming) = (Vec::new(), Vec::new(), Vec::new());
    let mut without_huge_pages = 0;
    for _ in 0..ROUNDS {
        let mut victim = Command::new("sleep").arg("1000").spawn()?;
        fs::write(cgroup.join("cgroup.procs"), victim.id().to_string())?;
        let armament = Armament {
            cgroup: fs::metadata(cgroup)?.ino(),
            processes: vec![identity(&victim)?],
            gauge: GAUGE,
            line: AVAILABLE - ROOM,
            unexplained: None,
            lease: Duration::from_secs(60),
        };
        let before = now()?;
        reflex.arm(&armament, || Ok(AVAILABLE))?;
        arming.push(now()? - before);
        let Some((crossed, shot)) = leak(reflex)? else {
            without_huge_pages += 1;
            if reflex.disarm().is_err() {
                // It has fired all the same: that is seen now, and not in the next round.
                reflex.shot()?;
            }
            victim.kill()?;
            victim.wait()?;
            continue;
        };
        victim.wait()?;
        // Something else on this machine may have crossed the line a moment before.
        to_shot.push(shot.saturating_sub(crossed));
        to_end.push(now()?.saturating_sub(crossed));
    }
    if without_huge_pages > 0 {
        println!(
            "In {without_huge_pages} more rounds huge pages were not to be had; they say nothing.\n"
        );
    }
    Ok([to_shot, to_end, arming])
}

/// Take memory until the reflex has fired, and give it back: two huge pages, and then, as a leak goes on, small ones one
/// after the other. Returns when the second huge page was there and when the signal was sent; nothing when huge pages are not to be had.
fn leak(reflex: &mut Reflex) -> Result<Option<(Duration, Duration)>, Box<dyn Error>> {
    let (huge, length) = (3 * HUGE, 3 * HUGE + SMALL);
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let size = NonZeroUsize::new(length).ok_or("no length")?;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let at = unsafe { mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE)? };
    let first: NonNull<u8> = at.cast();
    // SAFETY: advice on a mapping that is ours alone.
    unsafe {
        madvise(at.as_ptr(), huge, MADV_HUGEPAGE);
        madvise(at.as_ptr().byte_add(huge), SMALL, MADV_NOHUGEPAGE);
    }
    let aligned = first.as_ptr().align_offset(HUGE);
    let before = huge_faults()?;
    for page in 0..2 {
        // SAFETY: three times the size holds two aligned pages, and nobody else knows of them.
        unsafe { first.add(aligned + page * HUGE).write_volatile(1) };
    }
    let crossed = now()?;
    let mut shot = None;
    if huge_faults()? >= before + 2 {
        let mut rest = (huge..length).step_by(4096);
        while shot.is_none() {
            if crossed + GIVEN_UP < now()? {
                return Err("the reflex has not fired".into());
            }
            if let Some(offset) = rest.next() {
                // SAFETY: within the mapping.
                unsafe { first.add(offset).write_volatile(1) };
            }
            shot = reflex.shot()?.map(|shot| shot.at + shot.took);
        }
    }
    // SAFETY: it is ours alone, and nothing refers to it any more.
    unsafe { munmap(at, length)? };
    Ok(shot.map(|shot| (crossed, shot)))
}

/// How many huge pages of anonymous memory were given out, by whoever asked.
fn huge_faults() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let count = text.lines().find_map(|line| line.strip_prefix("thp_fault_alloc "));
    Ok(count.ok_or("the kernel does not count huge pages")?.trim().parse()?)
}

/// What the agent does where the reflex looks at counters.
fn looks() -> Result<Vec<Duration>, Box<dyn Error>> {
    let file = fs::File::open("/proc/meminfo")?;
    let mut text = [0; 8192];
    let look = |_| {
        let before = now()?;
        let length = file.read_at(&mut text, 0)?;
        std::hint::black_box(std::str::from_utf8(text.get(..length).unwrap_or_default())?);
        Ok::<_, Box<dyn Error>>(now()? - before)
    };
    (0..ROUNDS * 10).map(look).collect()
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let nearest = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
        times.get(rank).map_or(0, Duration::as_micros)
    };
    println!("| {what} | {} µs | {} µs | {} µs |", nearest(50), nearest(99), nearest(100));
    for percent in [50, 99] {
        println!("figure lower ms {} {what}, p{percent}", nearest(percent) as f64 / 1e3);
    }
}

fn identity(child: &Child) -> Result<(i32, u64), Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let fields = stat.rsplit_once(") ").ok_or("an odd stat file")?.1;
    // The 22nd field; the third is the first behind the name.
    let start = fields.split(' ').nth(19).ok_or("a short stat file")?.parse()?;
    Ok((i32::try_from(child.id())?, start))
}

/// Where cgroup v2 is mounted.
fn hierarchy() -> Result<PathBuf, Box<dyn Error>> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (dir, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(dir))
    });
    mount.ok_or_else(|| "cgroup v2 is not mounted".into())
}

fn now() -> Result<Duration, nix::Error> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from)
}
