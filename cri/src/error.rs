//! What can go wrong: getting to a runtime ([`DialError`]), and asking it ([`Error`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why there is no runtime at the endpoint. Each says what to look at.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// No such file.
    #[error("no runtime socket at {}: is the runtime running, and is this its socket?", .0.display())]
    NoSocket(PathBuf),
    /// Another kind of file.
    #[error("{} is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The file's or a directory's permissions.
    #[error("user {uid} may not use the runtime socket {}: run ebb as root or as the socket's group", .path.display())]
    Forbidden {
        /// The socket.
        path: PathBuf,
        /// The effective user of this process.
        uid: u32,
    },
    /// The socket is there, but nobody accepts.
    #[error("nobody listens on the runtime socket {}: the runtime has ended or is starting", .0.display())]
    Deserted(PathBuf),
    /// Any other failure to connect.
    #[error("cannot connect to the runtime socket {}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        why: Arc<std::io::Error>,
    },
    /// Accepts, but does not speak gRPC.
    #[error("{} is not a container runtime's socket: what listens there does not speak gRPC ({answer})", .path.display())]
    NotGrpc {
        /// The socket.
        path: PathBuf,
        /// How that was seen.
        answer: String,
    },
    /// Speaks gRPC, but not CRI.
    #[error("what listens on {} does not serve CRI: another service's socket, or a containerd whose cri plugin is disabled", .0.display())]
    NotCri(PathBuf),
    /// Speaks only the version of CRI before v1.
    #[error("{runtime} {version} on {} serves CRI v1alpha2 only, and ebb needs v1: upgrade it (containerd to 1.6 or later, CRI-O to 1.23 or later)", .path.display())]
    OldCri {
        /// The socket.
        path: PathBuf,
        /// The runtime's name for itself.
        runtime: String,
        /// Its version, as it says it.
        version: String,
    },
    /// The runtime answered the first question with an error.
    #[error("the runtime on {} refuses to say its version: {message}", .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// Accepts and says nothing.
    #[error("the runtime on {} has not answered for {} s", .path.display(), .after.as_secs_f32())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long it was given.
        after: Duration,
    },
    /// The connection was closed; this is all that is known until the next attempt.
    #[error("the runtime on {} closed the connection", .0.display())]
    Closed(PathBuf),
}

/// Why a call has no result. `call` is CRI's name for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There was no connection, so the runtime was not asked.
    #[error("{call} not tried: the runtime is unreachable")]
    Unreachable {
        /// The call.
        call: &'static str,
        /// Since when.
        since: Instant,
        /// What the last attempt to connect met.
        #[source]
        why: Arc<DialError>,
    },
    /// The deadline passed. Whether the runtime did it, or still will, is unknown.
    #[error("{call}{} has no answer after {} s", of(.on), .after.as_secs_f32())]
    Deadline {
        /// The call.
        call: &'static str,
        /// The object's id, or nothing.
        on: String,
        /// The deadline.
        after: Duration,
    },
    /// The connection broke. Whether the runtime did it is unknown.
    #[error("the connection broke during {call}{}: {message}", of(.on))]
    Broken {
        /// The call.
        call: &'static str,
        /// The object's id, or nothing.
        on: String,
        /// What the transport said.
        message: String,
    },
    /// Too many calls wait already, so this one was not tried.
    #[error("{call} not tried: {waiting} calls to the runtime wait already")]
    Busy {
        /// The call.
        call: &'static str,
        /// How many.
        waiting: usize,
    },
    /// The runtime does not know the object.
    #[error("{call}{}: the runtime does not know it", of(.on))]
    NotFound {
        /// The call.
        call: &'static str,
        /// The object's id.
        on: String,
    },
    /// The runtime does not have this call.
    #[error("the runtime does not implement {call}")]
    Unsupported {
        /// The call.
        call: &'static str,
    },
    /// The runtime answered with an error.
    #[error("{call}{}: the runtime answered {code}: {message}", of(.on))]
    Refused {
        /// The call.
        call: &'static str,
        /// The object's id, or nothing.
        on: String,
        /// gRPC's word for the error.
        code: String,
        /// The runtime's words.
        message: String,
    },
    /// The answer lacks what CRI promises.
    #[error("the answer to {call} has no {lacks}")]
    Malformed {
        /// The call.
        call: &'static str,
        /// What is missing.
        lacks: &'static str,
    },
}

impl Error {
    /// Whether the runtime may have done, or may yet do, what was asked.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Broken { .. })
    }
}

fn of(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!(" of {id}") }
}
