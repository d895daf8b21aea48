//! What single calls are answered, beside the records of the same moment.

use super::{Served, wait_for};
use ebb_api::wire::{GetNodeResponse, Mode, Strength, Threshold, ThresholdState};

fn node(served: &Served) -> GetNodeResponse {
    served.api.runtime.block_on(served.api.client().node()).unwrap()
}

/// The hard threshold of memory.
fn memory(node: &GetNodeResponse) -> Threshold {
    let is_meant = |threshold: &&Threshold| {
        threshold.signal == "memory.available" && threshold.strength() == Strength::Hard
    };
    node.thresholds.iter().find(is_meant).unwrap().clone()
}

#[test]
fn how_the_node_stands_agrees_with_the_records() {
    // A dry run: it stays short for as long as is wanted.
    let mut served = Served::new(&[]);
    let calm = node(&served);
    assert_eq!((calm.mode(), calm.workloads), (Mode::DryRun, 2));
    assert!(calm.incidents.is_empty() && calm.looked_at_ms <= calm.answered_at_ms, "{calm:?}");
    assert_eq!(memory(&calm).state(), ThresholdState::Clear);
    assert_eq!(memory(&calm).available, Some(2048 << 20));
    let ranking = calm.ranking.unwrap();
    let ranked: Vec<&str> = ranking.candidates.iter().map(|c| c.workload.as_str()).collect();
    served.node.set_available(60);
    let crossed = served.agent.wait("thresholdCrossed");
    let decided = served.agent.wait("decided");
    wait_for("the threshold to be met", || memory(&node(&served)).state() == ThresholdState::Met);
    let short = node(&served);
    assert_eq!(crossed["threshold"], memory(&short).limit.unwrap());
    assert_eq!(crossed["available"], memory(&short).available.unwrap());
    assert!(memory(&short).met_since_ms.is_some());
    assert_eq!(decided["evict"][0]["workload"]["name"], ranked[0]);
    let recorded: Vec<&str> = decided["ranking"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ranked| ranked["workload"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(recorded, ranked);
    assert_eq!(short.incidents.len(), 1, "{short:?}");
    served.node.set_available(1500);
    served.agent.wait("pressureRelieved");
    wait_for("the incident to be over", || {
        let node = node(&served);
        memory(&node).state() == ThresholdState::Clear && node.incidents.is_empty()
    });
    served.agent.stop();
}

#[test]
fn what_is_left_is_that_of_the_latest_look_and_its_fall_is_foretold() {
    let served = Served::new(&[]);
    assert_eq!(memory(&node(&served)).time_left_ms, None, "nothing has changed yet");
    let mut available = 2048;
    wait_for("a forecast", || {
        available = (available - 1).max(200);
        served.node.set_available(available);
        memory(&node(&served)).time_left_ms.is_some()
    });
    served.node.set_available(1024);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let mut latest = node(&served);
    wait_for("another look", || {
        latest = node(&served);
        u128::from(latest.looked_at_ms) > since
    });
    // A decision, which needs no more than a look a minute, would be later.
    assert_eq!(memory(&latest).available, Some(1024 << 20), "{latest:?}");
    served.agent.stop();
}

#[test]
fn incidents_are_listed_and_read_and_an_id_is_no_path() {
    let incidents = tempfile::tempdir().unwrap();
    let mut served = Served::new(&["--enforce", "--incidents", incidents.path().to_str().unwrap()]);
    let list = |served: &Served| served.api.runtime.block_on(served.api.client().incidents(0));
    assert!(list(&served).unwrap().is_empty());
    served.runs_short();
    served.agent.wait("pressureRelieved");
    wait_for("the incident to be stored", || !list(&served).unwrap().is_empty());
    let all = list(&served).unwrap();
    let file = incidents.path().join(format!("{}.json", all[0].id));
    let text = std::fs::read(&file).unwrap();
    assert_eq!((all.len(), all[0].size_bytes), (1, text.len() as u64));
    assert_eq!(all[0].about, "memory.available");
    let get = |id: &str| {
        let mut client = served.api.client();
        served.api.runtime.block_on(client.incident(id))
    };
    assert_eq!(get(&all[0].id).unwrap(), text);
    // One that comes in many pieces.
    let large: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    std::fs::write(incidents.path().join("1700000000000-memory.available.json"), &large).unwrap();
    let got = get("1700000000000-memory.available").unwrap();
    assert!(got == large, "{} bytes of {}", got.len(), large.len());
    std::fs::write(incidents.path().join("secret.json"), "{}").unwrap();
    for id in ["../api.sock", "secret", "", "/etc/passwd"] {
        let refused = get(id).unwrap_err().to_string();
        assert!(refused.contains("there is no incident"), "{id}: {refused}");
    }
    served.agent.stop();
}

#[test]
fn an_agent_that_keeps_no_incidents_says_so() {
    let served = Served::new(&[]);
    let mut client = served.api.client();
    let refused = served.api.runtime.block_on(client.incidents(0)).unwrap_err().to_string();
    assert!(refused.contains("FailedPrecondition: ebb keeps no incidents"), "{refused}");
    served.agent.stop();
}
