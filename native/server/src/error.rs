//! Errors of requests, in the format of OpenAI's API.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use wrinklefree::chat::tools::ToolsError;

/// An error of a request.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// Explanation for people: the problem and how to fix it.
    pub message: String,
    /// Name of the invalid field, if there is one.
    pub param: Option<String>,
    /// Stable name of the error.
    pub code: &'static str,
    /// Tokens of a prompt that is too long, and the most that fit.
    pub overflow: Option<(usize, usize)>,
}

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    error: ErrorDetails,
}

/// The error.
#[derive(Debug, Serialize, ToSchema)]
struct ErrorDetails {
    /// Explanation for people.
    message: String,
    /// Class of the error, as in OpenAI's API.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Name of the invalid field, if there is one.
    param: Option<String>,
    /// Stable name of the error.
    code: &'static str,
}

impl ApiError {
    /// Creates a 400 for an invalid field `param`.
    pub fn bad(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (status, code) = (StatusCode::BAD_REQUEST, "invalid_value");
        Self { status, message: message.into(), param: Some(param.into()), code, overflow: None }
    }

    /// Creates a 400 for a prompt of `tokens` tokens in a context of `context`, in the words of OpenAI's
    /// API, which clients look for.
    pub fn overflow(param: &str, tokens: usize, context: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {context} tokens. However, your {param} resulted \
             in at least {tokens} tokens. Please reduce the length of the {param}, or start the server \
             with a longer --context."
        );
        let code = "context_length_exceeded";
        Self { code, overflow: Some((tokens, context)), ..Self::bad(param, message) }
    }

    /// Creates an error that concerns no field.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code, overflow: None }
    }

    /// Creates a 503: the model is loading or the server is shutting down.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// Creates a 504: the time of the request is over.
    pub fn timeout() -> Self {
        let message = "the time limit of this server has passed: request fewer tokens";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// Logs an internal error and creates a 500 without its details.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "internal error");
        let (status, message) =
            (StatusCode::INTERNAL_SERVER_ERROR, "internal error: the server's log has the details");
        Self::new(status, "internal", message)
    }

    /// Returns the message, with the field's name before it unless it has that: for formats that have no
    /// member for the name.
    pub fn message_with_param(&self) -> String {
        match &self.param {
            Some(param) if !self.message.contains(param.as_str()) => {
                format!("{param}: {}", self.message)
            }
            _ => self.message.clone(),
        }
    }

    /// Returns OpenAI's name for the class of the error.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "service_unavailable_error",
            _ => "server_error",
        }
    }

    /// Returns the response body.
    pub fn body(&self) -> serde_json::Value {
        let (message, param) = (self.message.clone(), self.param.clone());
        json!(ErrorBody {
            error: ErrorDetails { message, kind: self.kind(), param, code: self.code }
        })
    }
}

impl From<ToolsError> for ApiError {
    fn from(error: ToolsError) -> Self {
        Self::bad(error.field(), error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if matches!(self.status.as_u16(), 429 | 503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Middleware of APIs with another format replaces the body.
        response.extensions_mut().insert(self);
        response
    }
}
