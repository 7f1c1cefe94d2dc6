//! Block diffusion as in Fast-dLLM v2 (arXiv 2509.26328): blocks one after the other, the tokens of
//! a block in any order.
//!
//! A block begins as the tail of the prompt, or as the one token that the last block predicts, and
//! MASKs. Denoising passes look at the whole block, sub-block after sub-block, and each unmasks the
//! slots it is sure of; nothing that they write to the cache is kept. When all slots are known the
//! clean block goes through the model once more, alone or with the next block's first pass
//! ([`Commit`]), and what that writes is what later blocks see.
//!
//! Where the reference rounds, this does not: a prompt of whole blocks is kept, output ends exactly
//! at `max_tokens`, every token follows the sampling parameters, and MASK is not output unless the
//! logits leave nothing else. Under a grammar a block's slots are filled from left to right: a pass
//! unmasks the first, and those after it that it is sure of.

mod canvas;
mod params;

pub use params::{Commit, DiffusionError, DiffusionParams, Inside, Unmask};

use super::{Ask, Choice, Decoder, FinishReason, History, Progress, Sampler, SamplingParams, Slot};
use crate::batch_types::{AttentionMask, LogitRows, Logits};
use canvas::Canvas;

/// Decodes block by block.
pub struct BlockDiffusion {
    params: DiffusionParams,
    /// The prompt and the blocks that are complete.
    text: Vec<u32>,
    prompt: usize,
    /// Clean positions that are in the cache before the canvas's first pass: whole blocks.
    read: usize,
    /// Positions whose keys and values are in the cache.
    committed: usize,
    max_tokens: usize,
    /// Tokens that have been output.
    emitted: usize,
    /// Of these, tokens of the canvas that are computed once more.
    repeated: usize,
    eos: Vec<u32>,
    sampler: Sampler,
    canvas: Canvas,
    /// What was known when the canvas began: the sampler's history, and how much had been output.
    opened: (History, usize),
    /// The block that the last pass completed, if the canvas is another one already.
    completed: Vec<Slot>,
    stage: Stage,
    /// The finished block in front of the canvas whose keys and values the next pass writes; empty
    /// unless commits are fused.
    clean: Vec<u32>,
    /// The next denoising pass: the clean block, and what the canvas wants computed.
    input: Vec<u32>,
    /// Its rows whose logits are wanted: the clean block's last where that predicts the canvas's
    /// first slot, and the canvas's.
    rows: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Whole blocks of the prompt are read.
    Prefill,
    /// The block has masked slots.
    Denoise,
    /// The block is clean and goes through the model once more.
    Commit,
    Finished,
}

impl BlockDiffusion {
    /// Continues `prompt`, which may be empty, by at most `max_tokens`, or to a token in `eos`.
    ///
    /// # Panics
    /// When nothing is to be generated. The parameters are those of a passed
    /// [`DiffusionParams::check`].
    pub fn new(
        params: DiffusionParams,
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        mut sampling: SamplingParams,
    ) -> Self {
        assert!(max_tokens > 0);
        sampling.logit_bias.push((params.mask, f32::NEG_INFINITY));
        let sampler = Sampler::new(sampling, &prompt);
        let mut this = Self {
            canvas: Canvas::new(&params),
            read: prompt.len() / params.block * params.block,
            params,
            prompt: prompt.len(),
            text: prompt,
            committed: 0,
            max_tokens,
            emitted: 0,
            repeated: 0,
            eos,
            sampler,
            opened: (History::default(), 0),
            completed: Vec::new(),
            stage: Stage::Prefill,
            clean: Vec::new(),
            input: Vec::new(),
            rows: Vec::new(),
        };
        this.resume(0);
        this
    }

    /// Starts the next block behind what has been read: with what is left of the prompt, or with a
    /// clean block in front.
    fn open(&mut self) {
        let rest = &self.text[self.read..];
        if rest.len() < self.params.block {
            self.canvas.open(rest);
        } else {
            self.clean.extend_from_slice(rest);
            self.canvas.open(&[]);
        }
        self.opened = (self.sampler.history(), self.emitted - self.repeated);
        self.stage = Stage::Denoise;
    }

    /// Rows of clean text that come next.
    fn prefill(&self, budget: usize) -> usize {
        let budget = match self.params.clean_causal {
            true => budget,
            // A block is never torn apart: its rows see each other.
            false => budget / self.params.block * self.params.block,
        };
        (self.read - self.committed).min(budget)
    }

