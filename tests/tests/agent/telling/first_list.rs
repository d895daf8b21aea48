//! A start beside an API server that says nothing yet: whoever it has not described may be critical.

use super::*;
use ebb_tests::api_server::{pod, pod_object};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// For so long it is waited for, from the start on.
const SECONDS: Duration = Duration::from_secs(5);

/// The larger of two pods is critical, which the API server alone tells.
fn beside_a_critical_pod() -> (Lab, Pod, Pod, ApiServer) {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 800);
    let mut object = pod_object("ns", "hog", &hog.uid);
    object["spec"]["priority"] = 2_000_001_000.into();
    api.put(&pod("ns", "hog"), object);
    (lab, hog, web, api)
}

/// It may be away for long, so that is waited for in vain for some seconds only.
#[test]
fn nobody_is_evicted_before_the_first_list_of_pods_unless_it_does_not_come_for_seconds() {
    let (lab, hog, api) = beside_an_api_server();
    api.set_silent(true);
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    let begun = UNIX_EPOCH.elapsed().unwrap();
    let mut agent = start(&lab, &api, &["--enforce"]);
    lab.node.set_available(60);
    agent.wait("evicted");
    let is_either =
        |record: &&Value| record["event"] == "evictionDeferred" || record["event"] == "evicted";
    let first = agent.seen.iter().find(is_either).unwrap();
    if first["event"] == "evictionDeferred" {
        let why = first["notes"][0].as_str().unwrap();
        assert!(why.contains("waiting for the API server's pod list"), "{first}");
    } else {
        // They were over when this process had come round to making memory short.
        let at = Duration::from_millis(first["at"].as_u64().unwrap());
        assert!(at >= begun + SECONDS, "{first}");
    }
    agent.told("pressureRelieved");
    agent.stop();
}

#[test]
fn what_an_earlier_run_was_told_of_pods_counts_until_the_api_server_tells_it_again() {
    let (lab, hog, web, api) = beside_a_critical_pod();
    // A dry run would leave nothing behind.
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    wait_for("the API server's pods", || {
        agent.take_in();
        agent.seen.iter().any(|record| record["event"] == "apiServer" && record["up"] == true)
    });
    agent.stop();
    api.set_silent(true);
    let mut agent = start(&lab, &api, &["--enforce"]);
    kill(&lab, &web);
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!hog.payload.is_killed(), "it is critical");
}

/// A virtual machine is paused right after the start: nobody could be heard meanwhile, and who is critical is not known yet.
#[test]
fn the_first_list_of_pods_is_waited_for_afterwards_where_the_machine_stood_still() {
    let (lab, hog, web, api) = beside_a_critical_pod();
    api.set_silent(true);
    let begun = Instant::now();
    let mut agent = start(&lab, &api, &["--enforce"]);
    lab.node.gives_back_when_killed(&web.payload, 1500);
    agent.signal(Signal::SIGSTOP);
    let stood = SECONDS + Duration::from_secs(1);
    std::thread::sleep(stood);
    lab.node.set_available(60);
    agent.signal(Signal::SIGCONT);
    agent.wait("evictionDeferred");
    api.set_silent(false);
    let ran = begun.elapsed() - stood;
    agent.wait("evicted");
    agent.wait("pressureRelieved");
    agent.stop();
    // A second of what it stood still counts. This process may have been kept from running, too, until the rest of the time was over.
    let is_late = ran + Duration::from_secs(1) > SECONDS;
    assert!(is_late || (!hog.payload.is_killed() && web.payload.is_killed()));
}
