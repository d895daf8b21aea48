//! The side of a client: which agent a command asks over its API, and what it means that it does not answer.

use super::Failure;
use ebb_api::client::ClientError;
use std::path::{Path, PathBuf};

/// Which agent a client asks.
#[derive(Debug, clap::Args)]
pub(super) struct ClientArgs {
    /// The socket of the agent's API, as `ebb run --api PATH` has it.
    #[arg(long, value_name = "PATH", default_value = ebb_api::USUAL)]
    api: PathBuf,
}

impl ClientArgs {
    pub(super) fn path(&self) -> &Path {
        &self.api
    }
}

/// What it means for a command that the agent does not answer.
pub(super) fn failure(error: ClientError) -> Failure {
    match error {
        absent @ ClientError::Absent { .. } => Failure::Host(absent.into()),
        other => Failure::Failed(other.into()),
    }
}
