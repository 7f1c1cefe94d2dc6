//! Errors of tokenizers and chat templates.

/// An error of a tokenizer or a chat template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A `tokenizer.json` or a GGUF vocabulary is malformed or not supported.
    #[error("the vocabulary is malformed: {0}")]
    Vocabulary(String),
    /// `tokenizer.ggml.model` names an unsupported kind of tokenizer.
    #[error("tokenizer.ggml.model is `{model}`; known are `gpt2` and `llama`")]
    UnknownModel {
        /// Name in the file.
        model: String,
    },
    /// `tokenizer.ggml.pre` names an unsupported pre-tokenizer.
    #[error("tokenizer.ggml.pre is `{pre}`; known are {known}")]
    UnknownPre {
        /// Name in the file.
        pre: String,
        /// The supported names.
        known: String,
    },
    /// The model has no embedding for some of the tokenizer's ids.
    #[error(
        "the tokenizer's ids go up to {}, but the model embeds only {model} tokens (ids up to {}): \
         they belong to different models",
        .tokenizer - 1, model.saturating_sub(1)
    )]
    Mismatch {
        /// One more than the tokenizer's largest id.
        tokenizer: usize,
        /// Rows of the model's embedding.
        model: usize,
    },
    /// A token that was asked for is not in the vocabulary.
    #[error("the vocabulary has no token {token:?}: give a token's exact name, or its id")]
    UnknownToken {
        /// The name or id that was asked for.
        token: String,
    },
    /// The tokenizer could not encode a text.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
    /// A chat template that was asked for is neither known by name nor Jinja.
    #[error("no chat template is named {name:?}: known are {known}, and Jinja is taken as it is")]
    UnknownTemplate {
        /// The name that was asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// The chat template is not valid Jinja.
    #[error("the chat template is not valid Jinja: {0}")]
    TemplateSyntax(String),
    /// The chat template called `raise_exception`.
    #[error("the chat template refuses the conversation: {0}")]
    TemplateRefused(String),
    /// The chat template failed, or used up its budget.
    #[error("the chat template fails: {0}")]
    TemplateFailed(String),
}

impl TextError {
    /// A stable name of the kind of error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Vocabulary(_) => "bad_vocabulary",
            Self::UnknownModel { .. } => "unknown_tokenizer_model",
            Self::UnknownPre { .. } => "unknown_pre_tokenizer",
            Self::Mismatch { .. } => "tokenizer_mismatch",
            Self::UnknownToken { .. } => "unknown_token",
            Self::Encode(_) => "encode_failed",
            Self::UnknownTemplate { .. } => "unknown_chat_template",
            Self::TemplateSyntax(_) => "bad_chat_template",
            Self::TemplateRefused(_) => "chat_template_refused",
            Self::TemplateFailed(_) => "chat_template_failed",
        }
    }
}
