//! What is wrong with a JSON text, in plain words: the path of the field, what is there, what belongs there.

use serde::de::{Expected, Unexpected};
use std::fmt;

/// How unlike a known name an unknown one may be to be taken for a misspelling of it.
const LIKENESS: f64 = 0.75;

/// One step of a path, from the outside in.
#[derive(Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A mistake and where it stands.
#[derive(Debug)]
pub(super) struct Error {
    /// The innermost step first, as it is found.
    steps: Vec<Step>,
    problem: String,
}

impl Error {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { steps: Vec::new(), problem: problem.into() }
    }

    /// The same mistake, seen from one level further out.
    pub(super) fn below(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// The path of `key` below `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    // A name with dots in it, as signals have, is quoted, so that a path can be taken apart again.
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match (path, plain) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.steps.iter().rev().fold(String::new(), |path, step| match step {
            Step::Key(key) => join(&path, key),
            Step::Index(index) => format!("{path}[{index}]"),
        });
        if path.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{path}: {}", self.problem)
        }
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("{} where {} belongs", there(&found), wanted(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("a list of {length} where {} belongs", wanted(expected)))
    }

    fn unknown_variant(written: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("unknown value `{written}`; {}", meant(written, known)))
    }

    fn unknown_field(written: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("unknown field `{written}`; {}", meant(written, known)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new("missing").below(Step::Key(field.to_owned()))
    }
}

fn meant(written: &str, known: &[&str]) -> String {
    let like = |name: &str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    let nearest = known.iter().max_by(|a, b| like(a).total_cmp(&like(b)));
    match nearest.filter(|name| like(name) >= LIKENESS) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("use one of {}", known.join(", ")),
    }
}

fn there(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Char(value) => format!("text {:?}", value.to_string()),
        Unexpected::Str(text) => format!("text {text:?}"),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq | Unexpected::TupleVariant => "a list".to_owned(),
        Unexpected::Map | Unexpected::StructVariant => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// What the reader of a type says that it expects, without the words of the language that it is written in.
fn wanted(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    let plain = match text.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text",
        "a sequence" => "a list",
        "unit" => "null",
        "a map" => "an object",
        "variant identifier" | "field identifier" => "a name",
        _ if text.starts_with("struct ") && !text.starts_with("struct variant") => "an object",
        _ if text.starts_with("tuple struct ") => "a value",
        _ if text.contains("enum ") => "a name or an object with one",
        _ if text.contains("variant ") => "an object",
        _ => return text,
    };
    plain.to_owned()
}
