//! Watches that fail: what is behind them is learned again.

use super::*;
use ebb_tests::api_server::{Fault, pod, pod_object};
use std::time::Duration;

/// Has the API server get a pod that says something which is told as soon as it is read.
fn put_marked(api: &ApiServer, name: &str) {
    let mut object = pod_object("ns", name, &format!("uid-{name}"));
    object["metadata"]["annotations"] = serde_json::json!({ "ebb.dev/evict": "nonsense" });
    api.put(&pod("ns", name), object);
}

fn is_marked(record: &Value, name: &str) -> bool {
    record["event"] == "degraded"
        && record["what"].as_str().is_some_and(|what| what.starts_with(&format!("pod ns/{name}:")))
}

fn wait_until_learned(agent: &mut Agent, name: &str) {
    wait_for(&format!("{name} to be learned of"), || {
        agent.take_in();
        agent.seen.iter().any(|record| is_marked(record, name))
    });
}

fn version_of(request: &Request) -> usize {
    let version = request.path.split("resourceVersion=").nth(1).unwrap();
    version.split('&').next().unwrap().parse().unwrap()
}

fn of_pods(api: &ApiServer, is_watched: bool) -> Vec<Request> {
    let own = api.requests().into_iter().filter(|r| r.path.contains("/pods?"));
    own.filter(|r| is_watch(r, "pods") == is_watched).collect()
}

#[test]
fn a_watch_from_a_version_that_is_too_old_is_followed_by_a_list() {
    for fault in [Fault::Refused(410, None), Fault::TooOld] {
        let (lab, _, api) = beside_an_api_server();
        let mut agent = start(&lab, &api, &[]);
        wait_until_pods_are_watched(&api);
        let old = version_of(&of_pods(&api, true)[0]);
        api.on_request(move |r| {
            (is_watch(r, "pods") && version_of(r) == old).then(|| fault.clone())
        });
        api.end_watches();
        wait_for("the refusal", || of_pods(&api, true).len() > 1);
        put_marked(&api, "late");
        wait_until_learned(&mut agent, "late");
        assert!(of_pods(&api, false).len() > 1, "it was not listed again");
        put_marked(&api, "later");
        wait_until_learned(&mut agent, "later");
        agent.stop();
    }
}

/// Lists succeed all the while.
#[test]
fn a_server_that_calls_every_version_too_old_is_listed_more_and_more_seldom() {
    let (lab, _, api) = beside_an_api_server();
    api.on_request(|r| is_watch(r, "pods").then_some(Fault::Refused(410, None)));
    let agent = start(&lab, &api, &[]);
    wait_for("six lists", || of_pods(&api, false).len() >= 6);
    let lists = of_pods(&api, false);
    let gap = lists[5].at - lists[4].at;
    assert!(gap > Duration::from_secs(1), "listed again after {gap:?}");
    agent.stop();
}

#[test]
fn a_watch_that_is_cut_in_the_middle_of_a_line_is_resumed_before_it() {
    let (lab, _, api) = beside_an_api_server();
    let mut agent = start(&lab, &api, &[]);
    wait_until_pods_are_watched(&api);
    let mut faults = vec![Fault::Cut];
    api.on_request(move |r| if is_watch(r, "pods") { faults.pop() } else { None });
    api.end_watches();
    wait_for("the watch to be cut", || of_pods(&api, true).len() == 2);
    put_marked(&api, "late");
    wait_until_learned(&mut agent, "late");
    put_marked(&api, "later");
    wait_until_learned(&mut agent, "later");
    let records = agent.stop();
    let versions: Vec<usize> = of_pods(&api, true).iter().map(version_of).collect();
    assert_eq!(versions[1], versions[2], "{versions:?}");
    assert_eq!(of_pods(&api, false).len(), 1, "nothing was missed: no list is needed");
    assert_eq!(records.iter().filter(|record| is_marked(record, "late")).count(), 1);
    let away = records.iter().filter(|r| r["event"] == "apiServer" && r["up"] == false);
    assert_eq!(away.count(), 0, "it was back at once");
}

/// Such a watch is given up only after minutes: until then the runtime's word counts for pods that are new.
#[test]
fn a_pod_that_a_half_open_watch_does_not_tell_of_is_evicted_and_told_of_by_its_uid() {
    let (mut lab, _, api) = beside_an_api_server();
    api.on_request(|r| is_watch(r, "pods").then_some(Fault::HalfOpen));
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    let late = another(&mut lab, &api, "late", 3000);
    wait_for("the runtime to be asked of it", || {
        lab.world().calls.iter().any(|call| format!("{call:?}").contains(&late.container))
    });
    // Whoever else is chosen before it is known frees nothing.
    kill(&lab, &late);
    wait_for("it to be told of", || told(&mut agent, 1).contains(&"ns/late".to_owned()));
    agent.stop();
    assert_eq!(api.uid_of("ns", "late"), None);
    let of_late = |event: &Value| event["involvedObject"]["uid"] == late.uid.as_str();
    assert_eq!(events(&api).iter().filter(|event| of_late(event)).count(), 1);
}
