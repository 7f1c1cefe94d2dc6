//! Errors of conversations.

use super::ROLES;
use super::tools::ToolsError;
use crate::settings::ReasoningError;
use crate::text::TextError;

/// Error: a conversation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// There is no list of messages, or it is empty.
    #[error("messages is empty: send at least one message")]
    Empty,
    /// The role of a message is unknown.
    #[error("messages[{index}].role: unknown role `{role}`: expected one of {}", ROLES.join(", "))]
    Role {
        /// Index of the message.
        index: usize,
        /// The role; empty if there is none.
        role: String,
    },
    /// A message has a field that no template can read.
    #[error("messages[{index}].{problem}")]
    Message {
        /// Index of the message.
        index: usize,
        /// The field, and what it must be.
        problem: &'static str,
    },
    /// The prompt has more tokens than the context.
    #[error(
        "the prompt has at least {least} tokens, but the context holds {context} positions: shorten the \
         prompt, or open the model with a longer context"
    )]
    TooLong {
        /// Least number of tokens.
        least: usize,
        /// Positions of the context.
        context: usize,
    },
    /// There are documents, and the template writes none.
    #[error("the model's chat template takes no documents")]
    Documents,
    /// The template refuses the conversation.
    #[error(transparent)]
    Refused(TextError),
    /// The last message is not in the prompt as it is.
    #[error("it does not write the last message as it is, so the message cannot be continued")]
    NotContinued,
    /// The prompt cannot be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A setting of reasoning does not fit the model.
    #[error(transparent)]
    Reasoning(#[from] ReasoningError),
    /// The tools cannot be used.
    #[error(transparent)]
    Tools(#[from] ToolsError),
}

impl ChatError {
    /// Returns a stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Text(error) | Self::Refused(error) => error.code(),
            Self::TooLong { .. } => "context_length_exceeded",
            Self::Empty
            | Self::Role { .. }
            | Self::Message { .. }
            | Self::Documents
            | Self::NotContinued
            | Self::Reasoning(_)
            | Self::Tools(_) => "bad_request",
        }
    }
}
