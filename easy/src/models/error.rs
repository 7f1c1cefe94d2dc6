//! Errors of opening a model.

use super::fit::NotEnoughMemory;
use wrinklefree::format::LoadError;
use wrinklefree::model::ModelError;
use wrinklefree::text::TextError;

/// Error: a model could not be opened. Each kind names the model; the cause names the file, tensor or
/// field that it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file or directory, and no hub id of that form.
    #[error("there is no file or directory {model}, and {hub}")]
    NotFound {
        /// Path or id of the model.
        model: String,
        /// Reason why it was not looked up on the hub.
        hub: &'static str,
    },
    /// The build has no embedded model.
    #[error("this build has no embedded model: pass a path, or enable the feature `default-model`")]
    NoEmbeddedModel,
    /// The files could not be listed or read, or none or several of them are a model.
    #[error("{cause:#}")]
    Files {
        /// Path of the model.
        model: String,
        /// Cause, with the file or directory.
        cause: anyhow::Error,
    },
    /// The files could not be downloaded.
    #[error("{cause:#}")]
    Download {
        /// Id of the model.
        model: String,
        /// Cause, with the file and what to do.
        cause: anyhow::Error,
    },
    /// The weights do not fit in memory.
    #[error("cannot load {model}")]
    Memory {
        /// Path or id of the model.
        model: String,
        /// Cause, with numbers.
        source: NotEnoughMemory,
    },
    /// The files are damaged, or hold a model that is not supported.
    #[error("cannot load {model}")]
    Format {
        /// Path or id of the model.
        model: String,
        /// Cause, with the tensor or field.
        source: LoadError,
    },
    /// The weights do not fit the model's shape.
    #[error("cannot load {model}")]
    Weights {
        /// Name of the model.
        model: String,
        /// Cause, with the tensor.
        source: ModelError,
    },
    /// The file of a chat template could not be read.
    #[error(
        "cannot read the chat template {template}: {error}; known by name are {known}, and a text with \
         {{{{ or {{% is taken as it is"
    )]
    Template {
        /// The template that was asked for.
        template: String,
        /// The known names.
        known: String,
        /// Cause.
        error: std::io::Error,
    },
    /// The tokenizer or the chat template cannot be used.
    #[error("cannot use the tokenizer or template of {model}")]
    Tokenizer {
        /// Name of the model.
        model: String,
        /// Cause.
        source: TextError,
    },
}

/// Error: a model has no tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{model} has no tokenizer: put its tokenizer.json next to the weights")]
pub struct NoTokenizer {
    /// Name of the model.
    pub model: String,
}
