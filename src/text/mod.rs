//! Text: tokenizer, chat template, incremental detokeniser, stop strings.

use crate::format::{TextParts, Vocabulary};

/// Why text parts are unusable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub String);

/// Text ↔ token ids.
#[derive(Clone)]
pub struct Tokenizer {}

impl Tokenizer {
    /// Builds the tokenizer that a model file holds.
    ///
    /// # Errors
    /// When the vocabulary is malformed.
    pub fn new(_vocabulary: &Vocabulary) -> Result<Self, TextError> {
        todo!()
    }
    /// Ids of a text. `add_special` puts the model's own frame (BOS…) around it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, _text: &str, _add_special: bool) -> Result<Vec<u32>, TextError> {
        todo!()
    }
    /// Text of ids, special tokens left out.
    pub fn decode(&self, _ids: &[u32]) -> String {
        todo!()
    }
    /// The id of a token by its exact text.
    pub fn id(&self, _token: &str) -> Option<u32> {
        todo!()
    }
    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        todo!()
    }
    /// The text of a `tokenizer.json` that builds the same tokenizer.
    pub fn to_json(&self) -> String {
        todo!()
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A model's chat template (Jinja, as `transformers` runs it).
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Compiles the template, if the model has one.
    ///
    /// # Errors
    /// When the template is not valid Jinja.
    pub fn new(_parts: &TextParts) -> Result<Option<Self>, TextError> {
        todo!()
    }
    /// The prompt for a conversation, ready for [`Tokenizer::encode`] with `add_special = false`.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub fn render(
        &self,
        _messages: &[Message],
        _add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        todo!()
    }
}
