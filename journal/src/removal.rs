//! What ebb removes because it is dead or unused: one thing at a time, from the container runtime or from the log directories.

use ebb_policy::plan::Action;
use serde::{Deserialize, Serialize};

/// One thing to do. It carries everything that doing it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Work {
    /// Remove a dead container.
    RemoveContainer {
        /// Its id.
        id: String,
        /// Stop it first: its state is unknown.
        stop_first: bool,
    },
    /// Stop and remove a sandbox in which nothing runs.
    RemoveSandbox {
        /// Its id.
        id: String,
    },
    /// Remove an image that nothing uses.
    RemoveImage {
        /// Its id.
        id: String,
        /// Bytes that should go with it.
        expected: u64,
    },
    /// Remove a pod's log directory.
    RemoveLogDir {
        /// Its path.
        path: String,
    },
    /// Remove a link to a log that is gone.
    RemoveLogLink {
        /// Its path.
        path: String,
    },
}

impl Work {
    /// What a plan's action asks of the runtime or of the log directories; `None` for every other action.
    #[must_use]
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::RemoveContainer(container) => Some(Self::RemoveContainer {
                id: container.id.clone(),
                stop_first: container.kill_first,
            }),
            Action::RemoveSandbox(sandbox) => Some(Self::RemoveSandbox { id: sandbox.id.clone() }),
            Action::RemoveImage(image) => Some(Self::RemoveImage {
                id: image.id.clone(),
                expected: image.frees.unwrap_or(image.size),
            }),
            Action::RemoveLogDir(dir) => Some(Self::RemoveLogDir { path: dir.path.clone() }),
            Action::RemoveLogLink(link) => Some(Self::RemoveLogLink { path: link.path.clone() }),
            Action::Evict(_)
            | Action::Warn(_)
            | Action::ReclaimMemory(_)
            | Action::Throttle(_)
            | Action::Freeze(_)
            | Action::Release(_) => None,
        }
    }
}
