//! What the Node says: conditions and taints come and go with the pressure, and no taint outlives ebb.

use super::*;
use ebb_tests::api_server::Fault;
use serde_json::json;

const NODE: &str = "/api/v1/nodes/n1";

/// Conditions are taken back soon.
fn config() -> String {
    format!("evictionPressureTransitionPeriod: 1s\n{CONFIG}")
}

/// Keys of the Node's taints.
fn taints(api: &ApiServer) -> Vec<String> {
    let node = api.get(NODE).unwrap();
    let taints =
        node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

/// When a condition has changed for the last time.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// The status of a condition, where the Node has it.
fn condition(api: &ApiServer, of: &str) -> Option<String> {
    let node = api.get(NODE).unwrap();
    let all = node.pointer("/status/conditions")?.as_array()?;
    Some(all.iter().find(|condition| condition["type"] == of)?["status"].as_str()?.to_owned())
}

fn has_pressure(api: &ApiServer, status: &str) -> bool {
    condition(api, "EbbMemoryPressure").as_deref() == Some(status)
}

/// The Node has a taint and a condition of its kubelet, and one that an ebb which was killed has left.
fn put_node(api: &ApiServer) {
    let taint = |key: &str| json!({ "key": key, "effect": "NoSchedule" });
    let node = json!({
        "metadata": { "name": "n1", "uid": "uid-node" },
        "spec": { "taints": [taint("others"), taint("ebb.dev/disk-pressure")] },
        "status": { "conditions": [
            { "type": "Ready", "status": "True" },
            { "type": "EbbPIDPressure", "status": "False", "lastTransitionTime": LONG_AGO },
        ] },
    });
    api.put(NODE, node);
}

fn node_events(api: &ApiServer) -> Vec<String> {
    let events = api.list("/api/v1/namespaces/default/events/");
    let mut reasons: Vec<_> =
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    reasons.sort();
    reasons
}

#[test]
fn conditions_and_taints_come_and_go_with_the_pressure_and_others_stay() {
    let (lab, hog, api) = beside_an_api_server();
    put_node(&api);
    // Others change the Node just then, and it hangs.
    let mut faults = vec![Fault::Refused(409, None), Fault::Hung];
    api.on_request(
        move |r| {
            if r.method == "PATCH" && r.path == NODE { faults.pop() } else { None }
        },
    );
    let mut agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_for("the taint of an earlier run to go", || taints(&api) == ["others"]);
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    wait_for("the taint", || taints(&api) == ["others", "ebb.dev/memory-pressure"]);
    wait_for("the condition", || has_pressure(&api, "True"));
    lab.node.gives_back(&hog.payload, 1500);
    wait_for("the taint to go", || taints(&api) == ["others"]);
    assert!(has_pressure(&api, "False"));
    wait_for("the Events", || node_events(&api).len() == 2);
    assert_eq!(node_events(&api), ["EbbHasMemoryPressure", "EbbHasNoMemoryPressure"]);
    assert_eq!(condition(&api, "Ready").as_deref(), Some("True"));
    let node = api.get(NODE).unwrap();
    let all = node["status"]["conditions"].as_array().unwrap();
    let pids = all.iter().find(|condition| condition["type"] == "EbbPIDPressure").unwrap();
    assert_eq!(pids["lastTransitionTime"], LONG_AGO, "it has not changed");
    agent.take_in();
    agent.stop();
}

/// As without the right to create them.
#[test]
fn an_event_about_the_node_that_is_refused_has_nothing_else_said_again() {
    let (lab, hog, api) = beside_an_api_server();
    put_node(&api);
    let is_event = |r: &Request| r.method == "POST" && r.path.contains("/default/events");
    api.on_request(move |r| is_event(r).then_some(Fault::Refused(403, None)));
    let mut agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_for("the Node's conditions", || has_pressure(&api, "False"));
    let statuses = || api.writes().iter().filter(|r| r.path == format!("{NODE}/status")).count();
    let before = statuses();
    lab.node.set_available(60);
    wait_for("the condition", || has_pressure(&api, "True"));
    let says = |r: &Value| {
        let what = r["what"].as_str().unwrap_or_default();
        what.starts_with("Events about the Node are not written: 403")
    };
    wait_for("it to be told", || {
        agent.take_in();
        agent.seen.iter().any(says)
    });
    lab.node.gives_back(&hog.payload, 1500);
    wait_for("the condition to go", || has_pressure(&api, "False"));
    let events = || api.requests().iter().filter(|r| is_event(r)).count();
    wait_for("both Events to be tried", || events() == 2);
    assert_eq!(statuses() - before, 2);
    agent.stop();
}

#[test]
fn taints_are_taken_away_when_ebb_ends_under_pressure() {
    let (lab, hog, api) = beside_an_api_server();
    put_node(&api);
    let agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_for("the Node's conditions", || has_pressure(&api, "False"));
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    wait_for("the taint", || taints(&api) == ["others", "ebb.dev/memory-pressure"]);
    wait_for("the condition", || has_pressure(&api, "True"));
    agent.stop();
    assert_eq!(taints(&api), ["others"]);
    assert!(has_pressure(&api, "True"), "it is as it was last");
}

/// What hangs is given up: put back by nobody.
#[test]
fn ebb_that_ends_while_a_condition_hangs_takes_taints_away_and_says_nothing_more() {
    let (lab, hog, api) = beside_an_api_server();
    put_node(&api);
    let agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_for("the taint of an earlier run to go", || taints(&api) == ["others"]);
    wait_for("the Node's conditions", || has_pressure(&api, "False"));
    let taint = json!({ "key": "ebb.dev/memory-pressure", "effect": "NoSchedule" });
    let mut node = api.get(NODE).unwrap();
    node["spec"]["taints"] = json!([taint]);
    api.put(NODE, node);
    let statuses = || api.writes().iter().filter(|r| r.path == format!("{NODE}/status")).count();
    let before = statuses();
    let mut faults = vec![Fault::Hung];
    api.on_request(move |r| if r.path.ends_with("n1/status") { faults.pop() } else { None });
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    wait_for("the condition that hangs", || statuses() == before + 1);
    agent.stop();
    assert_eq!((taints(&api), statuses()), (vec![], before + 1));
}

#[test]
fn without_a_node_object_that_is_said_and_evictions_are_told_all_the_same() {
    let (lab, hog, api) = beside_an_api_server();
    api.remove(NODE);
    let mut agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    kill(&lab, &hog);
    agent.wait("evictionTold");
    let records = agent.stop();
    let says = |r: &&Value| r["what"].as_str().is_some_and(|w| w.contains("no Node of this name"));
    assert_eq!(records.iter().filter(says).count(), 1, "{records:#?}");
    assert!(!api.writes().iter().any(|r| r.path.contains("/nodes/")), "{:#?}", api.writes());
    assert_eq!((api.uid_of("ns", "hog"), events(&api).len()), (None, 1));
}

#[test]
fn a_node_that_is_made_later_gets_conditions_and_taints() {
    let (lab, hog, api) = beside_an_api_server();
    api.remove(NODE);
    let agent = start_with(&config(), &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    put_node(&api);
    wait_for("the taint", || taints(&api) == ["others", "ebb.dev/memory-pressure"]);
    agent.stop();
}
