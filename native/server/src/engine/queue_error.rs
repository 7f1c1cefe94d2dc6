//! Requests that the engine's thread did not accept.

use crate::error::ApiError;
use axum::http::StatusCode;
use wrinklefree::decode::DiffusionError;
use wrinklefree::engine::SubmitError;

/// Reason why requests were not accepted.
#[derive(Debug)]
pub enum QueueError {
    /// The engine can never run the request.
    Rejected(SubmitError),
    /// The queue is full.
    Full,
    /// More requests at once than may ever run and wait.
    TooMany {
        /// Number of requests submitted together.
        requested: usize,
        /// Maximum number of running and waiting requests.
        limit: usize,
    },
    /// The engine's thread has ended.
    Stopped,
}

impl QueueError {
    /// Returns the error of the request. `prompt` is its field that holds the prompt.
    pub fn api_error(&self, prompt: &str) -> ApiError {
        match self {
            Self::Rejected(rejected) => refusal(rejected, prompt),
            Self::Full => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                "the queue is full: try again later",
            ),
            Self::TooMany { requested, limit } => {
                let message = format!(
                    "{requested} outputs in one request, but this server runs and queues at most \
                     {limit} (--max-sequences, --max-waiting): ask for fewer"
                );
                ApiError::bad(prompt, message)
            }
            Self::Stopped => ApiError::unavailable("the server is shutting down"),
        }
    }
}

/// Returns the error of a request that the engine can never run.
fn refusal(rejected: &SubmitError, prompt: &str) -> ApiError {
    let (param, code) = match rejected {
        &SubmitError::PromptTooLong { prompt: tokens, context } => {
            return ApiError::overflow(prompt, tokens, context);
        }
        SubmitError::EmptyPrompt => (prompt, "empty_prompt"),
        SubmitError::ZeroMaxTokens => ("max_tokens", "invalid_value"),
        SubmitError::UnknownToken { .. } => (prompt, "invalid_value"),
        SubmitError::NoPromptScores => ("echo", "invalid_value"),
        SubmitError::NoContextShift => ("decode_mode", "invalid_value"),
        SubmitError::KeepsAll { .. } => ("max_tokens", "invalid_value"),
        SubmitError::NoTokenizer => ("stop", "no_tokenizer"),
        SubmitError::Sampling(error) => (error.field, "invalid_value"),
        SubmitError::NgramMatches { .. } | SubmitError::LinearAttention(_) => {
            ("decode_mode", "invalid_value")
        }
        SubmitError::NoMtp | SubmitError::NoDrafter => ("draft", "invalid_value"),
        SubmitError::Constraint(_) => ("response_format", "invalid_grammar"),
        SubmitError::Diffusion(DiffusionError::MaskedText { text: "prompt", .. }) => {
            (prompt, "invalid_value")
        }
        SubmitError::Diffusion(error) => (diffusion_param(error), "invalid_value"),
    };
    ApiError { code, ..ApiError::bad(param, rejected.to_string()) }
}

/// Returns the request field that an error of the block-diffusion parameters is about.
fn diffusion_param(error: &DiffusionError) -> &'static str {
    match error {
        DiffusionError::SubBlock { .. } => "small_block_size",
        DiffusionError::Rows { .. } => "block_size",
        DiffusionError::Threshold(_) => "threshold",
        DiffusionError::Mask { .. } => "mask_token_id",
        DiffusionError::Hole { .. }
        | DiffusionError::Suffix { .. }
        | DiffusionError::MaskedText { .. }
        | DiffusionError::CausalSuffix => "suffix",
        _ => "decode_mode",
    }
}
