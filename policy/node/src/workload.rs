//! Questions about a workload that follow from its state alone.
use crate::limits::Options;
use crate::plan::SkipReason;
use crate::snapshot::{Phase, State, Termination, Workload};
use ebb_model::priority::is_critical;

impl Workload {
    /// Priority; 0 when it has none.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }

    /// Whether it is critical, and so never evicted.
    pub fn is_critical(&self) -> bool {
        is_critical(self.static_pod, self.mirror, self.priority)
    }

    /// Why it is never ended, whatever is short: it is critical or protected.
    pub fn never_ended(&self) -> Option<SkipReason> {
        if self.is_critical() {
            return Some(SkipReason::Critical);
        }
        self.protected.map(|reason| SkipReason::Protected { reason })
    }

    /// Whether it is neither critical nor protected; who is either is never ended.
    pub fn may_be_ended(&self) -> bool {
        self.never_ended().is_none()
    }

    /// Whether ebb has told all of it to end.
    pub(crate) fn is_terminating(&self) -> bool {
        self.termination.is_some_and(|dying| dying.is_whole())
    }

    /// Whether nothing of it runs or will run any more.
    pub fn is_finished(&self) -> bool {
        match self.state {
            State::Terminated { .. } => true,
            State::Terminating { .. } => false,
            State::Active => matches!(self.phase, Phase::Succeeded | Phase::Failed),
        }
    }

    /// The part of its name after the namespace.
    pub(crate) fn short_name(&self) -> &str {
        self.key.name.rsplit('/').next().unwrap_or_default()
    }
}

/// What is known of a workload that ebb has told to terminate, where that counts: a kubelet would evict such a pod again.
pub(crate) fn counted_termination(workload: &Workload, options: &Options) -> Option<Termination> {
    workload.termination.filter(|dying| options.count_terminating || dying.dry_run)
}
