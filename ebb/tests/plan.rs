//! `ebb plan` and `ebb rank` as an operator or a reviewer calls them: files in, JSON out, exit codes.
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const HARD: &str = "evictionHard: {memory.available: 100Mi}\nenforceNodeAllocatable: []\nebb: {mode: kubernetes, afterEviction: continue}\n";

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
    assert_eq!(plan["plan"]["skipped"][0]["reason"]["why"], "notNeeded");
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
        text.contains("evict default/hog within 1 s: The node was low on resource: memory."),
        "{text}"
    );
    assert!(text.contains("  1. default/hog"), "{text}");
    assert!(
        text.contains("skipped default/calm: not needed: those before it free enough"),
        "{text}"
    );

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
            "unknown.json: unknown field `workload`; did you mean `workloads`?",
        ),
        (
            write(dir.path(), "version.json", r#"{"schemaVersion":7,"takenAt":1}"#),
            "version.json: schemaVersion = 7: this ebb reads version 1",
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
            "twice.json: workloads[1]: key = {\"name\":\"a\"} is there twice, first at workloads[0]; keep one of them",
        ),
        (
            write(
                dir.path(),
                "type.json",
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":7}}]}"#,
            ),
            "type.json: workloads[0].key.name: 7 where text belongs",
        ),
        (
            write(dir.path(), "list.json", r#"{"schemaVersion":1,"takenAt":1,"node":[]}"#),
            "list.json: node: a list where an object belongs",
        ),
        (
            write(dir.path(), "key.json", r#"{"schemaVersion":1,"takenAt":1,"takenAt":2}"#),
            "key.json: takenAt: given twice; keep one of them",
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

#[test]
fn a_history_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", HARD);
    let snapshot = write(dir.path(), "1.json", &node(1, 1).to_string());
    let history = write(dir.path(), "history.json", r#"{"schemaVersion": 7}"#);
    let args = ["plan", "-c", &config, "--snapshot", &snapshot, "--history", &history];
    let output = ebb(&args);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("history.json: schemaVersion = 7: this ebb reads a history"),
        "{errors}"
    );
}

#[test]
fn a_key_given_twice_in_the_configuration_is_told_without_the_words_of_a_library() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", "evictionHard: {}\nevictionHard: {}\n");
    let snapshot = write(dir.path(), "1.json", &node(1, 1).to_string());
    let output = ebb(&["plan", "-c", &config, "--snapshot", &snapshot]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("ebb.yaml:2: evictionHard: given twice, first in line 1"), "{errors}");
    assert!(!errors.contains("DuplicateKeyPolicy"), "{errors}");
}

/// The lines of an answer, each as JSON.
fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("the answer is text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// A node on which usage and what is available move from pass to pass, so that histories matter.
fn moving(pass: u64) -> Value {
    let mut node = node(1_000_000 + pass * 10_000, ((pass * 37) % 300) << 20);
    node["workloads"][1]["stats"]["memory"]["workingSet"] = json!((pass * 53 % 700 + 20) << 20);
    node
}

#[test]
fn a_thousand_passes_in_one_process_equal_a_thousand_single_calls() {
    const PASSES: u64 = 1000;
    const CONFIG: &str = "evictionHard: {memory.available: 100Mi}\nevictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 15s}\nenforceNodeAllocatable: []\nebb: {mode: kubernetes, afterEviction: continue, ranking: attributed, forecast: {enabled: true}}\n";
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", CONFIG);
    let text: String = (0..PASSES).map(|pass| format!("{}\n", moving(pass))).collect();
    let batch = write(dir.path(), "passes.jsonl", &text);
    let last = dir.path().join("last.json").display().to_string();
    let output = ebb(&["plan", "-c", &config, "--batch", &batch, "--history-out", &last]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = lines(&output);
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().any(|answer| answer["plan"]["actions"] != json!([])));

    let history = dir.path().join("history.json").display().to_string();
    for (pass, answer) in (0..PASSES).zip(&answers) {
        let snapshot = write(dir.path(), "one.json", &moving(pass).to_string());
        let mut args = vec!["plan", "-c", &config, "--snapshot", &snapshot, "-o", "json"];
        if pass > 0 {
            args.extend(["--history", &history]);
        }
        args.extend(["--history-out", &history]);
        let single = ebb(&args);
        let single: Value = serde_json::from_slice(&single.stdout).expect("the answer is JSON");
        assert_eq!(answer["line"], pass + 1);
        assert_eq!(answer["plan"], single["plan"], "pass {pass}");
        assert_eq!(answer["history"], single["history"], "pass {pass}");
    }
    assert_eq!(std::fs::read(&last).unwrap(), std::fs::read(&history).unwrap());
}

#[test]
fn a_bad_line_is_answered_in_its_place_and_the_next_goes_on_from_the_last_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), "ebb.yaml", HARD);
    let good = node(1_000_000, 1 << 20).to_string();
    let anew = format!("{{\"snapshot\":{good},\"history\":{{}}}}");
    let text = [&good, "{\"takenAt\":", "", "{\"takenAt\": []}", &good, &anew].join("\n");
    let batch = write(dir.path(), "passes.jsonl", &text);
    let output = ebb(&["plan", "-c", &config, "--batch", &batch]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 lines were wrong"));
    let answers = lines(&output);
    let at: Vec<u64> = answers.iter().filter_map(|answer| answer["line"].as_u64()).collect();
    assert_eq!(at, [1, 2, 4, 5, 6], "an empty line is no pass");
    assert_eq!(answers[1]["continues"], true);
    assert!(answers[1]["error"].as_str().unwrap().contains("not complete, correct JSON"));
    assert_eq!(answers[2]["error"], "takenAt: a list where a whole number from 0 on belongs");
    assert_eq!(answers[0]["plan"]["actions"][0]["workload"]["uid"], "hog");
    assert_eq!(answers[3]["plan"]["thresholds"][0]["state"], "stale", "the history went on");
    assert_eq!(answers[4]["plan"], answers[0]["plan"], "a history in the line begins anew");
}

/// Decision 0020, as docs/schema/README.md shows it.
#[test]
fn the_example_of_a_pass_that_goes_on_after_reclaim_is_what_ebb_answers() {
    let at = |name: &str| format!("{}/../docs/schema/reclaim/{name}", env!("CARGO_MANIFEST_DIR"));
    let output = ebb(&["plan", "-c", &at("ebb.yaml"), "--batch", &at("passes.jsonl")]);
    let answers = lines(&output);
    assert_eq!(answers[0]["plan"]["actions"][0]["type"], "removeImage");
    assert_eq!(answers[0]["plan"]["wakeIn"], 0);
    assert!(answers[0]["history"]["reclaiming"].is_object());
    assert_eq!(answers[1]["plan"]["actions"][0]["workload"]["name"], "shop/import");
}
