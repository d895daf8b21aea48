//! Static pods and their mirrors in the API server: nobody evicts them, and nothing is written to a mirror.

use super::*;
use ebb_tests::api_server::{Fault, pod, pod_object};

const MIRROR: &str = "/api/v1/namespaces/ns/pods/static";

/// A node with a static pod that uses most, its mirror, and another pod.
fn beside_a_static_pod() -> (Lab, Pod, Pod, ApiServer) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let own = lab.pod("static", &image, 1500);
    let web = lab.pod("web", &image, 100);
    let api = ApiServer::start("n1").unwrap();
    let mut mirror = pod_object("ns", "static", "uid-mirror");
    mirror["metadata"]["annotations"] = serde_json::json!({
        "kubernetes.io/config.mirror": own.uid, "kubernetes.io/config.source": "file",
    });
    api.put(&pod("ns", "static"), mirror);
    api.add_pod("ns", "web", &web.uid);
    (lab, own, web, api)
}

/// Requests that would change the object of this name.
fn writes_to_mirror(api: &ApiServer) -> Vec<Request> {
    api.writes().into_iter().filter(|request| request.path.starts_with(MIRROR)).collect()
}

fn wait_until_pods_are_known(agent: &mut Agent) {
    wait_for("the API server's pods", || {
        agent.take_in();
        agent.seen.iter().any(|record| record["event"] == "apiServer" && record["up"] == true)
    });
}

/// Known by its mirror, or by what the runtime has of it while the API server is away.
#[test]
fn a_static_pod_is_never_evicted_and_its_mirror_never_written_to() {
    for is_away in [false, true] {
        let (lab, own, web, api) = beside_a_static_pod();
        if is_away {
            lab.world().is_of_a_file(&own.sandbox);
            api.set_silent(true);
        }
        let mirror = api.get(MIRROR);
        let mut agent = start(&lab, &api, &["--enforce"]);
        if !is_away {
            wait_until_pods_are_known(&mut agent);
        }
        lab.node.set_available(60);
        wait_for("the other to be killed", || web.payload.is_killed());
        lab.is_dead(&web);
        // Nobody else is left.
        agent.wait("evictionDeferred");
        api.set_silent(false);
        assert_eq!(told(&mut agent, 1), ["ns/web"]);
        let records = agent.stop();
        assert!(!own.payload.is_killed(), "{records:#?}");
        assert_eq!(api.get(MIRROR), mirror);
        assert!(writes_to_mirror(&api).is_empty(), "{:#?}", writes_to_mirror(&api));
    }
}

/// A runtime that does not say which pods are static has it killed as any other. The API server is told of it by the UID of the static pod, which no object has.
#[test]
fn a_static_pod_that_was_evicted_as_any_other_leaves_its_mirror_as_it_is_and_lives_once_that_is_known()
 {
    let (mut lab, own, web, api) = beside_a_static_pod();
    let mirror = api.get(MIRROR);
    api.on_request(|_| Some(Fault::Refused(503, None)));
    let mut agent = start(&lab, &api, &["--enforce"]);
    kill(&lab, &own);
    agent.wait("evicted");
    api.on_request(|_| None);
    let record = agent.wait("evictionTold");
    assert_eq!((&record["wasGone"], &record["refused"]), (&true.into(), &serde_json::json!([])));
    wait_until_pods_are_known(&mut agent);
    assert_eq!(api.get(MIRROR), mirror);
    for request in writes_to_mirror(&api) {
        let of = ["/metadata/uid", "/preconditions/uid"];
        let of = of.iter().find_map(|path| request.body.pointer(path));
        assert_eq!(of, Some(&Value::from(own.uid.as_str())), "{request:#?}");
    }
    assert_eq!(events(&api)[0]["involvedObject"]["uid"], own.uid.as_str());
    // Its kubelet starts it again, and the runtime's lists have it again and again.
    let again = lab.start_again("static", &own, 1500);
    let is_asked_of = |lab: &Lab, pod: &Pod| {
        lab.world().calls.iter().any(|call| format!("{call:?}").contains(&pod.container))
    };
    wait_for("the runtime to be asked of it", || is_asked_of(&lab, &again));
    lab.node.set_available(60);
    wait_for("the other to be killed", || web.payload.is_killed());
    lab.is_dead(&web);
    agent.wait("evictionDeferred");
    lab.node.set_available(1500);
    agent.wait("pressureRelieved");
    for name in ["second", "third", "fourth"] {
        let new = another(&mut lab, &api, name, 1);
        wait_for("the runtime to be asked of the next", || is_asked_of(&lab, &new));
    }
    agent.stop();
    assert!(!again.payload.is_killed());
    assert_eq!(api.get(MIRROR), mirror);
}
