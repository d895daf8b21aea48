//! One call: a request, a deadline, and an answer or the reason why there is none. Every call is counted by verb and code.

use crate::failure::Failure;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of an error that are read: whatever stands before the API server may go on for ever.
const LARGEST_ERROR: usize = 64 << 10;

/// How long a call may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// How long a write of a node's agent may take, unless it says otherwise: it tries again, and a server that was frozen answers the next one.
const WRITES_WITHIN: Duration = Duration::from_secs(5);

/// Calls so far, by verb and code; the code of a call without an answer is `none`.
pub type Requests = BTreeMap<(&'static str, String), u64>;

/// A client of one API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
    server: String,
    requests: Arc<Mutex<Requests>>,
    /// The deadline of a node's writes.
    pub(crate) writes_within: Duration,
}

/// What is asked.
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) deadline: Duration,
}

pub(crate) const JSON: &str = "application/json";

/// Of an object that comes back and that nobody reads, its metadata alone.
pub(crate) const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

impl Call {
    pub(crate) fn new(verb: &'static str, method: http::Method, path: String) -> Self {
        Self {
            verb,
            method,
            path,
            accept: JSON,
            content_type: JSON,
            body: Vec::new(),
            deadline: DEADLINE,
        }
    }

    pub(crate) fn get(verb: &'static str, path: String) -> Self {
        Self::new(verb, http::Method::GET, path)
    }

    pub(crate) fn body(self, body: &serde_json::Value) -> Self {
        Self { body: body.to_string().into_bytes(), ..self }
    }
}

impl Api {
    pub(crate) fn new(client: Client, server: String) -> Self {
        Self { client, server, requests: Arc::default(), writes_within: WRITES_WITHIN }
    }

    /// The same, which waits so long for a node's writes as the caller has been kept waiting `times` already: first 5 s, at last 30 s, for an API server may have to wait for a webhook.
    #[must_use]
    pub fn after_deadlines(&self, times: u32) -> Self {
        let doubled = WRITES_WITHIN.saturating_mul(1 << times.saturating_sub(1).min(4));
        Self { writes_within: doubled.min(DEADLINE), ..self.clone() }
    }

    /// The URL of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Calls so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The head of a good answer; its body is still to come.
    pub(crate) async fn open(&self, call: Call) -> Result<Response<Body>, Failure> {
        let Call { verb, method, path, accept, content_type, body, deadline } = call;
        let mut request = Request::builder().method(method).uri(path).header("accept", accept);
        if !body.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Body::from(body)).map_err(|e| Failure::Answer(e.to_string()))?;
        let sent = timeout(deadline, self.client.send(request)).await;
        let code = match &sent {
            Ok(Ok(response)) => response.status().as_u16().to_string(),
            _ => "none".to_owned(),
        };
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            *requests.entry((verb, code)).or_default() += 1;
        }
        let response = sent
            .map_err(|_| Failure::Deadline(deadline))?
            .map_err(|e| Failure::unreached(&self.server, &e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|v| v.to_str().ok()?.parse().ok());
        let mut said = Vec::new();
        let mut body = response.into_body();
        let read = async {
            while said.len() < LARGEST_ERROR
                && let Some(Ok(frame)) = body.frame().await
            {
                said.extend_from_slice(&frame.into_data().unwrap_or_default());
            }
        };
        // What has come by then says what it can.
        let _ = timeout(deadline, read).await;
        Err(Failure::of(code, &said, retry_after))
    }

    /// A good answer's body.
    pub(crate) async fn send(&self, call: Call) -> Result<Vec<u8>, Failure> {
        let deadline = call.deadline;
        let mut body = self.open(call).await?.into_body();
        let whole = async {
            let mut whole = Vec::new();
            // Frame by frame: a long list is in memory once.
            while let Some(frame) = body.frame().await {
                whole.extend_from_slice(&frame?.into_data().unwrap_or_default());
            }
            Ok(whole)
        };
        timeout(deadline, whole)
            .await
            .map_err(|_| Failure::Deadline(deadline))?
            .map_err(|e: kube::Error| Failure::unreached(&self.server, &e))
    }

    /// A good answer, read.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, Failure> {
        let body = self.send(call).await?;
        serde_json::from_slice(&body).map_err(|e| Failure::Answer(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_that_was_kept_waiting_again_and_again_is_given_more_time() {
        let uri = "http://127.0.0.1:9".parse().unwrap();
        let client = Client::try_from(kube::Config::new(uri)).unwrap();
        let api = Api::new(client, String::new());
        let within = |times| api.after_deadlines(times).writes_within.as_secs();
        assert_eq!([0, 1, 2, 3, 4, 9, u32::MAX].map(within), [5, 5, 10, 20, 30, 30, 30]);
    }
}
