//! Errors in the format of Anthropic's API.

use crate::error::ApiError;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

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
    let message = match error.overflow {
        Some((tokens, most)) => format!("prompt is too long: {tokens} tokens > {most} maximum"),
        None => error.message_with_param(),
    };
    let error = AnthropicErrorDetails { kind, message };
    json!(AnthropicErrorBody { kind: "error", error })
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
