//! YAML as a tree whose nodes know their line, so that every mistake of a file can be reported at once and in its place.
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess},
    ser::SerializeMap as _,
};
use serde_saphyr::Spanned;
use std::fmt;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Placed>),
    Map(Vec<(String, Placed)>),
}

/// A value and the line that it stands in; 0 for one that was not read from a file.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) line: u64,
    pub(super) node: Node,
}

/// Where a value stands is no part of what it says.
impl PartialEq for Placed {
    fn eq(&self, other: &Placed) -> bool {
        self.node == other.node
    }
}

impl From<Node> for Placed {
    fn from(node: Node) -> Placed {
        Placed { line: 0, node }
    }
}

impl Node {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Null => "nothing",
            Node::Bool(_) => "true or false",
            Node::Integer(_) | Node::Float(_) => "a number",
            Node::Text(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a section of keys",
        }
    }

    /// A scalar as it was written, for messages.
    pub(super) fn shown(&self) -> Option<String> {
        match self {
            Node::Bool(value) => Some(value.to_string()),
            Node::Integer(value) => Some(value.to_string()),
            Node::Float(value) => Some(value.to_string()),
            Node::Text(text) => Some(text.clone()),
            Node::Null | Node::List(_) | Node::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Placed, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Placed { line: spanned.referenced.line(), node: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        // A number beyond the signed range is in no field's range either; as text it is reported as written.
        Ok(i64::try_from(value).map_or_else(|_| Node::Text(value.to_string()), Node::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some((key, mut value)) = entries.next_entry::<Spanned<String>, Placed>()? {
            // A section begins below its key; whoever is told of it looks for the key.
            value.line = key.referenced.line();
            map.push((key.value, value));
        }
        Ok(Node::Map(map))
    }
}

/// The text as a tree; what is given twice is in it twice, for [`given_twice`] to find.
///
/// # Errors
/// It is not YAML.
pub(super) fn read(text: &str) -> Result<Placed, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Every key that is given twice, by its path, with the lines of both.
pub(super) fn given_twice(root: &Placed) -> Vec<(String, u64, u64)> {
    let mut found = Vec::new();
    look_for_twins(root, "", &mut found);
    found
}

fn look_for_twins(place: &Placed, path: &str, found: &mut Vec<(String, u64, u64)>) {
    match &place.node {
        Node::Map(entries) => {
            for (index, (key, value)) in entries.iter().enumerate() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let mut earlier = entries.iter().take(index);
                if let Some((_, first)) = earlier.find(|(other, _)| other == key) {
                    found.push((path.clone(), first.line, value.line));
                }
                look_for_twins(value, &path, found);
            }
        }
        Node::List(list) => {
            for (index, item) in list.iter().enumerate() {
                look_for_twins(item, &format!("{path}[{index}]"), found);
            }
        }
        Node::Null | Node::Bool(_) | Node::Integer(_) | Node::Float(_) | Node::Text(_) => {}
    }
}

impl Serialize for Placed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.node {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Integer(value) => serializer.serialize_i64(*value),
            Node::Float(value) => serializer.serialize_f64(*value),
            Node::Text(text) => serializer.serialize_str(text),
            Node::List(list) => serializer.collect_seq(list),
            Node::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
