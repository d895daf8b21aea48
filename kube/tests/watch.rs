//! A watch against an API server in this process that answers by a script: history that is gone, 429, a cut connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{ApiResource, Change, Content, Event, watch};
use ebb_policy_cluster::{Kind, Scope, Uid};
use script::{Server, answer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

async fn follow(server: &Server) -> mpsc::Receiver<(u64, Event)> {
    let api = server.api().await;
    let of = ApiResource {
        kind: Kind::new("v1", "ConfigMap"),
        plural: "configmaps".into(),
        scope: Scope::Namespaced,
        is_watched: true,
    };
    let (to, from) = mpsc::channel(8);
    tokio::spawn(watch(api, of, Content::Metadata, Arc::new(Semaphore::new(1)), 1, to));
    from
}
fn list(version: u64, uid: &str) -> String {
    let body = format!(
        r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}","resourceVersion":"1"}}}}]}}"#
    );
    answer("200 OK", &body)
}

async fn next(from: &mut mpsc::Receiver<(u64, Event)>) -> Event {
    let event = tokio::time::timeout(Duration::from_secs(10), from.recv()).await;
    event.expect("nothing was reported").expect("the watch ended").1
}

fn shows(event: &Event, uid: &str) -> bool {
    matches!(event, Event::Changes(all) if matches!(&all[..], [Change::Applied(seen)] if seen.object.uid == Uid::new(uid)))
}

#[tokio::test]
async fn history_that_is_gone_is_listed_again_and_says_what_is_there() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}"#;
    let answers = vec![list(5, "u1"), answer("200 OK", &format!("{gone}\n")), list(9, "u2")];
    let server = Server::start(answers).await;
    let mut from = follow(&server).await;
    assert_eq!(next(&mut from).await, Event::Listing);
    assert!(shows(&next(&mut from).await, "u1"));
    assert_eq!(next(&mut from).await, Event::Listed(None));
    assert_eq!(next(&mut from).await, Event::Listing);
    assert!(shows(&next(&mut from).await, "u2"));
    assert_eq!(next(&mut from).await, Event::Listed(Some(BTreeSet::from([Uid::new("u2")]))));
}

#[tokio::test]
async fn a_429_is_told_and_retry_after_is_kept() {
    let many = "HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\nretry-after: 1\r\n\r\n";
    let server = Server::start(vec![many.to_owned(), list(5, "u1")]).await;
    let began = Instant::now();
    let mut from = follow(&server).await;
    assert_eq!(next(&mut from).await, Event::Listing);
    let Event::Broken { why, .. } = next(&mut from).await else { panic!("is not told") };
    assert!(why.starts_with("429"), "{why}");
    assert!(shows(&next(&mut from).await, "u1"));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_cut_watch_goes_on_from_the_last_version_that_came_whole() {
    let event = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u2","resourceVersion":"7"}}}"#;
    let cut = format!("{event}\n{}", &event[..30]);
    let server = Server::start(vec![list(5, "u1"), answer("200 OK", &cut)]).await;
    let mut from = follow(&server).await;
    for _ in 0..3 {
        next(&mut from).await;
    }
    assert!(shows(&next(&mut from).await, "u2"));
    let is_resumed = |asked: &Vec<String>| asked.iter().any(|a| a.contains("resourceVersion=7"));
    let until = Instant::now() + Duration::from_secs(10);
    while !is_resumed(&server.asked.lock().unwrap()) {
        assert!(Instant::now() < until, "{:?}", server.asked.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
