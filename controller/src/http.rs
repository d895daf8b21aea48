//! `/livez`, `/readyz` and `/metrics`: for probes and scrapers, nothing else.

use crate::status::Status;
use ebb_kube::Api;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at the same time; more wait.
const CONNECTIONS: usize = 64;

/// Serves until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, status: Arc<Status>, api: Api) {
    let turns = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: some will be given back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (status, api) = (Arc::clone(&status), api.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = answer(&request, &status, &api);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
            // A client that goes away is its own affair.
            _ = http.serve_connection(TokioIo::new(stream), answer).await;
            drop(turn);
        });
    }
}

fn answer(request: &Request<Incoming>, status: &Status, api: &Api) -> Response<Full<Bytes>> {
    let inner = status.lock();
    let now = Instant::now();
    let (code, content, body) = match request.uri().path() {
        "/livez" if inner.is_alive(now) => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/livez" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            "the collector's loop does not come round\n".to_owned(),
        ),
        "/readyz" if inner.is_ready => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            "not every watch is synced yet\n".to_owned(),
        ),
        "/metrics" => (StatusCode::OK, OPENMETRICS, inner.metrics(&api.requests(), now)),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "there are /livez, /readyz and /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content));
    response
}
