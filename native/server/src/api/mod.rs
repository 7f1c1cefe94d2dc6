//! The HTTP endpoints: OpenAI's and Anthropic's APIs and the server's own.
//!
//! Each API has a folder with its bodies, handlers and formatters. `body` has the fields that several
//! APIs share, `prompt` leads from a body to the prompt of a request, `answer` from the engine's outputs to
//! whole and streamed answers, and `description` makes the OpenAPI document of the bodies' structs.

mod answer;
mod anthropic;
mod body;
mod description;
mod error_formats;
mod llama_server;
mod ollama;
mod openai;
mod prompt;
mod require_key;
mod status;
mod vllm;

use super::operation::log;
use super::state::ServerState;
use super::{ignored, page};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};
use description::openapi;
use openai::{chat, completions, embeddings, models, responses};
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use vllm::tokens;

/// Time limit for a request's headers, and for the client to read what was sent.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the router of all endpoints.
pub fn router(server: &Arc<ServerState>) -> Router {
    let with_key = Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/responses", post(responses::responses))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/{id}", get(responses::stored))
        .route("/v1/responses/{id}", delete(responses::delete))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/v1/models/load", post(models::load))
        .route("/v1/models/unload", post(models::unload))
        .route("/models/load", post(models::load))
        .route("/models/unload", post(models::unload))
        .route("/v1/loads", get(status::loads))
        .route("/load", get(status::load))
        .route("/pooling", post(embeddings::pooling))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::tokenizer_info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/metrics", get(status::metrics))
        .route("/server_info", get(status::server_info))
        .merge(ollama::router())
        .merge(llama_server::router())
        .merge(llama_server::aliases())
        .fallback(status::not_found)
        .method_not_allowed_fallback(status::wrong_method)
        .layer(from_fn_with_state(server.clone(), require_key::require_key));
    let open = Router::new()
        .route("/health", get(status::health))
        .route("/version", get(status::version))
        .route("/openapi.json", get(openapi::document))
        .merge(page::router())
        .method_not_allowed_fallback(status::wrong_method);
    with_key.merge(open).with_state(server.clone())
}

/// Catches panics, converts errors to the format of their API, and logs and counts all requests.
pub fn observed(router: Router, server: &Arc<ServerState>) -> Router {
    router
        .layer(CatchPanicLayer::custom(log::panicked))
        .layer(from_fn(error_formats::convert_errors))
        .layer(from_fn(ignored::report))
        .layer(from_fn_with_state(server.metrics.clone(), log::requests))
}
