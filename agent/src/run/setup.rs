//! What the loop needs to begin, and what of that can change while it runs.

use super::reflex::Arming;
use super::reload::Reload;
use super::session::SessionSetup;
use super::status::NodeInbox;
use crate::act::Mode;
use crate::cgroups::reconciler::Reconciler;
use crate::cluster::Connect;
use crate::config::{BeforeEviction, Cgroups, Contract};
use crate::report::Reporter;
use crate::report::service::ServiceManager;
use crate::sense::Roots;
use crate::sense::host::CgroupLayout;
use crate::sense::meminfo::Measure;
use crate::sense::psi::Trigger;
use crate::sense::sweep::Sweeper;
use crate::state::rules::Rules;
use anyhow::Result;
use ebb_journal::GuardBand;
use ebb_journal::queue::Queue;
use ebb_policy::Limits;
use ebb_probes::{FallWatch, Probes};
use std::io;
use std::path::PathBuf;

/// What can change while the agent runs.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Thresholds and options.
    pub limits: Limits,
    /// What "available memory" means.
    pub measure: Measure,
    /// Protected, preferred, avoided workloads, and priorities.
    pub rules: Rules,
    /// Which annotations of pods are honoured where.
    pub contract: Contract,
    /// Nothing but pods may be ended.
    pub pods_only: bool,
    /// What is said about cgroups of pods.
    pub cgroups: Cgroups,
    /// Who is asked before an eviction for a soft threshold; `None` when nobody is.
    pub before_eviction: Option<BeforeEviction>,
    /// How the thresholds stand to those of the kubelet beside ebb; `None` without one.
    pub guard_band: Option<GuardBand>,
    /// The configuration as text, for incident records.
    pub text: String,
}

/// Starts a reconciler of cgroups; `Ok(None)` when the configuration does not want one.
pub type StartReconciler = Box<dyn Fn(&Cgroups) -> Result<Option<Reconciler>>>;

/// Everything the loop needs to begin.
pub struct Setup {
    /// Where the node's files are.
    pub roots: Roots,
    /// How its cgroups are laid out.
    pub layout: CgroupLayout,
    /// The kubelet's directory; `None` when filesystems are not to be watched.
    pub node_fs: Option<PathBuf>,
    /// The container runtime, where pods come from; `None` without one.
    pub runtime: Option<SessionSetup>,
    /// The API server of the cluster that the node is of; `None` without one.
    pub cluster: Option<Connect>,
    /// Where images are remembered across restarts; `None` to remember them only while running.
    pub state_dir: Option<PathBuf>,
    /// Where it is kept what has to be put back on cgroups that cannot carry a mark of it.
    pub steps_dir: PathBuf,
    /// Whether to act.
    pub mode: Mode,
    /// What to decide by.
    pub policy: Policy,
    /// How to read that anew.
    pub reload: Reload,
    /// The attached BPF programs; `None` without any.
    pub probes: Option<Probes>,
    /// What wakes the loop when memory falls; `None` where the kernel cannot.
    pub fall: Option<FallWatch>,
    /// The pressure trigger, or why there is none.
    pub trigger: io::Result<Trigger>,
    /// Which privileges the process has kept, for people.
    pub in_force: String,
    /// How cgroups are read.
    pub sweeper: Sweeper,
    /// The reflex, where it is wanted and there is one.
    pub arming: Option<Arming>,
    /// What could not be had at start, each with its reason.
    pub missing: Vec<String>,
    /// Where records go.
    pub reporter: Reporter,
    /// Where incident records go.
    pub queue: Queue,
    /// Who started this process and wants to hear that it lives.
    pub service: ServiceManager,
    /// Who holds the cgroups of pods to their plan, when that is wanted.
    pub reconciler: Option<Reconciler>,
    /// How to start one when that is wanted later.
    pub start_reconciler: StartReconciler,
    /// Who may ask how the node stands; `None` when nobody may.
    pub questions: Option<NodeInbox>,
}
