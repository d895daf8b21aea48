//! `ebb snapshot`: this node as policy sees it, for `ebb plan`, for reports and for tests.

use super::Failure;
use super::configured::{self, ConfigArgs};
use super::node::NodeArgs;
use crate::clock::Boot;
use crate::config::Config;
use crate::sense::Roots;
use crate::sense::host::CgroupLayout;
use crate::sense::node::NodeSensor;
use crate::state::{Depth, NodeState};
use anyhow::Context as _;
use ebb_policy::Snapshot;
use std::io::Write as _;

/// Arguments of `ebb snapshot`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (roots, layout) = args.node.find().map_err(Failure::Input)?;
    let snapshot = take(&args.config.load()?, roots, layout)?;
    let text = super::plan::pretty(&snapshot)?;
    writeln!(std::io::stdout(), "{text}").context("cannot write the snapshot")?;
    Ok(())
}

/// Reads the node once, in full.
pub(super) fn take(
    config: &Config,
    roots: Roots,
    layout: CgroupLayout,
) -> Result<Snapshot, Failure> {
    let policy = configured::policy(config).map_err(|e| Failure::Input(e.into()))?;
    let meminfo = roots.proc.join("meminfo");
    let mut sensor =
        NodeSensor::open(&roots).with_context(|| format!("cannot read {}", meminfo.display()))?;
    let reading = sensor.read().with_context(|| format!("cannot read {}", meminfo.display()))?;
    let cgroup_root = roots.cgroup.clone();
    let mut state = NodeState::new(roots, layout, policy.measure, policy.rules);
    state.observe_node(reading);
    let now = Boot::now();
    state
        .sample(now, Depth::Full)
        .with_context(|| format!("cannot read the cgroups at {}", cgroup_root.display()))?;
    Ok(state.snapshot(now))
}
