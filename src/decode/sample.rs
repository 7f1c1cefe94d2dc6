//! From logits to a token.
//!
//! In this order: penalties and biases change logits; a grammar takes away what may not come;
//! temperature 0 takes the highest; otherwise
//! temperature, top-k, top-p and min-p shape a distribution, and one random number picks from it.
//!
//! The same logits, parameters and history give the same token on every platform and with any
//! number of threads: sums run in a fixed order, `exp` and `ln` are our own and `libm`'s, and the random
//! number depends only on the seed and on the token's place in the output, so a sequence can be
//! taken up again anywhere.
//!
//! Logits that are NaN count as −∞: never chosen while any other is left. Where nothing is left
//! (all logits NaN or −∞) the choice is token 0.

mod candidates;
mod certainty;
mod constraint;
mod params;

pub use certainty::Certainty;
pub use constraint::{Constraint, Next};
pub use params::{SamplingError, SamplingParams};

use super::FinishReason;
use candidates::{Candidates, best, log_sum_exp, top};
use constraint::Guide;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Its log-probability under the model's own distribution (before temperature and filters),
    /// when log-probabilities were asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// A token and how sure its choice was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its id.
    pub token: u32,
    /// By the measure that was asked for, of the distribution it was drawn from: after penalties,
    /// temperature and filters. At temperature 0, of the softmax of the penalized logits.
    pub certainty: f32,
}

/// What a [`Sampler`] remembers.
#[derive(Clone, Debug, Default)]
pub struct History {
    seen: BTreeMap<u32, u32>,
    position: u64,
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    /// Occurrences in the output; 0 for tokens of the prompt alone. Kept only for penalties.
    seen: BTreeMap<u32, u32>,
    /// Tokens accepted so far.
    position: u64,
    /// Logits after penalties.
    scratch: Vec<f32>,
    candidates: Candidates,
    guide: Option<Guide>,
}

impl Sampler {
    /// A sampler for a sequence that starts with `prompt`.
    #[must_use]
    pub fn new(mut params: SamplingParams, prompt: &[u32]) -> Self {
        let guide = params.constraint.take().map(Guide::new);
        let mut seen = BTreeMap::new();
        if params.repetition_penalty != 1.0 {
            seen.extend(prompt.iter().map(|&token| (token, 0)));
        }
        let (scratch, candidates) = (Vec::new(), Candidates::default());
        Self { params, seen, position: 0, scratch, candidates, guide }
    }

    /// Chooses the next token and remembers it. `logits`: `[vocab_size]`.
    pub fn sample(&mut self, logits: &[f32]) -> Sampled {
        let token = self.next(logits, self.position);
        self.accept(token);
        self.describe(logits, token)
    }

    /// The token for the output's next place, whose number is `position`. Remembers nothing.
    pub fn next(&mut self, logits: &[f32], position: u64) -> u32 {
        let guide = self.guide.take();
        let token = self.draw(logits, position, None, guide.as_ref()).token;
        self.guide = guide;
        token
    }

    /// A chosen token with the log-probabilities that were asked for.
    pub fn describe(&self, logits: &[f32], token: u32) -> Sampled {
        let mut sampled = Sampled { token, logprob: None, top: Vec::new() };
        if let Some(n) = self.params.logprobs {
            let norm = log_sum_exp(logits);
            let logprob = |logit: f32| match logit {
                x if x.is_nan() || x == f32::NEG_INFINITY => f32::NEG_INFINITY,
                // ∞ − ∞ among them.
                x if x == norm => 0.0,
                x => x - norm,
            };
            sampled.logprob = logits.get(token as usize).map(|&x| logprob(x));
            top(logits, n, &mut sampled.top);
            sampled.top.iter_mut().for_each(|entry| entry.1 = logprob(entry.1));
        }
        sampled
    }

    /// What would be chosen for the output's token number `position` (from 0), given the tokens
    /// accepted so far. Remembers nothing: for decoders that look at many places at once. A
    /// grammar says nothing about places before which others are open, so it is not asked.
    pub fn choose(&mut self, logits: &[f32], position: u64, by: Certainty) -> Choice {
        self.draw(logits, position, Some(by), None)
    }

