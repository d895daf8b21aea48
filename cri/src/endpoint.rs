//! Where a runtime listens: text from a flag or a file, checked once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A unix socket, written `unix:///run/containerd/containerd.sock` or as the bare absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    path: PathBuf,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// A scheme other than `unix`.
    #[error("the runtime's endpoint {0} is not a unix socket: write unix:///path or /path")]
    Scheme(String),
    /// A relative or an empty path.
    #[error("the runtime's endpoint {0:?} is not an absolute path: write unix:///path or /path")]
    Relative(String),
}

impl Endpoint {
    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let path = match text.split_once("://") {
            Some(("unix", path)) => path,
            Some(_) => return Err(EndpointError::Scheme(text.to_owned())),
            None => text.strip_prefix("unix:").unwrap_or(text),
        };
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            return Err(EndpointError::Relative(text.to_owned()));
        }
        Ok(Self { path })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_write_a_socket_mean_its_path() {
        for text in ["unix:///run/c.sock", "unix:/run/c.sock", "/run/c.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().path(), Path::new("/run/c.sock"));
        }
    }

    #[test]
    fn what_is_no_local_socket_is_refused() {
        assert!(matches!("tcp://1.2.3.4:5".parse::<Endpoint>(), Err(EndpointError::Scheme(_))));
        for text in ["run/c.sock", "", "unix://run/c.sock"] {
            assert!(matches!(text.parse::<Endpoint>(), Err(EndpointError::Relative(_))), "{text}");
        }
    }
}
