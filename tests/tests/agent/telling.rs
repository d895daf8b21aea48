//! The whole agent beside an API server in the test's own process: what it is told of evictions, and that no kill waits for it.

mod annotations;
mod calls;
mod connections;
mod credentials;
mod first_list;
mod mirrors;
mod node;
mod order;
mod rights;
mod soft;
mod watches;

use crate::Agent;
use crate::lab::{CONFIG, Lab, Pod};
use ebb_tests::api_server::{ApiServer, Request};
use ebb_tests::fake_node::wait_for;
use ebb_tests::runtime::Flavour;
use serde_json::Value;

const EVENTS: &str = "/api/v1/namespaces/ns/events";

fn start(lab: &Lab, api: &ApiServer, extra: &[&str]) -> Agent {
    start_with(CONFIG, lab, api, extra)
}

fn start_with(config: &str, lab: &Lab, api: &ApiServer, extra: &[&str]) -> Agent {
    start_by(&api.kubeconfig(), config, lab, extra)
}

fn start_by(text: &str, config: &str, lab: &Lab, extra: &[&str]) -> Agent {
    let kubeconfig = lab.dir("state").join("kubeconfig");
    std::fs::write(&kubeconfig, text).unwrap();
    let file = lab.dir("state").join("config.yaml");
    std::fs::write(&file, config).unwrap();
    let own = ["--kubernetes", "--node-name", "n1", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut agent = lab.start(&file, &[&own, extra].concat());
    agent.wait("inventory");
    agent
}

/// A node with one pod to be evicted, which the API server has.
fn beside_an_api_server() -> (Lab, Pod, ApiServer) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let api = ApiServer::start("n1").unwrap();
    api.add_pod("ns", "hog", &hog.uid);
    (lab, hog, api)
}

/// Another pod of the node, which the API server has.
fn another(lab: &mut Lab, api: &ApiServer, name: &str, mib: u64) -> Pod {
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod(name, &image, mib);
    api.add_pod("ns", name, &pod.uid);
    pod
}

fn is_watch(request: &Request, kind: &str) -> bool {
    request.path.contains(&format!("/{kind}?")) && request.path.contains("watch=1")
}

fn wait_until_pods_are_watched(api: &ApiServer) {
    wait_for("the pods to be watched", || api.requests().iter().any(|r| is_watch(r, "pods")));
}

/// Memory runs out until this pod is killed, and is back then.
fn kill(lab: &Lab, pod: &Pod) {
    lab.node.gives_back_when_killed(&pod.payload, 1500);
    lab.node.set_available(60);
    ends(pod);
}

/// This pod is killed, and nothing of it runs any more.
fn ends(pod: &Pod) {
    wait_for("the kill", || pod.payload.is_killed());
    wait_for("its end", || {
        let events = std::fs::read_to_string(pod.payload.path.join("cgroup.events")).unwrap();
        events.contains("populated 0")
    });
}

/// Writes about pods, as method and path below their namespace.
fn writes_about_pods(api: &ApiServer) -> Vec<(String, String)> {
    let below =
        |r: Request| Some((r.method, r.path.strip_prefix("/api/v1/namespaces/ns/")?.into()));
    api.writes().into_iter().filter_map(below).collect()
}

/// The Events about pods that there are.
fn events(api: &ApiServer) -> Vec<Value> {
    api.list(&format!("{EVENTS}/"))
}

/// The names of the pods that the API server was told of, in their order, once they are so many.
fn told(agent: &mut Agent, times: usize) -> Vec<String> {
    let mut names = Vec::new();
    wait_for(&format!("{times} to be told of"), || {
        agent.take_in();
        let told = agent.seen.iter().filter(|record| record["event"] == "evictionTold");
        names =
            told.map(|record| record["workload"]["name"].as_str().unwrap().to_owned()).collect();
        names.len() >= times
    });
    names
}

fn is_about_pods(path: &str) -> bool {
    path.contains("/namespaces/ns/")
}

#[test]
fn a_kill_does_not_wait_for_an_api_server_that_answers_nothing_and_is_told_in_order_afterwards() {
    let (lab, hog, api) = beside_an_api_server();
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    api.set_silent(true);
    kill(&lab, &hog);
    assert!(!agent.seen.iter().any(|record| record["event"] == "evictionTold"));
    api.set_silent(false);
    agent.wait("evictionTold");
    let writes = api.writes().into_iter().filter(|request| is_about_pods(&request.path));
    let mut told: Vec<_> = writes.collect();
    let deleted = told.iter().position(|request| request.method == "DELETE").unwrap();
    let says_dead = told[deleted - 1].body.pointer("/status/phase").is_some();
    // A question whose deadline has passed is asked again, however often: the first of each counts.
    let mut asked = std::collections::BTreeSet::new();
    told.retain(|request| asked.insert((request.method.clone(), request.path.clone())));
    let order: Vec<(&str, &str)> =
        told.iter().map(|r| (r.method.as_str(), r.path.as_str())).collect();
    let pod = "/api/v1/namespaces/ns/pods/hog";
    let status = format!("{pod}/status");
    assert_eq!(order, [("PATCH", status.as_str()), ("DELETE", pod), ("POST", EVENTS)]);
    // What is known to be dead by then needs no grace.
    assert_eq!(told[1].body["gracePeriodSeconds"], u64::from(!says_dead));
    assert_eq!(told[1].body["preconditions"]["uid"], hog.uid.as_str());
    agent.stop();
}

#[test]
fn a_dry_run_writes_nothing_to_the_api_server() {
    let (lab, hog, api) = beside_an_api_server();
    let mut agent = start(&lab, &api, &[]);
    lab.node.set_available(60);
    agent.wait("evicted");
    lab.node.set_available(1500);
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(api.writes().is_empty(), "{:#?}", api.writes());
    assert!(!api.requests().is_empty() && !hog.payload.is_killed());
}

