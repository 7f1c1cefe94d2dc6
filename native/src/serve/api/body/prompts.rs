//! Prompts in all forms that OpenAI's API accepts.

use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use utoipa::ToSchema;

/// One prompt or several, as texts or as token ids.
#[derive(Clone, ToSchema)]
#[serde(untagged)]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Many(Vec<Vec<u32>>),
}

/// An element of an array of prompts.
enum Element {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

/// Reads prompts by the type of the first element. Deriving would keep a copy of all values.
struct PromptsVisitor;

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, an array of strings, an array of token ids, or an array of those")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        Ok(match list.next_element()? {
            None => Prompts::Texts(Vec::new()),
            Some(Element::Text(first)) => Prompts::Texts(rest(first, list)?),
            Some(Element::Token(first)) => Prompts::Tokens(rest(first, list)?),
            Some(Element::Tokens(first)) => Prompts::Many(rest(first, list)?),
        })
    }
}

/// Collects an array whose first element was read.
fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    first: T,
    mut list: A,
) -> Result<Vec<T>, A::Error> {
    let mut all = vec![first];
    while let Some(next) = list.next_element()? {
        all.push(next);
    }
    Ok(all)
}

struct ElementVisitor;

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a token id, or an array of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Text(text.into()))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Element, E> {
        let id = u32::try_from(id);
        id.map(Element::Token).map_err(|_| E::custom("a token id is larger than any vocabulary"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
        let first = list.next_element()?;
        Ok(Element::Tokens(first.map_or_else(|| Ok(Vec::new()), |first| rest(first, list))?))
    }
}

impl Prompts {
    /// Returns the tokens of each prompt. The prompts came in the field `param`. Takes a while for
    /// long ones.
    ///
    /// # Errors
    /// If there is none, or more than `limit`.
    pub fn encode(
        self,
        model: &ServedModel,
        param: &str,
        limit: usize,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let texts = match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
            Self::Tokens(tokens) => return Ok(vec![tokens]),
            Self::Many(prompts) => {
                check_count(prompts.len(), param, limit)?;
                return Ok(prompts);
            }
        };
        check_count(texts.len(), param, limit)?;
        texts.into_iter().map(|text| model.encode(&text, true, param)).collect()
    }
}

/// Checks the number of prompts.
fn check_count(count: usize, param: &str, limit: usize) -> Result<(), ApiError> {
    match count {
        0 => Err(ApiError::bad(param, format!("{param} is empty: send at least one text"))),
        n if n > limit => {
            Err(ApiError::bad(param, format!("{param} has {n} texts: send at most {limit}")))
        }
        _ => Ok(()),
    }
}
