//! What a pass needs to choose victims: the shortage, how much must come back, and what is known of who causes it.
use crate::{
    Millis, Secs, Signal,
    evict::Shortage,
    extensions::fill::{self, Evidence},
    limits::Limits,
    snapshot::{FsLayout, Snapshot, Workload},
    swap::Swapped,
    usage,
};

/// What a pass needs to choose victims.
pub(crate) struct Need<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) limits: &'a Limits,
    pub(crate) layout: FsLayout,
    pub(crate) shortage: Shortage,
    /// Quantity and availability that messages name.
    pub(crate) shown: Option<(crate::Quantity, u64)>,
    /// Units that must come back.
    pub(crate) need: u64,
    /// What must be left for the threshold to be resolved.
    pub(crate) goal: u64,
    /// All that there is of the signal.
    pub(crate) capacity: Option<u64>,
    /// Grace that overrides that of the threshold (acting on a forecast).
    pub(crate) grace: Option<Secs>,
    /// What is known of who fills the filesystem that is short.
    pub(crate) evidence: Option<&'a Evidence<'a>>,
    /// Whether somebody who may go fills it, and whose usage is unknown does not matter.
    pub(crate) by_filling: bool,
    /// Time until it is full, where that is known.
    pub(crate) time_left: Option<Millis>,
    /// The signal by which candidates are ranked, and by which it is told what they free.
    pub(crate) ranked_by: Signal,
    /// How much of what is swapped out is in memory all the same.
    pub(crate) swapped: Swapped,
}

impl Need<'_> {
    /// What the end of a workload should give back; `None` when unknown.
    pub(crate) fn expected_free(&self, workload: &Workload) -> Option<u64> {
        usage::expected_free(workload, self.ranked_by, self.layout, self.swapped)
    }

    /// How many may go at once since they fill the filesystem and it is full soon; `None` when there is time to see what one eviction does.
    pub(crate) fn all_that_fill(&self) -> Option<usize> {
        let evidence = self.evidence.filter(|evidence| evidence.lasts)?;
        let most = self.limits.options().max_victims as usize;
        (self.by_filling && self.is_urgent()).then(|| evidence.culprits().min(most))
    }

    /// Whether the filesystem is full before an eviction could be seen to have helped.
    pub(crate) fn is_urgent(&self) -> bool {
        self.time_left.is_some_and(|left| left < fill::EVICTION_TAKES)
    }
}
