//! The error of the front door.

use crate::models::fit::NotEnoughMemory;
use crate::models::{NoTokenizer, OpenError};
use std::sync::Arc;
use wrinklefree::cache::NoMemory;
use wrinklefree::chat::ChatError;
use wrinklefree::engine::{NOT_FINITE, SubmitError};
use wrinklefree::settings::{HoleError, ReasoningError, SettingsError};
use wrinklefree::text::TextError;

/// Error of an [`Engine`](crate::Engine).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model could not be found, read or used.
    #[error("cannot open {model}: {}", chain(cause.as_ref()))]
    Open {
        /// Path or id of the model.
        model: String,
        /// Cause.
        cause: Arc<OpenError>,
    },
    /// The threads that compute could not be started.
    #[error("cannot start the threads of the engine: {0}")]
    Threads(String),
    /// The cost of a row could not be measured.
    #[error("cannot measure the cost of a row: {0}")]
    RowCost(String),
    /// The memory that is left does not suffice.
    #[error(transparent)]
    NotEnoughMemory(#[from] NotEnoughMemory),
    /// The KV cache does not fit in memory.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// A decode setting is invalid, or the model does not support it.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] SubmitError),
    /// A text could not be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The conversation is empty or has an unknown role, the chat template refused it, or the model does
    /// not think as it is asked to.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A thinking budget needs a token that the model lacks.
    #[error(transparent)]
    Reasoning(#[from] ReasoningError),
    /// The hole before a suffix cannot be filled.
    #[error(transparent)]
    Hole(#[from] HoleError),
    /// A suffix came with a conversation or with token ids.
    #[error("suffix needs a prompt that is a text")]
    Suffix,
    /// Snapshots were requested, but not a stream.
    #[error("diffusing is for streams: stream the output, or leave it out")]
    Diffusing,
    /// A plain prompt came with a setting of reasoning.
    #[error(
        "a plain prompt has no thinking: leave enable_thinking, thinking_budget, reasoning_effort and \
             chat_template_kwargs out, or send a conversation"
    )]
    PlainReasoning,
    /// A plain prompt came with tools or documents.
    #[error("tools and documents need a conversation: leave them out, or send messages")]
    PlainTools,
    /// The library was built without grammars, which this field needs.
    #[error("{0} needs the feature `grammar` of wrinklefree-easy: enable it, or leave {0} out")]
    NoGrammars(String),
    /// The model has no tokenizer.
    #[error(transparent)]
    NoTokenizer(#[from] NoTokenizer),
    /// The model has no chat template.
    #[error("{model} has no chat template: generate from a prompt instead")]
    NoChatTemplate {
        /// Name of the model.
        model: String,
    },
    /// The grammar of a request could not be compiled.
    #[error("the grammar cannot be used: {0}")]
    Grammar(String),
    /// The grammar became too complex while it was used.
    #[error("the grammar became too complex: use fewer alternatives and shorter limits")]
    GrammarTooComplex,
    /// The model computed a number that is NaN or infinite.
    #[error("{NOT_FINITE}")]
    NotFinite,
    /// The thread of the engine has ended.
    #[error("the engine has stopped: build a new one")]
    Stopped,
}

/// Returns an error's text with those of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
