//! Text: [`Tokenizer`], incremental [`Detokenizer`], [`ChatTemplate`] and [`StopStrings`].
//!
//! Nothing here uses a clock, files or random numbers. The same input gives the same output on every
//! platform; the date that a template prints is passed in ([`Date`]).

mod allowed_parts;
mod control;
mod date;
mod detokenize;
mod end_tokens;
mod error;
mod fim;
mod generated;
mod gguf_export;
mod gguf_vocab;
mod jinja;
mod kept_reasoning;
mod known_templates;
mod message_ends;
mod model_text;
mod pretokenize;
mod python;
mod reasoning;
mod stop;
mod template;
mod token_bytes;
mod tokenizer;
mod tokenizer_json;

pub use control::Prompt;
pub use date::Date;
pub use detokenize::Detokenizer;
pub use end_tokens::{EndReason, EndToken, describe_end_tokens, end_tokens};
pub use error::TextError;
pub use fim::FimTokens;
pub use generated::{GeneratedAnswer, LocatedPrompt};
pub(crate) use kept_reasoning::PRESERVE_THINKING;
pub use known_templates::{template_names, template_text};
pub use model_text::{ModelText, TextOptions};
pub use reasoning::{OutputPart, ReasoningMarkers, ReasoningParser, ReasoningStart};
pub use stop::{ScopedText, StopScope, StopStrings, Stopped};
pub use template::{ChatTemplate, Message, RenderOptions};
pub use tokenizer::Tokenizer;
