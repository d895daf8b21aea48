//! Connections: who gets one, how many there are, and when one ends that leads nowhere.
//!
//! What is accepted here is served elsewhere; a connection gives its place back when it is dropped, however it ends.

use crate::peer::{Allowed, Peer};
use ebb_journal::ClientRefusal;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

/// Clients of root and of ebb's own user at a time.
const CLIENTS: usize = 16;

/// Clients of others, who have places of their own: members of a group must not keep root out.
const OTHERS: usize = 8;

/// How long a client may take to say that it speaks HTTP/2.
const GREETING: Duration = Duration::from_secs(10);

/// The bytes of that: the preface, and the head of a frame of settings.
const GREETING_BYTES: usize = 24 + 9;

/// Places for clients.
#[derive(Debug)]
pub(crate) struct Places {
    allowed: Allowed,
    own: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A connection with its place.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    client: Client,
    greeting: Option<Greeting>,
    _place: OwnedSemaphorePermit,
}

/// Who is connected, and how to end that.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    line: Arc<StdStream>,
}

/// What a client has yet to say before it is taken for one.
#[derive(Debug)]
struct Greeting {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

impl Client {
    /// Ends the connection, whatever is under way on it and whether or not the client reads.
    pub(crate) fn disconnect(&self) {
        // One that has gone meanwhile needs no end.
        let _ = self.line.shutdown(Shutdown::Both);
    }
}

impl Places {
    pub(crate) fn new(allowed: Allowed) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { allowed, own: places(CLIENTS), others: places(OTHERS) }
    }

    /// The next connection; `Err` has who got none, and why.
    pub(crate) async fn next(
        &self,
        listener: &UnixListener,
    ) -> io::Result<Result<Connection, (Peer, ClientRefusal)>> {
        let (stream, _) = listener.accept().await?;
        let peer = match self.allowed.admit(&stream)? {
            Ok(peer) => peer,
            Err(peer) => return Ok(Err((peer, ClientRefusal::NotAllowed))),
        };
        let is_own = peer.uid == 0 || peer.uid == self.allowed.uid;
        let places = if is_own { &self.own } else { &self.others };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            return Ok(Err((peer, ClientRefusal::TooMany)));
        };
        let line = Arc::new(StdStream::from(stream.as_fd().try_clone_to_owned()?));
        let until = Box::pin(sleep_until(Instant::now() + GREETING));
        Ok(Ok(Connection {
            stream,
            client: Client { peer, line },
            greeting: Some(Greeting { missing: GREETING_BYTES, until }),
            _place: place,
        }))
    }
}

impl Connected for Connection {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(greeting) = &mut self.greeting else { return polled };
        if polled.is_pending() {
            ready!(greeting.until.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let read = buffer.filled().len() - before;
        greeting.missing = greeting.missing.saturating_sub(read);
        if greeting.missing == 0 {
            self.greeting = None;
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
