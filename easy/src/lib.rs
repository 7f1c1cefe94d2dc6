//! Runs ternary (BitNet b1.58) language models on CPUs: open a model, generate, stream, chat, embed.
//!
//! An [`Engine`] owns one thread that opens the model and runs all requests in one batch. It can be
//! cloned and used from any thread. Everything works offline with the small model inside the library
//! (feature `default-model`), which tells stories. Feature `grammar` restricts outputs to a JSON
//! schema, a regular expression or a grammar. Feature `hub` downloads models.
//!
//! ```
//! # #[cfg(feature = "default-model")] {
//! use wrinklefree_easy::{Engine, GenerateOptions, Message};
//!
//! let engine = Engine::builder_default().threads(1).context(512).build()?;
//! let options = GenerateOptions::default().max_tokens(16).temperature(0.0);
//! let story = engine.generate("Once upon a time", &options)?;
//! println!("{} ({} tokens)", story.text, story.tokens.len());
//!
//! for chunk in engine.chat_stream(&[Message::user("Hello!")], &options)? {
//!     print!("{}", chunk?.text);
//! }
//! # }
//! # Ok::<(), wrinklefree_easy::Error>(())
//! ```
//!
//! The parts below the engine are public too. [`models`] opens a model, and [`machine`] starts the
//! threads that compute. [`wrinklefree`] is the core. Nothing here prints: warnings are returned as
//! values.

/// The examples of `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod builder;
mod engine;
mod error;
pub mod fields;
pub mod machine;
mod message;
pub mod models;
mod options;
mod stream;
mod worker;

pub use builder::EngineBuilder;
pub use engine::Engine;
pub use error::Error;
pub use message::{Message, ToolCall};
pub use models::OpenError;
#[cfg(feature = "grammar")]
pub use models::grammar::Grammar;
pub use options::{GenerateOptions, random_seed};
pub use stream::{CancelHandle, Chunk, Completion, Finished, PartialOutput, Stream, ToolCallChunk};
pub use wrinklefree;
pub use wrinklefree::cache::KvType;
pub use wrinklefree::chat::tools::{Tool, ToolChoice, Tools, ToolsError};
pub use wrinklefree::decode::{Pooling, Sampled};
pub use wrinklefree::engine::{EngineStats, FinishReason};
pub use wrinklefree::format::GenerationDefaults;
pub use wrinklefree::settings::{Effort, Mode, Reasoning, Sampling, Settings};
