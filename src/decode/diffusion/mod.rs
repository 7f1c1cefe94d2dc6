//! Block diffusion as in Fast-dLLM v2 (arXiv 2509.26328): blocks are decoded one after the other, the
//! tokens of a block in any order.
//!
//! A block starts with the tail of the prompt, or with the token that the last block predicts; the rest
//! is MASK tokens. Denoising passes go over one sub-block after the other. Each pass unmasks the slots
//! that it is certain of; its keys and values are not kept. When all slots are final, a commit pass over
//! the finished block computes the keys and values that later blocks attend to. It runs alone or together
//! with the next block's first pass ([`Commit`]).
//!
//! Blocks may also begin where the prompt ends ([`DiffusionParams::from_prompt`], Nemotron-Labs-Diffusion,
//! arXiv 2607.05722): all tokens before a block are causal, and the row before it predicts its first token.
//!
//! With a [suffix](DiffusionParams::suffix) the output fills the hole before it, within one block. The
//! slots after the suffix are MASK tokens, as in any block that is not finished.
//!
//! Differences from the reference: the whole prompt is kept, output ends exactly at `max_tokens`, every
//! token follows the sampling parameters, and MASK is output only if the logits allow nothing else. With
//! a grammar the slots of a block are filled from left to right: a pass unmasks the first masked slot,
//! and the slots after it up to the first one that is uncertain.

mod block_state;
mod params;

pub use params::{Commit, DiffusionError, DiffusionParams, Inside, Unmask};

use super::{
    Decoder, FinishReason, HeldLogits, History, Prediction, RowRequest, Sampler, SamplingParams,
    Slot, StepOutcome,
};
use crate::batch_types::{AttentionMask, LogitRows, Logits};
use block_state::BlockState;
use std::time::Duration;

/// Block diffusion: decodes block by block, the tokens of a block in any order.
pub struct BlockDiffusion {
    params: DiffusionParams,
    /// The prompt and the finished blocks.
    text: Vec<u32>,
    /// Length of the prompt.
    prompt: usize,
    /// End of the text that is read before the block's first pass: whole blocks.
    prefill_end: usize,
    /// Number of positions whose keys and values are final.
    committed: usize,
    /// Number of rows of the next prefill pass, fixed by `next_rows`.
    planned: usize,
    max_tokens: usize,
    /// Number of tokens that have been output.
    emitted: usize,
    /// Number of these tokens that the restarted block will decode again.
    repeated: usize,
    eos: Vec<u32>,
    sampler: Sampler,
    block: BlockState,
    /// State at the start of the block, for a restart.
    snapshot: Snapshot,
    /// The block that the last pass finished, if the next one has been started.
    finished_view: Vec<Slot>,
    stage: Stage,
    /// The finished block in front of the current one, whose keys and values the next pass writes; empty
    /// unless commits are fused.
    uncommitted: Vec<u32>,
    /// Tokens of the next denoising pass: the uncommitted block, and the span of the current one.
    input: Vec<u32>,
    /// Rows of `input` whose logits are needed: the last one of the uncommitted block if that predicts
    /// the first slot, and those that predict slots.
    rows: Vec<usize>,
    /// Slots of the last pass that the grammar has not decided about.
    held: Option<HeldSlots>,
}

/// Slots that are filled from left to right, each after the grammar has decided about the one before.
#[derive(Default)]
struct HeldSlots {
    /// The accepted slots, last one first, and the rows of their logits.
    left: Vec<(usize, usize)>,
    logits: HeldLogits,
}

/// State of the decoder at the start of a block.
#[derive(Default)]
struct Snapshot {
    /// History of the sampler.
    history: History,
    /// Number of tokens that had been output.
    emitted: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Whole blocks of the text are read.
    Prefill,
    /// The block has masked slots.
    Denoise,
    /// The block is finished and its final keys and values are computed.
    Commit,
    /// The text has ended.
    Finished,
}

impl BlockDiffusion {
    /// Makes a decoder that continues `prompt`, which may be empty, by at most `max_tokens`, or up to a
    /// token in `eos`. The parameters must have passed [`DiffusionParams::check`] and
    /// [`DiffusionParams::check_hole`].
    ///
    /// # Panics
    /// If `max_tokens` is 0.
    pub fn new(
        params: DiffusionParams,
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        mut sampling: SamplingParams,
    ) -> Self {
        assert!(max_tokens > 0);
        sampling.logit_bias.push((params.mask, f32::NEG_INFINITY));
        let sampler = Sampler::new(sampling, &prompt).ending_with(&eos);
        let mut this = Self {
            block: BlockState::new(&params),
            prefill_end: if params.from_prompt {
                prompt.len()
            } else {
                prompt.len() / params.block * params.block
            },
            params,
            prompt: prompt.len(),
            text: prompt,
            committed: 0,
            planned: 0,
            max_tokens,
            emitted: 0,
            repeated: 0,
            eos,
            sampler,
            snapshot: Snapshot::default(),
            finished_view: Vec::new(),
            stage: Stage::Prefill,
            uncommitted: Vec::new(),
            input: Vec::new(),
            rows: Vec::new(),
            held: None,
        };
        this.resume(0);
        this
    }

