//! The API server as tests speak to it: JSON in, JSON out, and every answer with its status.
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

const PATIENCE: Duration = Duration::from_secs(60);

/// What is to become of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The delete call has no options: the finalizers of the object say.
    Unsaid,
    /// They go after their owner.
    Background,
    /// They go before their owner.
    Foreground,
    /// They stay.
    Orphan,
}

impl Policy {
    /// The body of the delete call.
    #[must_use]
    pub fn options(self) -> Value {
        if self == Self::Unsaid {
            json!({})
        } else {
            json!({"propagationPolicy": format!("{self:?}")})
        }
    }
}

/// The reference of an object in a namespace to an owner that never was.
///
/// Its UID is of this namespace alone: of one that was named in hundreds at once, kube-controller-manager was seen to
/// leave a dependent in one of them.
#[must_use]
pub fn never(namespace: &str) -> Value {
    let uid = format!("never-{namespace}");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": uid})
}

/// A client with the token of one user; clones share its connections.
#[derive(Debug, Clone)]
pub struct Api {
    agent: Agent,
    url: String,
    token: String,
}

impl Api {
    /// A client of the server at `url`, which shows a certificate of one of these authorities (PEM).
    pub(crate) fn new(url: &str, authorities: &[u8], token: &str) -> Result<Self> {
        let mut roots: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(authorities) {
            if let PemItem::Certificate(certificate) = item.context("no PEM")? {
                roots.push(certificate);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(PATIENCE))
            .max_idle_connections(64)
            .max_idle_connections_per_host(64)
            .build();
        Ok(Self { agent: config.into(), url: url.to_owned(), token: token.to_owned() })
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// When there is no such thing, or the server does not answer.
    pub fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = self.ask("GET", path, None)?;
        accepted("GET", status, path, &body)?;
        Ok(body)
    }

    /// Makes an object.
    ///
    /// # Errors
    /// When the server does not take it.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let (status, body) = self.ask("POST", path, Some(object))?;
        accepted("POST", status, path, &body)?;
        Ok(body)
    }

    /// Makes an object whose owner never was, in this collection of `namespace`, from `body` without metadata; returns its path.
    ///
    /// A collector that is at work removes it.
    ///
    /// # Errors
    /// When the server does not take it.
    pub fn create_garbage(&self, namespace: &str, path: &str, mut body: Value) -> Result<String> {
        body["metadata"] =
            json!({"generateName": "garbage-", "ownerReferences": [never(namespace)]});
        let made = self.create(path, &body)?;
        let name = made["metadata"]["name"].as_str().context("an object without a name")?;
        Ok(format!("{path}/{name}"))
    }

    /// Whether there is no object at this path.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn is_gone(&self, path: &str) -> Result<bool> {
        Ok(self.ask("GET", path, None)?.0 == 404)
    }

    /// Merges into an object.
    ///
    /// # Errors
    /// When the server does not take it.
    pub fn merge(&self, path: &str, patch: &Value) -> Result<Value> {
        let (status, body) = self.ask("PATCH", path, Some(patch))?;
        accepted("PATCH", status, path, &body)?;
        Ok(body)
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// When there is no such object, or the server does not take it.
    pub fn delete(&self, path: &str, options: &Value) -> Result<()> {
        let (status, body) = self.ask("DELETE", path, Some(options))?;
        accepted("DELETE", status, path, &body)
    }

    /// One request and its answer, whatever the status; what is no JSON is a string.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let what = || format!("cannot {method} {path}");
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Accept", "application/json")
            .header("Content-Type", kind);
        let answer = match body {
            Some(body) => self.agent.run(request.body(body.to_string()).with_context(what)?),
            None => self.agent.run(request.body(()).with_context(what)?),
        };
        let mut answer = answer.with_context(what)?;
        let status = answer.status().as_u16();
        let limited = answer.body_mut().with_config().limit(256 << 20);
        let text = limited.read_to_string().with_context(what)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

fn accepted(method: &str, status: u16, path: &str, body: &Value) -> Result<()> {
    let said = body["message"].as_str().map_or_else(|| body.to_string(), str::to_owned);
    ensure!((200..300).contains(&status), "{method} {path}: {status}, {said}");
    Ok(())
}
