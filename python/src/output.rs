//! Outputs of requests.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wrinklefree_easy::{self as easy, FinishReason};

/// Names of the reasons for an end.
const REASONS: [&str; 4] = ["stop", "length", "cancelled", "tool_calls"];

/// A token and its log-probability.
type Scored = (u32, f32);

/// The fields of a [`Completion`] in the order of its constructor.
type CompletionFields = (
    String,
    String,
    Vec<ToolCall>,
    Vec<u32>,
    Option<Vec<f32>>,
    Vec<Vec<Scored>>,
    &'static str,
    usize,
    usize,
    usize,
);

/// Returns the name of a reason, as in the npm package and in OpenAI's API. An output that ends by itself
/// after a call waits for its result.
fn reason(reason: FinishReason, calls: bool) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        _ if calls => "tool_calls",
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

/// A call of a function.
#[pyclass(frozen, get_all, eq, hash, from_py_object, module = "wrinklefree")]
#[derive(Clone, PartialEq, Hash)]
pub struct ToolCall {
    /// Id, by which the result names the call.
    id: String,
    /// Name of the function.
    name: String,
    /// Arguments: a JSON object, unless the output was cut inside it.
    arguments: String,
}

#[pymethods]
impl ToolCall {
    #[new]
    fn new(id: String, name: String, arguments: String) -> Self {
        Self { id, name, arguments }
    }

    fn __getnewargs__(&self) -> (String, String, String) {
        (self.id.clone(), self.name.clone(), self.arguments.clone())
    }

    fn __repr__(&self) -> String {
        let Self { id, name, arguments } = self;
        format!("ToolCall(id={id:?}, name={name:?}, arguments={arguments:?})")
    }

    /// Returns the call in the form of OpenAI's API, for the messages of the next request.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Self { id, name, arguments } = self.clone();
        Ok(pythonize::pythonize(py, &easy::ToolCall { id, name, arguments })?)
    }
}

impl From<easy::ToolCall> for ToolCall {
    fn from(easy::ToolCall { id, name, arguments }: easy::ToolCall) -> Self {
        Self { id, name, arguments }
    }
}

/// A part of a call.
#[pyclass(frozen, get_all, module = "wrinklefree")]
#[derive(Clone)]
pub struct ToolCallChunk {
    /// Number of the call in the output, from 0.
    index: usize,
    /// Id of the call, in its first part, else None.
    id: Option<String>,
    /// Name of the function, in the first part, else None.
    name: Option<String>,
    /// More of the arguments, which are JSON.
    arguments: String,
}

#[pymethods]
impl ToolCallChunk {
    fn __repr__(&self) -> String {
        let Self { index, name, arguments, .. } = self;
        let name = name.as_ref().map_or("None".into(), |name| format!("{name:?}"));
        format!("ToolCallChunk(index={index}, name={name}, arguments={arguments:?})")
    }
}

impl From<easy::ToolCallChunk> for ToolCallChunk {
    fn from(easy::ToolCallChunk { index, id, name, arguments }: easy::ToolCallChunk) -> Self {
        Self { index, id, name, arguments }
    }
}

/// A part of an output.
#[pyclass(frozen, get_all, module = "wrinklefree")]
pub struct Chunk {
    /// Text of the answer that can be shown now; may be empty.
    text: String,
    /// Reasoning before the answer that can be shown now; may be empty.
    reasoning: String,
    /// Parts of calls of tools; mostly empty.
    tool_calls: Vec<ToolCallChunk>,
    /// The whole answer so far, which replaces the snapshot before it; with the option `diffusing`, in chunks
    /// that have nothing else.
    snapshot: Option<String>,
    /// The whole reasoning so far, next to `snapshot`.
    reasoning_snapshot: Option<String>,
    /// The token; None in the last chunk and in snapshots.
    token: Option<u32>,
    /// Log-probability of the token, with the option `logprobs`.
    logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, best first, with the option `logprobs`.
    top_logprobs: Vec<(u32, f32)>,
    /// `stop`, `length`, `cancelled` or `tool_calls` in the last chunk, else None.
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
        match (self.finish_reason, &self.snapshot) {
            (Some(reason), _) => format!("Chunk(text={:?}, finish_reason={reason:?})", self.text),
            (None, Some(snapshot)) => format!("Chunk(snapshot={snapshot:?})"),
            (None, None) => format!("Chunk(text={:?})", self.text),
        }
    }
}

impl Chunk {
    /// Makes a chunk; `called` if the output has had calls so far.
    pub fn new(chunk: easy::Chunk, called: bool) -> Self {
        let easy::Chunk { text, reasoning, tool_calls, snapshot, token, finished } = chunk;
        let (snapshot, reasoning_snapshot) = snapshot.map(|all| (all.text, all.reasoning)).unzip();
        Self {
            text,
            reasoning,
            tool_calls: tool_calls.into_iter().map(ToolCallChunk::from).collect(),
            snapshot,
            reasoning_snapshot,
            token: token.as_ref().map(|sampled| sampled.token),
            logprob: token.as_ref().and_then(|sampled| sampled.logprob),
            top_logprobs: token.map(|sampled| sampled.top).unwrap_or_default(),
            finish_reason: finished.map(|end| reason(end.reason, called)),
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
    /// Calls of tools; mostly none.
    tool_calls: Vec<ToolCall>,
    /// Ids of the tokens of all. A token that ended the text is among them.
    tokens: Vec<u32>,
    /// Log-probability of each token, with the option `logprobs`, else None.
    logprobs: Option<Vec<f32>>,
    /// For each token, the most likely tokens and their log-probabilities, best first.
    top_logprobs: Vec<Vec<(u32, f32)>>,
    /// `stop`, `length`, `cancelled` or `tool_calls`.
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
        tool_calls: Vec<ToolCall>,
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
            tool_calls,
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
            self.tool_calls.clone(),
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

impl From<easy::Completion> for Completion {
    fn from(completion: easy::Completion) -> Self {
        let easy::Completion { text, reasoning, tool_calls, tokens, finished: end } = completion;
        Self {
            text,
            reasoning,
            finish_reason: reason(end.reason, !tool_calls.is_empty()),
            tool_calls: tool_calls.into_iter().map(ToolCall::from).collect(),
            logprobs: tokens.iter().map(|token| token.logprob).collect(),
            top_logprobs: tokens.iter().map(|token| token.top.clone()).collect(),
            tokens: tokens.iter().map(|token| token.token).collect(),
            prompt_tokens: end.prompt_tokens,
            cached_tokens: end.cached_tokens,
            passes: end.passes,
        }
    }
}