    /// Starts the next block: with the tail of the prompt, or after an uncommitted block.
    fn open(&mut self) {
        let rest = &self.text[self.prefill_end..];
        let hole = (self.max_tokens, &self.params.suffix[..]);
        let (history, emitted) = (self.sampler.history(), self.emitted - self.repeated);
        let slots = self.slots_of_block(emitted);
        if rest.len() < self.params.block {
            self.block.open(slots, rest, hole);
        } else {
            self.uncommitted.extend_from_slice(rest);
            self.block.open(slots, &[], hole);
        }
        self.snapshot = Snapshot { history, emitted };
        self.stage = Stage::Denoise;
    }

    /// Returns the number of slots of a block that begins after so many tokens of the output.
    fn slots_of_block(&self, emitted: usize) -> usize {
        let DiffusionParams { block, from_prompt, ref suffix, .. } = self.params;
        if from_prompt { block.min(self.max_tokens - emitted + suffix.len()) } else { block }
    }

    /// Returns the number of rows of the next prefill pass.
    fn prefill(&self, budget: usize) -> usize {
        let budget = if self.params.clean_causal {
            budget
        } else {
            // The rows of a block attend to each other, so a block is not split.
            budget / self.params.block * self.params.block
        };
        (self.prefill_end - self.committed).min(budget)
    }

    /// Returns the attention mask of final tokens.
    fn clean_attention(&self) -> AttentionMask {
        if self.params.clean_causal {
            AttentionMask::Causal
        } else {
            AttentionMask::BlockCausal(self.params.block)
        }
    }

    /// Returns the attention mask of a denoising pass.
    fn noisy_attention(&self) -> AttentionMask {
        let (block, base) = (self.params.block, self.base());
        let clean = if self.params.clean_causal { 1 } else { block };
        let end = base + self.block.tokens().len();
        match (self.params.inside, self.uncommitted.is_empty()) {
            (Inside::Bidirectional, true) => AttentionMask::Prefix(end),
            (Inside::Bidirectional, false) => {
                AttentionMask::MixedBlocks { at: base, blocks: [clean, block] }
            }
            (Inside::Causal, true) => AttentionMask::Causal,
            (Inside::Causal, false) => AttentionMask::MixedBlocks { at: base, blocks: [clean, 1] },
        }
    }

    /// True if the last row before the block's first pass, in prefill or commit, predicts its first slot.
    fn first_slot_follows_prefill(&self) -> bool {
        let last = self.prefill_end > 0 && self.prefill_end == self.text.len();
        self.predicts_first() && last
    }

    /// True if the row before a block predicts the block's first slot. Before a hole the row would not see
    /// what comes after it, so it does so only with a shift.
    fn predicts_first(&self) -> bool {
        self.params.shift || (self.params.from_prompt && self.params.suffix.is_empty())
    }

    /// Position of the block's first slot.
    fn base(&self) -> usize {
        self.committed + self.uncommitted.len()
    }

    /// True if the uncommitted block in the same pass predicts the block's first slot.
    fn first_slot_is_predicted(&self) -> bool {
        !self.uncommitted.is_empty() && self.predicts_first()
    }

    /// Returns the index of a slot's token in the output.
    fn output_index(&self, slot: usize) -> u64 {
        (self.base() + slot - self.prompt) as u64
    }

    /// Position of the first row of a denoising pass.
    fn denoise_start(&self) -> usize {
        if self.uncommitted.is_empty() {
            self.committed + self.block.span().start
        } else {
            self.committed
        }
    }

    /// Prepares the next denoising pass.
    fn plan(&mut self) {
        let (front, predicted) = (self.uncommitted.len(), self.first_slot_is_predicted());
        self.block.plan(predicted);
        self.input.clone_from(&self.uncommitted);
        self.input.extend_from_slice(&self.block.tokens()[self.block.span()]);
        self.rows.clear();
        self.rows.extend(predicted.then(|| front - 1));
        self.rows.extend(self.block.rows().iter().map(|row| front + row));
    }

