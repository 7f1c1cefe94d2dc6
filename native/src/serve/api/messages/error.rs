//! Errors in the format of Anthropic's API.

use crate::serve::error::ApiError;
use axum::body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Path below which errors have this format.
const PATH: &str = "/v1/messages";

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicError)]
pub struct AnthropicErrorBody {
    /// The constant `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The error.
    error: AnthropicErrorDetails,
}

/// The error.
#[derive(Debug, Serialize, ToSchema)]
struct AnthropicErrorDetails {
    /// Class of the error, as in Anthropic's API.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Explanation for people.
    message: String,
}

/// Returns the response body of an error.
pub fn body(error: &ApiError) -> Value {
    let kind = match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    // The format has no member for the field's name, so the message must contain it.
    let message = match &error.param {
        Some(param) if !error.message.contains(param.as_str()) => {
            format!("{param}: {}", error.message)
        }
        _ => error.message.clone(),
    };
    let error = AnthropicErrorDetails { kind, message };
    json!(AnthropicErrorBody { kind: "error", error })
}

/// Middleware: converts errors below [`PATH`], whichever layer of the server they come from.
pub async fn convert_errors(request: Request, next: Next) -> Response {
    let applies = request.uri().path().starts_with(PATH);
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>().filter(|_| applies) {
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body::Body::from(body(&error).to_string());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_field_once() {
        let message = |param: &str, text: &str| {
            body(&ApiError::bad(param, text))["error"]["message"].as_str().unwrap().to_string()
        };
        assert_eq!(message("top_p", "top_p is 2"), "top_p is 2");
        assert_eq!(message("messages[0]", "no image"), "messages[0]: no image");
    }
}
