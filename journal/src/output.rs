//! The forms that lines of records have.

use crate::sink::{Entry, Sink};
use crate::{json, text};
use std::io::Write;

/// The form of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Lines for people; colours only on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Output {
    /// The sink that writes this form to `to`; `colour` only where people look.
    #[must_use]
    pub fn to(self, to: impl Write + 'static, colour: bool) -> Box<dyn Sink> {
        match self {
            Self::Text => Box::new(text::Text::new(to, colour)),
            Self::Json => Box::new(json::Json::new(to)),
        }
    }

    /// An entry in this form, with the line break at its end and without colour.
    #[must_use]
    pub fn line(self, entry: &Entry) -> Vec<u8> {
        match self {
            Self::Text => text::line(entry, false),
            Self::Json => json::line(entry),
        }
    }
}
