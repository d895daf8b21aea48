//! What is told of a pod, and in which order, as its end and the news of its kill come in.

use super::*;

fn eviction() -> Eviction {
    let object =
        crate::cluster::PodObject { namespace: "ns".into(), name: "p".into(), uid: "u".into() };
    Eviction::without_decision(&object, None, 0)
}

fn watch() -> ClusterWatch {
    ClusterWatch::new(Cluster::new(tokio::sync::mpsc::channel(1).0))
}

/// As words, in order.
fn told(orders: &[Order]) -> Vec<&str> {
    let word = |order: &Order| match order {
        Order::Tell(_) => "tell",
        Order::Dead(_) => "dead",
        _ => "else",
    };
    orders.iter().map(word).collect()
}

#[test]
fn a_pod_that_ended_before_its_eviction_is_told_of_is_told_as_dead() {
    let mut watch = watch();
    assert!(watch.note_end("u", Boot::now()).is_none(), "nobody is told of it yet");
    let orders = watch.tell("u".into(), eviction(), None);
    assert_eq!(told(&orders), ["tell", "dead"]);
}

#[test]
fn a_pod_that_ends_while_its_eviction_is_told_of_is_told_as_dead_then() {
    let mut watch = watch();
    let orders = watch.tell("u".into(), eviction(), None);
    assert_eq!(told(&orders), ["tell"]);
    assert_eq!(told(watch.note_end("u", Boot::now()).as_slice()), ["dead"]);
}

#[test]
fn an_end_of_long_ago_says_nothing_of_what_was_started_since() {
    let mut watch = watch();
    watch.ended.insert("u".into(), Boot(Boot::now().0.saturating_sub(60_000_000_000)));
    assert_eq!(told(&watch.tell("u".into(), eviction(), None)), ["tell"]);
}
