//! Changing what the container runtime has: one piece of work at a time, each checked again just before.
//!
//! ```text
//!  Work ─► look again (status, users, pin) ─► refused, or gone already ─► Outcome
//!                    └─ still as the plan saw it ─► the runtime's own call ─┘
//! ```
//! A runtime protects nothing: asked to remove a running container it kills it, asked to remove an image in use it does so.
//! Hence the second look. Nothing is retried here; what was not done is decided on again from a fresh inventory.

use super::logs;
use crate::clock::Boot;
use crate::threads;
use ebb_cri::{ContainerState, Error, Runtime};
pub use ebb_journal::Work;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long a container in an unknown state gets to end before it is killed.
const UNKNOWN_GRACE: Duration = Duration::from_secs(2);

/// A container that was made less than this long ago and does not run may be about to: the kubelet first makes it and then starts it.
const MAY_BE_STARTED: Duration = Duration::from_secs(60);

/// Why a piece of work was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Undone {
    /// It is not what the plan saw any more.
    #[error("left alone: {0}")]
    Changed(&'static str),
    /// The runtime did not do it, or did not say.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// The log directory could not be changed.
    #[error("{path}: {why}")]
    Log {
        /// Which.
        path: String,
        /// What the kernel said.
        why: String,
    },
}

/// What became of a piece of work.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The work.
    pub work: Work,
    /// When it was begun.
    pub begun: Boot,
    /// When it was over.
    pub ended: Boot,
    /// Whether it was done; in a dry run it would have been.
    pub result: Result<(), Undone>,
}

/// The one seam between a plan about the runtime and the runtime.
#[derive(Clone, Debug)]
pub enum RuntimeHand {
    /// Acts.
    Enforce(Runtime),
    /// Looks again, and says what it would do.
    DryRun(Runtime),
}

impl RuntimeHand {
    /// Does one piece of work.
    pub async fn perform(&self, work: Work) -> Outcome {
        let begun = Boot::now();
        let result = self.try_perform(&work).await;
        Outcome { work, begun, ended: Boot::now(), result }
    }

    async fn try_perform(&self, work: &Work) -> Result<(), Undone> {
        let (Self::Enforce(runtime) | Self::DryRun(runtime)) = self;
        let is_still_there = match work {
            Work::RemoveContainer { id, .. } => may_remove_container(runtime, id).await?,
            Work::RemoveSandbox { id } => may_remove_sandbox(runtime, id).await?,
            Work::RemoveImage { id, .. } => may_remove_image(runtime, id).await?,
            Work::RemoveLogDir { .. } | Work::RemoveLogLink { .. } => true,
        };
        let Self::Enforce(runtime) = self else { return Ok(()) };
        if !is_still_there {
            return Ok(());
        }
        match work {
            Work::RemoveContainer { id, stop_first } => {
                if *stop_first {
                    runtime.stop_container(id, UNKNOWN_GRACE).await?;
                }
                runtime.remove_container(id).await?;
            }
            Work::RemoveSandbox { id } => {
                runtime.stop_sandbox(id).await?;
                runtime.remove_sandbox(id).await?;
            }
            Work::RemoveImage { id, .. } => runtime.remove_image(id).await?,
            Work::RemoveLogDir { path } => remove_log(path, logs::remove_dir).await?,
            Work::RemoveLogLink { path } => remove_log(path, logs::remove_link).await?,
        }
        Ok(())
    }
}

/// Whether the container is still there, and still dead.
async fn may_remove_container(runtime: &Runtime, id: &str) -> Result<bool, Undone> {
    match runtime.container(id).await {
        Ok(status) => match status.state {
            ContainerState::Running => Err(Undone::Changed("it runs")),
            ContainerState::Created if is_young(status.created) => {
                Err(Undone::Changed("it has only just been made and may be about to start"))
            }
            ContainerState::Created | ContainerState::Exited | ContainerState::Unknown => Ok(true),
        },
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether that was a moment ago, or cannot be told: the time is not known, or lies ahead of the clock.
fn is_young(made: Option<SystemTime>) -> bool {
    made.and_then(|at| at.elapsed().ok()).is_none_or(|age| age < MAY_BE_STARTED)
}

/// Whether the sandbox is still there, and still holds nothing that runs.
async fn may_remove_sandbox(runtime: &Runtime, id: &str) -> Result<bool, Undone> {
    match runtime.sandbox(id).await {
        Ok(status) if status.sandbox.ready => return Err(Undone::Changed("it is ready")),
        Ok(_) => {}
        Err(Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let containers = runtime.containers().await?;
    let runs = |c: &ebb_cri::Container| c.sandbox == id && c.state == ContainerState::Running;
    if containers.iter().any(runs) {
        return Err(Undone::Changed("a container runs in it"));
    }
    Ok(true)
}

/// Whether the image is still there, and still used by nothing.
async fn may_remove_image(runtime: &Runtime, id: &str) -> Result<bool, Undone> {
    let Some(image) = runtime.image(id).await? else { return Ok(false) };
    if image.pinned {
        return Err(Undone::Changed("it is pinned"));
    }
    // No container is of it, and before containerd 1.7 nothing pins it; without it no pod can start.
    if runtime.sandbox_image().await?.is_some_and(|name| image.is_called(&name)) {
        return Err(Undone::Changed("sandboxes are made of it"));
    }
    // Asked last: the time from here to the removal is the time in which a container could still come to use it.
    if runtime.containers().await?.iter().any(|container| container.image.is(&image)) {
        return Err(Undone::Changed("a container uses it"));
    }
    Ok(true)
}

/// On a thread of its own: a filesystem that hangs, or a directory that is large, must not keep a pod from being stopped.
async fn remove_log(
    path: &str,
    remove: fn(&Path) -> io::Result<logs::Removed>,
) -> Result<(), Undone> {
    let undone = |why: String| Undone::Log { path: path.to_owned(), why };
    let owned = path.to_owned();
    let removal = threads::beside("ebb-logs", move || remove(Path::new(&owned)));
    match removal.map_err(|error| undone(error.to_string()))?.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(undone(error.to_string())),
        Err(error) => Err(undone(error.to_string())),
    }
}