#[test]
fn a_pod_that_has_taken_the_name_of_an_evicted_one_is_not_touched() {
    let (lab, hog, api) = beside_an_api_server();
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    api.set_silent(true);
    api.add_pod("ns", "hog", "uid-another");
    kill(&lab, &hog);
    api.set_silent(false);
    let told = agent.wait("evictionTold");
    assert_eq!(told["wasGone"], true, "{told}");
    assert_eq!(api.uid_of("ns", "hog").as_deref(), Some("uid-another"));
    agent.stop();
}

const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi}
";

/// The change that is proposed for the only threshold of a kubelet.
fn change(record: &serde_json::Value) -> &serde_json::Value {
    &record["thresholds"][0]["change"]
}

/// An overlap is a warning, not a reason not to start; it is told again when it has changed, whichever of the two files it was.
#[test]
fn it_is_told_where_ebb_does_not_act_before_the_kubelet_and_again_when_that_changes() {
    let (lab, _hog, api) = beside_an_api_server();
    let kubelet = lab.dir("state").join("kubelet.yaml");
    std::fs::write(&kubelet, KUBELET).unwrap();
    let named = ["--kubelet-config", kubelet.to_str().unwrap()];
    let mut agent = start(&lab, &api, &named);
    let told = |agent: &Agent| -> Vec<serde_json::Value> {
        let told = agent.seen.iter().filter(|record| record["event"] == "kubeletThresholds");
        told.cloned().collect()
    };
    let at_start = told(&agent);
    assert_eq!(at_start.len(), 1, "{at_start:#?}");
    assert_eq!(at_start[0]["file"], kubelet.to_str().unwrap());
    assert_eq!(at_start[0]["thresholds"][0]["hasRoom"], false, "{at_start:#?}");
    assert_eq!(*change(&at_start[0]), "write `memory.available: 200Mi` below `evictionHard:`");
    // ebb's file: enough, and said once; the same again is no news.
    let file = lab.dir("state").join("config.yaml");
    std::fs::write(&file, CONFIG.replace("100Mi", "250Mi")).unwrap();
    let now = agent.wait("kubeletThresholds");
    assert_eq!(now["thresholds"][0]["hasRoom"], true, "{now}");
    assert!(change(&now).is_null(), "{now}");
    std::fs::write(&file, CONFIG.replace("100Mi", "255Mi").replace("255Mi", "250Mi # as before"))
        .unwrap();
    agent.wait("reloaded");
    // The kubelet's file: too little again.
    std::fs::write(&kubelet, KUBELET.replace("100Mi", "150Mi")).unwrap();
    let now = agent.wait("kubeletThresholds");
    assert_eq!(*change(&now), "write `memory.available: 300Mi` below `evictionHard:`");
    // One that cannot be read leaves ebb at work.
    std::fs::write(&kubelet, KUBELET.replace("100Mi", "muchMi")).unwrap();
    let now = agent.wait("kubeletThresholds");
    let error = now["errors"][0].as_str().unwrap();
    assert!(error.contains("kubelet.yaml:3: evictionHard[\"memory.available\"]"), "{error}");
    assert!(now["file"].is_null() && now["thresholds"].as_array().unwrap().len() == 5, "{now}");
    assert_eq!(told(&agent).len(), 4);
    agent.stop();
}

/// Thresholds that ebb's file leaves out follow from the kubelet's, which is found in its root directory.
#[test]
fn without_thresholds_of_its_own_ebb_stays_above_the_kubelet() {
    let (lab, hog, api) = beside_an_api_server();
    std::fs::write(lab.dir("images").join("config.yaml"), KUBELET.replace("100Mi", "400Mi"))
        .unwrap();
    let kubeconfig = lab.dir("state").join("kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let file = lab.dir("state").join("config.yaml");
    std::fs::write(&file, "ebb: {mode: kubernetes, memoryAvailable: memAvailable}\n").unwrap();
    let own = ["--kubernetes", "--node-name", "n1", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut agent = lab.start(&file, &own);
    let told = agent.wait("kubeletThresholds");
    assert_eq!(told["thresholds"][0]["hasRoom"], true, "{told}");
    agent.wait("inventory");
    lab.node.set_available(750);
    let decided = agent.wait("decided");
    assert_eq!(decided["evict"][0]["workload"]["name"], "ns/hog", "{decided}");
    agent.stop();
    assert!(!hog.payload.is_killed(), "a dry run");
}

/// Host services would be candidates beside a kubelet, which nobody has asked for with `--kubernetes`.
#[test]
fn a_configuration_for_a_node_without_a_kubelet_is_refused_beside_one_while_running_too() {
    let (mut lab, hog, api) = beside_an_api_server();
    let service = lab.node.add("system.slice/app.service", 1800);
    let mut agent = start(&lab, &api, &[]);
    // Nothing else differs: which measure counts is written out.
    let standalone = CONFIG.replace("mode: kubernetes", "mode: standalone");
    std::fs::write(lab.dir("state").join("config.yaml"), standalone).unwrap();
    let answer = agent.wait("reloaded");
    assert_eq!(answer["accepted"], false, "{answer}");
    let errors = answer["errors"].to_string();
    assert!(errors.contains("with --kubernetes pods are the workloads"), "{errors}");
    lab.node.set_available(60);
    let decided = agent.wait("decided");
    assert_eq!(decided["evict"][0]["workload"]["name"], "ns/hog", "{decided}");
    agent.stop();
    assert!(!hog.payload.is_killed() && !service.is_killed(), "a dry run");
}
