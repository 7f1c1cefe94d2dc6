//! WrinkleFree runs ternary language models (BitNet b1.58, weights in {−1, 0, +1}) on CPUs.
//!
//! This crate is the core: it loads models, computes forward passes, and decodes many requests in one
//! batch. It reads no file, clock, socket or environment variable. The shells (the program `wf-run`, the
//! npm package) give it bytes and call [`engine::Engine::step`] in a loop.
//!
//! # Layers
//!
//! A module imports from itself and from the modules below it; a test of the architecture holds this.
//!
//! | Modules | Purpose |
//! | --- | --- |
//! | [`chat`] | conversations: messages to a prompt, outputs to reasoning and answer |
//! | [`settings`], [`engine`] | options of a request; continuous batching |
//! | [`model`], [`decode`], [`text`] | forward passes; decode modes and sampling; tokenizer and templates |
//! | [`cache`], [`mod@format`] | paged KV cache and prefix cache; loaders of model files |
//! | [`kernel`], [`matrix`], [`ternary`], [`loader`] | compute kernels; weights and their memory layouts |
//! | [`mem`], [`par`], [`batch_types`] | aligned memory; thread pool; types of a batch |
//!
//! The modules from `kernel` down are the crate `wrinklefree-compute`, which has all `unsafe` code.
//!
//! # Example
//!
//! Generates text with the small model of the repository:
//!
//! ```
//! use std::sync::Arc;
//! use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
//! use wrinklefree::format::{File, load};
//! use wrinklefree::kernel::Kernels;
//! use wrinklefree::model::{Model, Runtime};
//! use wrinklefree::par::ThreadPool;
//! use wrinklefree::text::Tokenizer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/default.wf.safetensors");
//! let file = File { name: path.into(), bytes: std::fs::read(path)?.into() };
//! let checkpoint = load(vec![file])?;
//! let vocabulary = checkpoint.text.vocabulary.as_ref().expect("the model has a tokenizer");
//! let tokenizer = Arc::new(Tokenizer::new(vocabulary)?);
//! let model = Model::new(checkpoint.spec, checkpoint.weights)?;
//!
//! let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1)? };
//! let config = EngineConfig { max_context: 256, kv_pages: 8, ..EngineConfig::default() };
//! let mut engine = Engine::new(model, Some(tokenizer.clone()), runtime, config)?;
//!
//! let tokens = tokenizer.encode("Once upon a time", true)?;
//! engine.submit(Request { tokens, max_tokens: 8, ..Request::default() })?;
//! let mut generated = Vec::new();
//! while engine.step() != Step::Idle {
//!     while let Some(event) = engine.poll() {
//!         if let EventKind::Token { sampled, text } = event.kind {
//!             print!("{text}");
//!             generated.push(sampled.token);
//!         }
//!     }
//! }
//! assert_eq!(generated.len(), 8);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod cache;
pub mod chat;
pub mod decode;
pub mod engine;
pub mod format;
pub mod model;
pub mod settings;
pub mod text;

pub use wrinklefree_compute::{batch_types, kernel, loader, matrix, mem, par, ternary};
