//! Measures the cost of one more row in a pass, which limits the length of drafts.

use super::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use crate::cache::{CacheFull, KvConfig, KvPool, NoMemory, PAGE};
use std::hint::black_box;

/// Number of rows of the larger of the two measured passes.
const MANY: usize = 9;
/// Number of passes of each kind, of which the fastest counts.
const PASSES: usize = 4;

/// The KV cache for the measured passes could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum RowCostError {
    /// There is no memory for a pool.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The pool has too few pages.
    #[error(transparent)]
    CacheFull(#[from] CacheFull),
}

impl Model {
    /// Measures the time that one more row adds to a pass, as a share of the time of a pass of one row.
    /// Runs a few passes with a cache of this configuration. `now` returns the time in seconds, from
    /// any origin.
    ///
    /// # Errors
    /// When there is no memory for the cache.
    pub fn row_cost(
        &self,
        runtime: &Runtime,
        kv: KvConfig,
        now: impl Fn() -> f64,
    ) -> Result<f32, RowCostError> {
        let mut kv = KvPool::new(self.spec(), MANY.div_ceil(PAGE), kv)?;
        let seq = kv.open(MANY)?;
        let mut workspace = Workspace::default();
        let mut best = |rows: usize| {
            // Different tokens, because equal rows would refine the same panels of a screened head.
            let vocab = self.spec().vocab_size;
            let tokens: Vec<u32> = (0..rows).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
            let mut pass = || {
                let begin = now();
                let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
                let span = Span { seq, start: 0, tokens: &tokens, attention_mask, logits };
                black_box(self.forward(runtime, &mut kv, &[span], &mut workspace).row(0));
                now() - begin
            };
            (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
        };
        let (one, many) = (best(1), best(MANY));
        // If the clock is too coarse for a small model, rows count as free.
        let more = if one > 0.0 { many / one - 1.0 } else { 0.0 };
        Ok((more / (MANY - 1) as f64).max(0.0) as f32)
    }
}
