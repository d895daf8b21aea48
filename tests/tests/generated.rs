//! What is generated and committed is what would be generated now. `EBB_BLESS=1` writes it.
use ebb_tests::{conformance, conformance::document, options, repository, schemas};
use std::{env, fs, path::Path};

fn up_to_date(file: &Path, text: &str) {
    if env::var_os("EBB_BLESS").is_some() {
        fs::write(file, text).expect("the file can be written");
    }
    let committed = fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == text,
        "{} is out of date: EBB_BLESS=1 cargo test -p ebb-tests --test generated",
        file.display()
    );
}

#[test]
fn the_conformance_document_is_up_to_date() {
    let files = conformance::files().unwrap();
    let rules: Vec<_> = files
        .into_iter()
        .map(|file| {
            let rule = file.read().unwrap();
            (file, rule)
        })
        .collect();
    up_to_date(&repository().join("docs/conformance.md"), &document::render(&rules));
}

#[test]
fn the_schemas_are_up_to_date() {
    for (name, text) in schemas::all() {
        up_to_date(&repository().join("docs/schema").join(name), &text);
    }
}

#[test]
fn the_table_of_options_is_up_to_date() {
    up_to_date(&repository().join("docs/options.md"), &options::render().unwrap());
}
