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
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Reads an address to listen on: `ADDRESS:PORT`, or `:PORT` for every address of this host.
///
/// # Errors
/// What would be right, where it is neither.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok());
    everywhere
        .map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "give an address with a port, as in 127.0.0.1:8080, or :8080".to_owned())
}

/// Takes an address, ready to be served by tokio. `[::]` takes those of IPv4 too, and those alone on a host without IPv6.
///
/// # Errors
/// Where the address is taken, is not this host's, or may not be had.
pub fn listen(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at).or_else(|error| {
        let is_everywhere = at.ip() == Ipv6Addr::UNSPECIFIED;
        // The port is taken: that says more than what IPv4 alone would answer.
        if !is_everywhere || error.kind() == io::ErrorKind::AddrInUse {
            return Err(error);
        }
        std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port()))
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_may_be_all_of_this_host() {
        assert!(address("127.0.0.1").is_err() && address(":").is_err() && address(":x").is_err());
        assert_eq!(address(":8080"), Ok("[::]:8080".parse().unwrap()));
        let listener = listen(address(":0").unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let taken = listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
