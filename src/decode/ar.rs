//! Autoregressive decoding: the prompt in chunks, then one token per pass.

use super::{Decoder, FinishReason, RowRequest, Sampler, SamplingParams, Slot, StepOutcome};
use crate::batch_types::{AttentionMask, LogitRows, Logits};
use std::time::Duration;

/// Decodes one token per pass.
pub struct Autoregressive {
    /// Prompt and output.
    tokens: Vec<u32>,
    /// Length of the prompt.
    prompt: usize,
    /// Number of first tokens whose log-probabilities are not needed any more: they have been reported,
    /// or were not requested.
    scored: usize,
    /// Number of tokens whose keys and values are in the cache.
    cached: usize,
    /// Number of rows of the next pass, fixed by `next_rows`.
    planned: usize,
    max_tokens: usize,
    eos: Vec<u32>,
    sampler: Sampler,
    finished: bool,
}

impl Autoregressive {
    /// Makes a decoder that continues `prompt` by at most `max_tokens`, or up to a token in `eos`.
    ///
    /// # Panics
    /// If the prompt is empty, or if there is nothing to generate or to score.
    pub fn new(
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        sampling: SamplingParams,
    ) -> Self {
        assert!(!prompt.is_empty() && (max_tokens > 0 || sampling.score_prompt));
        let scored = if sampling.score_prompt { 1 } else { prompt.len() };
        let sampler = Sampler::new(sampling, &prompt).ending_with(&eos);
        let (prompt, tokens) = (prompt.len(), prompt);
        let (cached, planned, finished) = (0, 0, false);
        Self { tokens, prompt, scored, cached, planned, max_tokens, eos, sampler, finished }
    }

    /// Returns a sampler that draws drafted tokens as the next ones will be drawn.
    pub(super) fn draft_sampler(&self) -> Option<Sampler> {
        self.sampler.for_drafts()
    }

    /// Number of tokens that may still be generated.
    pub(super) fn left(&self) -> usize {
        self.max_tokens - (self.tokens.len() - self.prompt)
    }

    /// Number of tokens whose keys and values are in the cache.
    pub(super) fn cached(&self) -> usize {
        self.cached
    }

    /// True once the text has ended.
    pub(super) fn finished(&self) -> bool {
        self.finished
    }

    /// Samples the next token; all tokens before it are in the cache now.
    pub(super) fn extend(&mut self, logits: &[f32], outcome: &mut StepOutcome) {
        self.cached = self.tokens.len();
        if Logits::row_is_failed(logits) {
            return self.fail(outcome);
        }
        let sampled = self.sampler.sample(logits);
        self.tokens.push(sampled.token);
        outcome.committed = self.cached;
        if self.eos.contains(&sampled.token) {
            outcome.finished = Some(FinishReason::Stop);
            self.finished = true;
        } else if !self.sampler.mask_due() {
            self.check_end(outcome);
        }
        outcome.tokens.push(sampled);
    }

    /// Ends the text if the grammar allows no further token or the text is full.
    fn check_end(&mut self, outcome: &mut StepOutcome) {
        let full = (self.left() == 0).then_some(FinishReason::Length);
        outcome.finished = self.sampler.end().or(full);
        self.finished = outcome.finished.is_some();
    }

    /// Ends the text because of a number that is not finite.
    fn fail(&mut self, outcome: &mut StepOutcome) {
        outcome.committed = self.cached;
        outcome.finished = Some(FinishReason::NotFinite);
        self.finished = true;
    }

    /// The outcome of a pass that made no token final.
    pub(super) fn outcome(&self) -> StepOutcome {
        StepOutcome { committed: self.cached, ..StepOutcome::default() }
    }

    /// True while log-probabilities of the prompt are still missing.
    fn scoring(&self) -> bool {
        self.scored < self.prompt
    }

    /// Reports the tokens of the prompt that `rows` predict. The first row is that of the token at
    /// `first`.
    fn score(&mut self, first: usize, rows: Logits<'_>, outcome: &mut StepOutcome) {
        for row in 0..rows.len() {
            if first + row + 1 == self.scored && self.scoring() {
                if rows.is_failed(row) {
                    return self.fail(outcome);
                }
                let token = self.tokens[self.scored];
                outcome.scored.push(self.sampler.describe(rows.row(row), token));
                self.scored += 1;
            }
        }
    }
}

