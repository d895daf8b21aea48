//! From the bytes of a record to the agent's state, in records a second on one core: what the agent keeps up with.
//!
//! The node is a directory with 500 cgroups. A record of a cgroup that gained or lost its processes is the dear one: its files are read again.
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ebb_agent::clock::Boot;
use ebb_agent::config::Patterns;
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::CgroupLayout;
use ebb_agent::sense::meminfo::Measure;
use ebb_agent::state::rules::Rules;
use ebb_agent::state::{Depth, NodeState};
use ebb_probes::KernelEvent;
use ebb_wire::{Cgroup, Exit, Header, MemoryEvent, change, decode, exit_flags, kind, which};
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use zerocopy::IntoBytes;

const CGROUPS: usize = 500;
const BATCH: u64 = 1000;

fn header<T>(kind: u16) -> Header {
    Header { kind, len: u16::try_from(size_of::<T>()).unwrap_or(0), cpu: 0, ts_ns: 1 }
}

fn exit(cgroup: u64) -> Vec<u8> {
    let exit = Exit {
        header: header::<Exit>(kind::EXIT),
        cgroup,
        start_ns: 1,
        pid: 1234,
        ppid: 1,
        status: 0,
        flags: exit_flags::STATUS,
        comm: *b"a-process\0\0\0\0\0\0\0",
    };
    exit.as_bytes().to_vec()
}

fn memory_event(cgroup: u64) -> Vec<u8> {
    let header = header::<MemoryEvent>(kind::MEMORY_EVENT);
    MemoryEvent { header, cgroup, which: which::HIGH, folded: 3 }.as_bytes().to_vec()
}

fn populated(cgroup: u64) -> Vec<u8> {
    let header = header::<Cgroup>(kind::CGROUP);
    let change = change::POPULATED;
    Cgroup { header, cgroup, parent: 1, level: 2, change }.as_bytes().to_vec()
}

/// A cgroup mount made of plain files.
fn make_cgroups(root: &Path) -> std::io::Result<Vec<u64>> {
    let write = |dir: &Path, file: &str, text: &str| fs::write(dir.join(file), text);
    write(root, "cgroup.controllers", "cpu memory pids\n")?;
    (0..CGROUPS)
        .map(|n| {
            let dir = root.join(format!("service-{n}.service"));
            fs::create_dir(&dir)?;
            write(&dir, "cgroup.events", "populated 1\nfrozen 0\n")?;
            write(&dir, "cgroup.procs", "1000000\n")?;
            write(&dir, "memory.current", "67108864\n")?;
            write(&dir, "memory.oom.group", "0\n")?;
            write(&dir, "memory.stat", "anon 60000000\nfile 7000000\ninactive_file 5000000\n")?;
            Ok(fs::metadata(&dir)?.ino())
        })
        .collect()
}

fn observing(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory for the node");
    let ids = make_cgroups(dir.path()).expect("a cgroup tree");
    let roots = Roots { proc: "/proc".into(), cgroup: dir.path().to_owned() };
    let layout = CgroupLayout::Unified { root: dir.path().to_owned() };
    let rules = Rules::new(&Patterns::default()).expect("no patterns are valid patterns");
    let mut state = NodeState::new(roots, layout, Measure::MemAvailable, rules);
    state.tree_events_are_live(true);
    state.sample(Boot::now(), Depth::Full).expect("a readable node");
    assert_eq!(state.workload_count(), CGROUPS, "every cgroup is a workload");

    let mut group = c.benchmark_group("decode and observe");
    group.throughput(Throughput::Elements(BATCH));
    let records = |make: fn(u64) -> Vec<u8>| -> Vec<Vec<u8>> {
        ids.iter().cycle().take(usize::try_from(BATCH).unwrap_or(0)).map(|id| make(*id)).collect()
    };
    for (name, records) in [
        ("exits", records(exit)),
        ("memory events", records(memory_event)),
        ("cgroups that fill or empty", records(populated)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (),
                |()| {
                    for record in &records {
                        let event = decode(black_box(record)).map(KernelEvent::from);
                        state.observe_kernel(&event.expect("a whole record"));
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, observing);
criterion_main!(benches);
