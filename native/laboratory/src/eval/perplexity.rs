//! Loss of a model on a text: token by token, and on masked tokens of blocks.
//!
//! The text is cut into independent windows. Every token of a window except the first counts.

use super::finite;
use std::ops::Range;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, PAGE};
use wrinklefree::decode::{DiffusionParams, Inside, Sampler, SamplingParams};
use wrinklefree::model::{AttentionMask, LogitRows, Logits, Model, Runtime, Span, Workspace};

/// Rows of a pass that all get logits.
const ROWS: usize = 64;
/// Shares of a block's tokens that are masked.
pub const MASKED: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// Negative log-likelihoods, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Their sum in nats.
    pub nats: f64,
    /// Number of tokens.
    pub tokens: usize,
}

impl Loss {
    /// Nats per token.
    pub fn mean(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// Adds what `logits` say of the token that follows.
    pub fn add(&mut self, logits: &[f32], token: u32) {
        let params = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
        let logprob = Sampler::new(params, &[]).describe(logits, token).logprob;
        self.nats -= f64::from(logprob.expect("asked for"));
        self.tokens += 1;
    }
}

/// Computes windows of a text, one after the other.
pub struct Scorer<'a> {
    model: &'a Model,
    runtime: &'a Runtime,
    kv: KvPool,
    workspace: Workspace,
}

impl<'a> Scorer<'a> {
    /// For windows of at most `window` tokens, in blocks of `block`.
    ///
    /// # Errors
    /// When there is no memory for the KV cache.
    pub fn new(
        model: &'a Model,
        runtime: &'a Runtime,
        (window, kv): (usize, KvConfig),
        block: usize,
    ) -> anyhow::Result<Self> {
        let pages = window.next_multiple_of(block).div_ceil(PAGE);
        let kv = KvPool::new(model.spec(), pages, kv)?;
        Ok(Self { model, runtime, kv, workspace: Workspace::default() })
    }

    /// Adds the autoregressive loss of a window.
    pub fn autoregressive(&mut self, window: &[u32], loss: &mut Loss) -> anyhow::Result<()> {
        let seq = self.kv.open(window.len())?;
        for start in (0..window.len()).step_by(ROWS) {
            let end = (start + ROWS).min(window.len());
            let logits =
                self.pass(seq, start, &window[start..end], AttentionMask::Causal, LogitRows::All)?;
            for (row, &next) in window[start + 1..].iter().take(end - start).enumerate() {
                loss.add(logits.row(row), next);
            }
        }
        self.kv.close(seq);
        Ok(())
    }

    /// Adds the losses of a window's masked tokens, for each share in [`MASKED`]: each block after
    /// its clean predecessors, with the same slots masked every time. What a block's predecessors
    /// predict already (its first token where logits are shifted) is not masked, as in decoding.
    pub fn masked(
        &mut self,
        window: &[u32],
        p: &DiffusionParams,
        losses: &mut [Loss; MASKED.len()],
    ) -> anyhow::Result<()> {
        let seq = self.kv.open(window.len().next_multiple_of(p.block))?;
        for start in (0..window.len()).step_by(p.block) {
            let clean = &window[start..(start + p.block).min(window.len())];
            for (share, loss) in MASKED.iter().zip(losses.iter_mut()) {
                let known = usize::from(p.shift);
                let masked = slots(known..clean.len(), *share, start as u64);
                self.noisy(seq, start, clean, &masked, p, loss)?;
            }
            let attention_mask = if p.clean_causal {
                AttentionMask::Causal
            } else {
                AttentionMask::BlockCausal(p.block)
            };
            self.pass(seq, start, clean, attention_mask, LogitRows::None)?;
        }
        self.kv.close(seq);
        Ok(())
    }

    fn noisy(
        &mut self,
        seq: KvSeq,
        start: usize,
        clean: &[u32],
        masked: &[usize],
        p: &DiffusionParams,
        loss: &mut Loss,
    ) -> anyhow::Result<()> {
        if masked.is_empty() {
            return Ok(());
        }
        let mut tokens = clean.to_vec();
        masked.iter().for_each(|&slot| tokens[slot] = p.mask);
        // The rest of the last block of a text is not known either.
        tokens.resize(p.block, p.mask);
        let rows: Vec<usize> = masked.iter().map(|slot| slot - usize::from(p.shift)).collect();
        let attention_mask = match p.inside {
            Inside::Bidirectional => AttentionMask::Prefix(start + p.block),
            Inside::Causal => AttentionMask::Causal,
        };
        let logits = self.pass(seq, start, &tokens, attention_mask, LogitRows::Only(&rows))?;
        for (row, &slot) in masked.iter().enumerate() {
            loss.add(logits.row(row), clean[slot]);
        }
        Ok(())
    }

    fn pass(
        &mut self,
        seq: KvSeq,
        start: usize,
        tokens: &[u32],
        attention_mask: AttentionMask,
        logits: LogitRows<'_>,
    ) -> anyhow::Result<Logits<'_>> {
        let span = Span { seq, start, tokens, attention_mask, logits };
        let pass = self.model.forward(self.runtime, &mut self.kv, &[span], &mut self.workspace);
        Ok(finite(pass)?)
    }
}

/// A share of the slots, one at least, chosen by the seed alone; in order.
fn slots(range: Range<usize>, share: f64, seed: u64) -> Vec<usize> {
    let count = (share * range.len() as f64).round().max(1.0) as usize;
    let mut all: Vec<usize> = range.collect();
    // SplitMix64 of seed and slot: any fixed shuffle would do.
    all.sort_by_cached_key(|&slot| {
        let mut z = (seed << 16 | slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    all.truncate(count);
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_share_and_the_same_every_time() {
        assert_eq!(slots(1..32, 1.0, 7), (1..32).collect::<Vec<_>>());
        assert_eq!(slots(1..32, 0.5, 7).len(), 16);
        assert_eq!(slots(1..32, 0.5, 7), slots(1..32, 0.5, 7));
        assert_ne!(slots(1..32, 0.5, 7), slots(1..32, 0.5, 8));
        assert_eq!(slots(1..2, 0.25, 0), [1]);
        assert!(slots(1..1, 0.25, 0).is_empty());
        let (few, many) = (slots(0..32, 0.25, 3), slots(0..32, 0.75, 3));
        assert!(few.iter().all(|slot| many.contains(slot)));
    }
}
