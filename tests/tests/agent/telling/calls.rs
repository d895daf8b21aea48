//! Calls that hang, fail or are refused for a while: no kill waits, and every eviction is told once.

use super::*;
use ebb_tests::api_server::Fault;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What goes wrong with the first request of each method.
fn first_of_each(
    mut faults: Vec<(&'static str, Fault)>,
) -> impl FnMut(&Request) -> Option<Fault> + Send + 'static {
    move |request| {
        let is_it =
            |(method, _): &(&str, Fault)| request.method == *method && is_about_pods(&request.path);
        let place = faults.iter().position(is_it)?;
        Some(faults.remove(place).1)
    }
}

/// The deletion was taken the first time, and so was the Event: the second time says that they are there.
#[test]
fn calls_that_hang_are_made_again_within_seconds_and_nothing_is_told_twice() {
    let (lab, hog, api) = beside_an_api_server();
    api.on_request(first_of_each(vec![
        ("PATCH", Fault::Hung),
        ("DELETE", Fault::Unanswered),
        ("POST", Fault::Unanswered),
    ]));
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    kill(&lab, &hog);
    let record = agent.wait("evictionTold");
    assert_eq!(record["refused"], serde_json::json!([]), "{record}");
    agent.stop();
    assert_eq!(api.uid_of("ns", "hog"), None);
    assert_eq!(events(&api).len(), 1);
    let writes = api.writes().into_iter().filter(|r| is_about_pods(&r.path));
    let patches: Vec<Instant> = writes.filter(|r| r.method == "PATCH").map(|r| r.at).collect();
    let waited = patches[1] - patches[0];
    assert!(waited < Duration::from_secs(20), "made again after {waited:?}");
}

#[test]
fn a_storm_of_429_delays_no_kill_and_is_borne_with_few_requests_and_all_is_told_in_order_then() {
    const RETRY_AFTER: u64 = 2;
    let (mut lab, hog, api) = beside_an_api_server();
    let second = another(&mut lab, &api, "second", 1000);
    let third = another(&mut lab, &api, "third", 800);
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    api.on_request(|_| Some(Fault::Refused(429, Some(RETRY_AFTER))));
    let begun = Instant::now();
    api.end_watches();
    for pod in [&hog, &second, &third] {
        kill(&lab, pod);
    }
    let in_storm = || api.requests().into_iter().filter(move |r| r.at >= begun);
    wait_for("four attempts", || {
        in_storm().filter(|r| r.path.ends_with("hog/status")).count() >= 4
    });
    let requests: Vec<_> = in_storm().collect();
    // The third waits for the second, which hangs once more.
    let mut faults = vec![Fault::Hung];
    api.on_request(move |r| if r.path.ends_with("second/status") { faults.pop() } else { None });
    assert_eq!(told(&mut agent, 3), ["ns/hog", "ns/second", "ns/third"]);
    agent.stop();
    let deleted: Vec<_> = writes_about_pods(&api).into_iter().filter(|w| w.0 == "DELETE").collect();
    let deleted: Vec<&str> = deleted.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(deleted, ["pods/hog", "pods/second", "pods/third"]);
    assert_eq!(events(&api).len(), 3);
    // Three watches, the Node's conditions and its taints, and three evictions; none of them sooner than it was told to.
    let path = |r: &Request| r.path.split('?').next().unwrap_or_default().to_owned();
    let paths: BTreeSet<String> = requests.iter().map(path).collect();
    assert!(paths.len() <= 8, "{paths:?}");
    for request in &requests {
        let same = requests.iter().filter(|r| r.at > request.at && path(r) == path(request));
        let gap = same.map(|r| r.at - request.at).min();
        let least = Duration::from_millis(RETRY_AFTER * 1000 - 100);
        assert!(gap.is_none_or(|gap| gap >= least), "{}: again after {gap:?}", request.path);
    }
}

/// A webhook that fails for one namespace says so with 500.
#[test]
fn an_eviction_that_the_api_server_fails_at_does_not_hold_up_the_others() {
    let (mut lab, hog, api) = beside_an_api_server();
    let second = another(&mut lab, &api, "second", 1000);
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    api.on_request(|request| {
        request.path.ends_with("pods/hog").then_some(Fault::Refused(500, None))
    });
    kill(&lab, &hog);
    let deletions = || writes_about_pods(&api).iter().filter(|(of, _)| of == "DELETE").count();
    wait_for("two attempts", || deletions() >= 2);
    kill(&lab, &second);
    assert_eq!(told(&mut agent, 1), ["ns/second"]);
    api.on_request(|_| None);
    assert_eq!(told(&mut agent, 2), ["ns/second", "ns/hog"]);
    agent.stop();
    assert_eq!(events(&api).len(), 2);
}

/// What is kept of what could not be told; nothing where there is no file.
fn outbox(lab: &Lab) -> String {
    let file = lab.dir("state").join("evictions-to-tell.json");
    std::fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn what_could_not_be_told_before_ebb_ended_is_told_once_by_the_next_run() {
    let (lab, hog, api) = beside_an_api_server();
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    api.set_silent(true);
    kill(&lab, &hog);
    agent.wait("evicted");
    agent.stop();
    assert!(outbox(&lab).contains(&hog.uid), "{}", outbox(&lab));
    let mut agent = start(&lab, &api, &["--enforce"]);
    api.set_silent(false);
    assert_eq!(told(&mut agent, 1), ["ns/hog"]);
    let records = agent.stop();
    assert_eq!(outbox(&lab), "");
    assert_eq!(records.iter().filter(|r| r["event"] == "evicted").count(), 0, "{records:#?}");
    assert_eq!(api.uid_of("ns", "hog"), None);
    assert_eq!(events(&api).len(), 1);
}

/// The next run does not know what has arrived: it tells all that may not have.
#[test]
fn an_event_that_hung_when_ebb_ended_is_written_once_and_the_pod_is_not_deleted_again() {
    for fault in [Fault::Hung, Fault::Unanswered] {
        let (lab, hog, api) = beside_an_api_server();
        api.on_request(move |r| (r.method == "POST").then(|| fault.clone()));
        let agent = start(&lab, &api, &["--enforce"]);
        wait_until_pods_are_watched(&api);
        kill(&lab, &hog);
        wait_for("it to be kept that the pod is deleted", || {
            outbox(&lab).contains("isDeleting\":true")
        });
        agent.stop();
        api.on_request(|_| None);
        // It takes its time to end.
        api.add_pod("ns", "hog", &hog.uid);
        let mut agent = start(&lab, &api, &["--enforce"]);
        told(&mut agent, 1);
        agent.stop();
        assert_eq!(events(&api).len(), 1);
        let deleted = writes_about_pods(&api).into_iter().filter(|write| write.0 == "DELETE");
        assert_eq!(deleted.count(), 1);
    }
}
