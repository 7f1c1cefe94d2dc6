//! Text to tokens and back, and what a chat template makes of a conversation.

use super::Body;
use super::chat::{self, ChatMessage};
use super::dialogue::Dialogue;
use super::openapi::{Part, part};
use super::options::parse;
use crate::serve::error::ApiError;
use crate::serve::state::Server;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// What the document says of bodies.
pub const TOKENIZE: &[Part] = &[part::<Tokenize>];
pub const DETOKENIZE: &[Part] = &[part::<Detokenize>];
pub const APPLY_TEMPLATE: &[Part] = &[part::<ApplyTemplate>];

#[derive(Deserialize, ToSchema)]
struct Tokenize {
    #[serde(alias = "prompt")]
    content: String,
    #[serde(default = "yes")]
    /// Whether the text begins with what the model expects at the start.
    add_special_tokens: bool,
}

fn yes() -> bool {
    true
}

/// The tokens of a text.
pub async fn tokenize(
    State(server): State<Arc<Server>>,
    Body { value: body, .. }: Body,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let Tokenize { content, add_special_tokens } = parse(&body)?;
    let own = ready.clone();
    let tokens = spawn_blocking(move || own.tokenizer.encode(&content, add_special_tokens)).await;
    let tokens = tokens.map_err(ApiError::internal)?;
    let tokens = tokens.map_err(|e| ApiError::bad("content", e.to_string()))?;
    let (count, max_model_len) = (tokens.len(), ready.context);
    Ok(Json(json!({"tokens": tokens, "count": count, "max_model_len": max_model_len})))
}

#[derive(Deserialize, ToSchema)]
struct Detokenize {
    tokens: Vec<u32>,
}

/// The text of some tokens.
pub async fn detokenize(
    State(server): State<Arc<Server>>,
    Body { value: body, .. }: Body,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let Detokenize { tokens } = parse(&body)?;
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= ready.vocab) {
        let message = format!("token id {id} is outside the vocabulary of {}", ready.vocab);
        return Err(ApiError::bad("tokens", message));
    }
    let text = ready.tokenizer.decode(&tokens);
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// What a client must know to use the tokenizer, named as vLLM does.
pub async fn tokenizer_info(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let eos = ready.defaults.eos.first().and_then(|&id| ready.tokenizer.token(id));
    let mut info = json!({
        "eos_token": eos,
        "vocab_size": ready.vocab,
        "model_max_length": ready.context,
    });
    if let Some(template) = &ready.template {
        info["bos_token"] = template.special().get("bos_token").cloned().into();
        info["chat_template"] = template.source().into();
    }
    Ok(Json(info))
}

#[derive(Deserialize, ToSchema)]
struct ApplyTemplate {
    messages: Vec<ChatMessage>,
}

/// The text that the model would continue.
pub async fn apply_template(
    State(server): State<Arc<Server>>,
    Body { value: body, .. }: Body,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let ApplyTemplate { messages } = parse(&body)?;
    let dialogue = Dialogue { messages: chat::messages(messages)?, ..Dialogue::default() };
    let rendered = spawn_blocking(move || dialogue.render(&ready)).await;
    let prompt = rendered.map_err(ApiError::internal)??;
    Ok(Json(json!({"prompt": prompt})))
}
