//! `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.

pub mod body;

use crate::api::body::{Body, JsonBody, KnownFields, parse};
use crate::api::openai::chat::body::{ChatMessage, EndingFields, template_messages};
use crate::api::prompt::conversation::ChatRequest;
use crate::api::status::ModelQuery;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use body as tokens;
use body::{ApplyTemplateFields, DetokenizeFields, TokenizeFields};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use wrinklefree::chat::Conversation;
use wrinklefree::chat::tools::ChatToolFields;
use wrinklefree::text::Tokenizer;

/// Fields of the bodies.
static TOKENIZE: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(tokens::TOKENIZE, &[]).and(["prompt", "add_special"]));
static DETOKENIZE: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(tokens::DETOKENIZE, &[]));
static APPLY_TEMPLATE: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(tokens::APPLY_TEMPLATE, &[]));

/// Bytes of a text that may always be tokenized, so that clients can cut texts that are too long.
const MAX_TEXT: usize = 256 << 10;
/// Number of tokens that may always be converted to text.
const MAX_TOKENS: usize = 1 << 16;

/// The response of `/tokenize`.
#[derive(Serialize)]
pub struct Tokenized {
    /// Ids, or objects with `id` and `piece`.
    tokens: Value,
    count: usize,
    max_model_len: usize,
    token_strs: Option<Vec<Option<String>>>,
}

/// Returns a token with its text, or with its bytes if they are no text.
fn piece(tokenizer: &Tokenizer, id: u32) -> Value {
    let bytes = tokenizer.bytes(id);
    let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
    json!({"id": id, "piece": piece})
}

fn text_tokens(model: &ServedModel, text: &str, special: bool) -> Result<Vec<u32>, ApiError> {
    if text.len() > MAX_TEXT {
        model.check_length(text, model.context, "content")?;
    }
    model.tokenizer.encode(text, special).map_err(|e| ApiError::bad("content", e.to_string()))
}

/// Refuses a field that would write the special tokens of a conversation twice.
fn no_special_tokens(model: &ServedModel, asked: Option<bool>) -> Result<(), ApiError> {
    if asked == Some(true) && !text_tokens(model, "", true)?.is_empty() {
        Err(ApiError::bad(
            "add_special_tokens",
            "the chat template writes the special tokens of messages: leave add_special_tokens out",
        ))
    } else {
        Ok(())
    }
}

/// Returns a conversation of which the prompt alone is needed.
fn conversation(body: &Body, messages: Vec<ChatMessage>) -> Result<ChatRequest, ApiError> {
    let messages = template_messages(messages)?;
    let chat = Conversation {
        ending: parse::<EndingFields>(body)?.ending(&messages)?,
        messages,
        tools: parse::<ChatToolFields>(body)?.tools()?,
        documents: None,
        reasoning: parse(body)?,
    };
    Ok(ChatRequest { field: "messages", chat, grammar: None })
}

/// Tokenizes a text or a conversation.
pub async fn tokenize(body: JsonBody) -> Result<Json<Tokenized>, ApiError> {
    let (model, body) = body.with_model().await?;
    let max_model_len = model.context;
    let tokens = body.prepare(move |body| {
        let fields: TokenizeFields = parse(body)?;
        TOKENIZE.check(body)?;
        if fields.parse_special == Some(false) {
            let message = "`parse_special` is not supported: leave it out";
            return Err(ApiError::bad("parse_special", message));
        }
        let tokenizer = &model.tokenizer;
        let special = fields.add_special_tokens;
        let ids = match (fields.content, fields.messages) {
            (Some(text), None) => text_tokens(&model, &text, special.unwrap_or(true))?,
            (None, Some(messages)) => {
                no_special_tokens(&model, special)?;
                conversation(body, messages)?.tokens(&model)?
            }
            _ => return Err(ApiError::bad("content", "send either `content` or `messages`")),
        };
        let names = || ids.iter().map(|&id| tokenizer.token(id)).collect();
        let token_strs = fields.return_token_strs.unwrap_or(false).then(names);
        let tokens = if fields.with_pieces.unwrap_or(false) {
            ids.iter().map(|&id| piece(tokenizer, id)).collect()
        } else {
            json!(ids)
        };
        Ok(Tokenized { count: ids.len(), tokens, max_model_len, token_strs })
    });
    Ok(Json(tokens.await?))
}

/// Returns the text of tokens, also of special ones.
fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let runs = ids.chunk_by(|&a, &b| tokenizer.is_special(a) == tokenizer.is_special(b));
    let text = |run: &[u32]| {
        if tokenizer.is_special(run[0]) {
            run.iter().filter_map(|&id| tokenizer.token(id)).collect()
        } else {
            tokenizer.decode(run)
        }
    };
    runs.map(text).collect()
}

/// Converts tokens to text, special tokens too.
pub async fn detokenize(body: JsonBody) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let text = body.prepare(move |body| {
        let DetokenizeFields { tokens } = parse(body)?;
        DETOKENIZE.check(body)?;
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
        Ok(text_of(&model.tokenizer, &tokens))
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
        APPLY_TEMPLATE.check(body)?;
        Ok(conversation(body, messages)?.render(&model)?.text().to_owned())
    });
    Ok(Json(json!({"prompt": prompt.await?})))
}