    /// Whether a grammar decides what may come next, so that places are filled in order.
    #[must_use]
    pub fn guided(&self) -> bool {
        self.guide.is_some()
    }

    /// Why nothing may follow, if a grammar says so.
    #[must_use]
    pub fn end(&self) -> Option<FinishReason> {
        match self.guide.as_ref()?.next() {
            Next::Tokens(_) => None,
            Next::End => Some(FinishReason::Stop),
            Next::Unknown(_) => Some(FinishReason::Constraint),
        }
    }

    /// Counts a token as the next of the output, whoever chose it.
    pub fn accept(&mut self, token: u32) {
        self.position += 1;
        if self.params.penalizes() {
            *self.seen.entry(token).or_insert(0) += 1;
        }
        if let Some(guide) = &mut self.guide {
            guide.accept(token);
        }
    }

    /// What has been accepted so far.
    #[must_use]
    pub fn history(&self) -> History {
        History { seen: self.seen.clone(), position: self.position }
    }

    /// Forgets what was accepted after `history`.
    pub fn rewind(&mut self, history: &History) {
        if let Some(guide) = &mut self.guide {
            guide.rewind((self.position - history.position) as usize);
        }
        self.seen.clone_from(&history.seen);
        self.position = history.position;
    }

    /// Tokens accepted so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How it samples.
    #[must_use]
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    fn draw(
        &mut self,
        logits: &[f32],
        position: u64,
        by: Option<Certainty>,
        guide: Option<&Guide>,
    ) -> Choice {
        let mut scratch = std::mem::take(&mut self.scratch);
        let logits = if self.params.changes_logits() || guide.is_some() {
            scratch.clear();
            scratch.extend_from_slice(logits);
            self.change(&mut scratch);
            guide.inspect(|guide| guide.restrict(&mut scratch));
            &scratch
        } else {
            logits
        };
        let choice = if self.params.temperature == 0.0 {
            let token = best(logits);
            let certainty = by.map_or(0.0, |by| by.of_logits(logits, token));
            Choice { token, certainty }
        } else {
            let random = uniform(self.params.seed, position);
            let by = by.unwrap_or(Certainty::Probability);
            self.candidates.draw(logits, &self.params, random, by)
        };
        self.scratch = scratch;
        choice
    }

    /// Penalties and biases, on the few logits that have any.
    fn change(&self, logits: &mut [f32]) {
        let p = &self.params;
        for (&token, &count) in &self.seen {
            let Some(logit) = logits.get_mut(token as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= p.repetition_penalty;
            } else {
                *logit *= p.repetition_penalty;
            }
            if count > 0 {
                *logit -= p.frequency_penalty * count as f32 + p.presence_penalty;
            }
        }
        for &(token, bias) in &p.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
    }
}

/// A number in [0, 1) that depends on nothing else.
fn uniform(seed: u64, position: u64) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // A block of 16 words for each position, of which two are used.
    rng.set_word_pos(u128::from(position) * 16);
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_depend_on_seed_and_position_only() {
        // Written down once: a change of these is a change of every seeded output.
        let known = [(0, 0), (0, 1), (1, 0), (u64::MAX, 1 << 40)];
        let got = known.map(|(seed, position)| uniform(seed, position));
        assert_eq!(got, KNOWN);
        assert!(got.iter().all(|u| (0.0..1.0).contains(u)));
    }

    const KNOWN: [f64; 4] = [
        0.709_075_415_426_561_8,
        0.803_781_642_227_963_6,
        0.402_485_663_664_848_06,
        0.981_514_118_652_763_1,
    ];

    #[test]
    fn penalties() {
        let params = SamplingParams {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            logit_bias: vec![(3, 1.5), (9, 1.0)],
            ..SamplingParams::default()
        };
        let mut sampler = Sampler::new(params, &[0, 1, 77]);
        sampler.accept(1);
        sampler.accept(1);
        sampler.accept(2);
        let mut logits = [4.0, -4.0, 2.0, 1.0];
        sampler.change(&mut logits);
        assert_eq!(logits, [2.0, -9.25, 0.25, 2.5]);
        assert_eq!(sampler.position(), 3);
    }
}
