//! From the bytes of a record to an event, in records per second on one core: an upper bound on what the agent can take.
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ebb_probes::KernelEvent;
use ebb_wire::{
    Cgroup, CgroupNamed, Exit, Header, MemoryEvent, OomKill, change, decode, exit_flags, kind,
    oom_limit, which,
};
use std::hint::black_box;
use zerocopy::IntoBytes;

fn header<T>(kind: u16) -> Header {
    Header { kind, len: u16::try_from(size_of::<T>()).unwrap_or(0), cpu: 0, ts_ns: 1 }
}

fn exit() -> Vec<u8> {
    let exit = Exit {
        header: header::<Exit>(kind::EXIT),
        cgroup: 4711,
        start_ns: 1,
        pid: 1234,
        ppid: 1,
        status: 0,
        flags: exit_flags::STATUS,
        comm: *b"a-process\0\0\0\0\0\0\0",
    };
    exit.as_bytes().to_vec()
}

fn memory_event() -> Vec<u8> {
    let event = MemoryEvent {
        header: header::<MemoryEvent>(kind::MEMORY_EVENT),
        cgroup: 4711,
        which: which::HIGH,
        folded: 3,
    };
    event.as_bytes().to_vec()
}

fn oom_kill() -> Vec<u8> {
    let kill = OomKill {
        header: header::<OomKill>(kind::OOM_KILL),
        victim_cgroup: 4711,
        limit_cgroup: 4711,
        start_ns: 1,
        pid: 1234,
        oom_score_adj: 0,
        limit: oom_limit::CGROUP,
        reserved: 0,
        comm: *b"a-process\0\0\0\0\0\0\0",
    };
    kill.as_bytes().to_vec()
}

fn cgroup_created() -> Vec<u8> {
    let mut named = CgroupNamed {
        what: Cgroup {
            header: header::<CgroupNamed>(kind::CGROUP_NAMED),
            cgroup: 4711,
            parent: 1,
            level: 4,
            change: change::CREATED,
        },
        path: [0; ebb_wire::PATH_LEN],
    };
    named.path[..100].fill(b'/');
    named.as_bytes().to_vec()
}

fn decoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for (name, record) in [
        ("exit", exit()),
        ("memory_event", memory_event()),
        ("oom_kill", oom_kill()),
        ("cgroup_created", cgroup_created()),
    ] {
        let records = vec![record; 1024];
        group.throughput(Throughput::Elements(records.len() as u64));
        group.bench_function(name, |bencher| {
            let batch = || Vec::with_capacity(records.len());
            bencher.iter_batched_ref(
                batch,
                |events: &mut Vec<KernelEvent>| {
                    events.extend(
                        records
                            .iter()
                            .filter_map(|r| decode(black_box(r)).ok())
                            .map(KernelEvent::from),
                    );
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, decoding);
criterion_main!(benches);
