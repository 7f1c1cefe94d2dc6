//! What requests need of the server.

use super::api::Asked;
use super::auth::Keys;
use super::error::ApiError;
use super::metrics::Metrics;
use super::worker::Worker;
use crate::machine::Threads;
use crate::models::engine::MAX_BATCH_TOKENS;
use crate::models::grammar::Grammars;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::Constraint;
use wrinklefree::format::{DlmConfig, GenerationDefaults, Rope};
use wrinklefree::model::Sparsity;
use wrinklefree::settings::{ModelCapabilities, Settings};
use wrinklefree::text::{ChatTemplate, Tokenizer};

/// The server.
pub struct Server {
    /// The model, when it is loaded.
    pub ready: OnceLock<Arc<Ready>>,
    /// No new requests are taken.
    pub draining: AtomicBool,
    pub metrics: Arc<Metrics>,
    pub keys: Keys,
    pub limits: Limits,
}

/// Bounds of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of its body.
    pub body: usize,
    /// Time until its answer is complete.
    pub time: Duration,
}

/// A loaded model.
pub struct Ready {
    pub name: String,
    /// Seconds since 1970 when it was loaded.
    pub created: u64,
    pub worker: Worker,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub defaults: GenerationDefaults,
    pub dlm: Option<DlmConfig>,
    /// How answers are decoded where a request does not say.
    pub settings: Settings,
    pub vocab: usize,
    /// Numbers of a hidden state.
    pub hidden: usize,
    /// Positions a sequence may have.
    pub context: usize,
    /// What is kept of keys and values, and what is read of them.
    pub kv: KvConfig,
    /// How positions turn keys.
    pub rope: Rope,
    /// Which activations stay.
    pub activation_sparsity: Sparsity,
    /// Whether ternary weights stand in the tight layout.
    pub tight: bool,
    /// Whether only the logits of promising tokens are exact.
    pub screened: bool,
    /// Tokens that stay when the context is full, if a sequence goes on then.
    pub context_shift: Option<usize>,
    pub isa: &'static str,
    pub threads: Threads,
    /// What compiles grammars, made for the first request that has one.
    pub grammars: OnceLock<Grammars>,
}

impl Server {
    /// The model.
    ///
    /// # Errors
    /// While there is none.
    pub fn ready(&self) -> Result<Arc<Ready>, ApiError> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(ApiError::unavailable("the server is shutting down"));
        }
        let loading = || ApiError::unavailable("the model is loading");
        self.ready.get().cloned().ok_or_else(loading)
    }
}

impl Ready {
    /// Whether a request's `model` is this one.
    pub fn is(&self, name: &str) -> bool {
        name == self.name || name == "default"
    }

    /// The constraint of an output. Takes a while for large vocabularies and grammars.
    ///
    /// # Errors
    /// When there is something wrong with the grammar.
    pub fn constraint(&self, asked: Asked) -> Result<Box<dyn Constraint>, ApiError> {
        let Asked { grammar, field } = asked;
        let grammars = match self.grammars.get() {
            Some(grammars) => grammars,
            None => {
                let made = Grammars::new(&self.tokenizer, self.vocab, &self.defaults.eos);
                let made = made.map_err(ApiError::internal)?;
                self.grammars.get_or_init(|| made)
            }
        };
        let wrong = |error| ApiError {
            code: "invalid_grammar",
            ..ApiError::bad(field, format!("cannot use this grammar: {error}"))
        };
        grammars.compile(grammar).map_err(wrong)
    }

    /// What matters for decoding.
    pub fn capabilities(&self) -> ModelCapabilities<'_> {
        ModelCapabilities {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: Some(&self.tokenizer),
            vocab: self.vocab,
            rows: MAX_BATCH_TOKENS,
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
