//! No text at all: the prompt is read, and its hidden states become one vector.

use super::{Ask, Decoder, FinishReason, Output, Progress, Slot};
use crate::batch_types::{AttentionMask, LogitRows, Logits};

/// How hidden states become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    #[default]
    Mean,
    /// The last one.
    Last,
}

/// Pools one prompt.
pub struct Pool {
    tokens: Vec<u32>,
    pooling: Pooling,
    /// Tokens whose keys and values are in the cache.
    cached: usize,
    /// Tokens whose hidden states are in the sum.
    summed: usize,
    sum: Vec<f32>,
    finished: bool,
}

impl Pool {
    /// The vector of a prompt, of length 1.
    ///
    /// # Panics
    /// When the prompt is empty.
    pub fn new(tokens: Vec<u32>, pooling: Pooling) -> Self {
        assert!(!tokens.is_empty());
        let summed = match pooling {
            Pooling::Mean => 0,
            Pooling::Last => tokens.len() - 1,
        };
        Self { tokens, pooling, cached: 0, summed, sum: Vec::new(), finished: false }
    }

    /// Adds the states of the tokens from `first` on, but those that are in the sum.
    fn add(&mut self, first: usize, states: Logits<'_>) {
        for row in 0..states.len() {
            if first + row == self.summed {
                self.sum.resize(states.row(row).len(), 0.0);
                self.sum.iter_mut().zip(states.row(row)).for_each(|(sum, x)| *sum += x);
                self.summed += 1;
            }
        }
    }

    /// The direction of the sum, which is that of the mean.
    fn vector(&mut self) -> Vec<f32> {
        let length = self.sum.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let scale = if length > 0.0 { length.recip() } else { 0.0 };
        self.sum.iter().map(|x| (f64::from(*x) * scale) as f32).collect()
    }
}

impl Decoder for Pool {
    fn ask(&self, budget: usize) -> Option<Ask<'_>> {
        if self.finished {
            return None;
        }
        let end = self.tokens.len().min(self.cached + budget);
        let logits = match self.pooling {
            Pooling::Mean => LogitRows::All,
            Pooling::Last if end == self.tokens.len() => LogitRows::Last,
            Pooling::Last => LogitRows::None,
        };
        let tokens = &self.tokens[self.cached..end];
        Some(Ask { start: self.cached, tokens, attention_mask: AttentionMask::Causal, logits })
    }

    fn take(&mut self, budget: usize, states: Logits<'_>) -> Progress {
        let end = self.tokens.len().min(self.cached + budget);
        let first = end - states.len();
        self.add(first, states);
        self.cached = end;
        let mut progress = Progress { committed: end, ..Progress::default() };
        if end == self.tokens.len() {
            progress.pooled = Some(self.vector());
            progress.finished = Some(FinishReason::Stop);
            self.finished = true;
        }
        progress
    }

    fn output(&self) -> Output {
        Output::Hidden
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
