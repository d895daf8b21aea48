//! What the documentation shows of ebb's commands: each is one that ebb has, with these options; and what needs no node to be run says what is shown there.

use crate::ebb;
use ebb_tests::repository;
use std::fs;
use std::path::{Path, PathBuf};

/// A command of ebb's as it stands in a document.
struct Shown {
    place: String,
    /// Its words after `ebb`.
    words: Vec<String>,
    /// What is shown below it, where it is part of a session.
    said: Option<Vec<String>>,
}

/// What stands for a number.
const NUMBERS: [&str; 1] = ["SEQ"];

fn documents() -> Vec<PathBuf> {
    let root = repository();
    let listed = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> =
        listed.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    all.push(root.join("README.md"));
    all.sort();
    all
}

/// The words of a command, up to a comment or another program; of words to choose from, the first.
fn words(text: &str) -> Vec<String> {
    let all = text.split_whitespace().take_while(|word| !["#", "|", ">", "<", "&&"].contains(word));
    let first = |word: &str| {
        // A cell of a table writes the bar with a backslash.
        let word = word.split(['|', '\\']).next().unwrap_or_default();
        if NUMBERS.contains(&word) { "1".to_owned() } else { word.to_owned() }
    };
    all.map(first).collect()
}

/// Every command in a document.
fn shown(document: &Path) -> Vec<Shown> {
    let text = fs::read_to_string(document).unwrap();
    let name = document.file_name().unwrap().to_str().unwrap();
    let mut found: Vec<Shown> = Vec::new();
    // Within a block of code, and one that is a session: with prompts, and what was said.
    let (mut is_code, mut is_session) = (false, false);
    // The command whose words the lines that follow are.
    let mut speaking = false;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (is_code, is_session, speaking) = (!is_code, language == "console", false);
        } else if is_code {
            let command = line.trim_start().trim_start_matches("$ ");
            let is_prompt = !is_session || line.starts_with("$ ");
            let own = command.strip_prefix("ebb ").or(command.split_once("-- ebb ").map(|of| of.1));
            match own.filter(|_| is_prompt) {
                Some(own) => {
                    let said = is_session.then(Vec::new);
                    found.push(Shown { place, words: words(own), said });
                    speaking = is_session;
                }
                None if is_prompt => speaking = false,
                None if speaking => {
                    if let Some(said) = found.last_mut().and_then(|shown| shown.said.as_mut()) {
                        said.push(line.to_owned());
                    }
                }
                None => {}
            }
        } else {
            let inline = line.split('`').skip(1).step_by(2);
            let own = inline.filter_map(|code| code.strip_prefix("ebb "));
            found.extend(own.map(|own| Shown {
                place: place.clone(),
                words: words(own),
                said: None,
            }));
        }
    }
    found
}

#[test]
fn every_command_in_the_documentation_is_one_that_ebb_has() {
    let all: Vec<Shown> = documents().iter().flat_map(|document| shown(document)).collect();
    assert!(all.len() > 100, "only {} commands are found", all.len());
    let mut wrong = Vec::new();
    for Shown { place, words, .. } in all {
        // What follows is not looked at: whether what comes before it can be understood is known by then.
        let output = ebb().args(&words).arg("--help").output().unwrap();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!("{place}: ebb {}: {why}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Ages grow.
fn without_ages(line: &str) -> String {
    let age = |word: &str| word.strip_suffix('d').is_some_and(|days| days.parse::<u32>().is_ok());
    let words: Vec<&str> =
        line.split(' ').map(|word| if age(word) { "AGEd" } else { word }).collect();
    words.join(" ").trim_end().to_owned()
}

/// Whether these lines are what is shown, where `…` stands for any number of lines.
fn is_as_shown(lines: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| is_as_shown(&lines[skipped..], rest))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, lines)) => line == first && is_as_shown(lines, rest),
            None => false,
        },
    }
}

/// Whether a command reads files of this repository, and nothing of a node.
fn is_of_files(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("tests/") || word == "shop.json")
}

#[test]
fn what_the_documentation_shows_of_files_is_what_ebb_says_of_them() {
    let root = repository();
    let directory = tempfile::tempdir().unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(root.join(to), directory.path().join(name)).unwrap();
    };
    link("tests", "tests");
    link("tests/cluster/shop.json", "shop.json");
    let (mut count, mut wrong) = (0, Vec::new());
    for Shown { place, words, said } in documents().iter().flat_map(|document| shown(document)) {
        let Some(said) = said.filter(|_| is_of_files(&words)) else { continue };
        let output = ebb().args(&words).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let clean =
            |lines: &mut dyn Iterator<Item = &str>| lines.map(without_ages).collect::<Vec<_>>();
        let (now, then) = (clean(&mut text.lines()), clean(&mut said.iter().map(String::as_str)));
        if !is_as_shown(&now, &then) {
            wrong.push(format!("{place}: ebb {} says\n{text}", words.join(" ")));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 6, "only {count} were run");
}

#[test]
fn a_session_is_found_with_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.md");
    let text = "Use `ebb gc images|logs`.\n```console\n$ ebb a b   # why\nsaid\n…\n$ kubectl c\nnot its\n$ kubectl exec x -- ebb d\n```\n";
    fs::write(&file, text).unwrap();
    let found = shown(&file);
    let words: Vec<String> = found.iter().map(|shown| shown.words.join(" ")).collect();
    assert_eq!(words, ["gc images", "a b", "d"]);
    let said: Vec<_> = found.into_iter().map(|shown| shown.said).collect();
    let lines = |text: &[&str]| Some(text.iter().map(|line| (*line).to_owned()).collect());
    assert_eq!(said, [None, lines(&["said", "…"]), lines(&[])]);
}
