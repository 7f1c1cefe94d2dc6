//! Log-probabilities of the tokens of texts in a response.

use crate::api::answer::logprobs;
use crate::engine::served_model::ModelLabel;
use serde_json::{Value, json};
use wrinklefree::decode::Sampled;

/// The log-probabilities of an output's texts, if they are requested.
pub struct Scores {
    /// The model, whose tokenizer names tokens.
    pub model: ModelLabel,
    /// Number of alternatives per token, or `None` for no log-probabilities.
    alternatives: Option<usize>,
    /// Tokens whose text has not come yet.
    pending: Vec<Sampled>,
    /// Tokens of each block's text.
    blocks: Vec<Vec<Sampled>>,
}

impl Scores {
    /// Begins with an output without tokens.
    pub fn new(model: ModelLabel, alternatives: Option<usize>) -> Self {
        Self { model, alternatives, pending: Vec::new(), blocks: Vec::new() }
    }

    /// Returns true if log-probabilities are requested.
    pub fn requested(&self) -> bool {
        self.alternatives.is_some()
    }

    /// Adds a token whose text comes next, or later.
    pub fn push(&mut self, sampled: &Sampled) {
        if self.requested() {
            self.pending.push(sampled.clone());
        }
    }

    /// Drops the tokens that were no text: those of markers, reasoning and calls.
    pub fn skip(&mut self) {
        self.pending.clear();
    }

    /// Gives the tokens to the text of a block, and returns their log-probabilities.
    pub fn give(&mut self, block: usize) -> Value {
        let tokens = std::mem::take(&mut self.pending);
        let written = self.written(&tokens);
        if self.requested() {
            self.blocks.resize_with(self.blocks.len().max(block + 1), Vec::new);
            self.blocks[block].extend(tokens);
        }
        written
    }

    /// Returns the log-probabilities of a block's text.
    pub fn of_block(&self, block: usize) -> Value {
        self.written(self.blocks.get(block).map(Vec::as_slice).unwrap_or_default())
    }

    fn written(&self, tokens: &[Sampled]) -> Value {
        let Some(alternatives) = self.alternatives else { return json!([]) };
        let entry = |sampled| logprobs::sampled(&self.model.tokenizer, sampled, alternatives);
        tokens.iter().map(entry).collect()
    }
}
