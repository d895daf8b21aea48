//! The other side: what a client on the same node asks, over one connection.

use crate::wire::agent_client::AgentClient;
use crate::wire::{
    GetDecisionRequest, GetIncidentRequest, GetNodeRequest, GetNodeResponse, Incident,
    ListIncidentsRequest, ListWorkloadsRequest, ListWorkloadsResponse, WatchRequest, WatchResponse,
    watch_response,
};
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// How long a server may take to accept, and to answer what it answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that has been silent for so long is asked whether it is there.
const SILENT: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there to be asked.
    #[error("{}: no API is served there: {why}; `ebb run --api {}` serves one", path.display(), path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        why: io::Error,
    },
    /// It cannot be connected to.
    #[error("{}: cannot connect: {why}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The server refused, or the connection is gone.
    #[error("{}", said(.0))]
    Refused(Box<Status>),
    /// There is no answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

impl ClientError {
    /// Whether the server does not know the call: it is older than this client.
    #[must_use]
    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == tonic::Code::Unimplemented)
    }
}

/// What a status says, and what is behind it.
fn said(status: &Status) -> String {
    let mut at: &dyn std::error::Error = status;
    while let Some(source) = at.source() {
        at = source;
    }
    if std::ptr::eq(std::ptr::from_ref(at).cast::<()>(), std::ptr::from_ref(status).cast()) {
        format!("{:?}: {}", status.code(), status.message())
    } else {
        format!("the connection was lost: {at}")
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A connection to an agent.
#[derive(Clone, Debug)]
pub struct Client(AgentClient<Channel>);

/// What a Watch tells, in its order.
#[derive(Debug)]
pub struct Watching(Streaming<WatchResponse>);

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// Nobody listens there, or it is not this user's to connect to.
    pub async fn connect(path: &Path) -> Result<Self, ClientError> {
        let unreachable = |why: String| ClientError::Unreachable { path: path.to_owned(), why };
        let stream = timeout(PATIENCE, UnixStream::connect(path)).await;
        let stream = stream.map_err(|_| ClientError::Silent)?.map_err(|why| match why.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                ClientError::Absent { path: path.to_owned(), why }
            }
            _ => unreachable(why.to_string()),
        })?;
        Self::over(stream).await.map_err(|why| unreachable(why.to_string()))
    }

    /// Speaks over a connection that is there.
    ///
    /// # Errors
    /// It is gone already.
    pub async fn over(stream: UnixStream) -> Result<Self, tonic::transport::Error> {
        Ok(Self(AgentClient::new(channel(stream).await?)))
    }

    /// Has records told, as `request` says from which on.
    ///
    /// # Errors
    /// What the server said, or that the connection is gone.
    pub async fn watch(&mut self, request: WatchRequest) -> Result<Watching, ClientError> {
        let answer = timeout(PATIENCE, self.0.watch(request)).await;
        Ok(Watching(answer.map_err(|_| ClientError::Silent)??.into_inner()))
    }

    /// How the node stands.
    ///
    /// # Errors
    /// As for [`Client::watch`].
    pub async fn node(&mut self) -> Result<GetNodeResponse, ClientError> {
        let answer = timeout(PATIENCE, self.0.get_node(GetNodeRequest {})).await;
        Ok(answer.map_err(|_| ClientError::Silent)??.into_inner())
    }

    /// The workloads, at most `limit`; 0 for as many as are told at all.
    ///
    /// # Errors
    /// As for [`Client::watch`]; `Unimplemented` is what an agent says that does not know the call yet.
    pub async fn workloads(&mut self, limit: u32) -> Result<ListWorkloadsResponse, ClientError> {
        let answer = timeout(PATIENCE, self.0.list_workloads(ListWorkloadsRequest { limit })).await;
        Ok(answer.map_err(|_| ClientError::Silent)??.into_inner())
    }

    /// The incidents that are recorded, at most the `limit` newest; 0 for all.
    ///
    /// # Errors
    /// As for [`Client::watch`].
    pub async fn incidents(&mut self, limit: u32) -> Result<Vec<Incident>, ClientError> {
        let answer = timeout(PATIENCE, self.0.list_incidents(ListIncidentsRequest { limit })).await;
        Ok(answer.map_err(|_| ClientError::Silent)??.into_inner().incidents)
    }

    /// The record of an incident: JSON.
    ///
    /// # Errors
    /// As for [`Client::watch`].
    pub async fn incident(&mut self, id: &str) -> Result<Vec<u8>, ClientError> {
        let request = GetIncidentRequest { id: id.to_owned() };
        let pieces = self.0.get_incident(request).await?.into_inner();
        whole(pieces, |piece| piece.json).await
    }

    /// What the latest decision was made of: JSON.
    ///
    /// # Errors
    /// As for [`Client::watch`]; `Unimplemented` is what an agent says that does not know the call yet.
    pub async fn decision(&mut self) -> Result<Vec<u8>, ClientError> {
        let answer = timeout(PATIENCE, self.0.get_decision(GetDecisionRequest {})).await;
        let pieces = answer.map_err(|_| ClientError::Silent)??.into_inner();
        whole(pieces, |piece| piece.json).await
    }
}

/// What comes in pieces, put together.
async fn whole<T>(
    mut pieces: Streaming<T>,
    json: impl Fn(T) -> Vec<u8>,
) -> Result<Vec<u8>, ClientError> {
    let mut all = Vec::new();
    while let Some(piece) = pieces.message().await? {
        all.extend(json(piece));
    }
    Ok(all)
}

/// A connection that is there, for the clients of any service behind it.
///
/// # Errors
/// It is gone already.
pub async fn channel(stream: UnixStream) -> Result<Channel, tonic::transport::Error> {
    let stream = Mutex::new(Some(stream));
    // It never connects again by itself: the next server is another run, whose numbers begin anew.
    let connector = tower::service_fn(move |_| {
        let stream = stream.lock().ok().and_then(|mut stream| stream.take());
        let gone = || io::Error::new(ErrorKind::NotConnected, "the connection was closed");
        std::future::ready(stream.map(TokioIo::new).ok_or_else(gone))
    });
    // The address is only a name here.
    let endpoint = Endpoint::from_static("http://localhost")
        .http2_keep_alive_interval(SILENT)
        .keep_alive_timeout(PATIENCE);
    endpoint.connect_with_connector(connector).await
}

impl Watching {
    /// What is told next; `None` when the server has nothing more to say. What this client does not know is passed over.
    ///
    /// # Errors
    /// The connection is gone, or the server ends.
    pub async fn next(&mut self) -> Result<Option<watch_response::Item>, ClientError> {
        loop {
            match self.0.message().await? {
                None => return Ok(None),
                Some(WatchResponse { item: None }) => {}
                Some(WatchResponse { item }) => return Ok(item),
            }
        }
    }
}
