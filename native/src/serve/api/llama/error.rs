//! Errors in the format of llama-server's API.

use crate::serve::error::ApiError;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

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
}

/// Returns the response body of an error.
pub fn body(error: &ApiError) -> Value {
    let code = error.status.as_u16();
    let kind = match code {
        _ if error.code == "context_length_exceeded" => "exceed_context_size_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let message = error.message_with_param();
    json!(LlamaErrorBody { error: LlamaErrorDetails { code, message, kind } })
}
