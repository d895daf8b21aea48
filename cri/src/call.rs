//! One call: a place in the queue, a channel, a deadline, and what its failure means.

use crate::error::{DialError, Error};
use crate::supervisor::{Line, Link, Suspicion};
use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Connecting, and the first answer on a connection.
    pub connect: Duration,
    /// Questions that change nothing.
    pub read: Duration,
    /// Changes. Stopping a container may take its grace period in addition.
    pub change: Duration,
}

impl Default for Deadlines {
    /// 5 s, 10 s, and the kubelet's 2 min.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(10),
            change: Duration::from_secs(120),
        }
    }
}

/// Calls that the runtime works on at the same time; of each kind, so that slow changes do not keep questions waiting.
const IN_FLIGHT: usize = 8;
/// Calls that may wait for that; of each kind.
const WAITING: usize = 256;

/// What is asked, for errors and limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// CRI's name.
    pub(crate) name: &'static str,
    /// The object's id, or nothing.
    pub(crate) on: &'a str,
    pub(crate) kind: Kind,
    pub(crate) limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Change,
}

/// The way from callers to the current connection.
#[derive(Debug)]
pub(crate) struct Caller {
    line: watch::Receiver<Line>,
    suspicions: mpsc::Sender<Suspicion>,
    reads: Lane,
    changes: Lane,
}

/// A bounded queue before a bounded number of calls.
#[derive(Debug)]
struct Lane {
    waiting: Semaphore,
    in_flight: Semaphore,
}

impl Lane {
    fn new() -> Self {
        Self { waiting: Semaphore::new(WAITING), in_flight: Semaphore::new(IN_FLIGHT) }
    }
}

impl Caller {
    pub(crate) fn new(line: watch::Receiver<Line>, suspicions: mpsc::Sender<Suspicion>) -> Self {
        Self { line, suspicions, reads: Lane::new(), changes: Lane::new() }
    }

    pub(crate) fn link(&self) -> Link {
        self.line.borrow().link.clone()
    }

    /// Ask, and wait for the answer no longer than the call's limit, queueing included.
    pub(crate) async fn call<T, F>(
        &self,
        call: Call<'_>,
        ask: impl FnOnce(Channel) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.run(call, |channel| async { Ok(ask(channel).await?.into_inner()) }).await
    }

    /// The same for what takes more than one answer.
    pub(crate) async fn run<T, F>(
        &self,
        call: Call<'_>,
        ask: impl FnOnce(Channel) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let Call { name, on, kind, limit } = call;
        let lane = match kind {
            Kind::Read => &self.reads,
            Kind::Change => &self.changes,
        };
        let busy = |_| Error::Busy { call: name, waiting: WAITING };
        let _place = lane.waiting.try_acquire().map_err(busy)?;
        let late = || Error::Deadline { call: name, on: on.to_owned(), after: limit };
        let deadline = Instant::now() + limit;
        let in_flight = timeout_at(deadline, lane.in_flight.acquire()).await;
        // The semaphore is never closed; without a permit there is nothing to say but that time ran out.
        let Ok(Ok(_in_flight)) = in_flight else { return Err(late()) };
        let (channel, generation) = self.channel(name, deadline).await?;
        match timeout_at(deadline, ask(channel)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => {
                let error = failure(call, &status);
                if error.outcome_is_unknown() {
                    self.suspect(generation);
                }
                Err(error)
            }
            Err(_) => {
                self.suspect(generation);
                Err(late())
            }
        }
    }

    /// The connection, as soon as it is known whether there is one.
    async fn channel(
        &self,
        name: &'static str,
        deadline: Instant,
    ) -> Result<(Channel, u64), Error> {
        let mut line = self.line.clone();
        let settled = line.wait_for(|line| !matches!(line.link, Link::Connecting { .. }));
        let unreachable = |since, why| Error::Unreachable { call: name, since, why };
        let settled = match timeout_at(deadline, settled).await {
            Ok(Ok(line)) => line.clone(),
            // The deadline, or the supervisor's end with its runtime.
            Ok(Err(_)) | Err(_) => self.line.borrow().clone(),
        };
        match settled {
            Line { channel: Some(channel), generation, .. } => Ok((channel, generation)),
            Line { link: Link::Down { since, why, .. }, .. } => Err(unreachable(since, why)),
            Line { link: Link::Connecting { since, endpoint }, .. }
            | Line { link: Link::Up { since, endpoint, .. }, .. } => {
                let path = endpoint.path().to_owned();
                Err(unreachable(since, Arc::new(DialError::Closed(path))))
            }
        }
    }

    fn suspect(&self, generation: u64) {
        // A full queue means that it is being looked into already.
        let _ = self.suspicions.try_send(Suspicion { generation });
    }
}

/// A request that tells the runtime its deadline, so that it stops working on what nobody waits for.
pub(crate) fn request<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

fn failure(call: Call<'_>, status: &Status) -> Error {
    let Call { name: call, on, limit, .. } = call;
    let on = on.to_owned();
    match status.code() {
        _ if ran_out(status) => Error::Deadline { call, on, after: limit },
        // Not the runtime's words: tonic's own, about the connection.
        _ if status.source().is_some() => {
            Error::Broken { call, on, message: status.message().to_owned() }
        }
        Code::DeadlineExceeded | Code::Cancelled => Error::Deadline { call, on, after: limit },
        Code::NotFound => Error::NotFound { call, on },
        Code::Unimplemented => Error::Unsupported { call },
        code => Error::Refused {
            call,
            on,
            code: format!("{code:?}"),
            message: status.message().to_owned(),
        },
    }
}

/// Whether it was tonic that ended the call, by the deadline that the request carries.
fn ran_out(status: &Status) -> bool {
    let first = status.source();
    let mut causes = std::iter::successors(first, |&cause| cause.source());
    causes.any(|cause| cause.is::<tonic::TimeoutExpired>())
}
