//! Text: [`Tokenizer`], incremental [`Detokenizer`], [`ChatTemplate`] and [`StopStrings`].
//!
//! Nothing here uses a clock, files or random numbers. The same input gives the same output on every
//! platform; the date that a template prints is passed in ([`Date`]).

mod allowed_parts;
mod control;
mod date;
mod detokenize;
mod error;
mod gguf_export;
mod gguf_vocab;
mod jinja;
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
pub use error::TextError;
pub use reasoning::{OutputPart, ReasoningMarkers, ReasoningParser, ReasoningStart};
pub use stop::{StopStrings, Stopped};
pub use template::{ChatTemplate, Message, RenderOptions};
pub use tokenizer::Tokenizer;
