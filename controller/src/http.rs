//! `/livez`, `/readyz` and `/metrics` of the collector.

use crate::status::Status;
use ebb_http::Answer;
use ebb_kube::Api;
use std::time::Instant;

pub(crate) fn answer(path: &str, status: &Status, api: &Api) -> Answer {
    let inner = status.lock();
    let now = Instant::now();
    match path {
        "/livez" if inner.is_alive(now) => Answer::ok(),
        "/livez" => Answer::unavailable("the collector's loop does not come round"),
        "/readyz" if inner.is_ready => Answer::ok(),
        "/readyz" => Answer::unavailable("not every watch is synced yet"),
        "/metrics" => Answer::metrics(inner.metrics(&api.requests(), now)),
        _ => Answer::not_found("/livez, /readyz and /metrics"),
    }
}
