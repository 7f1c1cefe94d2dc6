//! Autoregressive decoding: the prompt in chunks, then a token a pass.

use super::{Ask, Decoder, FinishReason, Progress, Sampler, SamplingParams, Slot};
use crate::batch_types::{AttentionMask, LogitRows, Logits};

/// Decodes one token after the other.
pub struct Autoregressive {
    /// Prompt and output.
    tokens: Vec<u32>,
    prompt: usize,
    /// Tokens of the prompt whose log-probabilities nobody waits for: they are known, have been
    /// reported, or were not asked for.
    scored: usize,
    /// Tokens whose keys and values are in the cache.
    cached: usize,
    max_tokens: usize,
    eos: Vec<u32>,
    sampler: Sampler,
    finished: bool,
}

impl Autoregressive {
    /// Continues `prompt` by at most `max_tokens`, or to a token in `eos`.
    ///
    /// # Panics
    /// When the prompt is empty, or nothing is to be generated or scored.
    pub fn new(
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        sampling: SamplingParams,
    ) -> Self {
        assert!(!prompt.is_empty() && (max_tokens > 0 || sampling.score_prompt));
        let scored = if sampling.score_prompt { 1 } else { prompt.len() };
        let sampler = Sampler::new(sampling, &prompt);
        let (prompt, tokens) = (prompt.len(), prompt);
        Self { tokens, prompt, scored, cached: 0, max_tokens, eos, sampler, finished: false }
    }

    /// Tokens that may still be generated.
    pub(super) fn left(&self) -> usize {
        self.max_tokens - (self.tokens.len() - self.prompt)
    }

    /// Samples the next token; all before it are in the cache now.
    pub(super) fn extend(&mut self, logits: &[f32], progress: &mut Progress) {
        let sampled = self.sampler.sample(logits);
        self.cached = self.tokens.len();
        self.tokens.push(sampled.token);
        progress.committed = self.cached;
        progress.finished = if self.eos.contains(&sampled.token) {
            Some(FinishReason::Stop)
        } else {
            let full = || (self.left() == 0).then_some(FinishReason::Length);
            self.sampler.end().or_else(full)
        };
        self.finished = progress.finished.is_some();
        progress.tokens.push(sampled);
    }

    /// Nothing new.
    pub(super) fn progress(&self) -> Progress {
        Progress { committed: self.cached, ..Progress::default() }
    }

    /// Some log-probabilities of the prompt are still to come.
    fn scoring(&self) -> bool {
        self.scored < self.prompt
    }

    /// Reports the prompt's tokens behind `rows`, the first of which is that of the token at `first`.
    fn score(&mut self, first: usize, rows: Logits<'_>, progress: &mut Progress) {
        for row in 0..rows.len() {
            if first + row + 1 == self.scored && self.scoring() {
                let token = self.tokens[self.scored];
                progress.scored.push(self.sampler.describe(rows.row(row), token));
                self.scored += 1;
            }
        }
    }

    /// How many tokens come next.
    fn next(&self, budget: usize) -> usize {
        (self.tokens.len() - self.cached).min(budget)
    }
}

impl Decoder for Autoregressive {
    fn ask(&self, budget: usize) -> Option<Ask<'_>> {
        if self.finished {
            return None;
        }
        let end = self.cached + self.next(budget);
        Some(Ask {
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

    fn take(&mut self, budget: usize, logits: Logits<'_>) -> Progress {
        let first = self.cached;
        self.cached += self.next(budget);
        let mut progress = self.progress();
        if self.scoring() {
            self.score(first, logits, &mut progress);
        }
        if self.cached < self.tokens.len() {
            return progress;
        }
        if self.left() > 0 {
            self.extend(logits.row(logits.len() - 1), &mut progress);
        } else {
            progress.finished = Some(FinishReason::Length);
            self.finished = true;
        }
        progress
    }

    fn prefilling(&self) -> bool {
        self.cached < self.prompt.max(self.skippable())
    }

    fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn skippable(&self) -> usize {
        // Logits of a token tell of the next one.
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

    /// Runs a decoder against logits that always favor the token after the last one.
    fn replay(mut decoder: Autoregressive, budget: usize) -> (Vec<u32>, usize, FinishReason) {
        let (mut out, mut passes) = (Vec::new(), 0);
        loop {
            let ask = decoder.ask(budget).expect("not finished");
            let mut row = [0f32; 10];
            row[(*ask.tokens.last().unwrap() as usize + 1) % 10] = 1.0;
            let values = &row[..10 * ask.logits.count(ask.tokens.len())];
            let progress = decoder.take(budget, Logits::new(values, 10));
            passes += 1;
            out.extend(progress.tokens.iter().map(|t| t.token));
            if let Some(reason) = progress.finished {
                assert_eq!(decoder.ask(budget), None);
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
    fn it_can_start_again_at_any_time() {
        for at in 0..4 {
            let (mut decoder, mut out) = (decoder(3), Vec::new());
            for pass in 0.. {
                if pass == at {
                    assert_eq!(decoder.skippable(), 3 + out.len());
                    decoder.resume(pass.min(2));
                }
                let Some(ask) = decoder.ask(2) else { break };
                let mut row = [0f32; 10];
                row[(*ask.tokens.last().unwrap() as usize + 1) % 10] = 1.0;
                let values = &row[..10 * ask.logits.count(ask.tokens.len())];
                let progress = decoder.take(2, Logits::new(values, 10));
                out.extend(progress.tokens.iter().map(|t| t.token));
            }
            assert_eq!(out, [4, 5, 6]);
        }
    }

    #[test]
    fn a_small_budget_cuts_the_prompt_and_changes_nothing() {
        for budget in 1..6 {
            let (tokens, passes, _) = replay(decoder(3), budget);
            assert_eq!(tokens, [4, 5, 6]);
            assert_eq!(passes, 4usize.div_ceil(budget) + 2);
        }
    }
}
