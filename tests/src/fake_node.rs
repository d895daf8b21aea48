//! A node made of files: a proc mount and a cgroup v2 tree in a temporary directory, and a little kernel that answers what ebb writes.
//!
//! What the real kernel does is proved in the guests of `vm-tests`; here the whole agent is put before situations that are hard to bring about there.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on has failed"
)]

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// MiB that the node has.
const TOTAL: u64 = 4096;

/// Process ids that no process can have, so that nothing real is ever looked at or signalled.
const FIRST_PID: u32 = 4_194_305;

/// For what must happen, however busy the machine is: no test is about how long that takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node made of files.
#[derive(Debug)]
pub struct FakeNode {
    dir: tempfile::TempDir,
    state: tempfile::TempDir,
    next_pid: u32,
    /// Whether who was killed has given memory back.
    is_given_back: Arc<Mutex<bool>>,
}

/// A cgroup of it.
#[derive(Clone, Debug)]
pub struct FakeCgroup {
    /// Its directory.
    pub path: PathBuf,
    pid: u32,
}

impl Default for FakeNode {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeNode {
    /// A healthy node with 4 GiB, of which 2 GiB are available.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let is_given_back = Arc::default();
        let node = Self { dir, state: state_dir(), next_pid: FIRST_PID, is_given_back };
        for sub in ["proc/pressure", "proc/self", "proc/sys/kernel/random", "cgroup"] {
            fs::create_dir_all(node.dir.path().join(sub)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(node.dir.path().join(name), text).unwrap();
        write("proc/loadavg", "0.00 0.00 0.00 1/200 300\n");
        write("proc/sys/kernel/random/boot_id", "7d0f3e52-0000-4000-8000-000000000000\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        write("proc/sys/kernel/threads-max", "30000\n");
        write("proc/self/oom_score_adj", "0\n");
        write("cgroup/cgroup.controllers", "cpu memory pids\n");
        node.set_available(2048);
        node
    }

    /// Its procfs.
    #[must_use]
    pub fn proc(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    /// Where an agent may keep what outlives it.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.state.path().join("state")
    }

    /// The root of its cgroup tree.
    #[must_use]
    pub fn cgroups(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }

    /// Makes `mib` MiB available.
    pub fn set_available(&self, mib: u64) {
        self.set_available_kib(mib * 1024);
    }

    /// The same, unless who was to give memory back when killed ([`Self::gives_back_when_killed`]) has done so: this process may be kept from running between a look at that and the fall.
    pub fn falls_to(&self, mib: u64) {
        let is_given_back = self.is_given_back.lock().unwrap();
        if !*is_given_back {
            self.set_available(mib);
        }
    }

    /// As [`Self::set_available`], in smaller steps.
    pub fn set_available_kib(&self, available: u64) {
        replace(&self.proc().join("meminfo"), &meminfo_with(available));
    }

    /// Makes `mib` MiB available, with all lines of `/proc/meminfo` that say where the rest is, but for `aside` MiB: those show nowhere.
    pub fn set_available_beside(&self, mib: u64, aside: u64) {
        let file = 64;
        let anon = TOTAL - mib - file - aside;
        let [file, anon] = [file, anon].map(|mib| mib * 1024);
        let rest = format!(
            "Buffers: 0 kB\nCached: {file} kB\nAnonPages: {anon} kB\nSReclaimable: 0 kB\nSUnreclaim: 0 kB\n"
        );
        replace(&self.proc().join("meminfo"), &(meminfo_with(mib * 1024) + &rest));
    }

    /// Makes less and less available, `rate` MiB less each second, until `done`; it never falls below `floor`, from which it begins again. What is gone from `from` is what `growing` have gained, in equal shares, on top of the MiB that each began with.
    pub fn falls_until(
        &self,
        what: &str,
        (from, floor, rate): (u64, u64, u64),
        growing: &[(&FakeCgroup, u64)],
        mut done: impl FnMut() -> bool,
    ) {
        let mut begun = Instant::now();
        wait_for(what, || {
            let fallen = u64::try_from(begun.elapsed().as_millis()).unwrap() * rate * 1024 / 1000;
            let left = (from * 1024).saturating_sub(fallen);
            if left < floor * 1024 {
                begun = Instant::now();
            } else {
                self.set_available_kib(left);
                let share = fallen * 1024 / u64::try_from(growing.len()).unwrap();
                growing.iter().for_each(|(cgroup, mib)| cgroup.uses(mib * MIB + share));
            }
            done()
        });
    }

    /// Makes `/proc/meminfo` say this.
    pub fn says(&self, meminfo: &str) {
        replace(&self.proc().join("meminfo"), meminfo);
    }

    /// Makes `/proc/meminfo` say this, and waits until it has been read so often since: each look of the agent reads it once.
    pub fn is_looked_at(&self, meminfo: &str, times: usize) {
        let readings = Readings::of(&self.proc().join("meminfo"));
        self.says(meminfo);
        readings.are(times);
    }

    /// What the kernel does once every process of a cgroup has ended, with `mib` MiB available then: the memory is back before the cgroup is empty, so that nobody sees a node that is short and has no victim.
    pub fn gives_back(&self, cgroup: &FakeCgroup, mib: u64) {
        self.set_available(mib);
        cgroup.empty();
    }

    /// The same at once when ebb kills it, on a thread of its own: an eviction that is not over within three seconds costs another, and the test may be kept from running for that long.
    pub fn gives_back_when_killed(&self, cgroup: &FakeCgroup, mib: u64) {
        self.gives_back_when_one_is_killed(std::slice::from_ref(cgroup), mib);
    }

    /// The same when one of several is killed, which are all of one workload.
    pub fn gives_back_when_one_is_killed(&self, cgroups: &[FakeCgroup], mib: u64) {
        let (meminfo, kib) = (self.proc().join("meminfo"), mib * 1024);
        let all = cgroups.to_vec();
        let given_back = Arc::clone(&self.is_given_back);
        after_a_kill(cgroups.to_vec(), move || {
            *given_back.lock().unwrap() = true;
            replace(&meminfo, &meminfo_with(kib));
            all.iter().for_each(FakeCgroup::empty);
        });
    }

    /// The same, but one of its processes hangs in the kernel, with 1 MiB.
    pub fn gives_back_and_hangs_when_killed(&self, cgroup: &FakeCgroup, mib: u64) {
        let (meminfo, kib) = (self.proc().join("meminfo"), mib * 1024);
        let hangs = cgroup.clone();
        cgroup.after_the_kill(move || {
            hangs.holds(1);
            replace(&meminfo, &meminfo_with(kib));
        });
    }

    /// The same with swap.
    pub fn gives_back_with_swap_when_killed(
        &self,
        cgroup: &FakeCgroup,
        mib: u64,
        swap: u64,
        swap_free: u64,
    ) {
        let meminfo = self.proc().join("meminfo");
        cgroup.when_killed(move || replace(&meminfo, &meminfo_with_swap(mib, swap, swap_free)));
    }

    /// Makes `mib` MiB available, and so many MiB of `swap` MiB of swap.
    pub fn set_available_with_swap(&self, mib: u64, swap: u64, swap_free: u64) {
        replace(&self.proc().join("meminfo"), &meminfo_with_swap(mib, swap, swap_free));
    }

    /// Has all swap on zram: `size` MiB, of which `used` are in use and take `memory` MiB.
    pub fn swaps_to_zram(&self, size: u64, used: u64, memory: u64) {
        let block = self.dir.path().join("sys/block/zram0");
        fs::create_dir_all(&block).unwrap();
        let (size, swapped) = (size * 1024, used * 1024);
        let swaps = format!(
            "Filename Type Size Used Priority\n/dev/zram0 partition {size} {swapped} 100\n"
        );
        replace(&self.proc().join("swaps"), &swaps);
        let stat = format!("{} 0 {} 0 0 0 0 0 0\n", used * MIB, memory * MIB);
        replace(&block.join("mm_stat"), &stat);
    }

    /// Adds a cgroup with one process that uses `mib` MiB.
    pub fn add(&mut self, name: &str, mib: u64) -> FakeCgroup {
        let path = self.cgroups().join(name);
        fs::create_dir_all(&path).unwrap();
        let usage = mib * MIB;
        for (file, text) in [
            ("cgroup.procs", format!("{}\n", self.next_pid)),
            ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
            ("cgroup.kill", String::new()),
            ("memory.current", format!("{usage}\n")),
            ("memory.stat", stat_with(usage)),
            ("memory.max", "max\n".to_owned()),
            ("memory.low", "0\n".to_owned()),
            ("memory.min", "0\n".to_owned()),
            ("pids.current", "1\n".to_owned()),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        let pid = self.next_pid;
        self.next_pid += 16;
        FakeCgroup { path, pid }
    }

    /// Says of a process what is in these files of procfs.
    pub fn add_process(&self, pid: u32, files: &[(&str, &str)]) {
        let dir = self.proc().join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
    }

    /// A cgroup above others, which has no process of its own and 2 GiB.
    #[must_use]
    pub fn slice(&self, name: &str) -> FakeCgroup {
        let slice = FakeCgroup { path: self.cgroups().join(name), pid: 0 };
        slice.set("memory.current", &format!("{}\n", 2048 * MIB));
        slice
    }

    /// Removes a cgroup for good: its inode is not given to another, as the kernel never does that with the ids of cgroups.
    pub fn remove(&mut self, cgroup: &FakeCgroup) {
        let removed = self.dir.path().join("removed");
        fs::create_dir_all(&removed).unwrap();
        fs::rename(&cgroup.path, removed.join(self.next_pid.to_string())).unwrap();
        self.next_pid += 1;
    }
}

/// A directory for what an agent keeps, in memory where that can be: an agent that ends waits two seconds for the disk, and a busy one takes longer.
#[must_use]
pub fn state_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

/// Does this once ebb has killed one of them, on a thread of its own. With one inotify for all: a user has 128.
fn after_a_kill(cgroups: Vec<FakeCgroup>, then: impl FnOnce() + Send + 'static) {
    let kills = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
    for cgroup in &cgroups {
        kills.add_watch(&cgroup.path.join("cgroup.kill"), AddWatchFlags::IN_MODIFY).unwrap();
    }
    std::thread::spawn(move || {
        while !cgroups.iter().any(FakeCgroup::is_killed) {
            if kills.read_events().is_err() {
                return;
            }
        }
        then();
    });
}

/// What `memory.stat` says of a cgroup that has so many bytes of anonymous memory and nothing else.
fn stat_with(anon: u64) -> String {
    format!("anon {anon}\nfile 0\ninactive_file 0\nshmem 0\n")
}

impl FakeCgroup {
    /// Makes it use so many bytes.
    fn uses(&self, bytes: u64) {
        self.set("memory.stat", &stat_with(bytes));
        self.set("memory.current", &format!("{bytes}\n"));
    }

    /// Whether ebb wrote to `cgroup.kill`.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.kill")).is_ok_and(|t| t.trim() == "1")
    }

    /// The process that it was made with; fifteen more numbers belong to nobody else.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives one of its files another content.
    pub fn set(&self, file: &str, text: &str) {
        replace(&self.path.join(file), text);
    }

    /// Makes these its processes.
    pub fn lists(&self, pids: &str) {
        replace(&self.path.join("cgroup.procs"), pids);
    }

    /// Leaves only what is below it.
    pub fn has_no_process_of_its_own(&self) {
        fs::write(self.path.join("cgroup.procs"), "").unwrap();
    }

    /// Makes it use `mib` MiB.
    pub fn holds(&self, mib: u64) {
        let usage = mib * MIB;
        let stat = format!("anon {usage}\nfile 0\ninactive_file 0\nshmem 0\n");
        replace(&self.path.join("memory.stat"), &stat);
        replace(&self.path.join("memory.current"), &format!("{usage}\n"));
    }

    /// Has `mib` MiB of it swapped out.
    pub fn has_swapped(&self, mib: u64) {
        fs::write(self.path.join("memory.swap.current"), format!("{}\n", mib * MIB)).unwrap();
    }

    /// Does what the kernel does once ebb has killed it: `first`, then it is empty.
    fn when_killed(&self, first: impl FnOnce() + Send + 'static) {
        let cgroup = self.clone();
        self.after_the_kill(move || {
            first();
            cgroup.empty();
        });
    }

    /// Does this once ebb has killed it.
    fn after_the_kill(&self, then: impl FnOnce() + Send + 'static) {
        after_a_kill(vec![self.clone()], then);
    }

    /// Has all its tasks wait for memory so many percent of the time, up to now.
    pub fn stalls(&self, percent: u64) {
        let since_boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        let up = u64::try_from(Duration::from(since_boot).as_micros()).unwrap();
        let total = up / 100 * percent;
        let text = format!(
            "some avg10=99.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10={percent:02}.00 avg60=0.00 avg300=0.00 total={total}\n"
        );
        self.set("memory.pressure", &text);
    }

    /// Has the kernel have scanned so many pages of it to reclaim memory, in all.
    pub fn has_scanned(&self, pages: u64) {
        let usage = fs::read_to_string(self.path.join("memory.current")).unwrap();
        let usage = usage.trim();
        let stat = format!("anon {usage}\nfile 0\ninactive_file 0\nshmem 0\npgscan {pages}\n");
        replace(&self.path.join("memory.stat"), &stat);
    }

    /// What the kernel does once every process has ended.
    pub fn empty(&self) {
        replace(&self.path.join("cgroup.events"), "populated 0\nfrozen 0\n");
        replace(&self.path.join("cgroup.procs"), "\n");
        replace(&self.path.join("memory.current"), "0\n");
    }
}

/// What `/proc/meminfo` says of 4 GiB of which so much is available.
fn meminfo_with(available: u64) -> String {
    let total = TOTAL * 1024;
    format!("MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\n")
}

/// The same with swap, all in MiB.
fn meminfo_with_swap(mib: u64, swap: u64, swap_free: u64) -> String {
    let [swap, swap_free] = [swap, swap_free].map(|mib| mib * 1024);
    let memory = meminfo_with(mib * 1024);
    format!("{memory}SwapTotal: {swap} kB\nSwapFree: {swap_free} kB\n")
}

/// Waits until `done`, which is looked at again and again; fails after [`PATIENCE`], saying what was waited for.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a file has been read so often.
pub fn is_read(path: &Path, times: usize) {
    Readings::of(path).are(times);
}

/// How often a file is read from now on.
struct Readings(Inotify);

impl Readings {
    fn of(path: &Path) -> Self {
        let reads = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        reads.add_watch(path, AddWatchFlags::IN_ACCESS).unwrap();
        Self(reads)
    }

    /// Waits until they are so many.
    fn are(&self, times: usize) {
        let mut seen = 0;
        wait_for(&format!("{times} readings"), || {
            seen += self.0.read_events().map_or(0, |events| events.len());
            seen >= times
        });
    }
}

/// Replaces a file's content in one write of the same length or shorter: a reader that holds the file open, as ebb does, never sees half of it.
fn replace(path: &Path, text: &str) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    let old = file.metadata().unwrap().len();
    let mut padded = text.to_owned();
    while (padded.len() as u64) < old {
        padded.push('\n');
    }
    file.write_all_at(padded.as_bytes(), 0).unwrap();
}
