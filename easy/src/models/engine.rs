//! An engine for one sequence at a time.

use super::fit::MemoryNeed;
use super::pass_costs;
use std::sync::Arc;
use wrinklefree::cache::{KvConfig, PAGE};
use wrinklefree::decode::{DecodeMode, PassCosts};
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::model::{Model, Runtime};
use wrinklefree::text::Tokenizer;

/// Largest number of rows in one forward pass: enough to reuse each weight, few enough to stop
/// quickly.
pub const MAX_BATCH_TOKENS: usize = 256;

/// The needs of an engine that runs one sequence at a time and computes every prompt anew.
#[derive(Clone, Copy, Debug)]
pub struct SingleSequence<'a> {
    /// Positions of the sequence.
    pub context: usize,
    /// KV cache types, and the pages that attention reads.
    pub kv: KvConfig,
    /// Decode modes that requests may have.
    pub modes: &'a [DecodeMode],
}

impl SingleSequence<'_> {
    /// Builds the engine.
    ///
    /// # Errors
    /// If there is no memory for its KV cache.
    pub fn engine(
        &self,
        model: Model,
        tokenizer: Option<Arc<Tokenizer>>,
        runtime: Runtime,
    ) -> anyhow::Result<Engine> {
        let config = self.config(&model, &runtime)?;
        let EngineConfig { kv_pages, max_batch_tokens, .. } = config;
        let kv = KvConfig { drafter: model.draft_layers(), ..self.kv };
        let drafter = model.draft_buffer_bytes(max_batch_tokens) as u64;
        let need = MemoryNeed::engine(model.spec(), &kv, kv_pages, max_batch_tokens);
        MemoryNeed { drafter, ..need }.check()?;
        Ok(Engine::new(model, tokenizer, runtime, config)?)
    }

    /// Returns the sizes of the engine. Measures costs of passes if a mode needs them.
    ///
    /// # Errors
    /// If there is no memory for that measurement.
    pub fn config(&self, model: &Model, runtime: &Runtime) -> anyhow::Result<EngineConfig> {
        let Self { context, kv, modes } = *self;
        let most = |of: &dyn Fn(&DecodeMode) -> usize| modes.iter().map(of).max().unwrap_or(1);
        let positions = most(&|mode| mode.positions(context));
        let drafts = |mode: &DecodeMode| matches!(mode, DecodeMode::Verify { row_cost: None, .. });
        let pass_costs = if modes.iter().any(drafts) {
            pass_costs::measure(model, runtime, kv)?
        } else {
            PassCosts::default()
        };
        Ok(EngineConfig {
            max_context: context,
            kv_pages: positions.div_ceil(PAGE),
            max_sequences: 1,
            max_batch_tokens: MAX_BATCH_TOKENS.min(positions).max(most(&DecodeMode::rows)),
            pass_costs,
            prefix_cache: false,
            kv,
        })
    }
}
