//! The file: its text, the tree that it makes, and the line of a key in it.
use super::{
    ConfigErrors, Mistake,
    tree::{self, Node, Placed},
};
use ebb_policy::limits::ConfigError;
use std::fs;
use std::path::Path;

/// Its text.
pub(super) fn read(path: &Path) -> Result<String, ConfigErrors> {
    fs::read_to_string(path).map_err(|error| {
        let error = ConfigError {
            key: "the file".to_owned(),
            value: None,
            problem: match error.kind() {
                std::io::ErrorKind::InvalidData => "it is not text in UTF-8".to_owned(),
                _ => format!("it cannot be read: {error}"),
            },
            fix: "name a readable file".to_owned(),
        };
        ConfigErrors { file: Some(path.to_owned()), mistakes: vec![Mistake { line: None, error }] }
    })
}

/// The text as a tree; a text that is not YAML is a mistake of its own.
pub(super) fn tree(text: &str) -> Result<Placed, ConfigErrors> {
    if text.trim().is_empty() {
        return Ok(Node::Null.into());
    }
    let root = tree::read(text).map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let error = ConfigError {
            key: "the file".to_owned(),
            value: None,
            problem: format!("not YAML that can be read: {}", crate::yaml::problem(&error)),
            fix: "correct the syntax".to_owned(),
        };
        ConfigErrors { file: None, mistakes: vec![Mistake { line, error }] }
    })?;
    let twice = tree::given_twice(&root).into_iter().map(|(key, first, second)| Mistake {
        line: (second > 0).then_some(second),
        error: ConfigError {
            key,
            value: None,
            problem: format!("given twice, first in line {first}"),
            fix: "keep one of them".to_owned(),
        },
    });
    let mistakes: Vec<Mistake> = twice.collect();
    if mistakes.is_empty() { Ok(root) } else { Err(ConfigErrors { file: None, mistakes }) }
}

/// The line of a key such as `evictionHard["memory.available"]`: that of the entry, else that of its section.
pub(super) fn line_of(root: &Placed, key: &str) -> Option<u64> {
    let (section, entry) = match key.split_once('[') {
        Some((section, entry)) => (section, Some(entry.trim_matches(['[', ']', '"']))),
        None => (key, None),
    };
    let find = |place: &Placed, key: &str| match &place.node {
        Node::Map(entries) => {
            entries.iter().find(|(name, _)| name == key).map(|(_, place)| place.clone())
        }
        _ => None,
    };
    let section = match section.split_once('.') {
        Some(("ebb", own)) => find(&find(root, "ebb")?, own)?,
        _ => find(root, section)?,
    };
    // Of `alsoBelow["memory.available"]["swap.available"]` the inner key, else the outer one.
    let mut line = section.line;
    let mut place = section;
    for key in entry.into_iter().flat_map(|entry| entry.split("\"][\"")) {
        let Some(found) = find(&place, key) else { break };
        (line, place) = (found.line, found);
    }
    Some(line).filter(|line| *line > 0)
}
