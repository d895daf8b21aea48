//! What packages install as configuration is read by ebb itself: the one that is in force, and the presets to start from.
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shipped configurations, by name.
fn shipped() -> Vec<PathBuf> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let presets = std::fs::read_dir(deploy.join("presets")).expect("there are presets");
    let presets = presets.map(|preset| preset.expect("they can be listed").path());
    let mut all: Vec<PathBuf> = presets.chain([deploy.join("ebb.yaml")]).collect();
    all.sort();
    all
}

/// What ebb makes of a file, setting by setting; without the host, on which it will run elsewhere.
fn settings(file: &Path) -> Vec<Value> {
    let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
    ebb.args(["plan", "--explain-config", "--output", "json", "--config"]).arg(file);
    let out = ebb.output().expect("ebb can be started");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{}: {said}", file.display());
    assert!(said.is_empty(), "{}: {said}", file.display());
    serde_json::from_slice(&out.stdout).expect("the answer is JSON")
}

#[test]
fn every_shipped_configuration_is_understood_and_observes() {
    let all = shipped();
    assert_eq!(all.len(), 4, "{all:?}");
    for file in all {
        let enforces = settings(&file).into_iter().find(|setting| setting["key"] == "ebb.enforce");
        let enforces = enforces.unwrap_or_else(|| panic!("{} does not say", file.display()));
        assert_eq!(enforces["value"], "false", "{}", file.display());
    }
}
