//! Calls in the text after the reasoning, while it is generated.

use super::json_calls::JsonCallParser;
use super::xml::XmlParser;
use crate::chat::output::{OutputDelta, text_delta};

/// Parser of the text after the reasoning, by the format of calls.
#[derive(Clone, Debug, Default)]
pub enum CallParser {
    /// Calls are not allowed: everything is text.
    #[default]
    Plain,
    /// Calls with arguments in JSON.
    Json(JsonCallParser),
    /// Calls in XML.
    Xml(XmlParser),
}

impl CallParser {
    pub(in crate::chat) fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        match self {
            Self::Plain => text_delta(text).into_iter().collect(),
            Self::Json(parser) => parser.push(text),
            Self::Xml(parser) => parser.push(text),
        }
    }

    /// Length of the end of the text that is not parsed yet.
    pub(in crate::chat) fn held_len(&self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Json(parser) => parser.held_len(),
            Self::Xml(parser) => parser.held_len(),
        }
    }

    pub(in crate::chat) fn is_in_call(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Json(parser) => parser.is_in_call(),
            Self::Xml(parser) => parser.is_in_call(),
        }
    }

    pub(in crate::chat) fn finish(&mut self) -> Vec<OutputDelta> {
        match self {
            Self::Plain => Vec::new(),
            Self::Json(parser) => parser.finish(),
            Self::Xml(parser) => parser.finish(),
        }
    }
}
