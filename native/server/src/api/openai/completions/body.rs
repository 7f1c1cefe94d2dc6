//! The body of `POST /v1/completions`.

use crate::api::body::diffusing::DiffusingFields;
use crate::api::body::format::OutputFormatFields;
use crate::api::body::model::ModelFields;
use crate::api::body::options::GenerationOptions;
use crate::api::body::prompts::Prompts;
use crate::api::body::speculative::SpeculativeFields;
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::error::ApiError;
use serde::Deserialize;
use utoipa::ToSchema;

/// Schemas of the body.
pub const BODY: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<GenerationOptions>,
    schema_of::<CompletionFields>,
    schema_of::<DiffusingFields>,
    schema_of::<SpeculativeFields>,
    schema_of::<OutputFormatFields>,
];

/// Maximum number of alternatives per token.
const MAX_LOGPROBS: usize = 5;
/// Maximum number of candidates per prompt.
const MAX_BEST_OF: usize = 8;

/// Fields of text completions.
#[derive(Deserialize, ToSchema)]
pub struct CompletionFields {
    /// Prompts to continue.
    pub prompt: Prompts,
    /// Text after the output: the output fills the hole. Only for models that can.
    #[serde(default)]
    pub suffix: Option<String>,
    /// Return the prompt before the output, and its log-probabilities if `logprobs` is set.
    #[serde(default)]
    pub echo: Option<bool>,
    /// Return the log-probability of each token and of this many most probable tokens.
    #[serde(default)]
    #[schema(maximum = 5)]
    logprobs: Option<usize>,
    /// Generate this many outputs per prompt and return the `n` most probable ones.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 8)]
    best_of: Option<usize>,
}

/// Number of outputs per prompt.
#[derive(Clone, Copy)]
pub struct OutputCounts {
    /// Outputs to return.
    pub returned: usize,
    /// Outputs to generate, of which the best are returned.
    pub generated: usize,
}

impl CompletionFields {
    /// Returns the number of alternatives per token, or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If it is too large.
    pub fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match self.logprobs {
            Some(top) if top > MAX_LOGPROBS => {
                let message = format!("logprobs is {top}: at most {MAX_LOGPROBS}");
                Err(ApiError::bad("logprobs", message))
            }
            logprobs => Ok(logprobs),
        }
    }

    /// Returns the number of outputs per prompt.
    ///
    /// # Errors
    /// If `n` or `best_of` is out of range.
    pub fn counts(&self, options: &GenerationOptions) -> Result<OutputCounts, ApiError> {
        let n = options.n()?;
        let best_of = self.best_of.unwrap_or(n);
        if best_of < n || best_of > MAX_BEST_OF || (best_of > n && options.streams()) {
            let message = format!(
                "best_of is {best_of}: it must be at least n ({n}) and at most {MAX_BEST_OF}, and \
                 equal to n when streaming"
            );
            return Err(ApiError::bad("best_of", message));
        }
        Ok(OutputCounts { returned: n, generated: best_of })
    }
}
