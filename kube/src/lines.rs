//! The body of a watch, as whole lines: what both kinds of watches read.

use crate::call::DEADLINE;
use crate::failure::{Failure, chain};
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a watch lasts, at random from here to twice that: they are not all to end at once.
const WATCH_SECONDS: u64 = 240;

/// The API server sends bookmarks about once a minute where it sends any: a watch that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(150);

/// Bytes that may stand between two line ends: an object has at most 3 MiB or so.
const LONGEST: usize = 16 << 20;

/// How long the next watch is to last, in seconds.
pub(crate) fn watch_seconds() -> u64 {
    fastrand::u64(WATCH_SECONDS..WATCH_SECONDS * 2)
}

/// Nobody listens any more.
pub(crate) struct Closed;

/// The lines of one watch.
pub(crate) struct Lines {
    body: Body,
    seconds: u64,
    rest: Vec<u8>,
    /// The API server has sent a bookmark: it does so again and again.
    pub(crate) has_bookmarks: bool,
}

impl Lines {
    /// Those of a watch that was asked to last so many seconds.
    pub(crate) fn of(body: Body, seconds: u64) -> Self {
        Self { body, seconds, rest: Vec::new(), has_bookmarks: false }
    }

    /// How long nothing may come before the watch counts as dead.
    fn patience(&self) -> Duration {
        if self.has_bookmarks { SILENCE } else { Duration::from_secs(self.seconds) + DEADLINE }
    }

    /// The next whole lines; `None` at the end of the watch. `out` is whom they are for.
    pub(crate) async fn next<T>(
        &mut self,
        out: &mpsc::Sender<T>,
    ) -> Result<Option<Result<Vec<u8>, Failure>>, Closed> {
        loop {
            let patience = self.patience();
            let frame = tokio::select! {
                () = out.closed() => return Err(Closed),
                frame = timeout(patience, self.body.frame()) => frame,
            };
            let data = match frame {
                Err(_) => return Ok(Some(Err(Failure::Deadline(patience)))),
                Ok(None) => return Ok(None),
                Ok(Some(Err(e))) => return Ok(Some(Err(Failure::Connection(chain(&e))))),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            self.rest.extend_from_slice(&data);
            if self.rest.len() > LONGEST {
                let what = format!("a line of over {LONGEST} bytes");
                return Ok(Some(Err(Failure::Answer(what))));
            }
            if let Some(end) = self.rest.iter().rposition(|&b| b == b'\n') {
                let later = self.rest.split_off(end + 1);
                return Ok(Some(Ok(std::mem::replace(&mut self.rest, later))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_says_nothing_is_given_up_and_sooner_where_bookmarks_come() {
        let mut lines = Lines::of(Body::empty(), 300);
        assert_eq!(lines.patience().as_secs(), 330);
        lines.has_bookmarks = true;
        assert_eq!(lines.patience().as_secs(), 150);
    }

    #[tokio::test]
    async fn half_a_line_is_nothing() {
        let (out, _listener) = mpsc::channel::<()>(1);
        let mut lines = Lines::of(Body::from(b"{}\n{".to_vec()), 300);
        let whole = lines.next(&out).await.ok().flatten();
        assert_eq!(whole, Some(Ok(b"{}\n".to_vec())));
        assert_eq!(lines.next(&out).await.ok().flatten(), None);
    }
}
