//! Prompts in all forms that OpenAI's API and llama-server accept.

use super::options::Side;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
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
    Mixed(Vec<TextOrToken>),
    /// One prompt as llama-server's object.
    Object(PromptObject),
    /// Prompts in several forms.
    Each(Vec<Prompt>),
}

/// One prompt.
#[derive(Clone, ToSchema)]
#[serde(untagged)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Mixed(Vec<TextOrToken>),
    Object(PromptObject),
}

/// A text or a token id.
#[derive(Clone, ToSchema)]
#[serde(untagged)]
pub enum TextOrToken {
    Text(String),
    Token(u32),
}

/// A prompt as llama-server's object: a text, or the content of a message.
#[derive(Clone, Deserialize, ToSchema)]
pub struct PromptObject {
    /// The text.
    prompt_string: Option<String>,
    /// Parts of the text.
    content: Option<Vec<PromptContent>>,
    /// Images and sounds, which are not supported.
    #[schema(max_items = 0)]
    multimodal_data: Option<Vec<String>>,
}

/// A part of a text.
#[derive(Clone, Deserialize, ToSchema)]
struct PromptContent {
    /// Type of the part: only `text` is supported.
    #[serde(rename = "type")]
    #[schema(pattern = "^text$")]
    kind: String,
    /// The text.
    text: Option<String>,
}

impl TextOrToken {
    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Token(_) => None,
        }
    }
}

impl PromptObject {
    /// Returns the text of an object in the field `param`.
    fn text(self, param: &str) -> Result<String, ApiError> {
        let bad = |message: &str| Err(ApiError::bad(param, format!("{param} {message}")));
        if self.multimodal_data.is_some_and(|data| !data.is_empty()) {
            return bad("has `multimodal_data`, but this server's models read text only");
        }
        match (self.prompt_string, self.content) {
            (Some(text), None) => Ok(text),
            (None, Some(parts)) if parts.iter().all(|part| part.kind == "text") => {
                Ok(parts.into_iter().filter_map(|part| part.text).collect())
            }
            (None, Some(_)) => {
                bad("has `content` that is no text: this server's models read text only")
            }
            _ => bad("is an object: it needs `prompt_string` or `content`"),
        }
    }

