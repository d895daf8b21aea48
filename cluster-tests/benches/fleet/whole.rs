//! One whole agent, `ebb run` as users run it, beside a full node's pods while nothing happens: connected to the API server, and not.
//!
//! Its node is made of files and its runtime is in this process, so what a real kernel takes for its files, and its BPF programs, are not part of it.
use crate::QUIET;
use crate::server::{self, Counts};
use anyhow::{Context, Result};
use ebb_cluster_tests::limits::Cost;
use ebb_cluster_tests::node_agent::NodeAgent;
use ebb_cluster_tests::plane::{Plane, User};
use ebb_tests::fake_node::FakeNode;
use ebb_tests::runtime::{FakeRuntime, Flavour};
use std::path::Path;
use std::time::Duration;

/// Pods of a full node, by the kubelet's default, and bytes of annotations of each.
pub(crate) const PODS: usize = 110;
pub(crate) const ANNOTATION: usize = 20_000;
/// Until it has read and been told everything.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTLES: Duration = Duration::from_secs(15);
const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
";

/// Without the API server, and with it.
pub(crate) fn measure(plane: &Plane, number: usize) -> Result<[Cost; 2]> {
    server::fill(plane, number..number + 1, PODS, ANNOTATION)?;
    let mut node = FakeNode::new();
    let runtime = FakeRuntime::start(Flavour::Containerd2)?;
    for dir in ["images", "pods", "containers", "state"] {
        std::fs::create_dir(runtime.dir().join(dir)).context("no directory")?;
    }
    for pod in 0..PODS {
        let uid = server::pod_uid(number, pod);
        let (sandbox, container) = {
            let mut world = runtime.world();
            let image = world.add_image("app:1", &[("app", 1 << 20)]);
            let sandbox = world.add_pod(server::NAMESPACE, &server::pod_name(number, pod), &uid);
            let container = world.add_container(&sandbox, "main", &image);
            (sandbox, container)
        };
        node.add(&format!("kubepods/burstable/pod{uid}/{container}"), 10);
        node.add(&format!("kubepods/burstable/pod{uid}/{sandbox}"), 1);
    }
    runtime.world().image_fs = runtime.dir().join("images").display().to_string();
    let config = runtime.dir().join("ebb.yaml");
    std::fs::write(&config, CONFIG).context("no configuration")?;
    let kubeconfig = plane.kubeconfig(User::Agent)?;
    let connected = [
        "--kubernetes".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--node-name={}", server::node_name(number)),
    ];
    let alone = quiet(plane, &node, &runtime, &config, &[])?;
    let beside = quiet(plane, &node, &runtime, &config, &connected)?;
    Ok([alone, beside])
}

fn quiet(
    plane: &Plane,
    node: &FakeNode,
    runtime: &FakeRuntime,
    config: &Path,
    more: &[String],
) -> Result<Cost> {
    let own = |name: &str| runtime.dir().join(name);
    let paths = [
        ("--config", config.to_owned()),
        ("--proc-root", node.proc()),
        ("--cgroup-root", node.cgroups()),
        ("--host-root", node.proc()),
        ("--cri", runtime.socket()),
        ("--node-fs", own("images")),
        ("--pod-logs", own("pods")),
        ("--container-logs", own("containers")),
        ("--state", own("state")),
    ];
    let mut arguments = vec!["--leave-out=all".to_owned()];
    arguments.extend(paths.iter().map(|(name, path)| format!("{name}={}", path.display())));
    arguments.extend_from_slice(more);
    let api = plane.api(User::Admin)?;
    let mut agent = NodeAgent::start(&arguments, plane.dir())?;
    agent.says(PATIENCE, &["\"event\":\"inventory\""])?;
    if !more.is_empty() {
        agent.says(PATIENCE, &["\"event\":\"apiServer\""])?;
    }
    std::thread::sleep(SETTLES);
    let (counts, used) = (Counts::of(&api)?, agent.processor_time()?);
    std::thread::sleep(QUIET);
    let (counts, used) = (Counts::of(&api)?.since(&counts), agent.processor_time()? - used);
    let cost = Cost {
        core: used / QUIET.as_secs_f64() * 100.0,
        resident: agent.resident()?,
        requests: counts.all,
    };
    agent.end()?;
    Ok(cost)
}
