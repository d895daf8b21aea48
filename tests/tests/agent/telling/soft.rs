//! A soft threshold beside an API server: evictions by their subresource, which budgets may refuse.

use super::*;
use crate::forecasts::FALL;
use ebb_tests::api_server::{Fault, pod, pod_object};
use std::time::Duration;

const SOFT: &str = "\
evictionHard:
  memory.available: 10Mi
evictionSoft:
  memory.available: 100Mi
evictionSoftGracePeriod:
  memory.available: 100ms
evictionMaxPodGracePeriod: 30
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
";

/// A pod with a grace of its own, below the longest that is given.
fn patient(lab: &mut Lab, api: &ApiServer, name: &str, mib: u64) -> Pod {
    patient_for(20, lab, api, name, mib)
}

fn patient_for(seconds: u64, lab: &mut Lab, api: &ApiServer, name: &str, mib: u64) -> Pod {
    let own = another(lab, api, name, mib);
    let mut object = pod_object("ns", name, &own.uid);
    object["spec"]["terminationGracePeriodSeconds"] = seconds.into();
    api.put(&pod("ns", name), object);
    own
}

fn asked(api: &ApiServer, name: &str) -> Vec<Request> {
    let path = pod("ns", name) + "/eviction";
    api.requests().into_iter().filter(|r| r.path == path).collect()
}

