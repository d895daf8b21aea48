//! The reflex on this kernel: it measures the truth, and ends exactly those that it may.
use crate::watch::{Directory, mount};
use ebb_probes::{ArmError, Armament, Gauge, Reflex, Shot, survey};
use libtest_mimic::Failed;
use nix::time::{ClockId, clock_gettime};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{fs, io};

/// Counts nothing: what is available is what is said to be.
const NOTHING: Gauge =
    Gauge { free: 0, inactive_file: 0, active_file: 0, anon: 0, file: 0, slab_reclaimable: 0 };
/// Falls by what processes take.
const TAKEN_ALONE: Gauge = Gauge { anon: -1, ..NOTHING };
/// What is said to be available, a line below that, and what is said where the line is to be crossed.
const AVAILABLE: u64 = 1 << 40;
const LINE: u64 = AVAILABLE - ROOM;
const BELOW: u64 = LINE - 1;
/// More than anybody else on this machine takes in a moment.
const ROOM: u64 = 256 << 20;
const TAKEN: usize = 512 << 20;
/// Free memory as a sum over zones.
const FREE_OF_ZONES: &str = "nr_free_pages";
const LONG: Duration = Duration::from_secs(60);

/// A process in a cgroup of its own.
struct Sleeper {
    child: Child,
    cgroup: Directory,
}

impl Sleeper {
    fn start(name: &str) -> Result<Self, Failed> {
        let cgroup = Directory::make(&mount("cgroup2")?, name)?;
        let child = Command::new("sleep").arg("1000").spawn()?;
        fs::write(cgroup.0.join("cgroup.procs"), child.id().to_string())?;
        Ok(Self { child, cgroup })
    }

    /// As the reflex wants it named.
    fn process(&self) -> Result<(i32, u64), Failed> {
        process(self.child.id())
    }

    fn armament(&self, line: u64) -> Result<Armament, Failed> {
        let cgroup = fs::metadata(&self.cgroup.0)?.ino();
        let processes = vec![self.process()?];
        Ok(Armament { cgroup, processes, gauge: NOTHING, line, unexplained: None, lease: LONG })
    }

    fn is_alive(&mut self) -> Result<bool, Failed> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have been ended already, which is what this is for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process as the reflex wants it named.
fn process(pid: u32) -> Result<(i32, u64), Failed> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(") ").ok_or("an odd stat file")?.1;
    // The 22nd field; the third is the first behind the name.
    let start = fields.split(' ').nth(19).ok_or("a short stat file")?.parse()?;
    Ok((i32::try_from(pid)?, start))
}

/// The cgroup of this process in the v2 hierarchy.
fn home() -> Result<PathBuf, Failed> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(mount("cgroup2")?.join(path.ok_or("no cgroup of the v2 hierarchy")?))
}

/// The reading that every test but one gives: only what changes after it matters.
fn available() -> io::Result<u64> {
    Ok(AVAILABLE)
}

fn open() -> Result<Reflex, Failed> {
    Ok(Reflex::open(&survey())?)
}

fn shot(reflex: &mut Reflex) -> Result<Shot, Failed> {
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        if let Some(shot) = reflex.shot()? {
            return Ok(shot);
        }
        std::thread::yield_now();
    }
    Err("it did not fire".into())
}

