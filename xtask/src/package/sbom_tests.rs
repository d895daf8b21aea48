//! What is said of the program's parts.
use super::super::release;
use super::*;

/// As cargo tells it: a crate that two need is shown whole only once.
const TREE: &str = "0ebb v0.1.0 (/somewhere/ebb)\tApache-2.0\n\
                    1ebb-model v0.1.0 (/somewhere/model)\tApache-2.0\n\
                    2serde v1.0.0\tMIT/Apache-2.0\n\
                    3itoa v1.0.0\tMIT\n\
                    1serde v1.0.0\tMIT/Apache-2.0 (*)\n";

fn bill(tree: &str) -> Result<String> {
    let mut parts = Parts::default();
    let serde = ("serde".to_owned(), "1.0.0".to_owned());
    let sums = Sums(BTreeMap::from([(serde, "ab".repeat(32))]));
    parts.take(tree, &sums)?;
    parts.add_library("zlib1g-dev", "1:1.2.13", "Zlib")?;
    Ok(String::from_utf8(parts.bill(&release::sample(), b"program")?)?)
}

#[test]
fn a_bill_names_each_part_once_with_licence_and_checksum() {
    let text = bill(TREE).unwrap();
    let bill: serde_json::Value = serde_json::from_str(&text).unwrap();
    let named = |name: &str| {
        let parts = bill["components"].as_array().unwrap();
        let found: Vec<_> = parts.iter().filter(|part| part["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}: {text}");
        found[0].clone()
    };
    let serde = named("serde");
    assert_eq!(serde["purl"], "pkg:cargo/serde@1.0.0");
    assert_eq!(serde["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert_eq!(serde["hashes"][0]["content"], "ab".repeat(32));
    assert_eq!(named("itoa")["version"], "1.0.0");
    assert_eq!(named("zlib1g-dev")["purl"], "pkg:deb/debian/zlib1g-dev@1:1.2.13?arch=amd64");
    assert_eq!(bill["metadata"]["component"]["name"], "ebb");
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
}

#[test]
fn a_bill_says_who_needs_whom() {
    let bill: serde_json::Value = serde_json::from_str(&bill(TREE).unwrap()).unwrap();
    let needs = |reference: &str| {
        let all = bill["dependencies"].as_array().unwrap();
        all.iter().find(|found| found["ref"] == reference).unwrap()["dependsOn"].clone()
    };
    let program = needs("workspace:ebb@0.1.0");
    let program: Vec<_> = program.as_array().unwrap().iter().filter_map(|v| v.as_str()).collect();
    assert!(program.contains(&"workspace:ebb-model@0.1.0") && program.len() == 3, "{program:?}");
    assert_eq!(needs("pkg:cargo/serde@1.0.0"), serde_json::json!(["pkg:cargo/itoa@1.0.0"]));
}

#[test]
fn a_bill_does_not_say_where_it_was_made() {
    assert!(!bill(TREE).unwrap().contains("somewhere"));
    let elsewhere = TREE.replace("/somewhere", "/elsewhere");
    assert_eq!(bill(TREE).unwrap(), bill(&elsewhere).unwrap());
}

#[test]
fn a_licence_that_is_none_is_refused() {
    assert!(bill(&TREE.replace("\tMIT\n", "\tas you like\n")).is_err());
}