    /// Commits final tokens up to `end`. After the last of them it starts the next block, with its first
    /// token if `logits` predict it.
    fn advance(&mut self, end: usize, logits: Logits<'_>, outcome: &mut StepOutcome) {
        self.committed = end;
        if end < self.prefill_end {
            return;
        }
        self.open();
        if self.first_slot_follows_prefill() {
            self.unmask(0, logits.row(0));
        }
        self.fill_held(HeldSlots::default(), outcome);
    }

    /// Predicts the token of a slot.
    fn predict(&mut self, slot: usize, logits: &[f32]) -> Prediction {
        let by = self.params.unmask.certainty();
        self.sampler.predict(logits, self.output_index(slot), by)
    }

    /// Samples the token of the first masked slot.
    fn unmask(&mut self, slot: usize, logits: &[f32]) {
        let token = self.sampler.next(logits, self.output_index(slot));
        self.fill(slot, token, None, logits);
    }

    /// Samples the held slots while the grammar goes on, then outputs what has become final. Keeps the
    /// rest where the grammar is due.
    fn fill_held(&mut self, mut held: HeldSlots, outcome: &mut StepOutcome) {
        while !self.sampler.mask_due() {
            let next = if self.sampler.end().is_none() { held.left.pop() } else { None };
            let Some((slot, row)) = next else { return self.emit(outcome) };
            self.unmask(slot, held.logits.view().row(row));
        }
        self.held = Some(held);
    }

    /// Makes the token of a slot final.
    fn fill(&mut self, slot: usize, token: u32, certainty: Option<f32>, logits: &[f32]) {
        self.sampler.accept(token);
        self.block.fill(slot, self.sampler.describe(logits, token), certainty);
    }

    /// Unmasks the slots that the logits are certain of; at least the most certain one.
    fn denoise(&mut self, logits: Logits<'_>, outcome: &mut StepOutcome) {
        let (first, logits) = logits.split(usize::from(self.first_slot_is_predicted()));
        let slots = self.block.slots().to_vec();
        let predictions: Vec<_> = (slots.iter().enumerate())
            .map(|(row, &slot)| self.predict(slot, logits.row(row)))
            .collect();
        let accepted = self.most_certain(&predictions);
        self.block.computed();
        if !first.is_empty() {
            self.unmask(0, first.row(0));
        }
        for (row, (&slot, guess)) in slots.iter().zip(&predictions).enumerate() {
            if accepted[row] && !self.sampler.in_order() {
                self.fill(slot, guess.token, Some(guess.certainty), logits.row(row))
            } else {
                self.block.guess(slot, *guess)
            }
        }
        self.committed = self.base();
        self.uncommitted.clear();
        let mut held = HeldSlots::default();
        if self.sampler.in_order() {
            // The first slot, and the following ones up to the first uncertain one.
            let certain = accepted.iter().skip(1).take_while(|&&accepted| accepted).count();
            held.left = slots.iter().copied().zip(0..).take(1 + certain).collect();
            held.left.reverse();
            held.logits = HeldLogits::new(logits);
        }
        self.fill_held(held, outcome);
    }

    /// Marks the predictions that are accepted; of equally certain ones the first.
    fn most_certain(&self, predictions: &[Prediction]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..predictions.len()).collect();
        order.sort_by(|&a, &b| predictions[b].certainty.total_cmp(&predictions[a].certainty));
        let certainties: Vec<f32> = order.iter().map(|&i| predictions[i].certainty).collect();
        let mut accepted = vec![false; predictions.len()];
        if !predictions.is_empty() {
            let count = self.params.unmask.count(&certainties, self.block.passes());
            order[..count].iter().for_each(|&i| accepted[i] = true);
        }
        accepted
    }

    /// Outputs the tokens that have become final, and plans the next pass.
    fn emit(&mut self, outcome: &mut StepOutcome) {
        while let Some(sampled) = self.block.show() {
            if self.repeated > 0 {
                self.repeated -= 1;
                continue;
            }
            self.emitted += 1;
            if self.eos.contains(&sampled.token) {
                outcome.finished = Some(FinishReason::Stop);
            } else if self.emitted == self.max_tokens {
                // A hole that is full is finished, not cut off.
                let full = !self.params.suffix.is_empty();
                let reason = if full { FinishReason::Stop } else { FinishReason::Length };
                outcome.finished = Some(reason);
            }
            outcome.tokens.push(sampled);
            if outcome.finished.is_some() {
                self.stage = Stage::Finished;
                return;
            }
        }
        outcome.finished = self.sampler.end();
        if outcome.finished.is_some() {
            self.stage = Stage::Finished;
            return;
        }
        if self.block.complete() {
            self.finish_block();
        }
        if self.stage == Stage::Denoise {
            self.plan();
        }
    }

    /// Appends the finished block to the text.
    fn finish_block(&mut self) {
        self.text.truncate(self.base());
        self.text.extend_from_slice(self.block.tokens());
        match self.params.commit {
            Commit::Clean => {
                self.prefill_end = self.text.len();
                self.stage = Stage::Commit;
            }
            Commit::Fused => {
                self.finished_view = self.block.view();
                self.prefill_end = self.base();
                self.open();
            }
        }
    }
}

