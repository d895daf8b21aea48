//! `/livez`, `/readyz` and `/metrics` of the collector.

use crate::status::Status;
use ebb_http::{Answer, Kept, Taken};
use ebb_kube::Api;
use std::sync::Arc;
use std::time::Instant;

/// Serves them, as soon as the address can be had.
pub(crate) async fn serve(taken: Taken, status: Arc<Status>, api: Api) {
    // What else may be the matter with the address was told when it was first tried.
    let Ok(listener) = taken.listener().await else { return };
    let metrics = Kept::default();
    ebb_http::serve(listener, move |path| answer(path, &status, &api, &metrics)).await;
}

fn answer(path: &str, status: &Status, api: &Api, metrics: &Kept) -> Answer {
    let now = Instant::now();
    match path {
        "/livez" if status.lock().is_alive(now) => Answer::ok(),
        "/livez" => Answer::unavailable("the collector's loop does not come round"),
        "/readyz" if status.lock().is_ready => Answer::ok(),
        "/readyz" => Answer::unavailable("not every watch is synced yet"),
        "/metrics" => {
            // However many ask, they do not keep the loop from what it shares with them.
            metrics.get(now, || Answer::metrics(status.lock().metrics(&api.requests(), now)))
        }
        _ => Answer::not_found("/livez, /readyz and /metrics"),
    }
}
