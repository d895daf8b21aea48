//! What is told of a pod, and in which order, as its end and the news of its kill come in.

use super::*;

fn watch() -> ClusterWatch {
    ClusterWatch::new(crate::cluster::Cluster::new(tokio::sync::mpsc::channel(1).0))
}

#[test]
fn a_pod_that_ended_before_its_eviction_is_told_of_is_told_as_dead() {
    let mut watch = watch();
    assert!(watch.note_end("u", Boot::now()).is_none(), "nobody is told of it yet");
    assert!(watch.begin_telling("u", None));
}

#[test]
fn a_pod_that_ends_while_its_eviction_is_told_of_is_told_as_dead_then() {
    let mut watch = watch();
    assert!(!watch.begin_telling("u", None));
    assert!(matches!(watch.note_end("u", Boot::now()), Some(Order::Dead(uid)) if uid == "u"));
}

#[test]
fn an_end_of_long_ago_says_nothing_of_what_was_started_since() {
    let mut watch = watch();
    watch.ended.insert("u".into(), Boot(Boot::now().0.saturating_sub(60_000_000_000)));
    assert!(!watch.begin_telling("u", None));
}
