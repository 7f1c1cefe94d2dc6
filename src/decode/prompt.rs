//! Requests that read a prompt and generate nothing: embeddings, and the logits after it.

use super::{Decoder, FinishReason, Output, RowRequest, Slot, StepOutcome};
use crate::batch_types::{AttentionMask, LogitRows, Logits};

/// The pooling of hidden states to one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    #[default]
    Mean,
    /// The hidden state of the last token.
    Last,
}

/// Reads one prompt, and gives its embedding or the logits of the token after it.
pub struct PromptDecoder {
    tokens: Vec<u32>,
    /// `None`: logits.
    pooling: Option<Pooling>,
    /// Number of tokens whose keys and values are in the cache.
    cached: usize,
    /// Number of rows of the next pass, fixed by `next_rows`.
    planned: usize,
    /// Number of tokens whose outputs are in the sum, or not needed for it.
    summed: usize,
    sum: Vec<f32>,
    finished: bool,
}

impl PromptDecoder {
    /// Makes a decoder for the embedding of `tokens`, a vector of length 1.
    ///
    /// # Panics
    /// If `tokens` is empty.
    pub fn embedding(tokens: Vec<u32>, pooling: Pooling) -> Self {
        Self::new(tokens, Some(pooling))
    }

    /// Makes a decoder for the logits, `[vocab_size]`, of the token after `tokens`.
    ///
    /// # Panics
    /// If `tokens` is empty.
    pub fn logits(tokens: Vec<u32>) -> Self {
        Self::new(tokens, None)
    }

    fn new(tokens: Vec<u32>, pooling: Option<Pooling>) -> Self {
        assert!(!tokens.is_empty());
        let summed = match pooling {
            Some(Pooling::Mean) => 0,
            Some(Pooling::Last) | None => tokens.len() - 1,
        };
        let (cached, planned, sum, finished) = (0, 0, Vec::new(), false);
        Self { tokens, pooling, cached, planned, summed, sum, finished }
    }

    /// Adds the states of the tokens from `first` on, except those that are in the sum already.
    fn add(&mut self, first: usize, states: Logits<'_>) {
        for row in 0..states.len() {
            if first + row == self.summed {
                self.sum.resize(states.row(row).len(), 0.0);
                self.sum.iter_mut().zip(states.row(row)).for_each(|(sum, x)| *sum += x);
                self.summed += 1;
            }
        }
    }

    /// Returns the normalized sum, which is the normalized mean.
    fn vector(&mut self) -> Vec<f32> {
        let length = self.sum.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let scale = if length > 0.0 { length.recip() } else { 0.0 };
        self.sum.iter().map(|x| (f64::from(*x) * scale) as f32).collect()
    }
}

impl Decoder for PromptDecoder {
    fn next_rows(&mut self, budget: usize) -> Option<RowRequest<'_>> {
        if self.finished {
            return None;
        }
        self.planned = budget.min(self.tokens.len() - self.cached);
        let end = self.cached + self.planned;
        let logits = match self.pooling {
            Some(Pooling::Mean) => LogitRows::All,
            Some(Pooling::Last) | None if end == self.tokens.len() => LogitRows::Last,
            Some(Pooling::Last) | None => LogitRows::None,
        };
        let tokens = &self.tokens[self.cached..end];
        let attention_mask = AttentionMask::Causal;
        Some(RowRequest { start: self.cached, tokens, attention_mask, logits })
    }

    fn accept(&mut self, states: Logits<'_>) -> StepOutcome {
        let end = self.cached + self.planned;
        let first = end - states.len();
        self.cached = end;
        let mut outcome = StepOutcome { committed: end, ..StepOutcome::default() };
        if states.any_is_failed() {
            outcome.finished = Some(FinishReason::NotFinite);
            self.finished = true;
            return outcome;
        }
        self.add(first, states);
        if end == self.tokens.len() {
            match self.pooling {
                Some(_) => outcome.embedding = Some(self.vector()),
                None => outcome.logits = Some(std::mem::take(&mut self.sum)),
            }
            outcome.finished = Some(FinishReason::Stop);
            self.finished = true;
        }
        outcome
    }

    fn output(&self) -> Output {
        match self.pooling {
            Some(_) => Output::Hidden,
            None => Output::Logits,
        }
    }

    fn prefilling(&self) -> bool {
        true
    }

    fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn skippable(&self) -> usize {
        self.summed.min(self.tokens.len() - 1)
    }

    fn resume(&mut self, cached: usize) {
        self.cached = cached;
    }

    fn slots(&self) -> Vec<Slot> {
        Vec::new()
    }
}
