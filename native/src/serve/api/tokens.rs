//! `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.

use super::body::chat::template_messages;
use super::body::tokens::{ApplyTemplateFields, DetokenizeFields, TokenizeFields};
use super::body::{JsonBody, parse};
use super::conversation::Conversation;
use super::tools::Tools;
use crate::serve::error::ApiError;
use crate::serve::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Tokenizes a text.
pub async fn tokenize(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let TokenizeFields { content, add_special_tokens } = parse(&body)?;
    let own = model.clone();
    let tokens = spawn_blocking(move || own.tokenizer.encode(&content, add_special_tokens)).await;
    let tokens = tokens.map_err(ApiError::internal)?;
    let tokens = tokens.map_err(|e| ApiError::bad("content", e.to_string()))?;
    let (count, max_model_len) = (tokens.len(), model.context);
    Ok(Json(json!({"tokens": tokens, "count": count, "max_model_len": max_model_len})))
}

/// Converts tokens to text.
pub async fn detokenize(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let DetokenizeFields { tokens } = parse(&body)?;
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= model.vocab) {
        let message = format!("token id {id} is outside the vocabulary of {} tokens", model.vocab);
        return Err(ApiError::bad("tokens", message));
    }
    let text = model.tokenizer.decode(&tokens);
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// Returns the tokenizer's properties that clients need, under vLLM's names.
pub async fn tokenizer_info(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let eos = model.defaults.eos.first().and_then(|&id| model.tokenizer.token(id));
    let mut info = json!({
        "eos_token": eos,
        "vocab_size": model.vocab,
        "model_max_length": model.context,
    });
    if let Some(template) = &model.template {
        info["bos_token"] = template.special().get("bos_token").cloned().into();
        info["chat_template"] = template.source().into();
    }
    Ok(Json(info))
}

/// Renders a conversation with the chat template.
pub async fn apply_template(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let ApplyTemplateFields { messages } = parse(&body)?;
    let conversation = Conversation {
        field: "messages",
        messages: template_messages(messages)?,
        tools: Tools::default(),
        grammar: None,
    };
    let rendered = spawn_blocking(move || conversation.render(&model)).await;
    let prompt = rendered.map_err(ApiError::internal)??;
    Ok(Json(json!({"prompt": prompt})))
}