    /// Returns each text.
    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let parts = self.content.iter_mut().flatten().filter_map(|part| part.text.as_mut());
        self.prompt_string.iter_mut().chain(parts)
    }
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
        f.write_str(
            "a string, an array of strings, token ids, arrays of those, or objects with `prompt_string`",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts::Text(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Prompts, A::Error> {
        PromptObject::deserialize(MapAccessDeserializer::new(map)).map(Prompts::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        // Token ids are most of a long array and stay four bytes each until something else comes.
        let (mut ids, mut parts) = (Vec::new(), Vec::new());
        while let Some(element) = list.next_element()? {
            match element {
                Element::One(TextOrToken::Token(id)) if parts.is_empty() => ids.push(id),
                element => {
                    let tokens = std::mem::take(&mut ids).into_iter().map(TextOrToken::Token);
                    parts.extend(tokens.map(Element::One));
                    parts.push(element);
                }
            }
        }
        if parts.is_empty() {
            let none = ids.is_empty();
            return Ok(if none { Prompts::Texts(Vec::new()) } else { Prompts::Tokens(ids) });
        }
        of_elements(parts).ok_or_else(|| A::Error::invalid_type(Unexpected::Seq, &self))
    }
}

/// An element of an array of prompts: a part of one prompt, or a prompt.
enum Element {
    One(TextOrToken),
    Prompt(Prompt),
}

/// Returns the prompts of an array that is not of token ids alone; `None` if token ids stand next to
/// prompts.
fn of_elements(elements: Vec<Element>) -> Option<Prompts> {
    let is_text = |element: &Element| matches!(element, Element::One(TextOrToken::Text(_)));
    let is_token = |element: &Element| matches!(element, Element::One(TextOrToken::Token(_)));
    let is_list = |element: &Element| matches!(element, Element::Prompt(Prompt::Tokens(_)));
    if elements.iter().all(is_text) {
        return Some(Prompts::Texts(elements.into_iter().filter_map(Element::text).collect()));
    }
    if elements.iter().all(is_list) {
        return Some(Prompts::Many(elements.into_iter().filter_map(Element::tokens).collect()));
    }
    if !elements.iter().any(is_token) {
        return Some(Prompts::Each(elements.into_iter().filter_map(Element::prompt).collect()));
    }
    let parts: Option<Vec<TextOrToken>> = elements.into_iter().map(Element::part).collect();
    parts.map(Prompts::Mixed)
}

impl Element {
    fn text(self) -> Option<String> {
        match self {
            Self::One(TextOrToken::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn tokens(self) -> Option<Vec<u32>> {
        match self {
            Self::Prompt(Prompt::Tokens(tokens)) => Some(tokens),
            _ => None,
        }
    }

    fn part(self) -> Option<TextOrToken> {
        match self {
            Self::One(part) => Some(part),
            Self::Prompt(_) => None,
        }
    }

    fn prompt(self) -> Option<Prompt> {
        match self {
            Self::One(TextOrToken::Text(text)) => Some(Prompt::Text(text)),
            Self::One(TextOrToken::Token(_)) => None,
            Self::Prompt(prompt) => Some(prompt),
        }
    }
}

impl Prompt {
    /// Returns the tokens of a prompt that came in the field `param`, with special tokens around its
    /// first text.
    fn encode(self, model: &ServedModel, param: &str) -> Result<Vec<u32>, ApiError> {
        match self {
            Self::Text(text) => model.encode(&text, true, param),
            Self::Tokens(tokens) => Ok(tokens),
            Self::Mixed(parts) => encode_mixed(parts, model, param),
            Self::Object(object) => model.encode(&object.text(param)?, true, param),
        }
    }
}

/// Returns the tokens of a prompt of texts and token ids.
fn encode_mixed(
    parts: Vec<TextOrToken>,
    model: &ServedModel,
    param: &str,
) -> Result<Vec<u32>, ApiError> {
    let mut tokens = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        match part {
            TextOrToken::Text(text) => tokens.extend(model.encode(&text, index == 0, param)?),
            TextOrToken::Token(id) => tokens.push(id),
        }
    }
    Ok(tokens)
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
        f.write_str("a string, a token id, an array of those, or an object with `prompt_string`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
        PartVisitor.visit_str(text).map(Element::One)
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Element, E> {
        PartVisitor.visit_u64(id).map(Element::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Element, A::Error> {
        let object = PromptObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Element::Prompt(Prompt::Object(object)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
        let (mut ids, mut parts) = (Vec::new(), Vec::new());
        while let Some(part) = list.next_element()? {
            match part {
                TextOrToken::Token(id) if parts.is_empty() => ids.push(id),
                part => {
                    parts.extend(std::mem::take(&mut ids).into_iter().map(TextOrToken::Token));
                    parts.push(part);
                }
            }
        }
        let prompt = if parts.is_empty() { Prompt::Tokens(ids) } else { Prompt::Mixed(parts) };
        Ok(Element::Prompt(prompt))
    }
}

struct PartVisitor;

impl<'de> Deserialize<'de> for TextOrToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

impl Visitor<'_> for PartVisitor {
    type Value = TextOrToken;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a token id")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextOrToken, E> {
        Ok(TextOrToken::Text(text.into()))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<TextOrToken, E> {
        let id = u32::try_from(id);
        id.map(TextOrToken::Token)
            .map_err(|_| E::custom("a token id is larger than any vocabulary"))
    }
}

impl From<String> for Prompts {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Prompts {
    /// Cuts texts on this side, if there is one, to the bytes that fit the context at most, so that
    /// [`encode`](Self::encode) accepts them.
    #[must_use]
    pub fn cut(mut self, model: &ServedModel, side: Option<Side>) -> Self {
        let Some(side) = side else { return self };
        let most = model.context.saturating_mul(model.tokenizer.longest_token());
        let cut = |text: &mut String| {
            let end = text.len();
            let at = match side {
                Side::Right => (0..=most.min(end)).rfind(|&at| text.is_char_boundary(at)),
                Side::Left => {
                    (end.saturating_sub(most)..=end).find(|&at| text.is_char_boundary(at))
                }
            };
            let at = at.unwrap_or(end);
            match side {
                Side::Right => text.truncate(at),
                Side::Left => drop(text.drain(..at)),
            }
        };
        match &mut self {
            Self::Text(text) => cut(text),
            Self::Texts(texts) => texts.iter_mut().for_each(cut),
            Self::Tokens(_) | Self::Many(_) => {}
            Self::Mixed(parts) => parts.iter_mut().filter_map(TextOrToken::text_mut).for_each(cut),
            Self::Object(object) => object.texts_mut().for_each(cut),
            Self::Each(prompts) => {
                for prompt in prompts {
                    match prompt {
                        Prompt::Text(text) => cut(text),
                        Prompt::Tokens(_) => {}
                        Prompt::Mixed(parts) => {
                            parts.iter_mut().filter_map(TextOrToken::text_mut).for_each(cut);
                        }
                        Prompt::Object(object) => object.texts_mut().for_each(cut),
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
            Self::Tokens(_) | Self::Many(_) | Self::Mixed(_) | Self::Object(_) | Self::Each(_) => {
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
            Self::Mixed(parts) => return Ok(vec![encode_mixed(parts, model, param)?]),
            Self::Object(object) => vec![object.text(param)?],
            Self::Each(prompts) => {
                check_count(prompts.len(), param, limit)?;
                return prompts.into_iter().map(|prompt| prompt.encode(model, param)).collect();
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
        let object = json!({"prompt_string": "a"});
        for each in [json!([[1], "a"]), json!([[1], [2, "a"]]), json!([object, [1]])] {
            assert!(matches!(read(each), Ok(Prompts::Each(prompts)) if prompts.len() == 2));
        }
        assert!(matches!(read(object.clone()), Ok(Prompts::Object(_))));
        let deep = json!([[[1]]]);
        for wrong in [json!([1, [2]]), json!([object, 1]), json!([-1]), json!([1.5]), deep] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
