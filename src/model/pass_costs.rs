//! Measures the costs of passes and that of a draft, which limit the length of drafts.

use super::{AttentionMask, DraftJob, LogitRows, Model, Runtime, Span, Workspace};
use crate::cache::{CacheFull, KvConfig, KvPool, KvSeq, NoMemory, PAGE};
use crate::decode::PassCosts;
use std::hint::black_box;

/// Number of passes of each kind, of which the fastest counts.
const PASSES: usize = 3;
/// Maximum number of tokens of the longer of two measured drafts.
const LONG: usize = 16;

/// The KV cache for the measured passes could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum PassCostsError {
    /// There is no memory for a pool.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The pool has too few pages.
    #[error(transparent)]
    CacheFull(#[from] CacheFull),
}

impl Model {
    /// Measures the times of passes of different numbers of rows, with a cache of this configuration. `now`
    /// returns the time in seconds, from any origin. Measures also what drafts cost of the net that drafts, if
    /// there is one: [`draft_net`](Self::draft_net) returns it from then on.
    ///
    /// # Errors
    /// When there is no memory for the cache.
    pub fn pass_costs(
        &self,
        runtime: &Runtime,
        kv: KvConfig,
        now: impl Fn() -> f64,
    ) -> Result<PassCosts, PassCostsError> {
        let kv = KvConfig { drafter: self.draft_layers(), ..kv };
        let positions = PassCosts::ROWS.into_iter().fold(LONG + 2, usize::max);
        let mut kv = KvPool::new(self.spec(), positions.div_ceil(PAGE), kv)?;
        let mut workspace = Workspace::default();
        let mut times = [f64::INFINITY; PassCosts::ROWS.len()];
        for (rows, best) in PassCosts::ROWS.into_iter().zip(&mut times) {
            for _ in 0..PASSES {
                // A text of its own, because recurrent states take rows for good.
                let seq = kv.open(positions)?;
                let begin = now();
                self.measured_pass(runtime, (&mut kv, seq), rows, &mut workspace);
                *best = best.min(now() - begin);
                kv.close(seq);
            }
        }
        let one = times[0];
        if let Some(net) = self.draft_net().filter(|_| one > 0.0) {
            let seq = kv.open(positions)?;
            self.measured_pass(runtime, (&mut kv, seq), 2, &mut workspace);
            let long = net.longest.min(LONG);
            let mut draft = |wanted| self.draft_time(runtime, (&mut kv, seq), wanted, &now) / one;
            let (short, all) = (draft(1), draft(long));
            let token = (all - short).max(0.0) / (long - 1).max(1) as f64;
            // What was measured first stays.
            let _ = self.draft_costs.set(((short - token).max(0.0) as f32, token as f32));
        }
        Ok(PassCosts::measured(times))
    }

    /// Runs a pass over the first `rows` rows of a text.
    fn measured_pass(
        &self,
        runtime: &Runtime,
        (kv, seq): (&mut KvPool, KvSeq),
        rows: usize,
        workspace: &mut Workspace,
    ) {
        // Different tokens, because equal rows would refine the same panels of a screened head.
        let vocab = self.spec().vocab_size;
        let tokens: Vec<u32> = (0..rows).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
        let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
        let span = Span { seq, start: 0, tokens: &tokens, attention_mask, logits };
        black_box(self.forward(runtime, kv, &[span], workspace).row(0));
    }

    /// Returns the seconds of the fastest of some drafts of `wanted` tokens, each of which reads a position.
    fn draft_time(
        &self,
        runtime: &Runtime,
        (kv, seq): (&mut KvPool, KvSeq),
        wanted: usize,
        now: &impl Fn() -> f64,
    ) -> f64 {
        let (states, tokens) =
            (vec![0.0; self.state_width()], [1, 2].map(|t| t % self.spec.vocab_size as u32));
        let mut workspace = Workspace::default();
        let mut time = || {
            let positions = match self.unread_tokens() {
                0 => 1..2,
                _ => 0..1,
            };
            let job = DraftJob {
                seq,
                tokens: &tokens,
                positions,
                states: &states,
                wanted,
                threshold: 0.0,
                sampler: None,
            };
            let begin = now();
            black_box(self.draft(runtime, kv, &mut [job], &mut workspace));
            now() - begin
        };
        (0..PASSES).map(|_| time()).fold(f64::INFINITY, f64::min)
    }
}