impl Decoder for BlockDiffusion {
    fn next_rows(&mut self, budget: usize) -> Option<RowRequest<'_>> {
        let rows = match self.stage {
            Stage::Prefill => self.prefill(budget),
            Stage::Denoise => self.input.len(),
            Stage::Commit => self.block.tokens().len(),
            Stage::Finished => 0,
        };
        if rows == 0 || rows > budget {
            return None;
        }
        self.planned = rows;
        let (committed, end) = (self.committed, self.committed + rows);
        let last = |needed: bool| if needed { LogitRows::Last } else { LogitRows::None };
        let (start, tokens, attention_mask, logits) = match self.stage {
            Stage::Denoise => {
                let (tokens, logits) = (&self.input[..], LogitRows::Only(&self.rows));
                (self.denoise_start(), tokens, self.noisy_attention(), logits)
            }
            Stage::Commit => {
                let tokens = self.block.tokens();
                (committed, tokens, self.clean_attention(), last(self.predicts_first()))
            }
            Stage::Prefill | Stage::Finished => {
                let needed = end == self.prefill_end && self.first_slot_follows_prefill();
                let tokens = &self.text[committed..end];
                (committed, tokens, self.clean_attention(), last(needed))
            }
        };
        Some(RowRequest { start, tokens, attention_mask, logits })
    }

    fn accept(&mut self, logits: Logits<'_>) -> StepOutcome {
        let mut outcome = StepOutcome::default();
        self.finished_view.clear();
        match self.stage {
            _ if logits.any_is_failed() => {
                outcome.finished = Some(FinishReason::NotFinite);
                self.stage = Stage::Finished;
            }
            Stage::Prefill | Stage::Commit => {
                self.advance(self.committed + self.planned, logits, &mut outcome);
            }
            Stage::Denoise => self.denoise(logits, &mut outcome),
            Stage::Finished => {}
        }
        outcome.committed = self.committed;
        outcome
    }

    fn guide_due(&self) -> bool {
        self.stage != Stage::Finished && self.sampler.mask_due()
    }

    fn guide(&mut self, budget: &mut Duration) -> Option<StepOutcome> {
        let mut outcome = StepOutcome::default();
        if !self.sampler.compute_mask(budget) {
            return None;
        }
        if let Some(held) = self.held.take() {
            self.fill_held(held, &mut outcome);
        }
        outcome.committed = self.committed;
        Some(outcome)
    }

    fn next_end(&self) -> usize {
        match self.stage {
            // The next pass is not known yet.
            _ if self.held.is_some() => self.committed,
            Stage::Prefill | Stage::Finished => self.prefill_end,
            Stage::Denoise => self.denoise_start() + self.input.len(),
            Stage::Commit => self.committed + self.block.tokens().len(),
        }
    }

    fn prefilling(&self) -> bool {
        self.stage == Stage::Prefill
    }

    fn tokens(&self) -> &[u32] {
        &self.text
    }

    fn skippable(&self) -> usize {
        self.prefill_end - usize::from(self.first_slot_follows_prefill())
    }

    /// Starts the current block, if there is one, again from its snapshot: later passes depend on the keys
    /// and values that earlier ones left behind. The block takes the same course, and tokens that were
    /// output are not output again.
    fn resume(&mut self, cached: usize) {
        if self.stage == Stage::Denoise {
            self.sampler.rewind(&self.snapshot.history);
            self.repeated = self.emitted - self.snapshot.emitted;
        }
        self.held = None;
        self.uncommitted.clear();
        self.finished_view.clear();
        self.committed = cached;
        self.stage = Stage::Prefill;
        if cached == self.prefill_end {
            self.open();
            self.plan();
        }
    }

    fn slots(&self) -> Vec<Slot> {
        match self.stage {
            Stage::Prefill => Vec::new(),
            // The restarted block would show slots as masked whose tokens have been output.
            _ if self.repeated > 0 => Vec::new(),
            _ if self.finished_view.is_empty() => self.block.view(),
            _ => self.finished_view.clone(),
        }
    }
}
