//! Errors in the format of Ollama's API.

use crate::error::ApiError;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaError)]
pub struct OllamaErrorBody {
    /// Explanation for people.
    error: String,
}

/// Returns the response body of an error.
pub fn body(error: &ApiError) -> Value {
    json!(OllamaErrorBody { error: error.message_with_param() })
}
