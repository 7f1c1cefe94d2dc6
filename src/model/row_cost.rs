//! What a row of a pass costs here: the number that decides how long drafts pay.

use super::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use crate::cache::{CacheFull, KvConfig, KvPool, NoMemory, PAGE};
use std::hint::black_box;

/// Rows of the larger of the two passes that are compared.
const MANY: usize = 9;
/// The best of so many passes counts.
const PASSES: usize = 4;

/// There was no memory for a few passes.
#[derive(Debug, thiserror::Error)]
pub enum RowCostError {
    /// For their pages.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// In their pages.
    #[error(transparent)]
    CacheFull(#[from] CacheFull),
}

impl Model {
    /// What one more row adds to a pass with such a cache, as a share of a pass of one row. Takes a few
    /// passes; `now` tells the time in seconds, from any beginning.
    ///
    /// # Errors
    /// When there is no memory for them.
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
            // Different ones: rows that are alike would ask a screened head for the same tokens.
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
        // A clock may be too coarse for a small model: then rows are as good as free.
        let more = if one > 0.0 { many / one - 1.0 } else { 0.0 };
        Ok((more / (MANY - 1) as f64).max(0.0) as f32)
    }
}
