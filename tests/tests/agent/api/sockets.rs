//! The socket's file, and the thread behind it.

use super::{Api, Served, wait_for};
use crate::trouble::goes_on_after_a_panic;
use crate::{CONFIG, arguments, config, ebb};
use ebb_api::client::Client;
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

/// A dry run may have it: that must not keep the node without an agent that acts.
#[test]
fn the_socket_of_an_agent_at_work_is_left_to_it_and_taken_when_it_has_ended() {
    let Served { agent, api, dir: _dir, .. } = Served::new(&[]);
    let run = |api: &Api| api.runtime.block_on(api.client().node()).unwrap().run;
    let first = run(&api);
    let (mut node, config) = (FakeNode::new(), config(CONFIG));
    let hog = node.add("apps/hog", 1500);
    let mut second = api.start(&node, config.path(), &["--enforce"]);
    let started = second.seen.iter().find(|record| record["event"] == "started").unwrap();
    let unavailable = started["unavailable"].to_string();
    assert!(unavailable.contains("somebody listens there already"), "{unavailable}");
    assert_eq!(run(&api), first);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    second.wait("pressureRelieved");
    agent.stop();
    wait_for("the second to be served", || {
        api.runtime.block_on(Client::connect(&api.path)).is_ok()
    });
    assert_ne!(run(&api), first);
    second.stop();
    assert!(!api.path.exists(), "its socket stays behind");
}

/// One that waits for it ends at once all the same.
#[test]
fn an_agent_that_waits_for_its_socket_ends_when_it_is_told_to() {
    let Served { agent, api, node, config, dir: _dir, .. } = Served::new(&[]);
    let second = api.start(&node, config.path(), &[]);
    second.stop();
    assert!(api.runtime.block_on(api.client().node()).is_ok(), "the first has its own still");
    agent.stop();
}

#[test]
fn the_socket_of_an_agent_that_was_killed_is_taken_over() {
    let Served { agent, api, node, config, dir: _dir, .. } = Served::new(&[]);
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
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let extra = ["--api", path.to_str().unwrap()];
    goes_on_after_a_panic("ebb-api", &extra, "localApi", "the API is served no more");
}
