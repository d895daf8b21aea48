//! Reading a [`State`]: one object, whose `type` says which of its other fields may be there.
//!
//! The derived reader of a type that is told apart by one of its fields reads that field first and the others without their places:
//! it takes any field beside `type: active`, and names no field in what it says of the others.

use super::State;
use crate::Time;
use alloc::format;
use serde::de::{Deserialize, Deserializer, Error};

/// Every field that a state can have.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    r#type: Type,
    since: Option<Time>,
    deadline: Option<Time>,
    at: Option<Time>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum Type {
    Active,
    Terminating,
    Terminated,
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Fields { r#type, since, deadline, at } = Fields::deserialize(from)?;
        let (name, own, state): (_, &[&str], _) = match r#type {
            Type::Active => ("active", &[], State::Active),
            Type::Terminating => {
                ("terminating", &["since", "deadline"], State::Terminating { since, deadline })
            }
            Type::Terminated => ("terminated", &["at"], State::Terminated { at }),
        };
        let given = [("since", since), ("deadline", deadline), ("at", at)];
        let foreign = given.iter().find(|(key, value)| value.is_some() && !own.contains(key));
        match foreign {
            None => Ok(state),
            Some((key, _)) => Err(D::Error::custom(format!(
                "unknown field `{key}` beside `type: {name}`; {}",
                match own {
                    [] => "there is none beside that, remove it".into(),
                    own => format!("use {}", own.join(" and ")),
                }
            ))),
        }
    }
}
