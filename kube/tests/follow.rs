//! What the agent of a node follows, against an API server in this process that answers by a script.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{Update, follow};
use script::{Server, answer};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

/// Deeper than JSON is read.
fn deep() -> String {
    format!("{}1{}", r#"{"f:a":"#.repeat(200), "}".repeat(200))
}

fn object(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"1"{metadata}}},"spec":{spec}}}"#
    )
}

fn plain(n: usize) -> String {
    object(&n.to_string(), "", "{}")
}

fn list(items: &[String]) -> String {
    let items = items.join(",");
    answer("200 OK", &format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#))
}

async fn begin(answers: Vec<String>) -> (Server, mpsc::Receiver<Update<String>>) {
    let server = Server::start(answers).await;
    let api = server.api().await;
    let (to, from) = mpsc::channel(8);
    let read = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    tokio::spawn(async move { follow(api, &["/api/v1/pods"], read, |update| update, to).await });
    (server, from)
}

async fn told(from: &mut mpsc::Receiver<Update<String>>) -> Update<String> {
    let told = tokio::time::timeout(Duration::from_secs(10), from.recv()).await;
    told.expect("nothing was told").unwrap()
}

/// Whoever may write an object may write those, and is not to hide it, or any other.
#[tokio::test]
async fn an_object_with_managed_fields_of_any_depth_is_read_as_any_other() {
    let managed = |name: &str| object(name, &format!(r#","managedFields":[{}]"#, deep()), "{}");
    let items: Vec<String> = [managed("first")].into_iter().chain((0..100).map(plain)).collect();
    let added = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", managed("second"));
    let (_server, mut from) = begin(vec![list(&items), answer("200 OK", &added)]).await;
    for known in [101, 102] {
        let Update::All(all) = told(&mut from).await else { panic!("it is broken") };
        assert_eq!(all.len(), known);
        assert!(all.contains_key("first"));
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_said_however_many_come_after_it() {
    let items: Vec<String> =
        [object("deep", "", &deep())].into_iter().chain((0..100).map(plain)).collect();
    let (_server, mut from) = begin(vec![list(&items)]).await;
    let Update::Broken(why) = told(&mut from).await else { panic!("it is not said") };
    assert!(why.contains("recursion limit"), "{why}");
}
