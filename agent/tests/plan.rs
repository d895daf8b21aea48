//! `ebb plan` and `ebb rank` as an operator or a reviewer calls them: files in, JSON out, exit codes.
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const HARD: &str = "evictionHard: {memory.available: 100Mi}\nenforceNodeAllocatable: []\nebb: {mode: kubernetes, afterEviction: goOn}\n";

fn node(at: u64, available: u64) -> Value {
    let pod = |name: &str, bytes: u64| {
        json!({
            "key": { "name": format!("default/{name}"), "uid": name },
            "stats": { "memory": { "workingSet": bytes } },
            "containers": [{ "name": "main", "requests": { "memory": "10Mi" } }],
        })
    };
    json!({
        "schemaVersion": 1,
        "takenAt": at,
        "signals": { "memory.available": { "available": available, "capacity": 1 << 30, "observedAt": at } },
        "workloads": [pod("calm", 5 << 20), pod("hog", 500 << 20)],
    })
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("the file can be written");
    path.display().to_string()
}

fn ebb(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).output().expect("ebb can be started")
}

fn answer(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the answer is JSON")
}

#[test]
fn a_pass_goes_on_from_the_history_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", HARD);
    let first = write(dir.path(), "1.json", &node(1_000_000, 1 << 20).to_string());
    let stale = write(dir.path(), "2.json", &node(1_000_000, 1 << 20).to_string());
    let history = dir.path().join("history.json").display().to_string();

    let plan = answer(&ebb(&[
        "plan",
        "--config",
        &config,
        "--snapshot",
        &first,
        "--history-out",
        &history,
        "-o",
        "json",
    ]));
    assert_eq!(plan["plan"]["actions"][0]["workload"]["name"], "default/hog");
    assert_eq!(plan["plan"]["kept"][0]["reason"]["why"], "notNeeded");
    assert!(plan["plan"]["actions"][0].get("forecast").is_none());

    let again = answer(&ebb(&[
        "plan",
        "--config",
        &config,
        "--snapshot",
        &stale,
        "--history",
        &history,
        "-o",
        "json",
    ]));
    assert_eq!(again["plan"]["actions"], json!([]));
    assert_eq!(again["plan"]["thresholds"][0]["state"], "stale");

    // The whole answer of a pass serves as the history of the next, too.
    let whole = write(dir.path(), "answer.json", &plan.to_string());
    let same = answer(&ebb(&[
        "plan",
        "--config",
        &config,
        "--snapshot",
        &stale,
        "--history",
        &whole,
        "-o",
        "json",
    ]));
    assert_eq!(same, again);
}

#[test]
fn the_text_says_who_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", HARD);
    let snapshot = write(dir.path(), "1.json", &node(1_000_000, 1 << 20).to_string());
    let output = ebb(&["plan", "--config", &config, "--snapshot", &snapshot]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("end default/hog within 1 s: The node was low on resource: memory."),
        "{text}"
    );
    assert!(text.contains("  1. default/hog"), "{text}");
    assert!(text.contains("kept default/calm: NotNeeded"), "{text}");

    let rank = ebb(&["rank", "--config", &config, "--snapshot", &snapshot, "-o", "json"]);
    assert_eq!(answer(&rank)[0]["workload"]["uid"], "hog");
}

#[test]
fn bad_input_ends_with_2_and_names_file_key_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", HARD);
    let good = node(1, 1).to_string();
    let snapshot = write(dir.path(), "good.json", &good);
    let cases = [
        (
            write(dir.path(), "cut.json", &good[..good.len() / 2]),
            "cut.json: not complete, correct JSON",
        ),
        (
            write(dir.path(), "unknown.json", r#"{"schemaVersion":1,"takenAt":1,"workload":[]}"#),
            "unknown.json: unknown field `workload`",
        ),
        (
            write(dir.path(), "version.json", r#"{"schemaVersion":7,"takenAt":1}"#),
            "version.json: schemaVersion = 7",
        ),
        (
            write(
                dir.path(),
                "quantity.json",
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"memoryRequest":"10MB"}]}"#,
            ),
            "\"10MB\": not a number followed by a suffix",
        ),
        (
            write(
                dir.path(),
                "twice.json",
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"}},{"key":{"name":"a"}}]}"#,
            ),
            "is there twice",
        ),
        (dir.path().join("missing.json").display().to_string(), "missing.json: cannot be read"),
    ];
    for (file, said) in cases {
        let output = ebb(&["plan", "--config", &config, "--snapshot", &file]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{file}: {errors}");
        assert!(errors.contains(said), "{file}: {errors}");
        assert!(output.stdout.is_empty());
    }
    let wrong = write(dir.path(), "wrong.yaml", "evictionHard: {memory.available: lots}\n");
    let output = ebb(&["plan", "--config", &wrong, "--snapshot", &snapshot]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("wrong.yaml:1: evictionHard[\"memory.available\"] = \"lots\""),
        "{errors}"
    );
}

#[test]
fn a_kubelet_configuration_names_what_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = write(
        dir.path(),
        "kubelet.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {memory.available: 100Mi}\nclusterDomain: cluster.local\n",
    );
    let snapshot = write(dir.path(), "1.json", &node(1_000_000, 1 << 20).to_string());
    let output =
        ebb(&["plan", "--kubelet-config", &kubelet, "--snapshot", &snapshot, "-o", "json"]);
    assert_eq!(answer(&output)["plan"]["actions"][0]["workload"]["uid"], "hog");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not used: clusterDomain"));
}
