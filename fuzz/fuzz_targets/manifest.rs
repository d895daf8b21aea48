//! Any text as a pod's manifest: it is refused with a reason, or read the same twice.
#![no_main]
use ebb::sense::manifests::Manifests;
use libfuzzer_sys::fuzz_target;
use std::fs;

#[path = "../src/scratch.rs"]
mod scratch;

fuzz_target!(|text: &[u8]| {
    let dir = scratch::dir("manifest");
    fs::write(dir.join("pod.yaml"), text).expect("a file can be written");
    let read = Manifests::read_each(dir).expect("the directory can be read");
    assert_eq!(read.pods.len() + read.problems.len(), 1, "{read:?}");
    assert!(read.problems.iter().all(|problem| problem.contains("pod.yaml: ")), "{read:?}");
    assert_eq!(Manifests::read_each(dir).expect("the directory can be read"), read);
});
