//! The body of a watch, as whole lines: what both kinds of watches read.

use crate::call::DEADLINE;
use crate::failure::{Failure, chain};
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

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
    /// How long it may last without a bookmark, and when that is over.
    longest: Duration,
    over: Instant,
    rest: Vec<u8>,
    /// The API server has sent a bookmark: it does so again and again.
    pub(crate) has_bookmarks: bool,
}

impl Lines {
    /// Those of a watch that was asked to last so many seconds.
    pub(crate) fn of(body: Body, seconds: u64) -> Self {
        let longest = Duration::from_secs(seconds) + DEADLINE;
        let over = Instant::now() + longest;
        Self { body, longest, over, rest: Vec::new(), has_bookmarks: false }
    }

    /// How long nothing may come before the watch counts as dead: since something has come last, or where there are no bookmarks since it began.
    fn patience(&self) -> (Duration, Instant) {
        if self.has_bookmarks {
            (SILENCE, Instant::now() + SILENCE)
        } else {
            (self.longest, self.over)
        }
    }

    /// The next whole lines; `None` at the end of the watch. `out` is whom they are for.
    pub(crate) async fn next<T>(
        &mut self,
        out: &mpsc::Sender<T>,
    ) -> Result<Option<Result<Vec<u8>, Failure>>, Closed> {
        loop {
            let (patience, until) = self.patience();
            let frame = tokio::select! {
                () = out.closed() => return Err(Closed),
                frame = timeout_at(until, self.body.frame()) => frame,
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

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_bookmarks_is_given_up_30_s_after_it_was_to_end_and_one_with_them_sooner()
     {
        let mut lines = Lines::of(Body::empty(), 300);
        let left = |lines: &Lines| (lines.patience().1 - Instant::now()).as_secs();
        assert_eq!(left(&lines), 330);
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(left(&lines), 130);
        lines.has_bookmarks = true;
        assert_eq!(left(&lines), 150);
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
