//! What the API server is told before what.

use super::{
    beside_an_api_server, is_about_pods, kill, start, wait_until_pods_are_watched,
    writes_about_pods,
};
use crate::lab::CONFIG;
use crate::swap::look_again;
use ebb_tests::api_server::{Fault, Request};
use ebb_tests::fake_node::wait_for;
use std::time::{Duration, Instant};

/// What takes the pod's place is made as soon as the pod has failed, and must not land here.
#[test]
fn the_node_has_its_taint_before_anything_is_said_of_the_pod() {
    /// Longer than anything else that is waited for before the pod is spoken of.
    const LATE: Duration = Duration::from_millis(700);
    /// Longer than this nobody waits for the taint, which comes late on a machine that stands still.
    const AWAITED: Duration = Duration::from_secs(2);
    let (lab, hog, api) = beside_an_api_server();
    let taints = |r: &Request| r.path == "/api/v1/nodes/n1" && r.method == "PATCH";
    api.on_request(move |r| taints(r).then_some(Fault::Late(LATE)));
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    let begun = Instant::now();
    kill(&lab, &hog);
    agent.wait("evictionTold");
    let writes = api.writes();
    let tainted = writes.iter().find(|r| taints(r)).unwrap().at + LATE;
    let failed = writes.iter().find(|r| is_about_pods(&r.path)).unwrap().at;
    assert!(failed >= tainted.min(begun + AWAITED), "{writes:#?}");
    agent.stop();
}

/// Its kubelet would say so too, when it comes round.
#[test]
fn the_object_of_a_pod_that_dies_late_goes_when_it_is_dead() {
    let (lab, hog, api) = beside_an_api_server();
    api.set_graceful();
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    agent.wait("evictionTold");
    assert_eq!(api.uid_of("ns", "hog").as_deref(), Some(hog.uid.as_str()), "it still runs");
    lab.node.set_available(1500);
    lab.is_dead(&hog);
    wait_for("its object to go", || api.uid_of("ns", "hog").is_none());
    let writes = writes_about_pods(&api);
    let writes: Vec<(&str, &str)> =
        writes.iter().map(|(method, path)| (method.as_str(), path.as_str())).collect();
    let (status, pod) = ("pods/hog/status", "pods/hog");
    let told = [("PATCH", status), ("DELETE", pod), ("POST", "events")];
    assert_eq!(writes, [&told[..], &[("PATCH", status), ("DELETE", pod)]].concat());
    agent.stop();
}

/// Its kubelet starts it again as long as nobody has told it of the deletion; nothing more happens in the runtime meanwhile.
#[test]
fn what_runs_of_the_pod_when_its_deletion_is_taken_at_last_is_killed_at_once() {
    const COVERED: Duration = Duration::from_secs(10);
    let (mut lab, hog, api) = beside_an_api_server();
    api.on_request(|r| (r.method == "DELETE").then_some(Fault::Refused(500, None)));
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    kill(&lab, &hog);
    // Until then it would be killed as part of the eviction, taken or not.
    let evicted = Instant::now();
    wait_for("the deletion to be awaited no longer", || {
        evicted.elapsed() > COVERED + Duration::from_secs(1)
    });
    let again = lab.start_again_in_its_sandbox(hog, 20);
    wait_for("the runtime to be asked of it", || {
        lab.world()
            .calls
            .iter()
            .any(|(call, on)| *call == "ContainerStatus" && *on == again.container)
    });
    look_again(&mut agent, &lab.dir("state").join("config.yaml"), CONFIG);
    assert!(!again.payload.is_killed(), "the node has room, and nothing is deleted");
    api.on_request(|_| None);
    wait_for("the deletion", || api.uid_of("ns", "hog").is_none());
    let taken = Instant::now();
    wait_for("the kill", || again.payload.is_killed());
    // What the runtime has is listed every minute.
    assert!(taken.elapsed() < Duration::from_secs(20), "killed after {:?}", taken.elapsed());
    again.payload.empty();
    agent.wait("evictionTold");
    agent.stop();
}
