//! Whether the hook that is to be called before an eviction could be: that its socket is there. Nobody is called for the question.

use super::finding::{Finding, Status};
use ebb_agent::config::BeforeEviction;
use serde::Serialize;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

/// What was found where the configuration names a hook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hook {
    socket: PathBuf,
    /// Why it could not be called, if so.
    trouble: Option<String>,
}

impl Hook {
    /// Looks at the socket.
    pub(super) fn gather(of: &BeforeEviction) -> Self {
        let trouble = match std::fs::metadata(&of.socket) {
            Ok(found) if found.file_type().is_socket() => None,
            Ok(_) => Some("is not a socket".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("does not exist".to_owned())
            }
            Err(error) => Some(format!("cannot be looked at: {error}")),
        };
        Self { socket: of.socket.clone(), trouble }
    }
}

/// With whether ebb will `enforce`: a dry run calls nobody.
pub(super) fn finding(hook: &Hook, enforce: bool) -> Finding {
    let what = "call a hook before an eviction for a soft threshold";
    let socket = hook.socket.display();
    let Some(trouble) = &hook.trouble else {
        let limit = if enforce { "" } else { "; not in a dry run, which changes nothing" };
        let source = format!("{socket}{limit}");
        return Finding { what, status: Status::Live, source, advice: None };
    };
    Finding {
        what,
        status: Status::Degraded,
        source: "no hook: an eviction goes on without it, and says so".into(),
        advice: Some(format!(
            "{socket} {trouble}: start the service that listens there, or correct ebb.hooks.beforeEviction.socket"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn a_socket_is_enough_and_anything_else_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hook.sock");
        let found = |enforce| {
            let of = BeforeEviction { socket: socket.clone(), deadline: Duration::from_secs(2) };
            finding(&Hook::gather(&of), enforce)
        };
        let advice = |finding: Finding| finding.advice.unwrap();
        assert_eq!(found(true).status, Status::Degraded);
        assert!(advice(found(true)).contains("hook.sock does not exist"));
        std::fs::write(&socket, "").unwrap();
        assert!(advice(found(true)).contains("hook.sock is not a socket"));
        std::fs::remove_file(&socket).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(found(true).source, socket.display().to_string());
        assert!(found(false).source.contains("dry run"));
        // Nobody was called.
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