impl Decoder for Autoregressive {
    fn next_rows(&mut self, budget: usize) -> Option<RowRequest<'_>> {
        if self.finished {
            return None;
        }
        self.planned = budget.min(self.tokens.len() - self.cached);
        let end = self.cached + self.planned;
        Some(RowRequest {
            start: self.cached,
            tokens: &self.tokens[self.cached..end],
            attention_mask: AttentionMask::Causal,
            logits: match end == self.tokens.len() {
                _ if self.scoring() => LogitRows::All,
                true => LogitRows::Last,
                false => LogitRows::None,
            },
        })
    }

    fn accept(&mut self, logits: Logits<'_>) -> StepOutcome {
        let first = self.cached;
        self.cached += self.planned;
        let mut outcome = self.outcome();
        if self.scoring() {
            self.score(first, logits, &mut outcome);
        }
        if self.cached < self.tokens.len() || self.finished {
            return outcome;
        }
        if self.left() > 0 {
            self.extend(logits.row(logits.len() - 1), &mut outcome);
        } else {
            outcome.finished = Some(FinishReason::Length);
            self.finished = true;
        }
        outcome
    }

    fn guide_due(&self) -> bool {
        !self.finished && self.sampler.mask_due()
    }

    fn guide(&mut self, budget: &mut Duration) -> Option<StepOutcome> {
        self.sampler.compute_mask(budget).then(|| {
            let mut outcome = self.outcome();
            self.check_end(&mut outcome);
            outcome
        })
    }

    fn prefilling(&self) -> bool {
        self.cached < self.prompt.max(self.skippable())
    }

    fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn skippable(&self) -> usize {
        // The logits of a token predict the next one.
        let after = if self.scoring() { self.scored } else { self.tokens.len() };
        after - 1
    }

    fn resume(&mut self, cached: usize) {
        self.cached = cached;
    }

    fn restart(&mut self, text: Vec<u32>, max_tokens: usize) {
        (self.prompt, self.scored) = (text.len(), text.len());
        (self.tokens, self.cached) = (text, 0);
        (self.max_tokens, self.finished) = (max_tokens, false);
    }

    fn slots(&self) -> Vec<Slot> {
        self.tokens[self.prompt..]
            .last()
            .map(|&token| Slot::Final(token, None))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a decoder with logits that always favor the token id after the last one.
    fn replay(mut decoder: Autoregressive, budget: usize) -> (Vec<u32>, usize, FinishReason) {
        let (mut out, mut passes) = (Vec::new(), 0);
        loop {
            let request = decoder.next_rows(budget).expect("not finished");
            let mut row = [0f32; 10];
            row[(*request.tokens.last().unwrap() as usize + 1) % 10] = 1.0;
            let values = &row[..10 * request.logits.count(request.tokens.len())];
            let outcome = decoder.accept(Logits::new(values, 10));
            passes += 1;
            out.extend(outcome.tokens.iter().map(|t| t.token));
            if let Some(reason) = outcome.finished {
                assert_eq!(decoder.next_rows(budget), None);
                return (out, passes, reason);
            }
        }
    }

    fn decoder(max_tokens: usize) -> Autoregressive {
        Autoregressive::new(vec![7, 1, 2, 3], max_tokens, vec![8, 9], SamplingParams::default())
    }

    #[test]
    fn counts_up_to_max_tokens_or_the_end_of_text() {
        assert_eq!(replay(decoder(3), 512), (vec![4, 5, 6], 3, FinishReason::Length));
        assert_eq!(replay(decoder(9), 512), (vec![4, 5, 6, 7, 8], 5, FinishReason::Stop));
    }

    #[test]
    fn it_can_resume_at_any_time() {
        for at in 0..4 {
            let (mut decoder, mut out) = (decoder(3), Vec::new());
            for pass in 0.. {
                if pass == at {
                    assert_eq!(decoder.skippable(), 3 + out.len());
                    decoder.resume(pass.min(2));
                }
                let Some(request) = decoder.next_rows(2) else { break };
                let mut row = [0f32; 10];
                row[(*request.tokens.last().unwrap() as usize + 1) % 10] = 1.0;
                let values = &row[..10 * request.logits.count(request.tokens.len())];
                let outcome = decoder.accept(Logits::new(values, 10));
                out.extend(outcome.tokens.iter().map(|t| t.token));
            }
            assert_eq!(out, [4, 5, 6]);
        }
    }

    #[test]
    fn a_small_budget_splits_the_prompt_and_changes_nothing() {
        for budget in 1..6 {
            let (tokens, passes, _) = replay(decoder(3), budget);
            assert_eq!(tokens, [4, 5, 6]);
            assert_eq!(passes, 4usize.div_ceil(budget) + 2);
        }
    }
}
