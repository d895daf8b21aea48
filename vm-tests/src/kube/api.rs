//! The API server as tests speak to it: JSON over plain HTTP through `kubectl proxy`, which does the rest.
use super::accepted;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Where `kubectl proxy` listens.
pub(super) const PORT: u16 = 8001;
const PATIENCE: Duration = Duration::from_secs(120);

/// A client without a connection: each request makes one.
#[derive(Debug)]
pub(super) struct Api;

impl Api {
    /// Read an object or a list.
    pub(super) fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = self.ask("GET", path, None)?;
        accepted(status, path, &body)?;
        Ok(body)
    }

    /// An object, if there is one.
    pub(super) fn find(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.ask("GET", path, None)?;
        if status == 404 {
            return Ok(None);
        }
        accepted(status, path, &body).map(|()| Some(body))
    }

    /// Whether there is such an object.
    pub(super) fn has(&self, path: &str) -> Result<bool> {
        self.find(path).map(|found| found.is_some())
    }

    /// Make an object.
    pub(super) fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let (status, body) = self.ask("POST", path, Some(object))?;
        accepted(status, path, &body)?;
        Ok(body)
    }

    /// Delete an object at once; one that is not there is fine.
    pub(super) fn delete(&self, path: &str) -> Result<()> {
        let now = serde_json::json!({"gracePeriodSeconds": 0});
        let (status, body) = self.ask("DELETE", path, Some(&now))?;
        if status == 404 {
            return Ok(());
        }
        accepted(status, path, &body)
    }

    /// Whether the server says that it is ready to serve.
    pub(super) fn is_ready(&self) -> bool {
        self.ask("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200)
    }

    /// One request and its whole answer; what is no JSON is a string.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let what = || format!("cannot {method} {path}");
        let mut stream = TcpStream::connect(("127.0.0.1", PORT)).with_context(what)?;
        stream.set_read_timeout(Some(PATIENCE)).with_context(what)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        // With 1.0 the answer is in one piece and ends with the connection.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).with_context(what)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(what)?;
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            bail!("{method} {path} was answered by {answer:?}");
        };
        let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("no status in {head:?}"))?;
        Ok((status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()))))
    }
}
