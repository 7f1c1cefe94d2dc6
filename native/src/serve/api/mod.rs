//! The endpoints: OpenAI's shapes in, OpenAI's shapes out.

mod chat;
mod completions;
mod dialogue;
mod embeddings;
mod format;
mod generation;
mod message;
mod messages;
mod openapi;
mod options;
mod prompts;
mod responses;
mod status;
mod stream;
mod tokens;
mod tools;

pub use format::Asked;

use super::auth::{self, Tenant};
use super::error::ApiError;
use super::page;
use super::state::Server;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use wrinklefree::text::Tokenizer;

/// All endpoints.
pub fn router(server: &Arc<Server>) -> Router {
    let closed = Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/responses", post(responses::responses))
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/models", get(status::models))
        .route("/v1/models/{*id}", get(status::model))
        .route("/v1/loads", get(status::loads))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::tokenizer_info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/metrics", get(status::metrics))
        .route("/server_info", get(status::server_info))
        .fallback(status::not_found)
        .method_not_allowed_fallback(status::wrong_method)
        .layer(from_fn_with_state(server.clone(), auth::check));
    let open = Router::new()
        .route("/health", get(status::health))
        .route("/version", get(status::version))
        .route("/openapi.json", get(openapi::document))
        .route("/docs", get(openapi::docs))
        .merge(page::router())
        .method_not_allowed_fallback(status::wrong_method);
    closed
        .merge(open)
        .layer(DefaultBodyLimit::max(server.limits.body))
        .layer(RequestBodyTimeoutLayer::new(super::SLOW))
        .layer(CatchPanicLayer::custom(super::log::panicked))
        .layer(from_fn(messages::shaped))
        .layer(from_fn_with_state(server.clone(), super::log::requests))
        .with_state(server.clone())
}

/// A JSON body, and whose it is.
struct Body {
    value: Value,
    tenant: Tenant,
}

impl FromRequest<Arc<Server>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, ApiError> {
        let tenant = request.extensions().get().cloned().unwrap_or_default();
        let bytes = axum::body::Bytes::from_request(request, server).await.map_err(|e| {
            let large = e.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let message = match large {
                true => format!("the body has more than {} bytes", server.limits.body),
                false => format!("cannot read the body: {}", e.body_text()),
            };
            ApiError::new(e.status(), if large { "body_too_large" } else { "bad_body" }, message)
        })?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| {
            let message = format!("the body is no JSON: {e}");
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message)
        })?;
        match value.is_object() {
            true => Ok(Self { value, tenant }),
            false => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "invalid_json",
                "the body must be a JSON object",
            )),
        }
    }
}

/// Refuses fields that ask for what this server does not do: to ignore them would give an answer to
/// another question.
fn refuse(body: &Value, fields: &[&str]) -> Result<(), ApiError> {
    let asks = |field: &&&str| match &body[**field] {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Bool(asks) => *asks,
        Value::Object(one) => {
            !["text", "disabled"].map(|t| Some(json!(t))).contains(&one.get("type").cloned())
        }
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    match fields.iter().find(asks) {
        None => Ok(()),
        Some(field) => {
            let message = format!("`{field}` is not supported by this server: leave it out");
            Err(ApiError { code: "unsupported", ..ApiError::bad(*field, message) })
        }
    }
}

/// An id that no other answer has.
pub(super) fn id(prefix: &str) -> String {
    format!("{prefix}-{}", unique())
}

/// The part of an id that no other has.
fn unique() -> String {
    format!("{:016x}{:016x}", options::random(), options::random())
}

/// A token as log-probabilities name it.
fn logprob(tokenizer: &Tokenizer, token: u32, logprob: f32) -> Value {
    json!({
        "token": tokenizer.decode(&[token]),
        "logprob": logprob.max(-9999.0),
        "bytes": tokenizer.bytes(token),
    })
}
