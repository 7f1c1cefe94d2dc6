//! Sampling: from logits to a token.
//!
//! 1. Penalties, DRY and biases change the logits; bad words and early end tokens are removed.
//! 2. The grammar removes tokens that it does not allow.
//! 3. With temperature 0 the highest logit wins. Otherwise temperature, top-k, top-nσ, typical-p, top-p,
//!    min-p, XTC, infill sampling and Mirostat shape a distribution, in this order, and one random number
//!    draws from it.
//!
//! The same logits, parameters and history give the same token on every platform and with any number of
//! threads. Sums run in a fixed order, and `exp` and `ln` are the crate's own and `libm`'s. The random
//! number depends only on the seed and on the token's index in the output, so a sequence can be resumed
//! anywhere.
//!
//! A NaN logit counts as −∞. If all logits are NaN or −∞, token 0 is chosen.

mod candidates;
mod certainty;
mod constraint;
mod dry;
mod filters;
mod infill;
mod mirostat;
mod params;
mod reasoning;

pub use certainty::Certainty;
pub use constraint::{Constraint, Next};
pub use dry::Dry;
pub use infill::{Infill, TokenTexts};
pub use mirostat::{Mirostat, MirostatVersion};
pub use params::{SamplingError, SamplingParams};
pub use reasoning::{ClosingTokens, MarkerTexts, ReasoningConstraint, ReasoningTokens};

use super::FinishReason;
use candidates::{Candidates, best, log_sum_exp, top};
use constraint::Guide;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

/// A sampled token with its log-probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Id of the token.
    pub token: u32,
    /// Natural logarithm of its probability under the model's own distribution (before penalties,
    /// temperature and filters). `None` unless [`SamplingParams::logprobs`] is set.
    pub logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// A token that would be chosen, and its certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Id of the token.
    pub token: u32,
    /// Certainty by the requested measure, for the distribution that the token was drawn from: after
    /// penalties, temperature and filters. At temperature 0 it is the softmax of the penalized logits.
    pub certainty: f32,
}

/// The tokens that a [`Sampler`] has accepted, as far as they influence later ones.
#[derive(Clone, Debug, Default)]
pub struct History {
    seen: BTreeMap<u32, u32>,
    position: u64,
    limit: f64,
}

/// Chooses the tokens of one sequence.
///
/// ```
/// use wrinklefree::decode::{Sampler, SamplingParams};
///
/// // Greedy by default.
/// let logits = [0.5, 2.0, -1.0];
/// let mut greedy = Sampler::new(SamplingParams::default(), &[]);
/// assert_eq!(greedy.sample(&logits).token, 1);
///
/// // The same seed gives the same tokens.
/// let params = SamplingParams { temperature: 0.8, seed: 7, ..SamplingParams::default() };
/// let (mut a, mut b) = (Sampler::new(params.clone(), &[]), Sampler::new(params, &[]));
/// for _ in 0..10 {
///     assert_eq!(a.sample(&logits), b.sample(&logits));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    /// Number of occurrences in the output; 0 for tokens of the prompt alone. Kept only for penalties.
    seen: BTreeMap<u32, u32>,
    /// Prompt and output. Kept only if tokens are sampled in order.
    text: Vec<u32>,
    /// Tokens that cannot come among the first ones of the output.
    end_tokens: Vec<u32>,
    /// Number of tokens accepted so far.
    position: u64,
    /// Limit of Mirostat for the next token, and after the last token that was drawn.
    limit: f64,
    next_limit: f64,
    /// Logits after penalties and grammar.
    scratch: Vec<f32>,
    candidates: Candidates,
    guide: Option<Guide>,
}

impl Sampler {
    /// Makes a sampler for a sequence that starts with `prompt`. The parameters must have passed
    /// [`SamplingParams::validate`].
    #[must_use]
    pub fn new(mut params: SamplingParams, prompt: &[u32]) -> Self {
        let guide = params.constraint.take().map(Guide::new);
        let mut seen = BTreeMap::new();
        if params.repetition_penalty != 1.0 {
            seen.extend(prompt.iter().map(|&token| (token, 0)));
        }
        let limit = params.mirostat.map_or(0.0, |mirostat| mirostat.first_limit());
        Self {
            text: if params.in_order() { prompt.to_vec() } else { Vec::new() },
            params,
            seen,
            end_tokens: Vec::new(),
            position: 0,
            limit,
            next_limit: limit,
            scratch: Vec::new(),
            candidates: Candidates::default(),
            guide,
        }
    }

