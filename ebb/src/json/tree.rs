//! A JSON text as a tree, in which no object has a key twice.

use super::error::join;
use anyhow::anyhow;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Reads the text.
///
/// # Errors
/// It is no JSON, has something after its end, or an object has a key twice; with line and column.
pub(super) fn parse(text: &str) -> anyhow::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = At(String::new()).deserialize(&mut reader);
    read.and_then(|value| reader.end().map(|()| value)).map_err(|error| {
        if error.is_data() {
            anyhow!("{error}")
        } else {
            anyhow!("not complete, correct JSON: {error}")
        }
    })
}

/// Reads the value at this path.
struct At(String);

impl<'de> DeserializeSeed<'de> for At {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(At(format!("{}[{}]", self.0, list.len())))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<Key>()? {
            let path = join(&self.0, &key.0);
            if map.contains_key(&key.0) {
                return Err(de::Error::custom(format!("{path}: given twice; keep one of them")));
            }
            map.insert(key.0, entries.next_value_seed(At(path))?);
        }
        Ok(Value::Object(map))
    }
}

struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Key)
    }
}
