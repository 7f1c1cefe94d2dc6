//! Errors as OpenAI's API shapes them.

use super::worker::Refused;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use wrinklefree::decode::DiffusionError;
use wrinklefree::engine::SubmitError;

/// What went wrong with a request.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// For people: what was expected, what was found, what to do.
    pub message: String,
    /// The field that is wrong, if one is.
    pub param: Option<String>,
    /// A name for the kind of error that never changes.
    pub code: &'static str,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct Body {
    error: Details,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErrorDetails)]
struct Details {
    /// For people.
    message: String,
    /// The class of errors.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field that is wrong, if one is.
    param: Option<String>,
    /// A name for the kind of error that never changes.
    code: &'static str,
}

impl ApiError {
    /// A request that makes no sense.
    pub fn bad(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (status, code) = (StatusCode::BAD_REQUEST, "invalid_value");
        Self { status, message: message.into(), param: Some(param.into()), code }
    }

    /// Another error.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code }
    }

    /// The model is not there yet, or not any more.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// A request that the engine does not take; `prompt` is the field that its prompt came in.
    pub fn refused(refused: &Refused, prompt: &str) -> Self {
        match refused {
            Refused::Rejected(rejected) => Self::rejected(rejected, prompt),
            Refused::Busy => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                "too many requests are waiting: try again later",
            ),
            Refused::TooMany { asked, most } => {
                let message = format!(
                    "{asked} answers to one request: this server lets {most} run or wait \
                     (--max-sequences, --max-waiting); ask for fewer at a time"
                );
                Self::bad(prompt, message)
            }
            Refused::Gone => Self::unavailable("the server is shutting down"),
        }
    }

    fn rejected(rejected: &SubmitError, prompt: &str) -> Self {
        let (param, code) = match rejected {
            SubmitError::EmptyPrompt => (prompt, "empty_prompt"),
            SubmitError::ZeroMaxTokens => ("max_tokens", "invalid_value"),
            SubmitError::PromptTooLong { .. } => (prompt, "context_length_exceeded"),
            SubmitError::UnknownToken { .. } => (prompt, "invalid_value"),
            SubmitError::NoPromptScores => ("echo", "invalid_value"),
            SubmitError::NoContextShift => ("decode_mode", "invalid_value"),
            SubmitError::KeepsAll { .. } => ("max_tokens", "invalid_value"),
            SubmitError::NoTokenizer => ("stop", "no_tokenizer"),
            SubmitError::Sampling(error) => (error.field, "invalid_value"),
            SubmitError::NgramMatches { .. } => ("decode_mode", "invalid_value"),
            SubmitError::Constraint(_) => ("response_format", "invalid_grammar"),
            SubmitError::Diffusion(error) => (diffusion_param(error), "invalid_value"),
        };
        Self { code, ..Self::bad(param, rejected.to_string()) }
    }

    /// A bug.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "internal error");
        let (status, message) = (StatusCode::INTERNAL_SERVER_ERROR, "a bug in the server");
        Self::new(status, "internal", message)
    }

    /// OpenAI's name for this class of errors.
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

    /// The body.
    pub fn body(&self) -> serde_json::Value {
        let (message, param) = (self.message.clone(), self.param.clone());
        json!(Body { error: Details { message, kind: self.kind(), param, code: self.code } })
    }
}

/// The field behind an error of the diffusion parameters.
fn diffusion_param(error: &DiffusionError) -> &'static str {
    match error {
        DiffusionError::SubBlock { .. } => "small_block_size",
        DiffusionError::Rows { .. } => "block_size",
        DiffusionError::Threshold(_) => "threshold",
        DiffusionError::Mask { .. } => "mask_token_id",
        _ => "decode_mode",
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
        // For APIs with another shape.
        response.extensions_mut().insert(self);
        response
    }
}
