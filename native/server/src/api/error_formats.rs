//! Middleware that converts errors to the format of the API that a path belongs to.

use super::{anthropic as messages, llama_server as llama, ollama};
use crate::error::ApiError;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;

/// Returns an error in the format of the API that `path` belongs to; `None` for OpenAI's, which errors
/// have already.
fn converted(path: &str, error: &ApiError) -> Option<Value> {
    if path.starts_with(messages::PATH) {
        Some(messages::error_body(error))
    } else if path.starts_with(ollama::PATH) {
        Some(ollama::error_body(error))
    } else if llama::owns(path) {
        Some(llama::error_body(error))
    } else if path == llama::CHAT {
        Some(llama::alias_body(error))
    } else {
        None
    }
}

/// Middleware: converts errors, whichever layer of the server they come from.
pub async fn convert_errors(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_string();
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(body) = error.and_then(|error| converted(&path, &error)) {
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body.to_string());
    }
    response
}