    /// Sets the tokens that cannot come before [`SamplingParams::min_tokens`] others.
    #[must_use]
    pub fn ending_with(self, end_tokens: &[u32]) -> Self {
        let end_tokens = if self.params.min_tokens > 0 { end_tokens.to_vec() } else { Vec::new() };
        Self { end_tokens, ..self }
    }

    /// Chooses the next token and [accepts](Self::accept) it. `logits`: `[vocab_size]`.
    pub fn sample(&mut self, logits: &[f32]) -> Sampled {
        let token = self.next(logits, self.position);
        self.accept(token);
        self.describe(logits, token)
    }

    /// Returns the next token of the output, whose index is `position`, without accepting it.
    pub fn next(&mut self, logits: &[f32], position: u64) -> u32 {
        let mut guide = self.guide.take();
        let token = self.draw(logits, position, None, guide.as_mut()).token;
        self.guide = guide;
        token
    }

    /// Returns `token` with the log-probabilities that the parameters ask for.
    pub fn describe(&self, logits: &[f32], token: u32) -> Sampled {
        let mut sampled = Sampled { token, logprob: None, top: Vec::new() };
        if let Some(n) = self.params.logprobs {
            let norm = log_sum_exp(logits);
            let logprob = |logit: f32| match logit {
                x if x.is_nan() || x == f32::NEG_INFINITY => f32::NEG_INFINITY,
                // Also where both are ∞.
                x if x == norm => 0.0,
                x => x - norm,
            };
            sampled.logprob = logits.get(token as usize).map(|&x| logprob(x));
            top(logits, n, &mut sampled.top);
            sampled.top.iter_mut().for_each(|entry| entry.1 = logprob(entry.1));
        }
        sampled
    }

    /// Predicts the token with index `position` in the output, given the tokens accepted so far, without
    /// accepting it. For decoders that look at many positions at once. The grammar is ignored: it knows
    /// nothing about a position while earlier ones are open.
    pub fn predict(&mut self, logits: &[f32], position: u64, by: Certainty) -> Prediction {
        self.draw(logits, position, Some(by), None)
    }

