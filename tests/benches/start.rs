//! How long it takes from `exec` to the record `started`: a node made of files, with 500 cgroups, and the optimised program.
//!
//! Once without BPF, and once with every program that this kernel loads, for which it needs root.
use criterion::{Criterion, criterion_group, criterion_main};
use ebb_tests::fake_node::FakeNode;
use ebb_tests::program::run_on;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CGROUPS: usize = 500;
const CONFIG: &str =
    "evictionHard:\n  memory.available: 100Mi\nebb:\n  memoryAvailable: memAvailable\n";

fn start(criterion: &mut Criterion) {
    let ebb = ebb_tests::program::build(true).expect("ebb is built");
    let mut node = FakeNode::new();
    for n in 0..CGROUPS {
        let sleeper = node.add(&format!("work.slice/sleeper-{n}.service"), 3);
        // As on a real tree, where a cgroup says that it has none below.
        sleeper.set("cgroup.stat", "nr_descendants 0\n");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("ebb.yaml");
    std::fs::write(&config, CONFIG).expect("a configuration");
    let mut group = criterion.benchmark_group("from exec to started");
    group.sample_size(20);
    for (name, words) in [("without BPF", &["--leave-out", "all"][..]), ("with BPF", &[])] {
        group.bench_function(name, |bench| {
            bench.iter_custom(|times| (0..times).map(|_| once(&ebb, &node, &config, words)).sum());
        });
    }
    group.finish();
}

/// One start, until its record is read.
fn once(ebb: &Path, node: &FakeNode, config: &Path, words: &[&str]) -> Duration {
    let mut command = run_on(ebb, node);
    command.args(words).arg("--config").arg(config);
    let at = Instant::now();
    let mut agent = command.stdout(Stdio::piped()).spawn().expect("the agent starts");
    let mut lines = BufReader::new(agent.stdout.take().expect("its output")).lines();
    let started =
        lines.find(|line| line.as_ref().map_or(true, |line| line.contains("\"started\"")));
    let took = at.elapsed();
    agent.kill().expect("the agent can be killed");
    agent.wait().expect("the agent ends");
    assert!(matches!(started, Some(Ok(_))), "ebb run says that it has started: {started:?}");
    took
}

criterion_group!(benches, start);
criterion_main!(benches);
