//! Gives a tree to a type: an object must be an object, and what goes wrong is told with its path.

use super::error::{Error, Step};
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde_json::{Map, Value};

/// A value that a type is read from.
pub(super) struct Strict {
    value: Value,
    /// The value stands in a choice told apart by one of its fields, which is read without a type first: there a list may be meant.
    is_in_choice: bool,
}

impl Strict {
    pub(super) fn new(value: Value) -> Self {
        Self { value, is_in_choice: false }
    }

    fn object(self) -> Result<Object, Error> {
        match self.value {
            Value::Object(map) => Ok(Object::new(map, self.is_in_choice)),
            other => Err(Error::new(format!("{} where an object belongs", shown(&other)))),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => format!("text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Single values: a list or an object is refused by what the type expects.
macro_rules! scalars {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.value {
                Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
                Value::Object(_) => Err(Error::invalid_type(Unexpected::Map, &visitor)),
                _ => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Error;

    /// Asked for by choices, and by types that take text and numbers alike.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(Error::new("a number that cannot be read")),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(list) if self.is_in_choice => visitor.visit_seq(List::new(list, true)),
            Value::Array(_) => Err(Error::new("a list where one value or an object belongs")),
            Value::Object(map) => visitor.visit_map(Object::new(map, true)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(self.object()?)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self.object()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(list) => visitor.visit_seq(List::new(list, self.is_in_choice)),
            other => Err(Error::new(format!("{} where a list belongs", shown(&other)))),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::String(name) => visitor.visit_enum(Choice { name, content: None }),
            Value::Object(map) if map.len() == 1 => match map.into_iter().next() {
                Some((name, content)) => {
                    visitor.visit_enum(Choice { name, content: Some(content) })
                }
                None => Err(Error::new("an empty object where a name belongs")),
            },
            other => Err(Error::new(format!("{} where a name belongs", shown(&other)))),
        }
    }

    scalars! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

struct List {
    items: std::vec::IntoIter<Value>,
    next: usize,
    is_in_choice: bool,
}

impl List {
    fn new(list: Vec<Value>, is_in_choice: bool) -> Self {
        Self { items: list.into_iter(), next: 0, is_in_choice }
    }
}

impl<'de> SeqAccess<'de> for List {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        let item = Strict { value, is_in_choice: self.is_in_choice };
        seed.deserialize(item).map(Some).map_err(|error| error.below(Step::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Object {
    entries: serde_json::map::IntoIter,
    value: Option<(String, Value)>,
    is_in_choice: bool,
}

impl Object {
    fn new(map: Map<String, Value>, is_in_choice: bool) -> Self {
        Self { entries: map.into_iter(), value: None, is_in_choice }
    }
}

impl<'de> MapAccess<'de> for Object {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some((key.clone(), value));
        let key: StringDeserializer<Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(Error::new("a value without its key"));
        };
        let below = Strict { value, is_in_choice: self.is_in_choice };
        seed.deserialize(below).map_err(|error| error.below(Step::Key(key)))
    }
}

struct Choice {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Choice {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content), Error> {
        let name: StringDeserializer<Error> = self.name.clone().into_deserializer();
        let chosen = seed.deserialize(name)?;
        Ok((chosen, Content { name: self.name, content: self.content }))
    }
}

struct Content {
    name: String,
    content: Option<Value>,
}

impl Content {
    fn given(self) -> Result<Strict, Error> {
        match self.content {
            Some(value) => Ok(Strict::new(value)),
            None => Err(Error::new(format!("`{}` needs fields; write it as an object", self.name))),
        }
    }
}

impl<'de> VariantAccess<'de> for Content {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(format!("`{}` has no fields; write the name alone", self.name)))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.given()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.given()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(self.given()?.object()?)
    }
}
