//! A node made of files: a proc mount and a cgroup v2 tree in a temporary directory, and a little kernel that answers what ebb writes.
//!
//! What the real kernel does is proved in the guests of `vm-tests`; here the whole agent is put before situations that are hard to bring about there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Process ids that no process can have, so that nothing real is ever looked at or signalled.
const FIRST_PID: u32 = 4_194_305;

/// A node made of files.
pub(crate) struct FakeNode {
    dir: tempfile::TempDir,
    next_pid: u32,
}

/// A cgroup of it.
#[derive(Clone, Debug)]
pub(crate) struct FakeCgroup {
    pub(crate) path: PathBuf,
}

impl FakeNode {
    /// A healthy node with 4 GiB, of which 2 GiB are available.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Self { dir, next_pid: FIRST_PID };
        for sub in ["proc/pressure", "proc/self", "proc/sys/kernel", "cgroup"] {
            fs::create_dir_all(node.dir.path().join(sub)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(node.dir.path().join(name), text).unwrap();
        write("proc/loadavg", "0.00 0.00 0.00 1/200 300\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        write("proc/sys/kernel/threads-max", "30000\n");
        write("proc/self/oom_score_adj", "0\n");
        write("cgroup/cgroup.controllers", "cpu memory pids\n");
        node.set_available(2048);
        node
    }

    pub(crate) fn proc(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    pub(crate) fn cgroups(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }

    /// Makes `mib` MiB available.
    pub(crate) fn set_available(&self, mib: u64) {
        let (total, available) = (4096 * 1024, mib * 1024);
        let text = format!(
            "MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\n"
        );
        replace(&self.proc().join("meminfo"), &text);
    }

    /// Adds a cgroup with one process that uses `mib` MiB.
    pub(crate) fn add(&mut self, name: &str, mib: u64) -> FakeCgroup {
        let path = self.cgroups().join(name);
        fs::create_dir_all(&path).unwrap();
        let usage = mib * MIB;
        for (file, text) in [
            ("cgroup.procs", format!("{}\n", self.next_pid)),
            ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
            ("cgroup.kill", String::new()),
            ("memory.current", format!("{usage}\n")),
            ("memory.stat", format!("anon {usage}\nfile 0\ninactive_file 0\nshmem 0\n")),
            ("memory.max", "max\n".to_owned()),
            ("memory.low", "0\n".to_owned()),
            ("memory.min", "0\n".to_owned()),
            ("pids.current", "1\n".to_owned()),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        self.next_pid += 1;
        FakeCgroup { path }
    }
}

impl FakeCgroup {
    /// Whether ebb wrote to `cgroup.kill`.
    pub(crate) fn is_killed(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.kill")).is_ok_and(|t| t.trim() == "1")
    }

    /// What the kernel does once every process has ended.
    pub(crate) fn empty(&self) {
        replace(&self.path.join("cgroup.events"), "populated 0\nfrozen 0\n");
        replace(&self.path.join("cgroup.procs"), "\n");
        replace(&self.path.join("memory.current"), "0\n");
    }
}

/// Waits until `done`, which is looked at again and again; fails after ten seconds, saying what was waited for.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "waited ten seconds for {what}");
        std::thread::sleep(Duration::from_millis(2));
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
