//! From a socket's path to a channel on which CRI v1 is spoken, or the one reason why not.
//!
//! ```text
//! path ─► a socket? ─► connect ─► Version of v1 ─► Identity
//!                                    └─ unimplemented ─► Version of v1alpha2: an old runtime, or no runtime at all
//! ```

use crate::endpoint::Endpoint;
use crate::error::DialError;
use crate::wire::runtime as v1;
use crate::wire::runtime::runtime_service_client::RuntimeServiceClient;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Who answers on the socket, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Such as `containerd` or `cri-o`.
    pub runtime: String,
    /// Its version; distributions add to it (`1.7.24~ds1`).
    pub version: String,
    /// Version of CRI.
    pub api: String,
}

impl Identity {
    /// Whether containerd's own services may be on the same socket.
    #[must_use]
    pub fn is_containerd(&self) -> bool {
        self.runtime == "containerd"
    }

    fn new(answer: v1::VersionResponse) -> Self {
        Self {
            runtime: answer.runtime_name,
            version: answer.runtime_version,
            api: answer.runtime_api_version,
        }
    }
}

/// A connection that CRI v1 is spoken on.
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(crate) identity: Identity,
    /// Resolves, with an error, when the connection is gone.
    pub(crate) closed: oneshot::Receiver<Infallible>,
}

/// Connect and ask who is there; each of the two may take `limit`.
pub(crate) async fn dial(endpoint: &Endpoint, limit: Duration) -> Result<Connection, DialError> {
    let path = endpoint.path();
    let silent = || DialError::Silent { path: path.to_owned(), after: limit };
    let stream = timeout(limit, open(path)).await.map_err(|_| silent())??;
    let (alive, closed) = oneshot::channel();
    let channel = channel(Watched { stream, _alive: alive })
        .await
        .map_err(|why| DialError::NotGrpc { path: path.to_owned(), answer: deepest(&why) })?;
    let identity = timeout(limit, negotiate(path, &channel)).await.map_err(|_| silent())??;
    Ok(Connection { channel, identity, closed })
}

/// Whether the runtime still answers on this channel.
pub(crate) async fn probe(
    endpoint: &Endpoint,
    channel: &Channel,
    limit: Duration,
) -> Result<(), DialError> {
    let path = endpoint.path();
    match timeout(limit, negotiate(path, channel)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(DialError::Silent { path: path.to_owned(), after: limit }),
    }
}

async fn open(path: &Path) -> Result<UnixStream, DialError> {
    let failed = |why: io::Error| match why.kind() {
        ErrorKind::NotFound => DialError::NoSocket(path.to_owned()),
        ErrorKind::NotADirectory => DialError::NoSocket(path.to_owned()),
        ErrorKind::PermissionDenied => {
            DialError::Forbidden { path: path.to_owned(), uid: nix::unistd::geteuid().as_raw() }
        }
        ErrorKind::ConnectionRefused => DialError::Deserted(path.to_owned()),
        _ => DialError::Connect { path: path.to_owned(), why: Arc::new(why) },
    };
    // Connecting to another kind of file is refused just as connecting to a socket without a listener is.
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_socket() {
        return Err(DialError::NotASocket(path.to_owned()));
    }
    UnixStream::connect(path).await.map_err(failed)
}

/// A channel over this one connection. It never connects again by itself: the next runtime may be another.
async fn channel(stream: Watched) -> Result<Channel, tonic::transport::Error> {
    let stream = Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.lock().ok().and_then(|mut stream| stream.take());
        let gone = || io::Error::new(ErrorKind::NotConnected, "the connection was closed");
        std::future::ready(stream.map(TokioIo::new).ok_or_else(gone))
    });
    // The address is only a name here; runtimes do not look at it.
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(connector).await
}

async fn negotiate(path: &Path, channel: &Channel) -> Result<Identity, DialError> {
    let question = v1::VersionRequest { version: "v1".to_owned() };
    match RuntimeServiceClient::new(channel.clone()).version(question).await {
        Ok(answer) => Ok(Identity::new(answer.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Err(older(path, channel).await),
        Err(status) if status.source().is_some() => {
            Err(DialError::NotGrpc { path: path.to_owned(), answer: deepest(&status) })
        }
        Err(status) => {
            Err(DialError::Refused { path: path.to_owned(), message: status.message().to_owned() })
        }
    }
}

/// Why v1 is not implemented: ask in the words of the version before it, whose first question is the same.
async fn older(path: &Path, channel: &Channel) -> DialError {
    let ask = async {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        let busy = |why: tonic::transport::Error| Status::unavailable(why.to_string());
        grpc.ready().await.map_err(busy)?;
        let question = Request::new(v1::VersionRequest { version: "v1alpha2".to_owned() });
        let rpc = PathAndQuery::from_static("/runtime.v1alpha2.RuntimeService/Version");
        let codec = tonic_prost::ProstCodec::<_, v1::VersionResponse>::default();
        grpc.unary(question, rpc, codec).await
    };
    match ask.await {
        Ok(answer) => {
            let Identity { runtime, version, .. } = Identity::new(answer.into_inner());
            DialError::OldCri { path: path.to_owned(), runtime, version }
        }
        Err(_) => DialError::NotCri(path.to_owned()),
    }
}

/// The innermost cause: those around it only say that there was one.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// The stream, and a sign that it is still held: dropped with it by whoever notices the end of the connection first.
struct Watched {
    stream: UnixStream,
    _alive: oneshot::Sender<Infallible>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
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
