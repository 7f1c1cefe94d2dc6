//! What can be wrong with text parts, in words a person can act on.

/// Why text parts are unusable, or refuse an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A `tokenizer.json` or a GGUF vocabulary contradicts itself.
    #[error("the vocabulary is malformed: {0}")]
    Vocabulary(String),
    /// `tokenizer.ggml.model` names a kind of tokenizer that this program does not have.
    #[error("tokenizer.ggml.model is `{model}`; known are `gpt2` and `llama`")]
    UnknownModel {
        /// What the file says.
        model: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that this program does not have.
    #[error("tokenizer.ggml.pre is `{pre}`; known are {known}")]
    UnknownPre {
        /// What the file says.
        pre: String,
        /// The names that would do.
        known: String,
    },
    /// The tokenizer gives ids that the model has no embedding for.
    #[error(
        "the tokenizer's ids run to {} but the model embeds only {model} tokens (ids to {}): \
         they belong to different models",
        .tokenizer - 1, model.saturating_sub(1)
    )]
    Mismatch {
        /// One more than the tokenizer's largest id.
        tokenizer: usize,
        /// Rows of the model's embedding.
        model: usize,
    },
    /// The tokenizer could not encode a text.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
    /// The chat template is not valid Jinja.
    #[error("the chat template is not valid Jinja: {0}")]
    TemplateSyntax(String),
    /// The chat template called `raise_exception`.
    #[error("the chat template refuses the conversation: {0}")]
    TemplateRefused(String),
    /// The chat template failed, or ran for too long.
    #[error("the chat template fails: {0}")]
    TemplateFailed(String),
}

impl TextError {
    /// A name for the kind of error that never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Vocabulary(_) => "bad_vocabulary",
            Self::UnknownModel { .. } => "unknown_tokenizer_model",
            Self::UnknownPre { .. } => "unknown_pre_tokenizer",
            Self::Mismatch { .. } => "tokenizer_mismatch",
            Self::Encode(_) => "encode_failed",
            Self::TemplateSyntax(_) => "bad_chat_template",
            Self::TemplateRefused(_) => "chat_template_refused",
            Self::TemplateFailed(_) => "chat_template_failed",
        }
    }
}
