//! A conversation: from its messages to a prompt, and from the text of an output to reasoning and answer.
//!
//! Nothing here uses a clock, files or random numbers; the date that a template prints is passed in.

mod answer_scope;
mod prefixes;
mod prompt;

pub use answer_scope::{AnswerParser, AnswerScope};
pub use prefixes::SharedPrefixes;
pub use prompt::{ChatError, ChatModel, ChatPrompt, ROLES, template_role};