/// Every counter, one at a time, beside the line of /proc/meminfo that shows it.
pub(crate) fn measures() -> Result<(), Failed> {
    let mut reflex = open()?;
    let sleeper = Sleeper::start("measured")?;
    let gauges = [
        // Not MemFree: the zones say what is on their lists.
        (FREE_OF_ZONES, Gauge { free: 1, ..NOTHING }),
        ("Inactive(file)", Gauge { inactive_file: 1, ..NOTHING }),
        ("Active(file)", Gauge { active_file: 1, ..NOTHING }),
        ("AnonPages", Gauge { anon: 1, ..NOTHING }),
        ("SReclaimable", Gauge { slab_reclaimable: 1, ..NOTHING }),
    ];
    for (name, gauge) in gauges {
        let mut told = (0, 0, 0);
        // Other processes use memory meanwhile: one of many tries is undisturbed.
        let agrees = (0..200).any(|_| {
            let Ok(before) = meminfo(name) else { return false };
            let armed = sleeper.armament(0).map(|armament| Armament { gauge, ..armament });
            let Ok(armament) = armed else { return false };
            if reflex.arm(&armament, available).is_err() {
                return false;
            }
            let (Ok(measured), Ok(after)) = (reflex.measured(), meminfo(name)) else {
                return false;
            };
            told = (before, measured, after);
            (before.min(after)..=before.max(after)).contains(&measured)
        });
        assert!(agrees, "{name}: {told:?}");
    }
    Ok(())
}

fn meminfo(name: &str) -> Result<i64, Failed> {
    if name == FREE_OF_ZONES {
        let text = fs::read_to_string("/proc/zoneinfo")?;
        let pages = text.lines().filter_map(|line| line.trim().strip_prefix("nr_free_pages "));
        return Ok(pages.filter_map(|n| n.trim().parse::<i64>().ok()).sum::<i64>() * 4096);
    }
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<i64>().ok());
    Ok(kib.ok_or("meminfo lacks a line")? * 1024)
}

pub(crate) fn ends() -> Result<(), Failed> {
    let mut reflex = open()?;
    let mut victim = Sleeper::start("victim")?;
    let mut bystander = Sleeper::start("bystander")?;
    // Above the line nothing happens, and what is taken back stays so.
    assert_eq!(reflex.arm(&victim.armament(0)?, available)?, 1);
    reflex.disarm()?;
    // A lease that is over.
    let over = Armament { lease: Duration::ZERO, ..victim.armament(LINE)? };
    assert!(reflex.arm(&over, available).is_ok());
    assert!(reflex.pull(|| Ok(BELOW))?.is_none());
    // Another process has the number: not the one that was meant.
    let other = Armament { processes: vec![(victim.process()?.0, 1)], ..victim.armament(LINE)? };
    assert!(matches!(reflex.arm(&other, available), Err(ArmError::Nobody)));
    // It lives elsewhere.
    let elsewhere =
        Armament { cgroup: fs::metadata(&bystander.cgroup.0)?.ino(), ..victim.armament(LINE)? };
    assert!(matches!(reflex.arm(&elsewhere, available), Err(ArmError::Nobody)));
    // The one who arms it is protected, and with it everything that was named beside it.
    let myself = Sleeper {
        child: Command::new("true").spawn()?,
        cgroup: Directory::make(&mount("cgroup2")?, "self")?,
    };
    let home = home()?;
    fs::write(myself.cgroup.0.join("cgroup.procs"), "0")?;
    let (id, start) = process(std::process::id())?;
    let own = Armament { processes: vec![(id, start)], ..myself.armament(LINE)? };
    let answer = reflex.arm(&own, available);
    fs::write(home.join("cgroup.procs"), "0")?;
    assert!(matches!(answer, Err(ArmError::Protected)), "{answer:?}");
    assert!(victim.is_alive()? && reflex.shot()?.is_none());

    assert_eq!(reflex.arm(&victim.armament(LINE)?, available)?, 1);
    assert!(reflex.pull(available)?.is_none(), "the line was not crossed");
    let fired = reflex.pull(|| Ok(BELOW))?.ok_or("it did not fire")?;
    assert_eq!(fired.killed, [i32::try_from(victim.child.id())?]);
    assert!(fired.doubted.is_empty() && fired.available < fired.line);
    victim.child.wait()?;
    assert!(bystander.is_alive()?, "somebody else was ended");
    assert!(reflex.shot()?.is_none(), "one shot was seen twice");
    Ok(())
}

/// Who moves away after it was named is not who was meant: the line is crossed, and nobody is ended.
pub(crate) fn doubts() -> Result<(), Failed> {
    for _ in 0..20 {
        if doubts_who_has_moved()? {
            return Ok(());
        }
    }
    Err("others take memory so fast that the line is crossed before anybody has moved".into())
}

