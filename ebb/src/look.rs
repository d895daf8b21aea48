//! One full reading of the node, for the commands that look once and end.

use super::{Failure, configured};
use anyhow::Context as _;
use ebb_agent::clock::Boot;
use ebb_agent::config::Config;
use ebb_agent::sense::Roots;
use ebb_agent::sense::disk::DiskReading;
use ebb_agent::sense::host::CgroupLayout;
use ebb_agent::sense::node::NodeSensor;
use ebb_agent::state::{Depth, NodeState};
use std::path::PathBuf;

/// Reads the node once, in full, for whoever has more to add.
pub(super) fn look(
    config: &Config,
    roots: Roots,
    layout: CgroupLayout,
    node_fs: Option<PathBuf>,
) -> Result<NodeState, Failure> {
    let policy = configured::policy(config).map_err(|e| Failure::Input(e.into()))?;
    let meminfo = roots.proc.join("meminfo");
    let mut sensor =
        NodeSensor::open(&roots).with_context(|| format!("cannot read {}", meminfo.display()))?;
    let reading = sensor.read().with_context(|| format!("cannot read {}", meminfo.display()))?;
    let cgroup_root = roots.cgroup.clone();
    let mut state = NodeState::new(roots, layout, policy.measure, policy.rules);
    state.pods_mut().set_pods_only(policy.pods_only);
    state.observe_node(reading);
    if let Some(node) = node_fs {
        state.disk_mut().watch(node);
    }
    if let Some(places) = state.disk().places().cloned() {
        state.disk_mut().observe(DiskReading::of(&places));
    }
    let now = Boot::now();
    state
        .sample(now, Depth::Full)
        .with_context(|| format!("cannot read the cgroups at {}", cgroup_root.display()))?;
    Ok(state)
}
