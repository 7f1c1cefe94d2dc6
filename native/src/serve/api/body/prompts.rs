//! Prompts in all forms that OpenAI's API and llama-server accept.

use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
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
    /// One prompt of texts and token ids.
    Mixed(Vec<PromptPart>),
    /// Prompts that are texts or arrays of token ids.
    Each(Vec<PromptPart>),
}

/// A text, a token id, or an array of token ids.
#[derive(Clone, ToSchema)]
#[serde(untagged)]
pub enum PromptPart {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

/// Reads prompts by the types of the elements. Deriving would keep a copy of all values.
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
        // Token ids are most of a long array and stay four bytes each until something else comes.
        let (mut ids, mut parts) = (Vec::new(), Vec::new());
        while let Some(part) = list.next_element()? {
            match part {
                PromptPart::Token(id) if parts.is_empty() => ids.push(id),
                part => {
                    parts.extend(std::mem::take(&mut ids).into_iter().map(PromptPart::Token));
                    parts.push(part);
                }
            }
        }
        if parts.is_empty() {
            let none = ids.is_empty();
            return Ok(if none { Prompts::Texts(Vec::new()) } else { Prompts::Tokens(ids) });
        }
        of_parts(parts).ok_or_else(|| A::Error::invalid_type(Unexpected::Seq, &self))
    }
}

/// Returns the prompts of an array that is not of token ids alone; `None` if token ids stand beside
/// arrays of them.
fn of_parts(parts: Vec<PromptPart>) -> Option<Prompts> {
    let is_text = |part: &PromptPart| matches!(part, PromptPart::Text(_));
    let is_token = |part: &PromptPart| matches!(part, PromptPart::Token(_));
    let texts = parts.iter().filter(|part| is_text(part)).count();
    let tokens = parts.iter().filter(|part| is_token(part)).count();
    let lists = parts.len() - texts - tokens;
    match (texts, tokens, lists) {
        (_, 0, 0) => Some(Prompts::Texts(parts.into_iter().filter_map(PromptPart::text).collect())),
        (0, 0, _) => {
            Some(Prompts::Many(parts.into_iter().filter_map(PromptPart::tokens).collect()))
        }
        (_, 0, _) => Some(Prompts::Each(parts)),
        (_, _, 0) => Some(Prompts::Mixed(parts)),
        _ => None,
    }
}

impl PromptPart {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Token(_) | Self::Tokens(_) => None,
        }
    }

    fn tokens(self) -> Option<Vec<u32>> {
        match self {
            Self::Tokens(tokens) => Some(tokens),
            Self::Token(_) | Self::Text(_) => None,
        }
    }

    /// Returns the tokens of a part that came in the field `param`, a text with special tokens around
    /// it if it is `first`.
    fn encode(self, model: &ServedModel, param: &str, first: bool) -> Result<Vec<u32>, ApiError> {
        match self {
            Self::Text(text) => model.encode(&text, first, param),
            Self::Token(id) => Ok(vec![id]),
            Self::Tokens(tokens) => Ok(tokens),
        }
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

struct PartVisitor;

impl<'de> Deserialize<'de> for PromptPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

impl<'de> Visitor<'de> for PartVisitor {
    type Value = PromptPart;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a token id, or an array of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PromptPart, E> {
        Ok(PromptPart::Text(text.into()))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<PromptPart, E> {
        let id = u32::try_from(id);
        id.map(PromptPart::Token).map_err(|_| E::custom("a token id is larger than any vocabulary"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PromptPart, A::Error> {
        let first = list.next_element()?;
        let tokens = first.map_or_else(|| Ok(Vec::new()), |first| rest(first, list))?;
        Ok(PromptPart::Tokens(tokens))
    }
}

impl From<String> for Prompts {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Prompts {
    /// Cuts texts behind the bytes that fit the context at most, so that [`encode`](Self::encode) accepts
    /// them.
    #[must_use]
    pub fn cut(mut self, model: &ServedModel) -> Self {
        let cut = |text: &mut String| {
            let most = model.context.saturating_mul(model.tokenizer.longest_token());
            let mut end = most.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        };
        match &mut self {
            Self::Text(text) => cut(text),
            Self::Texts(texts) => texts.iter_mut().for_each(cut),
            Self::Tokens(_) | Self::Many(_) => {}
            Self::Mixed(parts) | Self::Each(parts) => {
                for part in parts {
                    if let PromptPart::Text(text) = part {
                        cut(text);
                    }
                }
            }
        }
        self
    }

    /// Returns the texts of prompts that came in the field `param`.
    ///
    /// # Errors
    /// If there is none, more than `limit`, or one is not a text.
    pub fn texts(self, param: &str, limit: usize) -> Result<Vec<String>, ApiError> {
        let texts = match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
            Self::Tokens(_) | Self::Many(_) | Self::Mixed(_) | Self::Each(_) => {
                return Err(ApiError::bad(param, format!("{param} must be a text here")));
            }
        };
        check_count(texts.len(), param, limit)?;
        Ok(texts)
    }

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
            Self::Mixed(parts) => {
                let parts = parts.into_iter().enumerate();
                let tokens = parts.map(|(index, part)| part.encode(model, param, index == 0));
                return Ok(vec![tokens.collect::<Result<Vec<_>, _>>()?.concat()]);
            }
            Self::Each(parts) => {
                check_count(parts.len(), param, limit)?;
                return parts.into_iter().map(|part| part.encode(model, param, true)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn the_elements_decide_what_an_array_is() {
        let read = |value: Value| from_value::<Prompts>(value);
        assert!(matches!(read(json!("a")), Ok(Prompts::Text(_))));
        assert!(matches!(read(json!([])), Ok(Prompts::Texts(texts)) if texts.is_empty()));
        assert!(matches!(read(json!(["a", "b"])), Ok(Prompts::Texts(texts)) if texts.len() == 2));
        assert!(matches!(read(json!([1, 2])), Ok(Prompts::Tokens(ids)) if ids == [1, 2]));
        assert!(matches!(read(json!([[1], [2, 3]])), Ok(Prompts::Many(all)) if all[1] == [2, 3]));
        for mixed in [json!([1, "a", 2]), json!(["a", 1])] {
            assert!(matches!(read(mixed), Ok(Prompts::Mixed(_))));
        }
        assert!(matches!(read(json!([[1], "a"])), Ok(Prompts::Each(parts)) if parts.len() == 2));
        for wrong in [json!([1, [2]]), json!([[1, "a"]]), json!([-1]), json!([1.5]), json!({})] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
