//! etcd below the API server: a hundred thousand objects are there in seconds, and gone in one request.
//!
//! What is written here the API server takes for its own: objects as JSON, which it reads beside its own encoding.
use anyhow::{Context, Result};
use serde_json::{Value, json};
use ureq::Agent;

/// Operations that etcd takes in one transaction, and the bytes of it; it takes 1.5 MiB.
const AT_ONCE: (usize, usize) = (100, 1 << 20);

/// A client of etcd's JSON gateway.
#[derive(Debug)]
pub struct Store {
    agent: Agent,
    url: String,
}

impl Store {
    pub(crate) fn new(port: u16) -> Self {
        let agent = Agent::new_with_defaults();
        Self { agent, url: format!("http://127.0.0.1:{port}/v3/kv") }
    }

    /// Writes objects below their keys.
    ///
    /// # Errors
    /// When etcd does not take them.
    pub fn put(&self, objects: impl Iterator<Item = (String, Value)>) -> Result<()> {
        let mut objects = objects.peekable();
        while objects.peek().is_some() {
            let (mut puts, mut bytes) = (Vec::new(), 0);
            while puts.len() < AT_ONCE.0
                && bytes < AT_ONCE.1
                && let Some((key, object)) = objects.next()
            {
                let (key, value) = (base64(key.as_bytes()), base64(object.to_string().as_bytes()));
                bytes += value.len();
                puts.push(json!({"requestPut": {"key": key, "value": value}}));
            }
            self.post("txn", &json!({ "success": puts }))?;
        }
        Ok(())
    }

    /// Removes everything whose key begins with `prefix`, which ends with a slash.
    ///
    /// # Errors
    /// When etcd does not do it.
    pub fn remove(&self, prefix: &str) -> Result<()> {
        // What follows the slash in the alphabet ends the range.
        let end = prefix.strip_suffix('/').context("a prefix without a slash")?.to_owned() + "0";
        let range = json!({"key": base64(prefix.as_bytes()), "range_end": base64(end.as_bytes())});
        self.post("deleterange", &range)
    }

    fn post(&self, what: &str, body: &Value) -> Result<()> {
        let url = format!("{}/{what}", self.url);
        let answer = self.agent.post(&url).send(body.to_string());
        answer.map(drop).with_context(|| format!("etcd does not take {what}"))
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_padded() {
        let texts = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