#[test]
fn a_pod_that_its_budget_spares_is_left_out_and_another_is_evicted_with_its_grace() {
    let (mut lab, hog, api) = beside_an_api_server();
    let second = patient(&mut lab, &api, "second", 1000);
    api.on_request(|r| r.path.ends_with("hog/eviction").then_some(Fault::Spared(Some(600))));
    let mut agent = start_with(SOFT, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    let refused = agent.wait("evictionRefused");
    assert_eq!(refused["workload"]["name"], "ns/hog", "{refused}");
    let told = agent.wait("evictionTold");
    assert_eq!(
        (&told["workload"]["name"], &told["refused"]),
        (&"ns/second".into(), &serde_json::json!([]))
    );
    let eviction = &asked(&api, "second")[0].body;
    assert_eq!(eviction["deleteOptions"]["gracePeriodSeconds"], 20, "{eviction}");
    assert_eq!(eviction["deleteOptions"]["preconditions"]["uid"], second.uid.as_str());
    assert!(!second.payload.is_killed(), "its grace has only begun");
    lab.node.set_available(1500);
    lab.is_dead(&second);
    agent.wait("pressureRelieved");
    agent.stop();
    // What the subresource has deleted is not deleted again; the Event is all that is left to write.
    let writes = writes_about_pods(&api);
    assert!(!writes.iter().any(|(method, _)| method != "POST"), "{writes:?}");
    assert_eq!((asked(&api, "hog").len(), events(&api).len()), (1, 1));
    assert!(!hog.payload.is_killed() && !second.payload.is_killed());
    assert_eq!(lab.world().count("StopContainer"), 0);
}

/// There is time yet: its Service loses it at once, it has what is left until the threshold, and a budget is asked.
#[test]
fn on_a_forecast_a_pod_is_evicted_as_below_a_soft_threshold() {
    const FORECAST: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
  forecast: {enabled: true, gracePeriod: 10s}
";
    let (mut lab, hog, api) = beside_an_api_server();
    let second = another(&mut lab, &api, "second", 1000);
    api.on_request(|r| r.path.ends_with("hog/eviction").then_some(Fault::Spared(Some(600))));
    let mut agent = start_with(FORECAST, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    let growing = [(&hog.payload, 1500), (&second.payload, 1000)];
    let is_asked = || !asked(&api, "second").is_empty();
    lab.node.falls_until("the second to be evicted", FALL, &growing, is_asked);
    let refused = agent.wait("evictionRefused");
    assert_eq!(refused["workload"]["name"], "ns/hog", "{refused}");
    let options = &asked(&api, "second")[0].body["deleteOptions"];
    let grace = options["gracePeriodSeconds"].as_u64();
    assert!(grace.is_some_and(|seconds| (1..10).contains(&seconds)), "{options}");
    assert_eq!(options["preconditions"]["uid"], second.uid.as_str());
    lab.node.set_available(1500);
    lab.is_dead(&second);
    agent.wait("evictionTold");
    agent.stop();
    assert!(!hog.payload.is_killed() && !second.payload.is_killed());
    assert_eq!((asked(&api, "hog").len(), lab.world().count("StopContainer")), (1, 0));
}

#[test]
fn a_budget_that_spares_the_only_candidate_is_asked_again_when_it_wants_to_be() {
    let (lab, hog, api) = beside_an_api_server();
    api.on_request(|r| r.path.ends_with("hog/eviction").then_some(Fault::Spared(Some(1))));
    let mut agent = start_with(SOFT, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    wait_for("three questions", || asked(&api, "hog").len() >= 3);
    for pair in asked(&api, "hog").windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(gap > Duration::from_millis(900), "asked again after {gap:?}");
    }
    assert!(!hog.payload.is_killed());
    api.on_request(|_| None);
    agent.wait("evictionTold");
    lab.node.set_available(1500);
    lab.is_dead(&hog);
    agent.stop();
    assert_eq!(events(&api).len(), 1);
}

#[test]
fn a_budget_that_is_to_be_passed_over_is_asked_once_and_then_the_runtime_is() {
    let (lab, hog, api) = beside_an_api_server();
    api.on_request(|r| r.path.ends_with("hog/eviction").then_some(Fault::Spared(Some(600))));
    let config = format!("{SOFT}  disruptionBudgets: false\n");
    let mut agent = start_with(&config, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    agent.wait("evictionRefused");
    wait_for("the runtime is asked", || lab.world().count("StopContainer") == 1);
    let is_deletion = |r: &Request| r.method == "DELETE" && r.path == pod("ns", "hog");
    wait_for("the deletion", || api.requests().iter().any(is_deletion));
    let deletion = api.requests().into_iter().find(is_deletion).unwrap();
    // With less the kubelet would cut short what the runtime gives.
    assert_eq!(deletion.body["gracePeriodSeconds"], 30, "{}", deletion.body);
    lab.node.set_available(1500);
    lab.is_dead(&hog);
    let told = agent.wait("evictionTold");
    assert_eq!(told["workload"]["name"], "ns/hog", "{told}");
    agent.stop();
    assert_eq!((asked(&api, "hog").len(), events(&api).len()), (1, 1));
}

#[test]
fn an_eviction_that_hangs_is_asked_for_again_before_the_runtime_is() {
    let (lab, hog, api) = beside_an_api_server();
    let mut faults = vec![Fault::Hung];
    api.on_request(move |r| if r.path.ends_with("/eviction") { faults.pop() } else { None });
    // A grace that is over long before the answer: it begins with the answer, as nobody has asked the pod to end.
    let config = SOFT.replace("GracePeriod: 30", "GracePeriod: 10");
    let mut agent = start_with(&config, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    agent.wait("evictionTold");
    assert!(!hog.payload.is_killed());
    lab.node.set_available(1500);
    lab.is_dead(&hog);
    agent.stop();
    assert_eq!((asked(&api, "hog").len(), events(&api).len()), (2, 1));
    assert_eq!(lab.world().count("StopContainer"), 0);
}

/// No budget has refused anything.
#[test]
fn an_api_server_with_too_much_to_do_is_asked_again_when_it_wants_to_be() {
    let (lab, hog, api) = beside_an_api_server();
    let mut faults = vec![Fault::Refused(429, Some(1)); 2];
    api.on_request(move |r| if r.path.ends_with("/eviction") { faults.pop() } else { None });
    let mut agent = start_with(SOFT, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    agent.wait("evictionTold");
    lab.node.set_available(1500);
    lab.is_dead(&hog);
    let records = agent.stop();
    let all = asked(&api, "hog");
    assert_eq!((all.len(), events(&api).len()), (3, 1));
    for pair in all.windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(gap > Duration::from_millis(900), "asked again after {gap:?}");
    }
    assert!(!records.iter().any(|r| r["event"] == "evictionRefused"), "{records:#?}");
    assert_eq!(lab.world().count("StopContainer"), 0);
}

#[test]
fn the_runtime_stops_what_the_api_server_fails_to_evict_or_may_not() {
    for (code, times) in [(500, 3), (403, 1)] {
        let (lab, _, api) = beside_an_api_server();
        api.on_request(move |r| {
            r.path.ends_with("/eviction").then_some(Fault::Refused(code, None))
        });
        let mut agent = start_with(SOFT, &lab, &api, &["--enforce"]);
        wait_until_pods_are_watched(&api);
        lab.node.set_available(60);
        wait_for("the runtime to be asked", || lab.world().count("StopContainer") > 0);
        lab.node.set_available(1500);
        agent.wait("evictionTold");
        let records = agent.stop();
        let words = format!("does not evict it: {code}");
        let says = |r: &&Value| r["what"].as_str().is_some_and(|what| what.contains(&words));
        assert_eq!(records.iter().filter(says).count(), 1, "{records:#?}");
        assert_eq!((asked(&api, "hog").len(), events(&api).len()), (times, 1));
    }
}

/// Longer than anybody here waits.
const AN_HOUR: u64 = 3600;

fn with_an_hour() -> String {
    SOFT.replace("GracePeriod: 30", "GracePeriod: 3600")
}

/// It has an hour to end by itself, and the node has not: it is killed, and nobody else pays for its grace.
#[test]
fn a_hard_threshold_waits_for_no_grace_and_cuts_it_short_as_part_of_the_same_eviction() {
    let (mut lab, _, api) = beside_an_api_server();
    let slow = patient_for(AN_HOUR, &mut lab, &api, "slow", 1800);
    let mut agent = start_with(&with_an_hour(), &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    agent.wait("evictionTold");
    assert_eq!(asked(&api, "slow")[0].body["deleteOptions"]["gracePeriodSeconds"], AN_HOUR);
    assert!(!slow.payload.is_killed(), "its grace has only begun");
    lab.node.gives_back_when_killed(&slow.payload, 1500);
    lab.node.set_available(5);
    ends(&slow);
    lab.is_dead(&slow);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(victims(&records), ["ns/slow"], "{records:#?}");
    assert_eq!((asked(&api, "hog").len(), events(&api).len()), (0, 1));
}

/// The API server has not even answered by then; the kill is told as any other.
#[test]
fn a_hard_threshold_waits_for_no_answer_about_an_eviction_either() {
    let (mut lab, _, api) = beside_an_api_server();
    let slow = patient_for(AN_HOUR, &mut lab, &api, "slow", 1800);
    api.on_request(|r| r.path.ends_with("/eviction").then_some(Fault::Hung));
    let mut agent = start_with(&with_an_hour(), &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    wait_for("the question", || asked(&api, "slow").len() == 1);
    lab.node.gives_back_when_killed(&slow.payload, 1500);
    lab.node.set_available(5);
    ends(&slow);
    lab.is_dead(&slow);
    agent.wait("evictionTold");
    let records = agent.stop();
    assert_eq!(victims(&records), ["ns/slow"], "{records:#?}");
    assert!(api.uid_of("ns", "slow").is_none() && events(&api).len() == 1);
}

/// Who was killed or told to end, each once.
fn victims(records: &[Value]) -> Vec<&str> {
    let names = records
        .iter()
        .filter(|record| record["event"] == "evicted")
        .filter_map(|record| record["workload"]["name"].as_str());
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// The kubelet would kill it, and the kernel anybody.
#[test]
fn a_budget_spares_nobody_below_a_hard_threshold_where_nobody_else_is_left() {
    let (lab, hog, api) = beside_an_api_server();
    api.on_request(|r| r.path.ends_with("hog/eviction").then_some(Fault::Spared(Some(600))));
    let mut agent = start_with(SOFT, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    agent.wait("evictionRefused");
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(5);
    wait_for("the kill", || hog.payload.is_killed());
    agent.wait("evictionTold");
    agent.stop();
}