    /// Returns true if tokens must be sampled in order: a grammar, DRY, Mirostat or a bad word of several
    /// tokens decides which one comes next.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.guide.is_some() || self.params.in_order()
    }

    /// Returns true if the grammar has not yet computed which tokens may follow those accepted so far.
    /// The methods that need them compute them, however long it takes;
    /// [`compute_mask`](Self::compute_mask) has a budget.
    #[must_use]
    pub fn mask_due(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_due)
    }

    /// Computes which tokens may come next, unless nothing is left of `budget`. Takes the time from it.
    /// Returns false if they are still unknown.
    pub fn compute_mask(&mut self, budget: &mut Duration) -> bool {
        self.guide.as_mut().is_none_or(|guide| guide.compute(budget))
    }

    /// Returns the reason to end the text if the grammar allows no further token.
    #[must_use]
    pub fn end(&mut self) -> Option<FinishReason> {
        match self.guide.as_mut()?.next() {
            Next::Tokens(_) | Next::Except(_) => None,
            Next::End => Some(FinishReason::Stop),
            Next::Unknown(_) => Some(FinishReason::Constraint),
        }
    }

    /// Appends a token to the output that penalties and grammar refer to.
    pub fn accept(&mut self, token: u32) {
        self.position += 1;
        if self.params.penalizes() {
            *self.seen.entry(token).or_insert(0) += 1;
        }
        if self.params.in_order() {
            self.text.push(token);
        }
        self.limit = self.next_limit;
        if let Some(guide) = &mut self.guide {
            guide.accept(token);
        }
    }

    /// Returns the history of accepted tokens, for [`rewind`](Self::rewind).
    #[must_use]
    pub fn history(&self) -> History {
        History { seen: self.seen.clone(), position: self.position, limit: self.limit }
    }

    /// Forgets the tokens that were accepted after `history`.
    pub fn rewind(&mut self, history: &History) {
        let removed = (self.position - history.position) as usize;
        if let Some(guide) = &mut self.guide {
            guide.rewind(removed);
        }
        self.text.truncate(self.text.len().saturating_sub(removed));
        (self.limit, self.next_limit) = (history.limit, history.limit);
        self.seen.clone_from(&history.seen);
        self.position = history.position;
    }

    /// Returns a copy for drafts, without the grammar, which a drafted token may not fit; `None` if the most
    /// likely token is always chosen.
    pub(super) fn for_drafts(&self) -> Option<Self> {
        if self.params.temperature == 0.0 && !self.params.changes_logits() {
            return None;
        }
        Some(Self {
            params: self.params.clone(),
            seen: self.seen.clone(),
            text: self.text.clone(),
            end_tokens: self.end_tokens.clone(),
            scratch: Vec::new(),
            candidates: Candidates::default(),
            guide: None,
            ..*self
        })
    }

    /// Returns the number of tokens accepted so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the parameters, without the constraint.
    #[must_use]
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Chooses a token. Without `by` its certainty is not needed.
    fn draw(
        &mut self,
        logits: &[f32],
        position: u64,
        by: Option<Certainty>,
        guide: Option<&mut Guide>,
    ) -> Prediction {
        let mut scratch = std::mem::take(&mut self.scratch);
        let logits = if self.params.changes_logits() || guide.is_some() {
            scratch.clear();
            scratch.extend_from_slice(logits);
            self.penalize(&mut scratch);
            self.ban(&mut scratch, position);
            if let Some(guide) = guide {
                guide.restrict(&mut scratch);
            }
            &scratch
        } else {
            logits
        };
        let prediction = if self.params.temperature == 0.0 {
            let token = best(logits);
            let certainty = by.map_or(0.0, |by| by.of_logits(logits, token));
            Prediction { token, certainty }
        } else {
            let random = uniform(self.params.seed, position);
            let by = by.unwrap_or(Certainty::Probability);
            let (params, limit) = (&self.params, self.limit);
            let (prediction, next) = self.candidates.draw(logits, params, random, limit, by);
            self.next_limit = next;
            prediction
        };
        self.scratch = scratch;
        prediction
    }

    /// Applies penalties and biases to the few logits that have any.
    fn penalize(&self, logits: &mut [f32]) {
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
        if let Some(dry) = &p.dry {
            dry.penalize(&self.text, logits);
        }
        for &(token, bias) in &p.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
    }

    /// Removes tokens that would complete a bad word, and early end tokens.
    fn ban(&self, logits: &mut [f32], position: u64) {
        let output = &self.text[self.text.len().saturating_sub(self.position as usize)..];
        let words = self.params.bad_words.iter().filter_map(|word| word.split_last());
        let completed = words.filter(|(_, before)| output.ends_with(before)).map(|(last, _)| last);
        let early = position < self.params.min_tokens as u64;
        let ends = self.end_tokens.iter().filter(|_| early);
        for &token in completed.chain(ends) {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Returns two random numbers in [0, 1) that depend on seed and position alone.
pub(super) fn uniform(seed: u64, position: u64) -> [f64; 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Each position has a block of 16 words, of which it uses four.
    rng.set_word_pos(u128::from(position) * 16);
    [(); 2].map(|()| (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_depend_on_seed_and_position_only() {
        // A change of these numbers would change every seeded output.
        let known = [(0, 0), (0, 1), (1, 0), (u64::MAX, 1 << 40)];
        let got = known.map(|(seed, position)| uniform(seed, position)[0]);
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
        sampler.penalize(&mut logits);
        assert_eq!(logits, [2.0, -9.25, 0.25, 2.5]);
        assert_eq!(sampler.position(), 3);
    }
}
