//! Sampling parameters and their valid ranges.

use super::infill::MOST_CANDIDATES;
use super::{Constraint, Dry, Infill, Mirostat};

/// Parameters of sampling. The default is greedy, without penalties.
///
/// ```
/// use wrinklefree::decode::SamplingParams;
///
/// let params = SamplingParams { temperature: 0.7, top_p: 0.9, ..SamplingParams::default() };
/// assert_eq!(params.validate(32_000), Ok(()));
///
/// let error = SamplingParams { top_p: 1.5, ..params }.validate(32_000).unwrap_err();
/// assert_eq!(error.to_string(), "top_p must be from 0 to 1, but is 1.5");
/// ```
#[derive(Clone, Debug)]
pub struct SamplingParams {
    /// Divides the logits before the softmax. 0 is greedy: the most likely token wins.
    pub temperature: f32,
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Nucleus sampling: keeps the smallest set of most likely tokens whose cumulative probability is at
    /// least this; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens whose probability is below this share of the highest one; 0 keeps all.
    pub min_p: f32,
    /// Locally typical sampling (arXiv 2202.00666): keeps the tokens whose surprise is nearest to the
    /// entropy, until their cumulative probability is at least this; 1 keeps all.
    pub typical_p: f32,
    /// Top-nσ sampling (arXiv 2411.07641): keeps tokens whose logit is at most this many standard
    /// deviations of all logits below the highest one; 0 keeps all.
    pub top_n_sigma: f32,
    /// Probability with which XTC removes the most likely tokens at a position; 0 is off.
    ///
    /// XTC ("exclude top choices", oobabooga/text-generation-webui#6335) removes all tokens of at least
    /// the threshold's probability but the least likely of them.
    pub xtc_probability: f32,
    /// Probability from which XTC counts a token among the top choices.
    pub xtc_threshold: f32,
    /// Keeps likely texts, or ends the output. `None` is off. Needs [`top_k`](Self::top_k) from 1 to 1000.
    pub infill: Option<Infill>,
    /// Keeps the surprise of the output near a target. `None` is off.
    pub mirostat: Option<Mirostat>,
    /// Divides positive logits and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of a token for each occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of a token that occurs in the output; 0 is off.
    pub presence_penalty: f32,
    /// Penalizes tokens that prolong a repetition. `None` is off.
    pub dry: Option<Dry>,
    /// Sequences of tokens that the output must not contain.
    pub bad_words: Vec<Vec<u32>>,
    /// Number of tokens that the output has before one of the request's end tokens may come.
    pub min_tokens: usize,
    /// Values to add to the logits of single token ids; −∞ bans a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers. The same seed gives the same output.
    pub seed: u64,
    /// Reports log-probabilities: of the sampled token, and of this number of most likely tokens.
    pub logprobs: Option<usize>,
    /// Reports log-probabilities of the prompt as well. Not with block diffusion.
    pub score_prompt: bool,
    /// Grammar that the output must follow.
    pub constraint: Option<Box<dyn Constraint>>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            infill: None,
            mirostat: None,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry: None,
            bad_words: Vec::new(),
            min_tokens: 0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
            score_prompt: false,
            constraint: None,
        }
    }
}

/// Error: a parameter is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {range}, but is {value}")]
pub struct SamplingError {
    /// Name of the field of [`SamplingParams`].
    pub field: &'static str,
    /// Valid range, in words.
    pub range: String,
    /// Value that was given.
    pub value: String,
}

impl SamplingError {
    /// Returns a stable identifier of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_sampling_parameter"
    }
}

impl SamplingParams {
    /// Checks every parameter for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`SamplingError`] for the first field that is out of range.
    pub fn validate(&self, vocab: usize) -> Result<(), SamplingError> {
        let finite = |field, value: f32| check(value.is_finite(), field, "finite", &value);
        let (t, r) = (self.temperature, self.repetition_penalty);
        let at_least_0 = t.is_finite() && t >= 0.0;
        check(at_least_0, "temperature", "finite and at least 0", &t)?;
        for (field, value) in [
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("xtc_probability", self.xtc_probability),
            ("xtc_threshold", self.xtc_threshold),
        ] {
            check((0.0..=1.0).contains(&value), field, "from 0 to 1", &value)?;
        }
        self.validate_samplers()?;
        let above_0 = r.is_finite() && r > 0.0;
        check(above_0, "repetition_penalty", "finite and above 0", &r)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        finite("presence_penalty", self.presence_penalty)?;
        for &token in self.bad_words.iter().flatten() {
            let range = format!("of token ids below {vocab}");
            check((token as usize) < vocab, "bad_words", &range, &token)?;
        }
        for &(token, bias) in &self.logit_bias {
            let range = format!("on token ids below {vocab}");
            check((token as usize) < vocab, "logit_bias", &range, &token)?;
            let number = bias < f32::INFINITY;
            check(number, "logit_bias", "numbers below infinity", &bias)?;
        }
        if let Some(n) = self.logprobs {
            let range = format!("at most the vocabulary's size {vocab}");
            check(n <= vocab, "logprobs", &range, &n)?;
        }
        Ok(())
    }

