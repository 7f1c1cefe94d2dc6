//! llama-server's own API.

pub mod body;
pub mod completion;
pub mod embedding;
pub mod error;
pub mod formatter;
pub mod props;
pub mod slots;

pub use error::{LlamaErrorBody, alias_body, body as error_body};

use super::anthropic as messages;
use super::openai::{chat, embeddings, models, responses};
use super::vllm::tokens;
use crate::state::ServerState;
use axum::Router;
use axum::routing::{get, post};
use std::sync::Arc;

/// Paths whose errors have this API's format.
const PATHS: [&str; 8] = [
    "/completion",
    "/completions",
    "/infill",
    "/embedding",
    "/embeddings",
    "/props",
    "/slots",
    "/lora-adapters",
];

/// Returns true if errors of a path have this API's format.
pub fn owns(path: &str) -> bool {
    PATHS.contains(&path) || path.starts_with("/slots/")
}

/// Path of chats without OpenAI's `/v1`, as llama-server's own clients call it.
pub const CHAT: &str = "/chat/completions";

/// Returns the router of this API.
pub fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/completion", post(completion::completion))
        .route("/infill", post(completion::infill))
        .route("/embedding", post(embedding::embedding))
        .route("/props", get(props::props))
        .route("/slots", get(slots::list))
        .route("/slots/{id}", post(slots::change))
}

/// Returns the router of other paths for endpoints, and of those that are refused by name.
pub fn aliases() -> Router<Arc<ServerState>> {
    let adapters = get(props::no_adapters).post(props::no_adapters);
    Router::new()
        .route("/completions", post(completion::completion))
        .route("/embeddings", post(embedding::embedding))
        .route(CHAT, post(chat::llama_chat))
        .route("/responses", post(responses::responses))
        .route("/messages", post(messages::messages))
        .route("/models", get(models::models))
        .route("/models/{*id}", get(models::model))
        .route("/v1/tokenize", post(tokens::tokenize))
        .route("/v1/pooling", post(embeddings::pooling))
        .route("/lora-adapters", adapters)
}
