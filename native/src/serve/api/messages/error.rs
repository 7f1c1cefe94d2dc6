//! Errors as Anthropic's API shapes them.

use crate::serve::error::ApiError;
use axum::body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Where errors have this shape.
const PATH: &str = "/v1/messages";

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicError)]
pub struct Body {
    /// `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    error: Details,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicErrorDetails)]
struct Details {
    /// The class of errors.
    #[serde(rename = "type")]
    kind: &'static str,
    /// For people.
    message: String,
}

/// The body.
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
    // This shape has no place for the field's name but the message.
    let message = match &error.param {
        Some(param) if !error.message.contains(param.as_str()) => {
            format!("{param}: {}", error.message)
        }
        _ => error.message.clone(),
    };
    json!(Body { kind: "error", error: Details { kind, message } })
}

/// Gives errors their shape, wherever in the server they come from.
pub async fn shaped(request: Request, next: Next) -> Response {
    let here = request.uri().path().starts_with(PATH);
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>().filter(|_| here) {
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