    /// What rows of clean tokens see.
    fn clean_sight(&self) -> AttentionMask {
        match self.params.clean_causal {
            true => AttentionMask::Causal,
            false => AttentionMask::BlockCausal(self.params.block),
        }
    }

    /// What the rows of a denoising pass see.
    fn noisy_sight(&self) -> AttentionMask {
        let (block, base) = (self.params.block, self.base());
        let clean = if self.params.clean_causal { 1 } else { block };
        match (self.params.inside, self.clean.is_empty()) {
            (Inside::Bidirectional, true) => AttentionMask::Prefix(base + block),
            (Inside::Bidirectional, false) => {
                AttentionMask::MixedBlocks { at: base, blocks: [clean, block] }
            }
            (Inside::Causal, true) => AttentionMask::Causal,
            (Inside::Causal, false) => AttentionMask::MixedBlocks { at: base, blocks: [clean, 1] },
        }
    }

    /// Whether the canvas's first token is predicted by the last clean position that is read before.
    fn carries(&self) -> bool {
        let last = self.read > 0 && self.read == self.text.len();
        self.params.shift && last
    }

    /// Position of the canvas's first slot.
    fn base(&self) -> usize {
        self.committed + self.clean.len()
    }

    /// Whether the clean block in front predicts the canvas's first slot.
    fn carried(&self) -> bool {
        !self.clean.is_empty() && self.params.shift
    }

    /// The output's number of the token at a slot.
    fn place(&self, slot: usize) -> u64 {
        (self.base() + slot - self.prompt) as u64
    }

    /// Prepares the next denoising pass.
    fn plan(&mut self) {
        let (front, carried) = (self.clean.len(), self.carried());
        self.canvas.plan(carried);
        self.input.clone_from(&self.clean);
        self.input.extend_from_slice(&self.canvas.tokens()[self.canvas.span()]);
        self.rows.clear();
        self.rows.extend(carried.then(|| front - 1));
        self.rows.extend(self.canvas.rows().iter().map(|row| front + row));
    }

    /// After clean rows up to `end`: the next block, with its first token when it is predicted.
    fn advance(&mut self, end: usize, logits: Logits<'_>, progress: &mut Progress) {
        self.committed = end;
        if end < self.read {
            return;
        }
        self.open();
        if self.carries() {
            self.unmask(0, logits.row(0));
        }
        self.emit(progress);
    }

    /// What a slot's logits say.
    fn choose(&mut self, slot: usize, logits: &[f32]) -> Choice {
        let by = self.params.unmask.certainty();
        self.sampler.choose(logits, self.place(slot), by)
    }

    /// Fills the first masked slot from its logits.
    fn unmask(&mut self, slot: usize, logits: &[f32]) {
        let token = self.sampler.next(logits, self.place(slot));
        self.accept(slot, token, None, logits);
    }

    /// Fills the first slot, and what follows as far as it is accepted and the grammar goes on.
    fn unmask_in_order(&mut self, slots: &[usize], accepted: &[bool], logits: Logits<'_>) {
        for (row, &slot) in slots.iter().enumerate() {
            if (row > 0 && !accepted[row]) || self.sampler.end().is_some() {
                return;
            }
            self.unmask(slot, logits.row(row));
        }
    }

    fn accept(&mut self, slot: usize, token: u32, certainty: Option<f32>, logits: &[f32]) {
        self.sampler.accept(token);
        self.canvas.fill(slot, self.sampler.describe(logits, token), certainty);
    }

    /// Unmasks the slots that the logits are sure of, and the one that they are surest of.
    fn denoise(&mut self, logits: Logits<'_>, progress: &mut Progress) {
        let (first, logits) = logits.split(usize::from(self.carried()));
        let slots = self.canvas.slots().to_vec();
        let choices: Vec<_> = (slots.iter().enumerate())
            .map(|(row, &slot)| self.choose(slot, logits.row(row)))
            .collect();
        let accepted = self.surest(&choices);
        self.canvas.computed();
        if !first.is_empty() {
            self.unmask(0, first.row(0));
        }
        for (row, (&slot, choice)) in slots.iter().zip(&choices).enumerate() {
            match accepted[row] && !self.sampler.guided() {
                true => self.accept(slot, choice.token, Some(choice.certainty), logits.row(row)),
                false => self.canvas.guess(slot, *choice),
            }
        }
        if self.sampler.guided() {
            self.unmask_in_order(&slots, &accepted, logits);
        }
        self.committed = self.base();
        self.clean.clear();
        self.emit(progress);
    }