    /// Checks the parameters of DRY, Mirostat, XTC, typical, top-nσ and infill sampling.
    fn validate_samplers(&self) -> Result<(), SamplingError> {
        let at_least_0 = |x: f32| x.is_finite() && x >= 0.0;
        let sigma = self.top_n_sigma;
        check(at_least_0(sigma), "top_n_sigma", "finite and at least 0", &sigma)?;
        if let Some(dry) = &self.dry {
            let multiplier = dry.multiplier;
            check(at_least_0(multiplier), "dry_multiplier", "finite and at least 0", &multiplier)?;
            let base = dry.base;
            check(base.is_finite() && base >= 1.0, "dry_base", "finite and at least 1", &base)?;
        }
        if let Some(Mirostat { target, rate, .. }) = self.mirostat {
            check(at_least_0(target), "mirostat_tau", "finite and at least 0", &target)?;
            check(at_least_0(rate), "mirostat_eta", "finite and at least 0", &rate)?;
        }
        let few = self.infill.is_none() || (1..=MOST_CANDIDATES).contains(&self.top_k);
        let range = format!("from 1 to {MOST_CANDIDATES} with infill sampling");
        check(few, "top_k", &range, &self.top_k)?;
        // At temperature 0 the most likely token wins, which these may remove.
        let removing = [
            ("typical_p", self.typical_p < 1.0),
            ("xtc_probability", self.xtc_probability > 0.0),
            ("infill", self.infill.is_some()),
            ("mirostat", self.mirostat.is_some()),
        ];
        for (field, on) in removing {
            let range = "off at temperature 0, which takes the most likely token";
            check(!on || self.temperature > 0.0, field, range, &"on")?;
        }
        Ok(())
    }

    /// True if a token depends on the one before it, beyond penalties: tokens must be sampled in order.
    pub(super) fn in_order(&self) -> bool {
        let phrases = self.bad_words.iter().any(|word| word.len() > 1);
        self.dry.is_some() || self.mirostat.is_some() || phrases
    }

    /// True if earlier tokens change the logits.
    pub(super) fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }

    /// True if the logits are changed before sampling, by penalties or biases.
    pub(super) fn changes_logits(&self) -> bool {
        let banned = !self.bad_words.is_empty() || self.min_tokens > 0;
        self.penalizes() || self.dry.is_some() || banned || !self.logit_bias.is_empty()
    }
}

fn check(
    ok: bool,
    field: &'static str,
    range: &str,
    value: &dyn std::fmt::Display,
) -> Result<(), SamplingError> {
    if ok {
        Ok(())
    } else {
        Err(SamplingError { field, range: range.into(), value: value.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_field_range_and_value() {
        let default = SamplingParams::default;
        assert_eq!(default().validate(1), Ok(()));
        #[rustfmt::skip]
        let bad = [
            (SamplingParams { temperature: -0.5, ..default() }, "temperature must be finite and at least 0, but is -0.5"),
            (SamplingParams { temperature: f32::NAN, ..default() }, "temperature must be finite and at least 0, but is NaN"),
            (SamplingParams { top_p: 1.5, ..default() }, "top_p must be from 0 to 1, but is 1.5"),
            (SamplingParams { min_p: f32::NAN, ..default() }, "min_p must be from 0 to 1, but is NaN"),
            (SamplingParams { repetition_penalty: 0.0, ..default() }, "repetition_penalty must be finite and above 0, but is 0"),
            (SamplingParams { frequency_penalty: f32::INFINITY, ..default() }, "frequency_penalty must be finite, but is inf"),
            (SamplingParams { presence_penalty: f32::NAN, ..default() }, "presence_penalty must be finite, but is NaN"),
            (SamplingParams { logit_bias: vec![(10, 1.0)], ..default() }, "logit_bias must be on token ids below 10, but is 10"),
            (SamplingParams { logit_bias: vec![(1, f32::NAN)], ..default() }, "logit_bias must be numbers below infinity, but is NaN"),
            (SamplingParams { typical_p: -0.5, ..default() }, "typical_p must be from 0 to 1, but is -0.5"),
            (SamplingParams { xtc_threshold: 2.0, ..default() }, "xtc_threshold must be from 0 to 1, but is 2"),
            (SamplingParams { top_n_sigma: f32::NAN, ..default() }, "top_n_sigma must be finite and at least 0, but is NaN"),
            (SamplingParams { dry: Some(Dry { base: 0.5, ..Dry::default() }), ..default() }, "dry_base must be finite and at least 1, but is 0.5"),
            (SamplingParams { mirostat: Some(Mirostat::default()), ..default() }, "mirostat must be off at temperature 0, which takes the most likely token, but is on"),
            (SamplingParams { bad_words: vec![vec![1, 10]], ..default() }, "bad_words must be of token ids below 10, but is 10"),
            (SamplingParams { logprobs: Some(11), ..default() }, "logprobs must be at most the vocabulary's size 10, but is 11"),
        ];
        for (params, message) in bad {
            assert_eq!(params.validate(10).unwrap_err().to_string(), message);
        }
    }
}
