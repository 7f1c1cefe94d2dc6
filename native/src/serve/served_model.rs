//! The loaded model, as request handlers see it.

use super::engine_thread::EngineHandle;
use super::error::ApiError;
use super::grammars::GrammarCompiler;
use crate::machine::Threads;
use crate::models::engine::MAX_BATCH_TOKENS;
use std::sync::Arc;
use wrinklefree::cache::KvConfig;
use wrinklefree::format::{DlmConfig, GenerationDefaults, Rope};
use wrinklefree::model::Sparsity;
use wrinklefree::settings::{ModelCapabilities, Reasoning, Settings};
use wrinklefree::text::{ChatTemplate, Tokenizer};

/// A loaded model and its settings.
pub struct ServedModel {
    /// Name in requests and responses.
    pub name: String,
    /// Unix time in seconds at which it was loaded.
    pub created: u64,
    /// Submits requests to the engine.
    pub engine: EngineHandle,
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat template; `None` if the model has none.
    pub template: Option<ChatTemplate>,
    /// Generation defaults from the model's files.
    pub defaults: GenerationDefaults,
    /// Block-diffusion parameters from the model's files.
    pub dlm: Option<DlmConfig>,
    /// Decode settings for requests that do not set their own.
    pub settings: Settings,
    /// Settings of reasoning for requests that do not set their own.
    pub reasoning: Reasoning,
    /// Vocabulary size.
    pub vocab: usize,
    /// Cost of a token that its block for multi-token prediction drafts; `None` without one.
    pub mtp: Option<f32>,
    /// Length of a hidden state.
    pub hidden: usize,
    /// Maximum number of positions per sequence.
    pub context: usize,
    /// Types of the KV cache and the attention sparsity.
    pub kv: KvConfig,
    /// True if it has recurrent states, which the prefix cache keeps at few positions only.
    pub recurrent: bool,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Rule that zeroes small activations.
    pub activation_sparsity: Sparsity,
    /// True if ternary weights use the tight layout.
    pub tight: bool,
    /// True if only shortlisted tokens get exact logits.
    pub screened: bool,
    /// Number of tokens kept when a full context shifts; `None` if it does not shift.
    pub context_shift: Option<usize>,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// Compute threads.
    pub threads: Threads,
    /// Compiles the grammars of requests.
    pub grammars: Arc<GrammarCompiler>,
}

impl ServedModel {
    /// Returns true if a request's `model` field means this model.
    pub fn has_name(&self, name: &str) -> bool {
        name == self.name || name == "default"
    }

    /// Converts a text that came in the field `param` to tokens. With `special`, the model's special
    /// tokens are added around it.
    ///
    /// # Errors
    /// If the text is longer than any that fits the context, or the tokenizer fails.
    pub fn encode(&self, text: &str, special: bool, param: &str) -> Result<Vec<u32>, ApiError> {
        self.check_length(text, self.context, param)?;
        self.tokenizer.encode(text, special).map_err(|e| ApiError::bad(param, e.to_string()))
    }

    /// Refuses a text that must have more than `tokens` tokens. Tokenizing takes time and about 30
    /// times the memory of the text, so hopeless texts are refused before.
    ///
    /// # Errors
    /// 400 `context_length_exceeded`.
    pub fn check_length(&self, text: &str, tokens: usize, param: &str) -> Result<(), ApiError> {
        let least = self.tokenizer.least_tokens(text.len());
        if least <= tokens {
            return Ok(());
        }
        let message = format!(
            "the text has {} bytes, so at least {least} tokens, but at most {tokens} fit: shorten it",
            text.len()
        );
        Err(ApiError { code: "context_length_exceeded", ..ApiError::bad(param, message) })
    }

    /// Returns the properties that decode settings are resolved against.
    pub fn capabilities(&self) -> ModelCapabilities<'_> {
        ModelCapabilities {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: Some(&self.tokenizer),
            vocab: self.vocab,
            rows: MAX_BATCH_TOKENS,
            mtp: self.mtp,
        }
    }
}
