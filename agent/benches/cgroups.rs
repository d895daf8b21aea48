//! How long it takes to plan and audit a full node: 500 pods with 1,500 containers, on a tree of directories like a real one.
//!
//! Beside it a pass that reads every file of every cgroup, as a tool without a plan has to. Both read through the same page cache, so what differs is the number of files, which each has in its name.
use criterion::{Criterion, criterion_group, criterion_main};
use ebb_agent::cgroups::live::Reader;
use ebb_agent::sense::Roots;
use ebb_model::Amounts;
use ebb_model::pod::{Container, ContainerId, Pod, Resources};
use ebb_policy::cgroups::{Node, Options, Plan, RawCgroups, plan};
use std::fs;
use std::hint::black_box;
use std::path::Path;

const PODS: usize = 500;
const CONTAINERS: usize = 3;
/// Files that a cgroup has on Linux 6.12 with the controllers of a node enabled, beside those of the plan.
const OTHER_FILES: usize = 45;

/// What the tree's root says of itself.
const CONTROLLERS: &str = "cpu cpuset hugetlb memory pids\n";

fn amounts(cpu: &str, memory: &str) -> Amounts {
    [("cpu", cpu), ("memory", memory)]
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.parse().ok()?)))
        .collect()
}

fn pod(n: usize) -> Pod {
    let resources = match n % 3 {
        0 => Resources { requests: amounts("100m", "64Mi"), limits: amounts("100m", "64Mi") },
        1 => Resources { requests: amounts("50m", "32Mi"), limits: amounts("200m", "128Mi") },
        _ => Resources::default(),
    };
    let container = |c: usize| Container {
        name: format!("c{c}"),
        resources: resources.clone(),
        id: Some(ContainerId { runtime: "containerd".to_owned(), id: format!("{n:032x}{c:032x}") }),
        ..Container::default()
    };
    Pod {
        namespace: format!("namespace-{}", n % 37),
        name: format!("pod-{n}"),
        uid: format!("00000000-0000-4000-8000-{n:012}"),
        containers: (0..CONTAINERS).map(container).collect(),
        ..Pod::default()
    }
}

fn make(root: &Path, plan: &Plan) {
    for cgroup in &plan.cgroups {
        let Some(path) = &cgroup.path else { continue };
        let dir = root.join(path.trim_start_matches('/'));
        let write = |file: &str, text: &str| fs::write(dir.join(file), text);
        let made = fs::create_dir_all(&dir).and_then(|()| {
            cgroup.values.iter().try_for_each(|(file, value)| write(file, &value.value))?;
            (0..OTHER_FILES).try_for_each(|n| write(&format!("other.{n}"), "0\n"))
        });
        assert!(made.is_ok(), "the tree can be made: {made:?}");
    }
}

/// Reads every file below a directory; returns how many there are.
fn read_everything(dir: &Path) -> u64 {
    let mut reads = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            reads += read_everything(&path);
        } else if black_box(fs::read(&path)).is_ok() {
            reads += 1;
        }
    }
    reads
}

fn full_node(criterion: &mut Criterion) {
    let options = Options::new(&RawCgroups::default()).unwrap_or_else(|e| panic!("{e:?}"));
    let capacity = [("cpu", "64"), ("memory", "256Gi"), ("pid", "4194304")];
    let capacity = capacity.into_iter().filter_map(|(name, text)| Some((name, text.parse().ok()?)));
    let node = Node { capacity: capacity.collect(), ..Node::default() };
    let pods: Vec<Pod> = (0..PODS).map(pod).collect();
    let planned = || plan(&options, &node, &pods).unwrap_or_else(|e| panic!("{e:?}"));
    let Ok(root) = tempfile::tempdir() else { return };
    let once = planned();
    make(root.path(), &once);
    // All of them are there, wherever the host has its own.
    let controllers = fs::write(root.path().join("cgroup.controllers"), CONTROLLERS);
    controllers.unwrap_or_else(|e| panic!("{e}"));
    let roots = Roots { proc: "/proc".into(), cgroup: root.path().into() };
    let mut reader = Reader::new(&roots, (options.pod_curve, options.container_curve));
    let live = reader.read(&once);
    assert_eq!(reader.differences(&once, &live, &node), [], "the tree is as planned");
    let (read, all) = (reader.reads(), read_everything(root.path()));
    let name = format!("{PODS} pods, {} cgroups", once.cgroups.len());
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20);
    group.bench_function("plan", |bench| bench.iter(|| black_box(planned())));
    group.bench_function(format!("plan and audit: {read} files read"), |bench| {
        bench.iter(|| {
            let plan = planned();
            let live = reader.read(&plan);
            black_box(reader.differences(&plan, &live, &node))
        });
    });
    group.bench_function(format!("no plan: {all} files read"), |bench| {
        bench.iter(|| read_everything(root.path()));
    });
    group.finish();
}

criterion_group!(benches, full_node);
criterion_main!(benches);
