//! How long it takes from "something changed" to a plan: everything listed from a runtime in this process, put together, decided on.
//!
//! 110 pods with three containers each and a thousand images of ten layers, of which half are shared: what a large node has.
//! The runtime answers over a real socket; what a real one takes to find its answer is not in these figures.
use criterion::{Criterion, criterion_group, criterion_main};
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::Config;
use ebb_agent::config::Patterns;
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::CgroupLayout;
use ebb_agent::sense::meminfo::Measure;
use ebb_agent::sense::runtime::Reader;
use ebb_agent::state::rules::Rules;
use ebb_agent::state::{Extent, NodeState};
use ebb_cri::{Deadlines, Endpoint, Runtime};
use ebb_policy::snapshot::Task;
use ebb_policy::{History, decide};
use ebb_tests::runtime::{FakeRuntime, Flavour};
use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PODS: usize = 110;
const CONTAINERS: usize = 3;
const IMAGES: usize = 1000;

/// A runtime with a large node's objects.
fn node() -> FakeRuntime {
    let runtime = FakeRuntime::start(Flavour::Containerd2).expect("the runtime starts");
    let mut world = runtime.world();
    let mut images = Vec::new();
    for n in 0..IMAGES {
        let shared: Vec<String> =
            (0..5).map(|k| format!("shared {k} {}", n >> (10 - 2 * k))).collect();
        let own: Vec<String> = (0..5).map(|k| format!("own {n} {k}")).collect();
        let layers: Vec<(&str, u64)> =
            shared.iter().chain(&own).map(|name| (name.as_str(), 1 << 20)).collect();
        images.push(world.add_image(&format!("registry.test/app-{n}:1"), &layers));
    }
    for n in 0..PODS {
        let sandbox = world.add_pod("default", &format!("pod-{n}"), &format!("uid-{n}"));
        for k in 0..CONTAINERS {
            let id = world.add_container(&sandbox, &format!("c{k}"), &images[(n + k) % IMAGES]);
            if k == 2 {
                world.exit(&id, 0);
            }
        }
    }
    drop(world);
    runtime
}

fn inventory(criterion: &mut Criterion) {
    let runtime = node();
    let executor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let executor = executor.expect("an executor");
    let endpoint: Endpoint = runtime.socket().display().to_string().parse().expect("a socket");
    let inside = executor.enter();
    let (client, _events) = Runtime::start(endpoint, Deadlines::default());
    drop(inside);
    let mut reader = Reader::new(client, Clock::of_process());
    let first = executor.block_on(reader.inventory(true)).expect("an inventory");
    assert_eq!(first.containers.len(), PODS * CONTAINERS);
    let config = Config::parse("ebb: {mode: kubernetes}").expect("a configuration");
    let rules = Rules::new(&Patterns::default()).expect("no patterns");
    let layout = CgroupLayout::Unified { root: "/nowhere".into() };
    let mut state = NodeState::new(Roots::default(), layout, Measure::MemAvailable, rules);
    state.pods_mut().set_pods_only(true);
    state.observe_inventory(first.clone());

    let mut group = criterion.benchmark_group("110 pods, 330 containers, 1000 images");
    group.sample_size(20);
    group.bench_function("containers listed", |bencher| {
        bencher.iter(|| executor.block_on(reader.inventory(false)).expect("an inventory"));
    });
    group.bench_function("containers, images and layers listed", |bencher| {
        bencher.iter(|| executor.block_on(reader.inventory(true)).expect("an inventory"));
    });
    group.bench_function("inventory taken in", |bencher| {
        bencher.iter_batched(
            || first.clone(),
            |inventory| state.observe_inventory(inventory),
            criterion::BatchSize::LargeInput,
        );
    });
    state.observe_inventory(first);
    let (_, history) = decide(&state.snapshot(Boot::now()), &config.limits, &History::default());
    group.bench_function("snapshot and plan of everything", |bencher| {
        bencher.iter(|| {
            let mut snapshot = state.snapshot_of(Boot::now(), Extent::Everything);
            snapshot.tasks = Some(vec![Task::Eviction, Task::ContainerGc, Task::ImageGc]);
            black_box(decide(&snapshot, &config.limits, &history))
        });
    });
    group.bench_function("snapshot and plan while memory is short", |bencher| {
        bencher.iter(|| {
            let mut snapshot = state.snapshot_of(Boot::now(), Extent::Quick);
            snapshot.tasks = Some(vec![Task::Eviction]);
            black_box(decide(&snapshot, &config.limits, &history))
        });
    });
    group.finish();
}

/// What an agent has resident that follows such a runtime: a process of its own, in a dry run, without BPF.
fn resident(_: &mut Criterion) {
    let runtime = node();
    let program = ebb_tests::program::build(true).expect("ebb is built");
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(program);
    command.args(["run", "--output", "json", "--leave-out", "all", "--cri"]).arg(runtime.socket());
    for place in ["--node-fs", "--state", "--pod-logs", "--container-logs"] {
        command.arg(place).arg(dir.path());
    }
    let mut agent = command.stdout(Stdio::piped()).spawn().expect("ebb starts");
    let records = BufReader::new(agent.stdout.take().expect("its output"));
    let mut records = records.lines().map_while(Result::ok);
    let is_known = |line: &String| line.contains(r#""event":"inventory""#);
    assert!(records.any(|line| is_known(&line)), "ebb ended");
    // Until its first decisions are behind it: nothing is asked of the runtime any more.
    let asked = || runtime.world().calls.len();
    let (mut last, mut since) = (asked(), Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(20));
        if asked() != last {
            (last, since) = (asked(), Instant::now());
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).expect("status");
    agent.kill().expect("ebb can be ended");
    agent.wait().expect("ebb has ended");
    let value = |key: &str| {
        let kib = status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
    };
    println!("resident: {} MiB, {} MiB at its peak", value("VmRSS:"), value("VmHWM:"));
}

criterion_group!(benches, inventory, resident);
criterion_main!(benches);
