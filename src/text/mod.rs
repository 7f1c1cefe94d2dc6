//! Text: tokenizer, chat template, incremental detokenizer, stop strings.
//!
//! Nothing here has a clock, a file or a random number: what a template may know of the day is
//! passed in, and the same input gives the same output on every platform.

mod date;
mod detokenize;
mod error;
mod gguf_vocab;
mod jinja;
mod known_parts;
mod parts;
mod pieces;
mod pretokenize;
mod python;
mod stop;
mod template;
mod tokenizer;

pub use date::Date;
pub use detokenize::Detokenizer;
pub use error::TextError;
pub use stop::{StopStrings, Stopped};
pub use template::{ChatTemplate, Message, RenderOptions};
pub use tokenizer::Tokenizer;
