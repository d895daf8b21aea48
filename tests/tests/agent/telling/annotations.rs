//! What pods ask of ebb by their annotations, and where that is honoured.

use super::*;
use crate::lab::json;
use ebb_tests::api_server::{pod, pod_object};
use serde_json::json as value;

/// Gives a pod annotations.
fn annotate(api: &ApiServer, of: &Pod, name: &str, annotations: &Value) {
    let mut object = pod_object("ns", name, &of.uid);
    object["metadata"]["annotations"] = annotations.clone();
    api.put(&pod("ns", name), object);
}

fn never() -> Value {
    value!({ "ebb.dev/evict": "never" })
}

/// Nothing in the configuration says that preferences count: beside an API server they do. Who would go first may ask for that anywhere, and who would go last at the price of others only where the operator says so.
#[test]
fn a_pod_may_ask_to_go_first_and_where_the_operator_lists_its_namespace_to_go_last() {
    for (of_hog, of_web, listed, is_hog_evicted) in [
        ("none", "prefer", "", false),
        ("avoid", "none", "  evictAvoidIn: [ns]\n", false),
        ("avoid", "none", "  evictAvoidIn: [other]\n", true),
    ] {
        let (mut lab, hog, api) = beside_an_api_server();
        let web = another(&mut lab, &api, "web", 800);
        for (pod, name, asks) in [(&hog, "hog", of_hog), (&web, "web", of_web)] {
            if asks != "none" {
                annotate(&api, pod, name, &value!({ "ebb.dev/evict": asks }));
            }
        }
        let config = format!("{CONFIG}{listed}");
        let mut agent = start_with(&config, &lab, &api, &["--enforce"]);
        wait_until_pods_are_known(&mut agent);
        let (victim, other) = if is_hog_evicted { (&hog, &web) } else { (&web, &hog) };
        kill(&lab, victim);
        agent.wait("evictionTold");
        assert!(!other.payload.is_killed(), "{of_hog} {of_web} {listed}");
        agent.stop();
    }
}

fn wait_until_pods_are_known(agent: &mut Agent) {
    wait_for("the API server's pods", || {
        agent.take_in();
        agent.seen.iter().any(|record| record["event"] == "apiServer" && record["up"] == true)
    });
}

/// Records about the annotation of a pod.
fn complaints(agent: &mut Agent, name: &str) -> usize {
    agent.take_in();
    let words = format!("pod ns/{name}: metadata.annotations[\"ebb.dev/evict\"] = \"never\"");
    let says = |r: &&Value| r["what"].as_str().is_some_and(|what| what.starts_with(&words));
    agent.seen.iter().filter(says).count()
}

#[test]
fn never_spares_a_pod_below_a_hard_threshold_as_long_as_the_operator_lists_its_namespace() {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 100);
    annotate(&api, &hog, "hog", &never());
    let honoured = format!("{CONFIG}  evictNeverIn: [other, ns]\n");
    let mut agent = start_with(&honoured, &lab, &api, &["--enforce"]);
    wait_until_pods_are_known(&mut agent);
    lab.node.set_available(60);
    wait_for("the innocent to be killed in its place", || web.payload.is_killed());
    lab.is_dead(&web);
    agent.wait("evictionDeferred");
    assert!(!hog.payload.is_killed(), "the operator has chosen that");
    assert_eq!(complaints(&mut agent, "hog"), 0);
    // Not listed any more: it counts as absent, which is told, and the pod goes.
    let file = lab.dir("state").join("config.yaml");
    std::fs::write(&file, CONFIG).unwrap();
    agent.signal(nix::sys::signal::Signal::SIGHUP);
    wait_for("the kill", || hog.payload.is_killed());
    wait_for("it to be told", || complaints(&mut agent, "hog") == 1);
    agent.stop();
}

/// Nothing happens to pods meanwhile that would have them judged anyway.
#[test]
fn a_list_of_namespaces_that_changes_is_obeyed_without_news_of_pods() {
    let (lab, hog, api) = beside_an_api_server();
    annotate(&api, &hog, "hog", &never());
    let honoured = format!("{CONFIG}  evictNeverIn: [ns]\n");
    let mut agent = start_with(&honoured, &lab, &api, &["--enforce"]);
    wait_until_pods_are_known(&mut agent);
    let file = lab.dir("state").join("config.yaml");
    std::fs::write(&file, CONFIG).unwrap();
    wait_for("it to be told", || complaints(&mut agent, "hog") == 1);
    kill(&lab, &hog);
    agent.stop();
}

#[test]
fn never_in_a_namespace_that_is_not_listed_counts_as_absent_and_is_told_once() {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 100);
    annotate(&api, &hog, "hog", &never());
    let elsewhere = format!("{CONFIG}  evictNeverIn: [nsa, kube-system]\n");
    let mut agent = start_with(&elsewhere, &lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    // Another change of the pod is no news of it.
    api.end_watches();
    kill(&lab, &hog);
    agent.wait("evictionTold");
    assert_eq!(complaints(&mut agent, "hog"), 1);
    assert!(!web.payload.is_killed());
    agent.stop();
}

#[test]
fn what_is_honoured_is_shown_by_explain_with_the_reason() {
    let (lab, hog, api) = beside_an_api_server();
    annotate(&api, &hog, "hog", &never());
    let kubeconfig = lab.dir("state").join("kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let file = lab.dir("state").join("config.yaml");
    let explained = |config: &str| {
        std::fs::write(&file, config).unwrap();
        let own = ["explain", "pod/hog", "-n", "ns", "-o", "json", "--node-name", "n1"];
        let place = ["--kubeconfig", kubeconfig.to_str().unwrap(), "-c", file.to_str().unwrap()];
        json(&lab.run(&[&own[..], &place].concat()))["live"].take()
    };
    let listed = explained(&format!("{CONFIG}  evictNeverIn: [ns]\n"));
    assert_eq!(listed["standing"], "safe", "{listed:#}");
    assert_eq!(listed["skipped"], value!({ "why": "protected", "reason": "annotated" }));
    assert_eq!(listed["object"]["problems"], value!([]));
    let elsewhere = explained(CONFIG);
    assert_eq!(elsewhere["standing"], "candidate", "{elsewhere:#}");
    let problem = elsewhere["object"]["problems"][0].as_str().unwrap();
    assert!(problem.contains("only in namespaces that `evictNeverIn` lists"), "{problem}");
}
