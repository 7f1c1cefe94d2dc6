//! Outputs of requests.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wrinklefree_easy::{self as easy, FinishReason, Sampled};

/// Names of the reasons for an end.
const REASONS: [&str; 3] = ["stop", "length", "cancelled"];

/// A token and its log-probability.
type Scored = (u32, f32);

/// The fields of a [`Completion`] in the order of its constructor.
type CompletionFields = (
    String,
    String,
    Vec<u32>,
    Option<Vec<f32>>,
    Vec<Vec<Scored>>,
    &'static str,
    usize,
    usize,
    usize,
);

/// Returns the name of a reason, as in the npm package and in OpenAI's API.
fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        _ => "stop",
    }
}

/// Returns the reason of this name.
fn known_reason(name: &str) -> PyResult<&'static str> {
    let known = REASONS.into_iter().find(|known| *known == name);
    known.ok_or_else(|| {
        PyValueError::new_err(format!("finish_reason: {name:?} is none of {}", REASONS.join(", ")))
    })
}

/// A part of an output.
#[pyclass(frozen, get_all, module = "wrinklefree")]
pub struct Chunk {
    /// Text of the answer that can be shown now; may be empty.
    text: String,
    /// Reasoning before the answer that can be shown now; may be empty.
    reasoning: String,
    /// The token; None in the last chunk.
    token: Option<u32>,
    /// Log-probability of the token, with the option `logprobs`.
    logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, best first, with the option `logprobs`.
    top_logprobs: Vec<(u32, f32)>,
    /// `stop`, `length` or `cancelled` in the last chunk, else None.
    finish_reason: Option<&'static str>,
    /// Number of tokens in the prompt, in the last chunk.
    prompt_tokens: Option<usize>,
    /// Number of prompt tokens that the prefix cache had, in the last chunk.
    cached_tokens: Option<usize>,
    /// Number of forward passes that the request took part in, in the last chunk.
    passes: Option<usize>,
}

#[pymethods]
impl Chunk {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        match self.finish_reason {
            Some(reason) => format!("Chunk(text={:?}, finish_reason={reason:?})", self.text),
            None => format!("Chunk(text={:?})", self.text),
        }
    }
}

impl From<easy::Chunk> for Chunk {
    fn from(easy::Chunk { text, reasoning, token, finished }: easy::Chunk) -> Self {
        Self {
            text,
            reasoning,
            token: token.as_ref().map(|sampled| sampled.token),
            logprob: token.as_ref().and_then(|sampled| sampled.logprob),
            top_logprobs: token.map(|sampled| sampled.top).unwrap_or_default(),
            finish_reason: finished.map(|end| reason(end.reason)),
            prompt_tokens: finished.map(|end| end.prompt_tokens),
            cached_tokens: finished.map(|end| end.cached_tokens),
            passes: finished.map(|end| end.passes),
        }
    }
}

/// A complete output.
#[pyclass(frozen, get_all, module = "wrinklefree")]
pub struct Completion {
    /// The text of the answer.
    text: String,
    /// The reasoning before it; empty if there is none.
    reasoning: String,
    /// Ids of the tokens of both. A token that ended the text is among them.
    tokens: Vec<u32>,
    /// Log-probability of each token, with the option `logprobs`, else None.
    logprobs: Option<Vec<f32>>,
    /// For each token, the most likely tokens and their log-probabilities, best first.
    top_logprobs: Vec<Vec<(u32, f32)>>,
    /// `stop`, `length` or `cancelled`.
    finish_reason: &'static str,
    /// Number of tokens in the prompt.
    prompt_tokens: usize,
    /// Number of prompt tokens that the prefix cache had.
    cached_tokens: usize,
    /// Number of forward passes that the request took part in.
    passes: usize,
}

#[pymethods]
impl Completion {
    /// Makes a completion of its parts, which unpickling does.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "one for each attribute in Python")]
    fn restore(
        text: String,
        reasoning: String,
        tokens: Vec<u32>,
        logprobs: Option<Vec<f32>>,
        top_logprobs: Vec<Vec<Scored>>,
        finish_reason: &str,
        prompt_tokens: usize,
        cached_tokens: usize,
        passes: usize,
    ) -> PyResult<Self> {
        let finish_reason = known_reason(finish_reason)?;
        Ok(Self {
            text,
            reasoning,
            tokens,
            logprobs,
            top_logprobs,
            finish_reason,
            prompt_tokens,
            cached_tokens,
            passes,
        })
    }

    fn __getnewargs__(&self) -> CompletionFields {
        (
            self.text.clone(),
            self.reasoning.clone(),
            self.tokens.clone(),
            self.logprobs.clone(),
            self.top_logprobs.clone(),
            self.finish_reason,
            self.prompt_tokens,
            self.cached_tokens,
            self.passes,
        )
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("Completion(text={:?}, finish_reason={:?})", self.text, self.finish_reason)
    }
}

impl Completion {
    /// Makes a completion of the answer, the reasoning before it, and the tokens of both.
    pub fn new(
        text: String,
        reasoning: String,
        sampled: Vec<Sampled>,
        end: easy::Finished,
    ) -> Self {
        Self {
            text,
            reasoning,
            tokens: sampled.iter().map(|token| token.token).collect(),
            logprobs: sampled.iter().map(|token| token.logprob).collect(),
            top_logprobs: sampled.into_iter().map(|token| token.top).collect(),
            finish_reason: reason(end.reason),
            prompt_tokens: end.prompt_tokens,
            cached_tokens: end.cached_tokens,
            passes: end.passes,
        }
    }
}
