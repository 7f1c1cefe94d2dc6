//! The block that is being denoised: which slots are masked, and what the next pass looks at.

use super::super::sample::Choice;
use super::super::{Sampled, Slot};
use super::{DiffusionParams, Inside, Unmask};
use std::ops::Range;

/// One block's slots.
pub struct Canvas {
    mask: u32,
    sub_block: usize,
    shift: bool,
    inside: Inside,
    sub_cache: bool,
    /// The whole block is looked at as one sub-block.
    at_once: bool,
    tokens: Vec<u32>,
    masked: Vec<bool>,
    /// What the last pass would have put into masked slots.
    guesses: Vec<Option<u32>>,
    /// How sure the pass was that filled a slot or guessed.
    certainties: Vec<Option<f32>>,
    /// What has been filled in and not been output yet.
    filled: Vec<Option<Sampled>>,
    /// Slots before this one are known, and output.
    shown: usize,
    /// The tokens whose keys and values are in the cache, from the first slot on; what follows was
    /// computed behind other tokens.
    cached: Vec<u32>,
    /// The sub-block at work, and the passes over it so far.
    scope: Range<usize>,
    passes: usize,
    /// Masked slots of the sub-block.
    slots: Vec<usize>,
    /// What the next pass computes, and which of these rows predict the slots.
    span: Range<usize>,
    rows: Vec<usize>,
}

impl Canvas {
    /// A canvas for blocks of these parameters.
    pub fn new(p: &DiffusionParams) -> Self {
        Self {
            mask: p.mask,
            sub_block: p.sub_block,
            shift: p.shift,
            inside: p.inside,
            sub_cache: p.sub_cache,
            at_once: p.unmask == Unmask::All,
            tokens: vec![p.mask; p.block],
            masked: vec![true; p.block],
            guesses: vec![None; p.block],
            certainties: vec![None; p.block],
            filled: vec![None; p.block],
            shown: 0,
            cached: Vec::new(),
            scope: 0..0,
            passes: 0,
            slots: Vec::new(),
            span: 0..0,
            rows: Vec::new(),
        }
    }

    /// Starts a block whose first slots are `known`.
    pub fn open(&mut self, known: &[u32]) {
        self.tokens.fill(self.mask);
        self.tokens[..known.len()].copy_from_slice(known);
        self.masked.fill(true);
        self.masked[..known.len()].fill(false);
        self.guesses.fill(None);
        self.certainties.fill(None);
        self.filled.fill(None);
        self.shown = known.len();
        self.cached.clear();
        self.scope = 0..0;
    }

    /// All tokens, MASK where none is known.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// No slot is masked.
    pub fn complete(&self) -> bool {
        !self.masked.contains(&true)
    }

    /// The slots that the next pass predicts, in order.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// The slots that the next pass computes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The rows of the span whose logits predict the slots.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Passes over the sub-block before the next one.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// Fills a slot with what was chosen with some certainty, where that was measured.
    pub fn fill(&mut self, slot: usize, sampled: Sampled, certainty: Option<f32>) {
        self.certainties[slot] = certainty;
        self.tokens[slot] = sampled.token;
        self.masked[slot] = false;
        self.filled[slot] = Some(sampled);
    }

    /// Notes what an unsure pass would have put into a slot.
    pub fn guess(&mut self, slot: usize, choice: Choice) {
        self.guesses[slot] = Some(choice.token);
        self.certainties[slot] = Some(choice.certainty);
    }

    /// The block, for people to watch.
    pub fn view(&self) -> Vec<Slot> {
        let slot = |i: usize| match (self.masked[i], self.guesses[i]) {
            (false, _) => Slot::Final(self.tokens[i], self.certainties[i]),
            (true, Some(guess)) => Slot::Provisional(guess, self.certainties[i]),
            (true, None) => Slot::Masked,
        };
        (0..self.tokens.len()).map(slot).collect()
    }

    /// The next token that has become final: there is no masked slot before it.
    pub fn show(&mut self) -> Option<Sampled> {
        let sampled = self.filled.get_mut(self.shown)?.take()?;
        self.shown += 1;
        Some(sampled)
    }

    /// Notes that the span has been computed, before slots are filled.
    pub fn computed(&mut self) {
        self.passes += 1;
        self.cached.truncate(self.span.start);
        self.cached.extend_from_slice(&self.tokens[self.span.clone()]);
    }

    /// Decides what the next pass computes. A `carried` first slot is predicted by a row in front of
    /// the block; when nothing else is to be predicted, the span is empty.
    pub fn plan(&mut self, carried: bool) {
        let Some(first) = self.masked.iter().position(|&masked| masked) else { return };
        let start = first / self.sub_block * self.sub_block;
        let scope = if self.at_once { 0..self.tokens.len() } else { start..start + self.sub_block };
        if scope != self.scope {
            (self.scope, self.passes) = (scope, 0);
        }
        self.slots.clear();
        let predicted = |&slot: &usize| self.masked[slot] && !(carried && slot == 0);
        self.slots.extend(self.scope.clone().filter(predicted));
        self.rows.clear();
        let (Some(&first), Some(&last)) = (self.slots.first(), self.slots.last()) else {
            self.span = 0..0;
            return;
        };
        // The very first token of a text has no row before it and is predicted by its own.
        let row = |slot: usize| slot.saturating_sub(usize::from(self.shift));
        let needed = row(first)..row(last) + 1;
        self.span = match self.inside {
            Inside::Causal => self.clean().min(needed.start)..needed.end,
            Inside::Bidirectional => {
                let whole = !self.sub_cache || self.passes == 0 || self.masked[self.scope.start];
                if whole { 0..self.tokens.len() } else { self.scope.clone() }
            }
        };
        let from = self.span.start;
        self.rows.extend(self.slots.iter().map(|&slot| row(slot) - from));
    }

    /// Slots whose keys and values in the cache are those of the tokens that stand there now.
    fn clean(&self) -> usize {
        self.cached.iter().zip(&self.tokens).take_while(|(a, b)| a == b).count()
    }
}
