//! What probes and scrapers ask: a few paths over HTTP/1.1, each answered by a text; nothing is read of a request but its path.
//!
//! Whoever asks cannot hold anything up: connections are few, each has a deadline, and an answer is made without waiting.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 64;
/// How long a request may take to come.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a connection may last, whatever it does: a scraper makes another.
const CONNECTION: Duration = Duration::from_secs(300);

/// An answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    code: StatusCode,
    content: &'static str,
    body: String,
}

impl Answer {
    /// 200 and a plain text.
    #[must_use]
    pub fn ok() -> Self {
        Self { code: StatusCode::OK, content: "text/plain", body: "ok\n".to_owned() }
    }

    /// 503, and one line of why.
    #[must_use]
    pub fn unavailable(why: &str) -> Self {
        let body = format!("{why}\n");
        Self { code: StatusCode::SERVICE_UNAVAILABLE, content: "text/plain", body }
    }

    /// 200 and metrics in the OpenMetrics text format, which end with `# EOF`.
    #[must_use]
    pub fn metrics(body: String) -> Self {
        let content = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self { code: StatusCode::OK, content, body }
    }

    /// 404, and which paths there are.
    #[must_use]
    pub fn not_found(paths: &str) -> Self {
        let body = format!("there are {paths}\n");
        Self { code: StatusCode::NOT_FOUND, content: "text/plain", body }
    }
}

/// Serves until the task is aborted; `answer` makes the answer for a path.
pub async fn serve<F>(listener: TcpListener, answer: F)
where
    F: Fn(&str) -> Answer + Send + Sync + 'static,
{
    let (turns, answer) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(answer));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: some will be given back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = response(answer(request.uri().path()));
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REQUEST);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or takes nothing in, is its own affair.
            _ = tokio::time::timeout(CONNECTION, connection).await;
            drop(turn);
        });
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content));
    response
}
