//! A conversation: from its messages and tools to a prompt, and from the text of an output to reasoning, answer
//! and calls.
//!
//! Nothing here uses a clock, files or random numbers; the date that a template prints is passed in.

mod answer_scope;
mod conversation;
mod error;
mod messages;
mod output;
mod output_parser;
mod pieces;
mod prefixes;
mod prompt;
mod snapshots;
pub mod tools;

pub use answer_scope::{AnswerParser, AnswerScope};
pub use conversation::{Conversation, ROLES, template_role};
pub use error::ChatError;
pub use messages::{Ending, TemplateMessages, called_arguments, is_prefill, tool_call};
pub use output::{OutputBlock, OutputBlocks, OutputDelta, ToolCall};
pub use output_parser::OutputParser;
pub use pieces::{CallPiece, OutputPiece, OutputPieces};
pub use prefixes::SharedPrefixes;
pub use prompt::{ChatModel, ChatPrompt, RenderedChat};
pub use snapshots::{MASK_CHARACTER, Snapshot, Snapshots};