/// The same; false where the line was crossed before the move was over, by others while this process was kept from running.
fn doubts_who_has_moved() -> Result<bool, Failed> {
    let mut reflex = open()?;
    let mut victim = Sleeper::start("moved")?;
    let bystander = Sleeper::start("elsewhere")?;
    let armament = Armament { gauge: TAKEN_ALONE, ..victim.armament(LINE)? };
    assert_eq!(reflex.arm(&armament, available)?, 1);
    fs::write(bystander.cgroup.0.join("cgroup.procs"), victim.child.id().to_string())?;
    let moved = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    let taken = vec![1_u8; TAKEN];
    let fired = shot(&mut reflex)?;
    drop(std::hint::black_box(taken));
    if fired.at < moved {
        return Ok(false);
    }
    assert_eq!(fired.doubted, [i32::try_from(victim.child.id())?]);
    assert!(fired.killed.is_empty() && victim.is_alive()?, "{fired:?}");
    Ok(true)
}

/// Where the kernel cannot tell what the cgroup of who is named has taken, nobody is killed for a fall that it may not have caused.
pub(crate) fn unexplained() -> Result<(), Failed> {
    let mut reflex = open()?;
    let mut victim = Sleeper::start("named")?;
    let armament = Armament { gauge: TAKEN_ALONE, ..victim.armament(LINE)? };
    let careful = Armament { unexplained: Some(16 << 20), ..armament.clone() };
    assert_eq!(reflex.arm(&careful, available)?, 1);
    let taken = std::hint::black_box(vec![1_u8; TAKEN]);
    assert!(reflex.shot()?.is_none() && victim.is_alive()?);
    drop(taken);
    assert_eq!(reflex.arm(&armament, available)?, 1);
    let taken = std::hint::black_box(vec![1_u8; TAKEN]);
    let fired = shot(&mut reflex)?;
    drop(taken);
    assert_eq!(fired.killed, [i32::try_from(victim.child.id())?]);
    Ok(())
}

/// A reading that memory was taken around, or that finds the line crossed, changes nothing: who was named stays named.
pub(crate) fn keeps() -> Result<(), Failed> {
    /// Taken around each reading: what others give back meanwhile does not make up for it.
    const STEP: usize = 64 << 20;
    /// Six readings are far from the line, and this many steps are far beyond it.
    const STEPS: usize = 20;
    const DISTANT: u64 = AVAILABLE - (768 << 20);
    let mut reflex = open()?;
    let mut victim = Sleeper::start("kept")?;
    let mut other = Sleeper::start("refused")?;
    let armament = Armament { gauge: TAKEN_ALONE, ..victim.armament(DISTANT)? };
    assert_eq!(reflex.arm(&armament, available)?, 1);
    let mut taken = Vec::new();
    let mut reading = || {
        taken.push(vec![1_u8; STEP]);
        Ok(AVAILABLE)
    };
    let instead = Armament { gauge: TAKEN_ALONE, ..other.armament(DISTANT)? };
    let disturbed = reflex.arm(&instead, &mut reading);
    assert!(matches!(disturbed, Err(ArmError::Disturbed)), "{disturbed:?}");
    // Were these readings used, there would be as much room as in the beginning.
    assert!(reflex.pull(&mut reading)?.is_none());
    let crossed = reflex.arm(&instead, || Ok(DISTANT - 1));
    assert!(matches!(crossed, Err(ArmError::Crossed)), "{crossed:?}");
    assert!(victim.is_alive()? && reflex.shot()?.is_none());
    while taken.len() < STEPS {
        taken.push(vec![1_u8; STEP]);
    }
    let fired = shot(&mut reflex)?;
    drop(std::hint::black_box(taken));
    assert_eq!(fired.killed, [i32::try_from(victim.child.id())?]);
    assert!(other.is_alive()?, "who was never named was ended");
    Ok(())
}
