//! Bodies of `POST /tokenize`, `/detokenize` and `/apply-template`.

use crate::api::body::model::ModelFields;
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::api::openai::chat::body::{ChatMessage, EndingFields};
use serde::Deserialize;
use utoipa::ToSchema;
use wrinklefree::chat::tools::ChatToolFields;
use wrinklefree::settings::Reasoning;

/// Schemas of the body of `/tokenize`.
pub const TOKENIZE: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<TokenizeFields>,
    schema_of::<EndingFields>,
    schema_of::<ChatToolFields>,
    schema_of::<Reasoning>,
];
/// Schemas of the body of `/detokenize`.
pub const DETOKENIZE: &[SchemaFn] = &[schema_of::<ModelFields>, schema_of::<DetokenizeFields>];
/// Schemas of the body of `/apply-template`.
pub const APPLY_TEMPLATE: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<ApplyTemplateFields>,
    schema_of::<EndingFields>,
    schema_of::<ChatToolFields>,
    schema_of::<Reasoning>,
];

/// Fields of `/tokenize`.
#[derive(Deserialize, ToSchema)]
pub struct TokenizeFields {
    /// Text to tokenize. `prompt` is an alias.
    #[serde(alias = "prompt")]
    pub content: Option<String>,
    /// A conversation to tokenize instead, as the chat template renders it.
    pub messages: Option<Vec<ChatMessage>>,
    /// Add the special tokens that the model expects, such as begin-of-sequence. Defaults to true for a
    /// text. The chat template writes those of a conversation.
    #[serde(alias = "add_special")]
    pub add_special_tokens: Option<bool>,
    /// Convert the texts of special tokens to those tokens. False is not supported.
    pub parse_special: Option<bool>,
    /// Return each token with its text, or with its bytes if they are no text.
    pub with_pieces: Option<bool>,
    /// Return the names of the tokens in the vocabulary.
    pub return_token_strs: Option<bool>,
}

/// Fields of `/detokenize`.
#[derive(Deserialize, ToSchema)]
pub struct DetokenizeFields {
    /// Token ids.
    pub tokens: Vec<u32>,
}

/// Fields of `/apply-template`.
#[derive(Deserialize, ToSchema)]
pub struct ApplyTemplateFields {
    /// Messages to render.
    pub messages: Vec<ChatMessage>,
}
