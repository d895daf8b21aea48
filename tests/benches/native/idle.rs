//! What an agent costs while nothing happens.
use super::hog::MIB;
use super::{Running, hog};
use ebb_tests::fake_node::FakeNode;
use ebb_tests::program::used;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What is left above [`THRESHOLD`], in MiB.
const HEADROOMS: [u64; 5] = [256, 1024, 2048, 4096, 8192];
const THRESHOLD: u64 = 100;
const CGROUPS: usize = 20;
/// What an agent does at its start is over then.
const SETTLING: Duration = Duration::from_secs(15);
const WATCHED: Duration = Duration::from_secs(60);

/// What an agent used.
pub(super) struct Used {
    /// What was left above the threshold, in MiB.
    pub(super) headroom: u64,
    /// Nanoseconds of a second on a processor, all threads together.
    pub(super) ns: u64,
    /// How often they slept in a minute.
    pub(super) waits: u64,
}

/// Agents on nodes made of files, one for each headroom, all at the same time. They look by themselves.
pub(super) fn of_files(ebb: &Path) -> Vec<Used> {
    let agents = HEADROOMS.into_iter().map(|headroom| {
        let node = node();
        let available = (THRESHOLD + headroom) * 1024;
        let meminfo = format!(
            "MemTotal: {} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\n",
            16 << 20
        );
        fs::write(node.proc().join("meminfo"), meminfo).expect("a meminfo");
        let proc = node.proc().to_owned();
        Agent::start(ebb, node, headroom, THRESHOLD, &proc, "all")
    });
    watch(&agents.collect::<Vec<_>>())
}

/// Two agents that watch the memory of this machine, with a quarter of what is available left above their threshold: one that the kernel tells of a fall, and one that looks by itself.
pub(super) fn here(ebb: &Path, meminfo: &File) -> Vec<(bool, Used)> {
    let available = hog::available(meminfo) / MIB;
    let headroom = available / 4;
    let start = |left_out| {
        Agent::start(ebb, node(), headroom, available - headroom, Path::new("/proc"), left_out)
    };
    // Neither has a reflex in a dry run: it is left out where something has to be.
    let agents = [start("reflex"), start("fall")];
    [true, false].into_iter().zip(watch(&agents)).collect()
}

fn node() -> FakeNode {
    let mut node = FakeNode::new();
    for n in 0..CGROUPS {
        node.add(&format!("work.slice/sleeper-{n}.service"), 3);
    }
    node
}

struct Agent {
    process: Running,
    headroom: u64,
    _node: FakeNode,
}

impl Agent {
    /// `headroom` and `threshold` in MiB.
    fn start(
        ebb: &Path,
        node: FakeNode,
        headroom: u64,
        threshold: u64,
        proc: &Path,
        left_out: &str,
    ) -> Self {
        let config = node.state().with_extension("yaml");
        let text = format!(
            "evictionHard:\n  memory.available: {threshold}Mi\nebb:\n  memoryAvailable: memAvailable\n"
        );
        fs::write(&config, text).expect("a configuration");
        let mut command = Command::new(ebb);
        command.args(["run", "--output", "json", "--leave-out", left_out, "--proc-root"]).arg(proc);
        command.arg("--cgroup-root").arg(node.cgroups());
        command.arg("--host-root").arg(node.proc()).arg("--state").arg(node.state());
        command.arg("--config").arg(&config).stdout(Stdio::null());
        let process = Running(command.spawn().expect("the agent starts"));
        Self { process, headroom, _node: node }
    }
}

/// What each of them uses once they have settled.
fn watch(agents: &[Agent]) -> Vec<Used> {
    thread::sleep(SETTLING);
    let before: Vec<[u64; 2]> = agents.iter().map(|agent| used(&agent.process.0)).collect();
    let at = Instant::now();
    thread::sleep(WATCHED);
    let seconds = at.elapsed().as_secs();
    let of = |(agent, [ns, slept]): (&Agent, [u64; 2])| {
        let [ns_now, slept_now] = used(&agent.process.0);
        Used {
            headroom: agent.headroom,
            ns: (ns_now - ns) / seconds,
            waits: (slept_now - slept) * 60 / seconds,
        }
    };
    agents.iter().zip(before).map(of).collect()
}
