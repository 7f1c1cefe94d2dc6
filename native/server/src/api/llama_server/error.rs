//! Errors in the format of llama-server's API.

use crate::error::ApiError;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Class of errors about prompts that are too long.
const OVERFLOW: &str = "exceed_context_size_error";

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaError)]
pub struct LlamaErrorBody {
    /// The error.
    error: LlamaErrorDetails,
}

/// The error.
#[derive(Debug, Serialize, ToSchema)]
struct LlamaErrorDetails {
    /// The HTTP status.
    code: u16,
    /// Explanation for people.
    message: String,
    /// Class of the error, as in llama-server's API.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Number of tokens of a prompt that is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    /// Number of tokens that fit the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<usize>,
}

/// Returns the response body of an error.
pub fn body(error: &ApiError) -> Value {
    let code = error.status.as_u16();
    let kind = match code {
        _ if error.code == "context_length_exceeded" => OVERFLOW,
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let message = error.message_with_param();
    let (n_prompt_tokens, n_ctx) = error.overflow.unzip();
    let error = LlamaErrorDetails { code, message, kind, n_prompt_tokens, n_ctx };
    json!(LlamaErrorBody { error })
}

/// Returns the response body of an error at a path that llama-server has next to OpenAI's: OpenAI's
/// format, and for prompts that are too long also llama-server's class and numbers.
pub fn alias_body(error: &ApiError) -> Value {
    let mut body = error.body();
    if let Some((tokens, context)) = error.overflow {
        body["error"]["type"] = OVERFLOW.into();
        body["error"]["n_prompt_tokens"] = tokens.into();
        body["error"]["n_ctx"] = context.into();
    }
    body
}
