//! Reading a section of keys: each key is asked for once with its type, and what was not asked for is unknown.
//!
//! Mistakes are collected, never returned, so that reading goes on and all of them are reported together.
use super::{
    error::Mistake,
    tree::{Node, Placed},
};
use ebb_policy::{
    Millis,
    limits::{ConfigError, duration},
};
use std::{cell::RefCell, collections::BTreeMap};

/// Mistakes found so far.
pub(super) type Mistakes = RefCell<Vec<Mistake>>;

/// Texts by two keys.
pub(super) type TextMaps = BTreeMap<String, BTreeMap<String, String>>;

/// How unlike a known key an unknown one may be to be taken for a misspelling of it.
const LIKENESS: f64 = 0.75;

/// A section of keys under a path.
pub(super) struct Section<'a> {
    path: String,
    /// Where it begins; 0 where that is not known.
    line: u64,
    entries: &'a [(String, Placed)],
    known: Vec<&'static str>,
    mistakes: &'a Mistakes,
}

impl<'a> Section<'a> {
    /// The top of a file; an empty file is an empty section.
    pub(super) fn top(root: &'a Placed, mistakes: &'a Mistakes) -> Section<'a> {
        Section::of(String::new(), root, mistakes)
    }

    fn of(path: String, place: &'a Placed, mistakes: &'a Mistakes) -> Section<'a> {
        let line = place.line;
        let section = Section { path, line, entries: &[], known: Vec::new(), mistakes };
        match &place.node {
            Node::Map(entries) => Section { entries, ..section },
            Node::Null => section,
            other => {
                let name = if section.path.is_empty() { "the file" } else { &section.path };
                section.push(
                    place,
                    name.to_owned(),
                    format!("{} where keys belong", other.kind()),
                    "write keys and values, as in `key: value`",
                );
                section
            }
        }
    }

    /// The path of a key in this section.
    fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn push(&self, place: &Placed, key: String, problem: String, fix: impl Into<String>) {
        let error = ConfigError { key, value: place.node.shown(), problem, fix: fix.into() };
        let line = (place.line > 0).then_some(place.line);
        self.mistakes.borrow_mut().push(Mistake { line, error });
    }

    /// Reports a value as wrong.
    pub(super) fn refuse(&self, key: &str, place: &Placed, problem: &str, fix: impl Into<String>) {
        self.push(place, self.key(key), problem.to_owned(), fix);
    }

    /// Reports a key that has to be there as missing.
    pub(super) fn missing(&self, key: &str, fix: impl Into<String>) {
        let problem = "missing".to_owned();
        let error = ConfigError { key: self.key(key), value: None, problem, fix: fix.into() };
        let line = (self.line > 0).then_some(self.line);
        self.mistakes.borrow_mut().push(Mistake { line, error });
    }

    fn expected(&self, key: &str, place: &Placed, what: &str) {
        let problem = format!("{} where {what} belongs", place.node.kind());
        let fix = match (what, &place.node) {
            ("text", Node::Integer(_) | Node::Float(_) | Node::Bool(_)) => {
                "write it in quotes".to_owned()
            }
            _ => format!("write {what}"),
        };
        self.refuse(key, place, &problem, fix);
    }

    /// The value of a key; `null` counts as absent.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Placed> {
        self.known.push(key);
        let (_, place) = self.entries.iter().find(|(name, _)| name == key)?;
        (place.node != Node::Null).then_some(place)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let place = self.value(key)?;
        match &place.node {
            Node::Text(text) => Some(text.clone()),
            _ => {
                self.expected(key, place, "text");
                None
            }
        }
    }

    pub(super) fn integer(&mut self, key: &'static str) -> Option<i64> {
        let place = self.value(key)?;
        match place.node {
            Node::Integer(value) => Some(value),
            _ => {
                self.expected(key, place, "a whole number");
                None
            }
        }
    }

    /// A whole number of a smaller range.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, key: &'static str, range: &str) -> Option<T> {
        let value = self.integer(key)?;
        let number = T::try_from(value).ok();
        if number.is_none()
            && let Some(place) = self.value(key)
        {
            self.refuse(key, place, "out of range", format!("write a number {range}"));
        }
        number
    }

    /// A whole number of percent.
    pub(super) fn percent(&mut self, key: &'static str) -> Option<u32> {
        let percent = self.number::<u32>(key, "from 0 to 100")?;
        if percent > 100
            && let Some(place) = self.value(key)
        {
            self.refuse(key, place, "out of range", "write a number from 0 to 100");
            return None;
        }
        Some(percent)
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let place = self.value(key)?;
        match place.node {
            Node::Bool(value) => Some(value),
            _ => {
                self.expected(key, place, "true or false");
                None
            }
        }
    }

    /// A duration as Go writes it.
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Millis> {
        let text = self.text(key)?;
        let millis = duration::parse_nanos(&text).ok().and_then(|nanos| u64::try_from(nanos).ok());
        if millis.is_none()
            && let Some(place) = self.value(key)
        {
            self.refuse(
                key,
                place,
                "not a duration",
                "write a duration such as \"500ms\", \"90s\" or \"5m\"",
            );
        }
        millis.map(|nanos| Millis(nanos.div_ceil(1_000_000)))
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = match self.value(key)?.node {
            // YAML takes a bare `off` for false.
            Node::Bool(flag) => (if flag { "on" } else { "off" }).to_owned(),
            _ => self.text(key)?,
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none()
            && let Some(place) = self.value(key)
        {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(
                key,
                place,
                "not one of the choices",
                format!("write one of {}", words.join(", ")),
            );
        }
        found.map(|(_, value)| *value)
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let place = self.value(key)?;
        let Node::List(list) = &place.node else {
            self.expected(key, place, "a list");
            return None;
        };
        let mut texts = Vec::new();
        for item in list {
            match &item.node {
                Node::Text(text) => texts.push(text.clone()),
                _ => self.expected(key, item, "text"),
            }
        }
        Some(texts)
    }

    /// A map of texts.
    pub(super) fn text_map(&mut self, key: &'static str) -> Option<BTreeMap<String, String>> {
        self.map_of(key, "text", |node| match node {
            Node::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// A map of maps of texts.
    pub(super) fn text_maps(&mut self, key: &'static str) -> Option<TextMaps> {
        let text = |(key, place): &(String, Placed)| match &place.node {
            Node::Text(text) => Some((key.clone(), text.clone())),
            _ => None,
        };
        self.map_of(key, "a section such as {swap.available: \"10%\"}", |node| match node {
            Node::Map(entries) => entries.iter().map(text).collect(),
            Node::Null => Some(BTreeMap::new()),
            _ => None,
        })
    }

    /// A map of truth values; an absent one is empty.
    pub(super) fn flags(&mut self, key: &'static str) -> BTreeMap<String, bool> {
        let flags = self.map_of(key, "true or false", |node| match node {
            Node::Bool(flag) => Some(*flag),
            _ => None,
        });
        flags.unwrap_or_default()
    }

    /// A map whose values `take` understands; `None` when the key is absent or no map.
    fn map_of<T>(
        &mut self,
        key: &'static str,
        what: &str,
        take: impl Fn(&Node) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let place = self.value(key)?;
        let Node::Map(entries) = &place.node else {
            self.expected(key, place, "a section of keys");
            return None;
        };
        let mut map = BTreeMap::new();
        for (name, value) in entries {
            match take(&value.node) {
                Some(taken) => {
                    map.insert(name.clone(), taken);
                }
                None => self.expected(&format!("{key}[{name:?}]"), value, what),
            }
        }
        Some(map)
    }

    /// A number that need not be whole.
    #[expect(clippy::cast_precision_loss, reason = "what is written so is small")]
    pub(super) fn decimal(&mut self, key: &'static str) -> Option<f64> {
        let place = self.value(key)?;
        match place.node {
            Node::Float(value) => Some(value),
            Node::Integer(value) => Some(value as f64),
            _ => {
                self.expected(key, place, "a number");
                None
            }
        }
    }

    /// A section below this one.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let place = self.value(key)?;
        Some(Section::of(self.key(key), place, self.mistakes))
    }

    /// Sections in a list below this one.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let Some(place) = self.value(key) else { return Vec::new() };
        let Node::List(list) = &place.node else {
            self.expected(key, place, "a list");
            return Vec::new();
        };
        let one =
            |(index, item)| Section::of(format!("{}[{index}]", self.key(key)), item, self.mistakes);
        list.iter().enumerate().map(one).collect()
    }

    /// The keys that nobody asked for.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &'a (String, Placed)> + '_ {
        self.entries.iter().filter(|(key, _)| !self.known.contains(&key.as_str()))
    }

    /// The known key that is most like `key`, if one is like it at all.
    pub(super) fn nearest(&self, key: &str) -> Option<&'static str> {
        nearest(key, self.known.iter().copied())
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self) {
        for (key, place) in self.unknown() {
            let fix = match self.nearest(key) {
                Some(known) => format!("did you mean `{known}`?"),
                None => "remove it".to_owned(),
            };
            let error = ConfigError {
                key: self.key(key),
                value: None,
                problem: "unknown key".to_owned(),
                fix,
            };
            let line = (place.line > 0).then_some(place.line);
            self.mistakes.borrow_mut().push(Mistake { line, error });
        }
    }
}

/// The name that is most like what was written, if one is like it at all.
pub(super) fn nearest<'n>(
    written: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let like = |name: &str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    let best = names.into_iter().max_by(|a, b| like(a).total_cmp(&like(b)))?;
    (like(best) >= LIKENESS).then_some(best)
}
