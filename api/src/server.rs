//! The server: one loop on a thread of its own, which takes in records and connections, and says whom it refused.
//!
//! ```text
//!  records ─► board ◄── Watch tasks          accepted ─► a place? ─► tonic ─► calls
//!  events (refused, panicked) ─► at most one record a minute for each reason ─► `tell`
//! ```

use crate::connection::Places;
use crate::events::{Event, events};
use crate::peer::Allowed;
use crate::refusals::Refusals;
use crate::service::{Calls, Questions};
use crate::sink::Records;
use crate::socket::Bound;
use crate::watch::Board;
use crate::wire;
use crate::wire::agent_server::AgentServer;
use ebb_journal::{Part, Record};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

/// Calls at a time on one connection.
const CALLS: u32 = 16;

/// The largest request in bytes: none needs more than an id.
const REQUEST: usize = 4096;

/// Bytes of the heads of one request.
const HEADS: u32 = 16 << 10;

/// A client that has been silent for so long is asked whether it is there, and given so long to answer.
const SILENT: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);

/// After an error of the listener: descriptors will be given back.
const PAUSE: Duration = Duration::from_millis(100);

/// How long clients are given at the end to take in what is there.
const LAST: Duration = Duration::from_millis(500);

/// Accepted connections that may wait to be served.
const ACCEPTED: usize = 4;

/// Everything that a server needs.
pub struct Server {
    /// The socket.
    pub socket: Bound,
    /// Who may connect.
    pub allowed: Allowed,
    /// What is told.
    pub records: Records,
    /// What the loop is asked.
    pub questions: Questions,
    /// Where incidents are kept; `None` when they are not.
    pub incidents: Option<PathBuf>,
    /// A name for this run of ebb that no other has.
    pub run: String,
    /// The version of ebb.
    pub version: String,
    /// Resolves when the server is to end.
    pub stop: Stopped,
}

/// Ends a server when dropped.
#[derive(Debug)]
pub struct Stop {
    _ends: oneshot::Sender<std::convert::Infallible>,
}

/// The server's side of [`Stop`].
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<std::convert::Infallible>);

impl Stopped {
    /// Waits so long, or until the server is to end; returns whether it is.
    pub async fn within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, &mut self.0).await.is_ok()
    }
}

/// What ends a server, and its other side.
#[must_use]
pub fn stop() -> (Stop, Stopped) {
    let (sender, stopped) = oneshot::channel();
    (Stop { _ends: sender }, Stopped(stopped))
}

impl Server {
    /// Serves until it is to end; `tell` gets what is to be told of clients.
    ///
    /// # Errors
    /// When the socket cannot be listened on, or the protocol's description of itself is damaged.
    pub async fn serve(self, mut tell: impl FnMut(Record)) -> io::Result<()> {
        let Self { socket, allowed, mut records, questions, incidents, run, version, mut stop } =
            self;
        let listener = UnixListener::from_std(socket.listener)?;
        let places = Places::new(allowed);
        let (events, mut told) = events();
        let (accepted, connections) = mpsc::channel(ACCEPTED);
        let board = Arc::new(Board::new(run, version));
        let calls = Calls::new(Arc::clone(&board), questions, incidents, events);
        let (end, ended) = oneshot::channel::<()>();
        let incoming =
            tokio_stream::StreamExt::map(ReceiverStream::new(connections), Ok::<_, io::Error>);
        let mut served =
            tokio::spawn(router(calls).await?.serve_with_incoming_shutdown(incoming, async {
                let _ = ended.await;
            }));
        let (mut refusals, mut has_panicked) = (Refusals::default(), false);
        loop {
            tokio::select! {
                Some(entry) = records.next() => board.put_up(&entry, &mut records),
                next = places.next(&listener) => match next {
                    Ok(Ok(connection)) => {
                        // It was given a place, and there is room for as many as are being taken over.
                        let _ = accepted.send(connection).await;
                    }
                    Ok(Err((peer, why))) => {
                        refusals.observe(&peer, why, Instant::now()).into_iter().for_each(&mut tell);
                    }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(event) = told.recv() => match event {
                    Event::Refused(peer, why) => {
                        refusals.observe(&peer, why, Instant::now()).into_iter().for_each(&mut tell);
                    }
                    Event::Panicked if has_panicked => {}
                    Event::Panicked => {
                        has_panicked = true;
                        let what = "a call of the API panicked; its client got no answer, and the API goes on";
                        tell(Record::Degraded { part: Part::LocalApi, what: what.to_owned() });
                    }
                },
                _ = &mut stop.0 => break,
                ended = &mut served => {
                    return Err(io::Error::other(format!("nothing is served any more: {ended:?}")));
                }
            }
        }
        drop(listener);
        while let Some(entry) = records.waiting() {
            board.put_up(&entry, &mut records);
        }
        board.end();
        let _ = end.send(());
        drop(accepted);
        let _ = tokio::time::timeout(LAST, served).await;
        Ok(())
    }
}

/// All services, with their limits.
async fn router(calls: Calls) -> io::Result<tonic::transport::server::Router> {
    let agent = AgentServer::new(calls).max_decoding_message_size(REQUEST);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<AgentServer<Calls>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(io::Error::other)?;
    Ok(tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS)
        .http2_max_header_list_size(HEADS)
        .http2_keepalive_interval(Some(SILENT))
        .http2_keepalive_timeout(Some(PONG))
        .add_service(agent)
        .add_service(health.max_decoding_message_size(REQUEST))
        .add_service(reflection.max_decoding_message_size(REQUEST)))
}
