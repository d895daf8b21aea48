//! What the agent of a node follows, against an API server in this process that answers by a script.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{Update, follow};
use script::{Server, answer};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

/// Deeper than JSON is read.
fn too_deep() -> String {
    let (open, close) = (r#"{"f:a":"#.repeat(200), "}".repeat(200));
    format!(
        r#"{{"metadata":{{"name":"deep","uid":"deep","resourceVersion":"1","managedFields":[{open}1{close}]}}}}"#
    )
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_no_other_from_being_read() {
    let plain =
        |n: usize| format!(r#"{{"metadata":{{"name":"{n}","uid":"{n}","resourceVersion":"1"}}}}"#);
    let items: Vec<String> = std::iter::once(too_deep()).chain((0..100).map(plain)).collect();
    let body = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{}]}}"#, items.join(","));
    let changes = format!(
        "{{\"type\":\"ADDED\",\"object\":{}}}\n{{\"type\":\"ADDED\",\"object\":{}}}\n",
        too_deep(),
        plain(100)
    );
    let server = Server::start(vec![answer("200 OK", &body), answer("200 OK", &changes)]).await;
    let api = server.api().await;
    let (to, mut from) = mpsc::channel(8);
    let read = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    tokio::spawn(async move { follow(api, &["/api/v1/pods"], read, |update| update, to).await });
    for known in [100, 101] {
        let told = tokio::time::timeout(Duration::from_secs(10), from.recv()).await;
        let Update::All(all) = told.expect("nothing was told").unwrap() else { panic!("broken") };
        assert_eq!(all.len(), known);
        assert!(!all.contains_key("deep"));
    }
}
