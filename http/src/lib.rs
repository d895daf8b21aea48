//! What probes and scrapers ask: a few paths over HTTP/1.1, each answered by a text; nothing is read of a request but its path.
//!
//! ```text
//!  accept ─► a place (few for each address; where none is left, somebody else's) ─► one request ─► answer ─► closed
//! ```
//! Whoever asks cannot hold anything up, and least of all whoever asks next: a connection is for one request and lasts for seconds, and a newcomer always has a place.
//! An answer is made without waiting, and what is dear to make is kept for a moment ([`Kept`]).

mod address;
mod kept;
mod places;

pub use address::{Taken, address, listen, take};
pub use kept::Kept;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use places::{Answering, Places};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a connection may last, whatever it does: to ask once, and to take the answer in.
const CONNECTION: Duration = Duration::from_secs(10);

/// Connections whose place somebody else has already, and which have their moment still.
const LEAVING: usize = 64;

/// An answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    code: StatusCode,
    content: &'static str,
    body: Bytes,
}

impl Answer {
    /// 200 and a plain text.
    #[must_use]
    pub fn ok() -> Self {
        Self { code: StatusCode::OK, content: "text/plain", body: Bytes::from_static(b"ok\n") }
    }

    /// 503, and one line of why.
    #[must_use]
    pub fn unavailable(why: &str) -> Self {
        let body = format!("{why}\n");
        Self { code: StatusCode::SERVICE_UNAVAILABLE, content: "text/plain", body: body.into() }
    }

    /// 200 and metrics in the OpenMetrics text format, which end with `# EOF`.
    #[must_use]
    pub fn metrics(body: String) -> Self {
        let content = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self { code: StatusCode::OK, content, body: body.into() }
    }

    /// 404, and which paths there are.
    #[must_use]
    pub fn not_found(paths: &str) -> Self {
        let body = format!("there are {paths}\n");
        Self { code: StatusCode::NOT_FOUND, content: "text/plain", body: body.into() }
    }
}

/// Serves until the task is aborted; `answer` makes the answer for a path.
pub async fn serve<F>(listener: TcpListener, answer: F)
where
    F: Fn(&str) -> Answer + Send + Sync + 'static,
{
    let (mut places, answer) = (Places::default(), Arc::new(answer));
    let mut leaving = JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, most likely: some will be given back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if let Some(one) = places.make_room(peer.ip(), Instant::now()) {
            // Waiting for each would let a flood of newcomers fill what waits to be accepted, and a probe be lost in it.
            leaving.spawn(one.leave());
            if leaving.len() > LEAVING {
                leaving.join_next().await;
            }
            while leaving.try_join_next().is_some() {}
        }
        let answering = Answering::default();
        let connection = serve_one(stream, Arc::clone(&answer), answering.clone());
        let connection = tokio::spawn(tokio::time::timeout(CONNECTION, connection));
        places.take(peer.ip(), Instant::now(), answering, connection.abort_handle());
    }
}

/// One request, and its answer.
async fn serve_one<F>(stream: TcpStream, answer: Arc<F>, answering: Answering)
where
    F: Fn(&str) -> Answer + Send + Sync + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        answering.begin();
        let response = response(answer(request.uri().path()));
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // A client that goes away, or takes nothing in, is its own affair.
    _ = http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content));
    response
}

#[cfg(test)]
mod tests;
