//! The block that is being denoised: its slots, and the rows of the next pass.

use super::super::sample::Prediction;
use super::super::{Sampled, Slot};
use super::{DiffusionParams, Inside, Unmask};
use std::ops::Range;

/// The slots of the current block.
pub struct BlockState {
    mask: u32,
    sub_block: usize,
    shift: bool,
    inside: Inside,
    sub_cache: bool,
    /// True if the whole block is one sub-block.
    at_once: bool,
    /// Tokens of all slots; MASK where none is final.
    tokens: Vec<u32>,
    masked: Vec<bool>,
    /// Tokens that the last pass would have chosen for masked slots.
    guesses: Vec<Option<u32>>,
    /// Certainty of the last choice for each slot.
    certainties: Vec<Option<f32>>,
    /// Final tokens that have not been output yet.
    filled: Vec<Option<Sampled>>,
    /// Number of first slots that are final and have been output.
    shown: usize,
    /// Tokens of the first slots as they were when their keys and values were computed; later slots
    /// were computed after other tokens.
    cached: Vec<u32>,
    /// The current sub-block, and the number of passes over it so far.
    scope: Range<usize>,
    passes: usize,
    /// Masked slots of the sub-block.
    slots: Vec<usize>,
    /// Slots that the next pass computes, and those of its rows that predict `slots`.
    span: Range<usize>,
    rows: Vec<usize>,
}

impl BlockState {
    /// Makes the state for blocks with these parameters.
    pub fn new(p: &DiffusionParams) -> Self {
        Self {
            mask: p.mask,
            sub_block: p.sub_block,
            shift: p.shift,
            inside: p.inside,
            sub_cache: p.sub_cache,
            at_once: p.unmask == Unmask::All,
            tokens: Vec::with_capacity(p.block),
            masked: Vec::with_capacity(p.block),
            guesses: Vec::with_capacity(p.block),
            certainties: Vec::with_capacity(p.block),
            filled: Vec::with_capacity(p.block),
            shown: 0,
            cached: Vec::new(),
            scope: 0..0,
            passes: 0,
            slots: Vec::new(),
            span: 0..0,
            rows: Vec::new(),
        }
    }

    /// Starts a block of `slots` slots whose first tokens are `known`. With a `suffix`, only the `hole`
    /// slots before it are decoded; the slots after it stay MASK.
    pub fn open(&mut self, slots: usize, known: &[u32], (hole, suffix): (usize, &[u32])) {
        self.tokens.clear();
        self.tokens.resize(slots, self.mask);
        self.tokens[..known.len()].copy_from_slice(known);
        self.masked.clear();
        self.masked.resize(slots, true);
        self.masked[..known.len()].fill(false);
        if !suffix.is_empty() {
            let end = known.len() + hole;
            self.tokens[end..end + suffix.len()].copy_from_slice(suffix);
            self.masked[end..].fill(false);
        }
        self.guesses.clear();
        self.guesses.resize(slots, None);
        self.certainties.clear();
        self.certainties.resize(slots, None);
        self.filled.clear();
        self.filled.resize(slots, None);
        self.shown = known.len();
        self.cached.clear();
        self.scope = 0..0;
    }

    /// Tokens of all slots; MASK where none is final.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// True if no slot is masked.
    pub fn complete(&self) -> bool {
        !self.masked.contains(&true)
    }

    /// Slots that the next pass predicts, in order.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Slots that the next pass computes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Rows of the span whose logits predict [`slots`](Self::slots).
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Number of passes over the sub-block so far.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// Makes the token of a slot final.
    pub fn fill(&mut self, slot: usize, sampled: Sampled, certainty: Option<f32>) {
        self.certainties[slot] = certainty;
        self.tokens[slot] = sampled.token;
        self.masked[slot] = false;
        self.filled[slot] = Some(sampled);
    }

    /// Records a prediction that was not certain enough to be final.
    pub fn guess(&mut self, slot: usize, prediction: Prediction) {
        self.guesses[slot] = Some(prediction.token);
        self.certainties[slot] = Some(prediction.certainty);
    }

    /// All slots, for display.
    pub fn view(&self) -> Vec<Slot> {
        let slot = |i: usize| match (self.masked[i], self.guesses[i]) {
            (false, _) => Slot::Final(self.tokens[i], self.certainties[i]),
            (true, Some(guess)) => Slot::Provisional(guess, self.certainties[i]),
            (true, None) => Slot::Masked,
        };
        (0..self.tokens.len()).map(slot).collect()
    }

    /// Takes the next final token that has no masked slot before it.
    pub fn show(&mut self) -> Option<Sampled> {
        let sampled = self.filled.get_mut(self.shown)?.take()?;
        self.shown += 1;
        Some(sampled)
    }

    /// Records that the span has been computed; called before slots are filled.
    pub fn computed(&mut self) {
        self.passes += 1;
        self.cached.truncate(self.span.start);
        self.cached.extend_from_slice(&self.tokens[self.span.clone()]);
    }

    /// Plans the rows of the next pass. With `first_slot_is_predicted` a row in front of the block
    /// predicts the first slot. If nothing else is to be predicted, the span is empty.
    pub fn plan(&mut self, first_slot_is_predicted: bool) {
        let Some(first) = self.masked.iter().position(|&masked| masked) else { return };
        let start = first / self.sub_block * self.sub_block;
        let end = (start + self.sub_block).min(self.tokens.len());
        let scope = if self.at_once { 0..self.tokens.len() } else { start..end };
        if scope != self.scope {
            (self.scope, self.passes) = (scope, 0);
        }
        self.slots.clear();
        let open = |&slot: &usize| self.masked[slot] && !(first_slot_is_predicted && slot == 0);
        self.slots.extend(self.scope.clone().filter(open));
        self.rows.clear();
        let (Some(&first), Some(&last)) = (self.slots.first(), self.slots.last()) else {
            self.span = 0..0;
            return;
        };
        // The first token of a text has no row before it; its own row predicts it.
        let row = |slot: usize| slot.saturating_sub(usize::from(self.shift));
        let needed = row(first)..row(last) + 1;
        self.span = match self.inside {
            Inside::Causal => self.reusable().min(needed.start)..needed.end,
            Inside::Bidirectional => {
                let whole = !self.sub_cache || self.passes == 0 || self.masked[self.scope.start];
                if whole { 0..self.tokens.len() } else { self.scope.clone() }
            }
        };
        let from = self.span.start;
        self.rows.extend(self.slots.iter().map(|&slot| row(slot) - from));
    }

    /// Number of first slots whose cached keys and values belong to their current tokens.
    fn reusable(&self) -> usize {
        self.cached.iter().zip(&self.tokens).take_while(|(a, b)| a == b).count()
    }
}