    /// Which of the choices are accepted; of equally sure ones the first.
    fn surest(&self, choices: &[Choice]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..choices.len()).collect();
        order.sort_by(|&a, &b| choices[b].certainty.total_cmp(&choices[a].certainty));
        let certainties: Vec<f32> = order.iter().map(|&i| choices[i].certainty).collect();
        let mut accepted = vec![false; choices.len()];
        if !choices.is_empty() {
            let count = self.params.unmask.count(&certainties, self.canvas.passes());
            order[..count].iter().for_each(|&i| accepted[i] = true);
        }
        accepted
    }

    /// Outputs what has become final, and sees what comes next.
    fn emit(&mut self, progress: &mut Progress) {
        while let Some(sampled) = self.canvas.show() {
            if self.repeated > 0 {
                self.repeated -= 1;
                continue;
            }
            self.emitted += 1;
            if self.eos.contains(&sampled.token) {
                progress.finished = Some(FinishReason::Stop);
            } else if self.emitted == self.max_tokens {
                progress.finished = Some(FinishReason::Length);
            }
            progress.tokens.push(sampled);
            if progress.finished.is_some() {
                self.stage = Stage::Finished;
                return;
            }
        }
        progress.finished = self.sampler.end();
        if progress.finished.is_some() {
            self.stage = Stage::Finished;
            return;
        }
        if self.canvas.complete() {
            self.complete();
        }
        if self.stage == Stage::Denoise {
            self.plan();
        }
    }

    /// The canvas has become text.
    fn complete(&mut self) {
        self.text.truncate(self.base());
        self.text.extend_from_slice(self.canvas.tokens());
        match self.params.commit {
            Commit::Clean => {
                self.read = self.text.len();
                self.stage = Stage::Commit;
            }
            Commit::Fused => {
                self.completed = self.canvas.view();
                self.read = self.base();
                self.open();
            }
        }
    }
}

impl Decoder for BlockDiffusion {
    fn ask(&self, budget: usize) -> Option<Ask<'_>> {
        let (start, block) = (self.committed, self.params.block);
        let last = |wanted: bool| if wanted { LogitRows::Last } else { LogitRows::None };
        let (span, tokens, attention_mask, logits) = match self.stage {
            Stage::Prefill => {
                let (tokens, end) = (&self.text[..], start + self.prefill(budget));
                let logits = last(end == self.read && self.carries());
                (start..end, &tokens[start..end], self.clean_sight(), logits)
            }
            Stage::Denoise => {
                let start =
                    start + if self.clean.is_empty() { self.canvas.span().start } else { 0 };
                let (tokens, rows) = (&self.input[..], LogitRows::Only(&self.rows));
                (start..start + tokens.len(), tokens, self.noisy_sight(), rows)
            }
            Stage::Commit => {
                let tokens = self.canvas.tokens();
                (start..start + block, tokens, self.clean_sight(), last(self.params.shift))
            }
            Stage::Finished => return None,
        };
        let fits = !span.is_empty() && span.len() <= budget;
        fits.then_some(Ask { start: span.start, tokens, attention_mask, logits })
    }

    fn take(&mut self, budget: usize, logits: Logits<'_>) -> Progress {
        let mut progress = Progress::default();
        self.completed.clear();
        match self.stage {
            Stage::Prefill => {
                self.advance(self.committed + self.prefill(budget), logits, &mut progress);
            }
            Stage::Denoise => self.denoise(logits, &mut progress),
            Stage::Commit => {
                self.advance(self.committed + self.params.block, logits, &mut progress);
            }
            Stage::Finished => {}
        }
        progress.committed = self.committed;
        progress
    }

    fn prefilling(&self) -> bool {
        self.stage == Stage::Prefill
    }

    fn tokens(&self) -> &[u32] {
        &self.text
    }

    fn skippable(&self) -> usize {
        self.read - usize::from(self.carries())
    }

    /// The canvas, if there is one, begins again and takes the same course: what later passes over it
    /// see depends on what earlier ones left behind.
    fn resume(&mut self, cached: usize) {
        if self.stage == Stage::Denoise {
            self.sampler.rewind(&self.opened.0);
            self.repeated = self.emitted - self.opened.1;
        }
        self.clean.clear();
        self.completed.clear();
        self.committed = cached;
        self.stage = Stage::Prefill;
        if cached == self.read {
            self.open();
            self.plan();
        }
    }

    fn slots(&self) -> Vec<Slot> {
        match self.stage {
            Stage::Prefill => Vec::new(),
            _ if self.completed.is_empty() => self.canvas.view(),
            _ => self.completed.clone(),
        }
    }
}
