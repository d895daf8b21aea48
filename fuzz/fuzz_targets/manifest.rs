//! Any text as a file of pods' manifests: it is refused whole with a reason, or its pods are read, the same twice; no name leads out of a directory.
#![no_main]
use ebb_agent::sense::manifests::Manifests;
use libfuzzer_sys::fuzz_target;
use std::fs;

#[path = "../src/scratch.rs"]
mod scratch;

fuzz_target!(|text: &[u8]| {
    let dir = scratch::dir("manifest");
    let file = dir.join("pod.yaml");
    fs::write(&file, text).expect("a file can be written");
    let read = Manifests::read_each(dir).expect("the directory can be read");
    assert!(read.problems.iter().all(|problem| problem.contains("pod.yaml: ")), "{read:?}");
    match Manifests::read(&file, None) {
        Err(why) => assert!(read.is_empty() && read.problems.len() == 1, "{why:#}: {read:?}"),
        // The strict reader may find that there is no pod at all; the tolerant one says so.
        Ok(strict) => {
            assert_eq!(read.is_empty(), strict.is_empty(), "{read:?}");
            assert!(!read.is_empty() || read.problems.len() == 1, "{read:?}");
        }
    }
    for pod in read.all() {
        for part in [&pod.namespace, &pod.name, &pod.uid] {
            assert!(!part.starts_with('.') && !part.contains(['/', '\0']), "{pod:?}");
        }
    }
    assert_eq!(Manifests::read_each(dir).expect("the directory can be read"), read);
});
