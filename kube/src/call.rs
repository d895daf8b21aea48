//! One call: a request, a deadline, and an answer or the reason why there is none. Every call is counted by verb and code.

use crate::failure::{Failure, chain};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// How long a call may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Calls so far, by verb and code; the code of a call without an answer is `none`.
pub type Requests = BTreeMap<(&'static str, String), u64>;

/// A client of one API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
    server: String,
    requests: Arc<Mutex<Requests>>,
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
        Self { client, server, requests: Arc::default() }
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
            .map_err(|e| Failure::Connection(chain(&e)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|v| v.to_str().ok()?.parse().ok());
        let body = timeout(deadline, response.into_body().collect()).await;
        let body = body.ok().and_then(Result::ok).map(|b| b.to_bytes()).unwrap_or_default();
        Err(Failure::of(code, &body, retry_after))
    }

    /// A good answer's body.
    pub(crate) async fn send(&self, call: Call) -> Result<Vec<u8>, Failure> {
        let deadline = call.deadline;
        let body = self.open(call).await?.into_body();
        let body = timeout(deadline, body.collect())
            .await
            .map_err(|_| Failure::Deadline(deadline))?
            .map_err(|e| Failure::Connection(chain(&e)))?;
        Ok(body.to_bytes().to_vec())
    }

    /// A good answer, read.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, Failure> {
        let body = self.send(call).await?;
        serde_json::from_slice(&body).map_err(|e| Failure::Answer(e.to_string()))
    }
}
