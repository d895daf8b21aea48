//! The commands that ask a running agent what it knows: what it would do, also by another configuration, and where a workload stands.

use super::Api;
use super::workloads::CONFIG;
use crate::{Agent, config, ebb};
use ebb_tests::fake_node::{FakeCgroup, FakeNode};
use serde_json::Value;
use std::process::Output;
use tempfile::{NamedTempFile, TempDir};

struct AtWork {
    agent: Agent,
    api: Api,
    hog: FakeCgroup,
    _all: (FakeNode, NamedTempFile, TempDir),
}

impl AtWork {
    fn new() -> Self {
        let mut node = FakeNode::new();
        node.add("apps/database", 700);
        node.add("apps/batch", 20);
        let hog = node.add("apps/hog", 1500);
        let (config, dir) = (config(CONFIG), tempfile::tempdir().unwrap());
        let api = Api::new(dir.path().join("api.sock"));
        let agent = api.start(&node, config.path(), &[]);
        Self { agent, api, hog, _all: (node, config, dir) }
    }

    fn ask(&self, words: &[&str]) -> Output {
        ebb().args(words).arg("--api").arg(&self.api.path).output().unwrap()
    }

    fn answer(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.ask(words);
        let told = String::from_utf8(stderr).unwrap();
        assert!(status.success(), "{words:?}: {told}");
        assert!(told.contains(" decided last, "), "{told}");
        String::from_utf8(stdout).unwrap()
    }
}

#[test]
fn a_plan_of_what_the_agent_knows_is_the_agents_or_another_configurations() {
    let at_work = AtWork::new();
    let own = at_work.answer(&["plan"]);
    assert!(own.starts_with("memory.available (hard): not met, threshold 100Mi"), "{own}");
    assert!(own.contains("nothing to do\n"), "{own}");
    let higher = config(&CONFIG.replace("100Mi", "3Gi"));
    let path = higher.path().to_str().unwrap();
    let json = at_work.answer(&["plan", "-c", path, "--output", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let action = &json["plan"]["actions"][0];
    assert_eq!(action["type"], "evict", "{json}");
    assert_eq!(action["workload"]["name"], "/apps/hog", "who is to go first would free too little");
    let out_of_reach = config(&CONFIG.replace("100Mi", "900Gi"));
    let refused = at_work.ask(&["plan", "-c", out_of_reach.path().to_str().unwrap()]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("memory.available") && told.contains("900Gi"), "{told}");
    assert!(!at_work.hog.is_killed(), "asking evicts nobody");
    at_work.agent.stop();
}

#[test]
fn the_agents_order_is_by_its_own_configuration() {
    let at_work = AtWork::new();
    let ranked = at_work.answer(&["rank"]);
    let lines: Vec<&str> = ranked.lines().collect();
    assert!(lines[0].starts_with("  1. /apps/batch") && lines[1].starts_with("  2. /apps/hog"));
    assert!(lines[2].contains("/apps/database  skipped: protected"), "{ranked}");
    let explained = at_work.answer(&["explain", "cgroup/apps/hog/worker"]);
    assert!(explained.starts_with("cgroup /apps/hog/worker: lies in cgroup /apps/hog\n"));
    assert!(explained.contains("ranked 2 of 2"), "{explained}");
    let json = at_work.answer(&["explain", "cgroup/apps/database", "--output", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["live"]["standing"], "safe", "{json}");
    at_work.agent.stop();
}

#[test]
fn without_an_agent_nothing_is_made_up() {
    let known = "cgroup/apps/hog";
    for words in [&["plan"][..], &["rank"], &["explain", known]] {
        let mut command = ebb();
        let output = command.args(words).args(["--api", "/nonexistent/api.sock"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(told.contains("`ebb run --api /nonexistent/api.sock` serves one"), "{told}");
    }
    let both = ["rank", "--api", "/nonexistent/api.sock", "-c", "/etc/ebb/ebb.yaml"];
    let output = ebb().args(both).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
