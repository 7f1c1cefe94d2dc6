//! `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.

use super::body::chat::template_messages;
use super::body::tokens::{ApplyTemplateFields, DetokenizeFields, TokenizeFields};
use super::body::{JsonBody, parse};
use super::conversation::Conversation;
use super::status::ModelQuery;
use super::template_messages::Ending;
use super::tools::Tools;
use crate::serve::error::ApiError;
use crate::serve::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of a text that may always be tokenized, so that clients can cut texts that are too long.
const MAX_TEXT: usize = 256 << 10;
/// Number of tokens that may always be converted to text.
const MAX_TOKENS: usize = 1 << 16;

/// The response of `/tokenize`.
#[derive(Serialize)]
pub struct Tokenized {
    tokens: Vec<u32>,
    count: usize,
    max_model_len: usize,
}

/// Tokenizes a text.
pub async fn tokenize(body: JsonBody) -> Result<Json<Tokenized>, ApiError> {
    let (model, body) = body.with_model().await?;
    let max_model_len = model.context;
    let tokens = body.prepare(move |body| {
        let TokenizeFields { content, add_special_tokens } = parse(body)?;
        if content.len() > MAX_TEXT {
            model.check_length(&content, model.context, "content")?;
        }
        let tokens = model.tokenizer.encode(&content, add_special_tokens);
        let tokens = tokens.map_err(|e| ApiError::bad("content", e.to_string()))?;
        Ok(Tokenized { count: tokens.len(), tokens, max_model_len })
    });
    Ok(Json(tokens.await?))
}

/// Converts tokens to text.
pub async fn detokenize(body: JsonBody) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let text = body.prepare(move |body| {
        let DetokenizeFields { tokens } = parse(body)?;
        let limit = model.context.max(MAX_TOKENS);
        if tokens.len() > limit {
            let message = format!("tokens has {} ids: send at most {limit}", tokens.len());
            return Err(ApiError::bad("tokens", message));
        }
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= model.vocab) {
            let message =
                format!("token id {id} is outside the vocabulary of {} tokens", model.vocab);
            return Err(ApiError::bad("tokens", message));
        }
        Ok(model.tokenizer.decode(&tokens))
    });
    let text = text.await?;
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// Returns the tokenizer's properties that clients need, under vLLM's names.
pub async fn tokenizer_info(
    State(server): State<Arc<ServerState>>,
    ModelQuery(name): ModelQuery,
) -> Result<Json<Value>, ApiError> {
    let model = server.loaded(name.as_deref())?;
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
pub async fn apply_template(body: JsonBody) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let prompt = body.prepare(move |body| {
        let ApplyTemplateFields { messages } = parse(body)?;
        let messages = template_messages(messages)?;
        let conversation = Conversation {
            field: "messages",
            ending: Ending::of_last(messages.last()),
            messages,
            tools: Tools::default(),
            documents: None,
            grammar: None,
            reasoning: parse(body)?,
        };
        Ok(conversation.render(&model)?.text().to_owned())
    });
    Ok(Json(json!({"prompt": prompt.await?})))
}
