//! `cargo xtask pages`: what ebb writes as pages, opened in a headless Chromium as a person would: in both schemes, on a desk, on a telephone and on paper.
//!
//! ```text
//!  tests/incidents/**.json ─► ebb incident html ─┐
//!  tests/cluster/shop.json ─► ebb graph ─────────┴─► target/pages ─► browser (DevTools protocol) ─► look.js ─► findings
//! ```
//! Chromium is Debian's package, installed by root where no Chromium is; the pages stay in `target/pages` for a person to look at.

mod browser;

use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use browser::{Browser, View};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest page, bytes.
const LARGEST: u64 = 500 * 1024;

/// A page on which everything is wrong that is looked for, so that it is known to be found.
const WRONG: &str = "<!DOCTYPE html><meta charset=utf-8><title>wrong</title><style>body{background:#fff;color:#000}p{color:#aaa;width:3000px}</style>\
<script>console.log('said')</script><img src='http://127.0.0.1:1/asked.png' alt=''>";

/// The size of letters that a browser begins with, pixels.
const LETTERS: u32 = 16;

/// How a page is looked at.
const VIEWS: [View; 6] = [
    View { name: "light", media: "screen", scheme: "light", width: 1280, letters: LETTERS },
    View { name: "dark", media: "screen", scheme: "dark", width: 1280, letters: LETTERS },
    View { name: "narrow", media: "screen", scheme: "light", width: 390, letters: LETTERS },
    // Some fonts are as wide; which there are differs between machines.
    View {
        name: "narrow, large letters",
        media: "screen",
        scheme: "light",
        width: 390,
        letters: 22,
    },
    // A4 between its margins.
    View { name: "printed", media: "print", scheme: "light", width: 688, letters: LETTERS },
    // Whoever prints from a dark desk has white paper all the same.
    View {
        name: "printed from dark",
        media: "print",
        scheme: "dark",
        width: 688,
        letters: LETTERS,
    },
];

/// Options of `cargo xtask pages`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    check()
}

/// What the check runs.
pub(crate) fn check() -> Result<()> {
    let chromium = browser::program()?;
    let dir = sh::target().join("pages");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let pages = make(&dir)?;
    let mut browser = Browser::start(&chromium, &dir.join("profile"))?;
    finds(&mut browser, &dir)?;
    let mut wrong = Vec::new();
    for page in &pages {
        let (mut texts, mut found) = (0, Vec::new());
        for view in &VIEWS {
            let seen = browser
                .look(page, view)
                .with_context(|| format!("{}, {}", page.display(), view.name))?;
            texts += seen.texts;
            found.extend(seen.findings.iter().map(|what| format!("{}: {what}", view.name)));
        }
        let size = fs::metadata(page).with_context(|| page.display().to_string())?.len();
        if size > LARGEST {
            found.push(format!("{size} bytes are more than {LARGEST}"));
        }
        let name = page.file_name().unwrap_or_default().display();
        println!("{name}: {} KiB, {texts} texts in {} views", size / 1024, VIEWS.len());
        wrong.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    drop(browser);
    // The browser's helpers may outlive it a little and write there still; the next run removes what they left.
    let _ = fs::remove_dir_all(dir.join("profile"));
    ensure!(wrong.is_empty(), "pages are not as they should be:\n{}", wrong.join("\n"));
    Ok(())
}

/// Whether what is wrong on a page is found.
fn finds(browser: &mut Browser, dir: &Path) -> Result<()> {
    let page = dir.join("wrong.html");
    let text = format!("{WRONG}{}", "<p>faint</p>".repeat(30));
    fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    let seen = browser.look(&page, &VIEWS[0])?;
    for word in ["has a contrast of", "pixels wide", "console: ", "asks for http://127.0.0.1:1/"] {
        let is_found = seen.findings.iter().any(|finding| finding.contains(word));
        ensure!(is_found, "{word:?} is not among {:?}", seen.findings);
    }
    Ok(())
}

/// Writes every page with the program itself.
fn make(dir: &Path) -> Result<Vec<PathBuf>> {
    crate::bpf::ensure().context("cannot build the BPF programs")?;
    let mut build = Command::new("cargo");
    sh::run(build.current_dir(sh::root()).args(["build", "--quiet", "--package", "ebb"]))?;
    let ebb = sh::target().join("debug/ebb");
    let tests = sh::root().join("tests");
    let incidents = tests.join("incidents");
    let mut pages = Vec::new();
    // A page names it by its path, which may be long.
    let long = dir.join("a-directory-whose-name-is-wider-than-a-telephone-and-has-a-space in-it");
    fs::create_dir(&long).with_context(|| format!("cannot create {}", long.display()))?;
    let other = long.join("longer-grace.yaml");
    let from = incidents.join("longer-grace.yaml");
    fs::copy(&from, &other).with_context(|| format!("cannot copy {}", from.display()))?;
    let all = [records(&incidents)?, records(&incidents.join("guests"))?].concat();
    for record in all {
        let stem = record.file_stem().unwrap_or_default().display().to_string();
        for (suffix, extra) in [("", None), (".compared", Some(&other))] {
            let page = dir.join(format!("{stem}{suffix}.html"));
            let mut command = Command::new(&ebb);
            command.args(["incident", "html"]).arg(&record).arg("--output").arg(&page);
            if let Some(other) = extra {
                command.arg("--config").arg(other);
            }
            sh::read(&mut command)?;
            pages.push(page);
        }
    }
    for (object, cascade) in [("web", "background"), ("web", "foreground"), ("api", "orphan")] {
        let page = dir.join(format!("graph-{object}-{cascade}.html"));
        let mut command = Command::new(&ebb);
        command.args(["graph", &format!("deployment/{object}"), "-n", "shop", "-o", "html"]);
        command.args(["--cascade", cascade, "--from"]).arg(tests.join("cluster/shop.json"));
        let text = sh::read(&mut command)?;
        fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
        pages.push(page);
    }
    Ok(pages)
}

/// The records in a directory, in the order of their names.
fn records(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut records = Vec::new();
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            records.push(path);
        }
    }
    records.sort();
    if records.is_empty() {
        bail!("{} has no record", directory.display());
    }
    Ok(records)
}
