//! `ebb incident list|show|html` on what the agent itself has recorded: an incident of this run, and the captured ones in `tests/incidents`.

use crate::{config, ebb, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::repository;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

/// A soft threshold that is crossed long before the kill, so that the timeline has a scale.
const CONFIG: &str = "\
evictionHard:
  memory.available: 300Mi
evictionSoft:
  memory.available: 1Gi
evictionSoftGracePeriod:
  memory.available: 2s
ebb:
  memoryAvailable: memAvailable
  protected: [\"apps/database\"]
  prefer: [\"apps/browser-*\"]
  priorities:
    - {match: \"apps/batch-*\", priority: -10}
    - {match: \"apps/shop-*\", priority: 100}
";

/// What is said of a run.
fn said(args: &[&str], at: &Path) -> (Option<i32>, String) {
    let output = ebb().arg("incident").args(args).current_dir(at).output().unwrap();
    let both = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(both).unwrap())
}

/// A leak that the agent evicts on a node made of files.
fn recorded() -> (tempfile::TempDir, PathBuf) {
    let mut node = FakeNode::new();
    let leak = node.add("apps/batch-report", 600);
    node.add("apps/database", 700);
    let browser = node.add("apps/browser-1", 420);
    node.add("apps/shop-web", 180);
    node.add("apps/shop-api", 96);
    node.add("system.slice/ssh.service", 8);
    node.add("apps/idle", 0);
    let dir = tempfile::tempdir().unwrap();
    let config = config(CONFIG);
    let at = dir.path().to_str().unwrap();
    node.set_available(1200);
    let mut agent = start(&node, config.path(), &["--enforce", "--incidents", at]);
    node.gives_back_when_killed(&leak, 2100);
    for step in 1..1000 {
        if leak.is_killed() {
            break;
        }
        leak.holds((600 + 20 * step).min(1400));
        browser.holds(420 + step / 4);
        node.falls_to(1200_u64.saturating_sub(20 * step).max(400));
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for("the kill", || leak.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    let stored = fs::read_dir(dir.path()).unwrap().flatten().next().unwrap().path();
    (dir, stored)
}

/// Where captured incidents are; how each was captured stands beside them.
fn captured() -> PathBuf {
    repository().join("tests/incidents")
}

#[test]
fn what_the_agent_records_is_listed_shown_and_written_as_a_page() {
    let (dir, file) = recorded();
    if env::var_os("EBB_CAPTURE").is_some() {
        fs::copy(&file, captured().join("leak.json")).unwrap();
    }
    let id = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let at = dir.path().to_str().unwrap();
    let (code, list) = said(&["list", at], dir.path());
    assert_eq!(code, Some(0), "{list}");
    assert!(list.contains("/apps/batch-report  relieved after ") && list.contains(&id), "{list}");
    let (_, json) = said(&["list", at, "-o", "json"], dir.path());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["victims"][0], "/apps/batch-report", "{json:#}");
    assert_eq!(json[0]["outcome"]["kind"], "relieved", "{json:#}");
    for one in [&["show", "latest", "--incidents", at][..], &["show", file.to_str().unwrap()]] {
        let (code, text) = said(one, dir.path());
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("evicts /apps/batch-report"), "{text}");
        assert!(text.contains("with the recorded configuration: the same"), "{text}");
    }
    let (code, text) = said(&["html", &id, "--incidents", at], dir.path());
    assert_eq!((code, text.trim()), (Some(0), format!("{id}.html").as_str()));
    let page = fs::read_to_string(dir.path().join(format!("{id}.html"))).unwrap();
    assert!(page.contains("/apps/batch-report") && !page.contains("<script"), "{page}");
}

/// The screens of `ebb incident` on captured incidents; `EBB_BLESS=1` writes them.
#[test]
fn the_screens_of_captured_incidents_are_as_committed() {
    let cases: [(&str, &[&str]); 4] = [
        ("list.txt", &["list", "."]),
        ("list.json.txt", &["list", ".", "-o", "json"]),
        ("leak.show.txt", &["show", "leak.json"]),
        ("leak.other.txt", &["show", "leak", "--incidents", ".", "-c", "longer-grace.yaml"]),
    ];
    for (file, args) in cases {
        let (code, screen) = said(args, &captured());
        assert_eq!(code, Some(0), "{args:?}: {screen}");
        let path = captured().join(file);
        if env::var_os("EBB_BLESS").is_some() {
            fs::write(&path, &screen).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), screen, "{file}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused_in_words_that_name_file_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let leak = fs::read_to_string(captured().join("leak.json")).unwrap();
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    write("1-wrong.json", &leak.replace("\"crossedAt\"", "\"crosedAt\""));
    write("2-newer.json", &leak.replacen("\"schemaVersion\": 1", "\"schemaVersion\": 9", 1));
    write("3-leak.json", &leak);
    write("3-other.json", &leak);
    write("taken.html", "<p>mine");
    write("wrong.yaml", "evictionHrad: {}\n");
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["show", "1-wrong.json"],
            &["1-wrong.json: unknown field `crosedAt`; did you mean `crossedAt`?"],
        ),
        (&["html", "2-newer.json"], &["2-newer.json: schemaVersion = 9: this ebb reads version 1"]),
        (&["show", "no.json"], &["no.json: cannot be read: No such file"]),
        (&["show", "."], &["it is a directory: `ebb incident list` takes one"]),
        (
            &["show", "3", "--incidents", "."],
            &["2 records in . begin so; give more of 3-leak, 3-other"],
        ),
        (
            &["show", "9", "--incidents", "."],
            &["incident 9: there is no such file, and no such record in .", "the 4 that there are"],
        ),
        (&["list", "nowhere"], &["incidents in nowhere: No such file", "ebb run --incidents"]),
        (
            &["html", "3-leak.json", "-o", "taken.html"],
            &["taken.html: it is there, and is not the page of incident", "--force"],
        ),
        (&["html", "3-leak.json", "-c", "wrong.yaml"], &["wrong.yaml", "evictionHrad"]),
    ];
    for (args, words) in cases {
        let (code, text) = said(args, at);
        assert_eq!(code, Some(2), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?} without {word:?}: {text}");
        }
    }
    assert_eq!(fs::read_to_string(at.join("taken.html")).unwrap(), "<p>mine");
    // Of those that cannot be read a list says why, and shows the others.
    let (code, text) = said(&["list", "."], at);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("note: ./1-wrong.json: unknown field") && text.contains("3-leak"),
        "{text}"
    );
    let (code, text) = said(&["html", "3-leak.json", "-o", "taken.html", "--force"], at);
    assert_eq!((code, text.as_str()), (Some(0), "taken.html\n"));
    let (code, text) = said(&["html", "3-other.json", "-o", "-"], at);
    assert_eq!(code, Some(0));
    assert_eq!(
        text,
        fs::read_to_string(at.join("taken.html")).unwrap(),
        "the same incident, the same page"
    );
}
