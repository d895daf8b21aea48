//! Commands on a saved cluster: `ebb graph`, `ebb explain` and `ebb stuck` on `tests/cluster/shop.json`.

use crate::{config, ebb};
use serde_json::Value;
use std::process::Stdio;

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/shop.json");

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = ebb().args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (code, said) = run(&[arguments, &["--output", "json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str(&said).unwrap()
}

fn names(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap()).collect()
}

#[test]
fn a_graph_shows_dependents_at_any_depth_by_kind_and_name() {
    for object in ["deployment/web", "Deployments/web", "deployment.apps/web"] {
        let (code, said) = run(&["graph", object, "-n", "shop", "--from", SHOP]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("Deployment.apps shop/web\n"), "{said}");
        assert!(said.contains("\n    dependent Pod shop/web-7f9c-a\n"), "{said}");
    }
}

#[test]
fn a_cascade_says_what_would_go_what_would_lose_a_reference_and_what_is_held_up() {
    let cascade = |policy| {
        json(&["graph", "deployment/web", "-n", "shop", "--from", SHOP, "--cascade", policy])["cascade"].take()
    };
    let background = cascade("background");
    assert_eq!(names(&background["deleted"]), ["web", "web-7f9c", "web-7f9c-a"]);
    assert_eq!(background["counts"]["Pod"], 1);
    assert_eq!(background["held"][0]["object"]["name"], "web-7f9c-b");
    assert_eq!(background["held"][0]["holds"][0]["finalizer"], "example.com/drain");

    let foreground = cascade("foreground");
    assert_eq!(names(&foreground["deleted"]), ["web-7f9c-a"]);
    let held = foreground["held"].as_array().unwrap();
    let held: Vec<&str> = held.iter().map(|h| h["object"]["name"].as_str().unwrap()).collect();
    assert_eq!(held, ["web", "web-7f9c", "web-7f9c-b"]);

    let orphan = cascade("orphan");
    assert_eq!(names(&orphan["deleted"]), ["web"]);
    assert_eq!(names(&orphan["losesReferences"]), ["web-7f9c", "shared"]);
}

#[test]
fn a_graph_for_graphviz_names_every_object_and_reference() {
    let (code, said) =
        run(&["graph", "replicaset/web-7f9c", "-n", "shop", "--from", SHOP, "--output", "dot"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("digraph owners {\n") && said.ends_with("}\n"), "{said}");
    assert!(said.contains("label=\"Deployment.apps shop/web\""), "{said}");
    assert_eq!(said.matches(" -> ").count(), 3, "{said}");
}

#[test]
fn a_picture_and_a_page_say_in_words_what_a_delete_would_do() {
    let graph = |form| {
        let object = ["graph", "deployment/api", "-n", "shop", "--from", SHOP];
        let (code, said) = run(&[&object[..], &["--cascade", "foreground", "-o", form]].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let (picture, page) = (graph("svg"), graph("html"));
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    for form in [&picture, &page] {
        assert!(
            form.contains("ConfigMap, held up") && form.contains("shop/api-settings"),
            "{form}"
        );
    }
    assert!(page.contains("finalizer example.com/backup; released when"), "{page}");
}

#[test]
fn an_explanation_names_what_holds_a_deletion_and_what_releases_it() {
    let (code, said) = run(&["explain", "deployment/api", "-n", "shop", "--from", SHOP]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("terminating"), "{said}");
    assert!(
        said.contains("blocking dependent ConfigMap shop/api-settings; released when"),
        "{said}"
    );
    let found = json(&["explain", "configmap/api-settings", "-n", "shop", "--from", SHOP]);
    assert_eq!(found["deletingSince"], 1_769_850_001_000_u64);
    assert_eq!(found["holds"][0]["hold"], "finalizer");
    assert_eq!(found["holds"][0]["finalizer"], "example.com/backup");
}

#[test]
fn owners_of_a_kind_that_is_not_in_the_file_are_unknown_and_said() {
    let (code, said) = run(&["explain", "configmap/gadget-settings", "-n", "shop", "--from", SHOP]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("unknown") && said.contains("the file has no Gadget.gone.io"), "{said}");
}

#[test]
fn what_is_stuck_is_found_with_its_cause() {
    let found = json(&["stuck", "--from", SHOP]);
    let found: Vec<(&str, &str)> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["object"]["name"].as_str().unwrap(), s["problem"].as_str().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("api", "terminating"),
            ("api-settings", "terminating"),
            ("astray", "ownerInAnotherNamespace"),
            ("gadget-settings", "kindNotInFile"),
        ]
    );
    let (code, said) = run(&["stuck", "--from", SHOP, "--older-than", "99999d"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("terminating"), "{said}");
}

#[test]
fn a_cluster_is_read_from_standard_input_too() {
    let file = std::fs::File::open(SHOP).unwrap();
    let output = ebb()
        .args(["explain", "pod/web-7f9c-a", "-n", "shop", "--from", "-"])
        .stdin(Stdio::from(file))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.contains("owner ReplicaSet.apps web-7f9c: present"),
        "{said}"
    );
}

#[test]
fn wrong_input_is_refused_with_exit_code_2_the_file_the_key_and_the_value() {
    let good: Value = serde_json::from_slice(&std::fs::read(SHOP).unwrap()).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let same = good["items"][1]["metadata"]["uid"].clone();
    let cases = [
        ("{".to_owned(), "JSON"),
        (with("/kind", "Pod".into()), "kind = Pod"),
        (
            with("/items/0/kind", "PartialObjectMetadata".into()),
            "items[0]: kind = PartialObjectMetadata",
        ),
        (with("/items/0/metadata/uid", 7.into()), "items[0].metadata.uid"),
        (with("/items/0/metadata/uid", same), "items[1].metadata.uid"),
        (
            with("/items/5/metadata/deletionTimestamp", "soon".into()),
            "metadata.deletionTimestamp = soon",
        ),
    ];
    for (text, said) in cases {
        let file = config(&text);
        let name = file.path().to_str().unwrap();
        let (code, told) = run(&["stuck", "--from", name]);
        assert_eq!(code, Some(2), "{said}: {told}");
        assert!(told.contains(said) && told.contains(name), "{said} of {name}: {told}");
    }
    for (object, said) in [
        ("web", "give KIND/NAME"),
        ("gizmo/web", "it has ConfigMap, Pod, Deployment.apps, ReplicaSet.apps"),
        ("deployment/other", "there is one in elsewhere (-n)"),
    ] {
        let (code, told) = run(&["explain", object, "-n", "shop", "--from", SHOP]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains(said), "{said}: {told}");
    }
}
