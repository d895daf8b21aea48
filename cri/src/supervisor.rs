//! The one task that knows whether there is a runtime: dials, watches, and dials again.
//!
//! ```text
//!            ┌───────────── dial failed ─────────────┐
//!            ▼                                       │
//! Connecting ─► Down(since, why) ── back off ─► dial ┤
//!                 ▲                                  └─ ok ─► Up ── streams run
//!                 └── closed, or silent when a late answer made it suspect ──┘
//! ```
//! A closed connection is known the moment the socket says so. A runtime that hangs closes nothing: whoever met a
//! deadline raises a suspicion, and one short question settles it.

use crate::dial::{self, Connection, Identity};
use crate::endpoint::Endpoint;
use crate::error::DialError;
use crate::events::{Outlet, RuntimeEvent};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;

/// Whether there is a runtime.
#[derive(Clone, Debug)]
pub enum Link {
    /// Not known yet: the first attempt is under way.
    Connecting {
        /// Since when.
        since: Instant,
        /// Where.
        endpoint: Endpoint,
    },
    /// There is.
    Up {
        /// Since when.
        since: Instant,
        /// Where.
        endpoint: Endpoint,
        /// Which.
        identity: Arc<Identity>,
    },
    /// There is none.
    Down {
        /// Since when: the end of the last connection, or the beginning of the first attempt.
        since: Instant,
        /// Attempts since then.
        attempts: u32,
        /// What the last of them met, or how the connection ended.
        why: Arc<DialError>,
    },
}

impl Link {
    /// The runtime, when there is one.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Up { identity, .. } => Some(identity),
            Self::Connecting { .. } | Self::Down { .. } => None,
        }
    }
}

/// What calls need to know, published by the supervisor.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) link: Link,
    pub(crate) channel: Option<Channel>,
    /// Counts connections.
    pub(crate) generation: u64,
}

/// A call on that connection met its deadline, or broke.
#[derive(Debug)]
pub(crate) struct Suspicion {
    pub(crate) generation: u64,
}

/// Waits between attempts: the first, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

pub(crate) struct Supervisor {
    pub(crate) endpoint: Endpoint,
    pub(crate) limit: Duration,
    pub(crate) line: watch::Sender<Line>,
    pub(crate) suspicions: mpsc::Receiver<Suspicion>,
    pub(crate) outlet: Outlet,
}

impl Supervisor {
    /// Until nobody holds the runtime any more.
    pub(crate) async fn run(mut self) {
        let (mut since, mut attempts, mut pause) = (Instant::now(), 0, BACK_OFF.0);
        loop {
            let why = match dial::dial(&self.endpoint, self.limit).await {
                Ok(connection) => {
                    let Some(why) = self.hold(connection).await else { return };
                    (since, attempts, pause) = (Instant::now(), 0, BACK_OFF.0);
                    why
                }
                Err(why) => {
                    attempts += 1;
                    why
                }
            };
            let why = Arc::new(why);
            let first = !matches!(self.line.borrow().link, Link::Down { .. });
            self.publish(Link::Down { since, attempts, why: Arc::clone(&why) }, None);
            if first {
                self.outlet.send(RuntimeEvent::Down(why));
            }
            if !self.rest(pause).await {
                return;
            }
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    /// Publish a connection and watch it until its end, which is returned; `None` when nobody needs it any more.
    async fn hold(&mut self, connection: Connection) -> Option<DialError> {
        let Connection { channel, identity, mut closed } = connection;
        let identity = Arc::new(identity);
        let (since, endpoint) = (Instant::now(), self.endpoint.clone());
        let up = Link::Up { since, endpoint, identity: Arc::clone(&identity) };
        let generation = self.publish(up, Some(channel.clone()));
        // Ends with this function.
        let _streams = self.outlet.follow(&channel, &identity);
        self.outlet.send(RuntimeEvent::Up(identity));
        loop {
            tokio::select! {
                _ = &mut closed => return Some(DialError::Closed(self.endpoint.path().to_owned())),
                suspicion = self.suspicions.recv() => match suspicion {
                    None => return None,
                    // From a connection that is gone already.
                    Some(suspicion) if suspicion.generation != generation => {}
                    Some(_) => {
                        let probe = dial::probe(&self.endpoint, &channel, self.limit).await;
                        if let Err(why) = probe {
                            return Some(why);
                        }
                    }
                },
            }
        }
    }

    /// Wait; `false` when nobody holds the runtime any more.
    async fn rest(&mut self, pause: Duration) -> bool {
        let wake = tokio::time::sleep(pause);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = &mut wake => return true,
                // Suspicions about a connection that is gone are answered by its absence.
                suspicion = self.suspicions.recv() => if suspicion.is_none() { return false },
            }
        }
    }

    fn publish(&self, link: Link, channel: Option<Channel>) -> u64 {
        let mut generation = 0;
        self.line.send_modify(|line| {
            generation = line.generation + u64::from(channel.is_some());
            *line = Line { link, channel, generation };
        });
        generation
    }
}
