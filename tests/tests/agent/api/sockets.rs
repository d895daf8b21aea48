//! The socket's file, and the thread behind it.

use super::{Api, Served, wait_for};
use crate::{CONFIG, arguments, config, ebb, start_as};
use ebb_tests::fake_node::FakeNode;
use std::process::Output;

/// What an agent that cannot begin says.
fn refused(api: &Api, extra: &[&str]) -> (Option<i32>, String) {
    let (node, config) = (FakeNode::new(), config(CONFIG));
    let mut command = ebb();
    arguments(&mut command, &node, config.path()).arg("--api").arg(&api.path).args(extra);
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_socket_of_an_agent_that_was_killed_is_taken_over_and_that_of_one_at_work_is_not() {
    let Served { agent, api, node, config, dir: _dir, .. } = Served::new(&[]);
    let (code, told) = refused(&api, &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("--api") && told.contains("somebody listens there"), "{told}");
    agent.kill();
    assert!(api.path.exists(), "nobody was there to remove it");
    let agent = api.start(&node, config.path(), &[]);
    assert!(api.runtime.block_on(api.client().node()).is_ok());
    agent.stop();
    assert!(!api.path.exists());
}

#[test]
fn a_file_that_is_no_socket_and_a_group_that_there_is_not_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let api = Api::new(dir.path().join("file"));
    let (code, told) = refused(&api, &["--api-group", "nobody-is-called-so"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("--api-group nobody-is-called-so: there is no such group"), "{told}");
    std::fs::write(&api.path, "precious").unwrap();
    let (code, told) = refused(&api, &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("is no socket"), "{told}");
    assert_eq!(std::fs::read(&api.path).unwrap(), b"precious");
}

#[test]
fn a_panic_of_the_api_is_told_and_the_agent_goes_on() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let (config, dir) = (config(CONFIG), tempfile::tempdir().unwrap());
    let path = dir.path().join("api.sock");
    let mut command = ebb();
    command.env("EBB_TEST_PANIC", "ebb-api");
    let extra = ["--enforce", "--api", path.to_str().unwrap()];
    let mut agent = start_as(command, &node, config.path(), &extra);
    let is_told = |record: &serde_json::Value| {
        let what = record["what"].as_str().unwrap_or_default();
        record["event"] == "degraded"
            && record["part"] == "localApi"
            && what.contains("the API is served no more")
    };
    while !agent.seen.iter().any(is_told) {
        agent.wait("degraded");
    }
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
}
