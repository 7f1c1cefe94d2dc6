//! Sampling parameters and their valid ranges.

use super::Constraint;

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
    /// Divides positive logits and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of a token for each occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of a token that occurs in the output; 0 is off.
    pub presence_penalty: f32,
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
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
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
        let check = |ok: bool, field: &'static str, range: &str, value: &dyn std::fmt::Display| {
            if ok {
                return Ok(());
            }
            Err(SamplingError { field, range: range.into(), value: value.to_string() })
        };
        let finite = |field, value: f32| check(value.is_finite(), field, "finite", &value);
        let (t, r) = (self.temperature, self.repetition_penalty);
        let at_least_0 = t.is_finite() && t >= 0.0;
        check(at_least_0, "temperature", "finite and at least 0", &t)?;
        for (field, value) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            check((0.0..=1.0).contains(&value), field, "from 0 to 1", &value)?;
        }
        let above_0 = r.is_finite() && r > 0.0;
        check(above_0, "repetition_penalty", "finite and above 0", &r)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        finite("presence_penalty", self.presence_penalty)?;
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

    /// True if earlier tokens change the logits.
    pub(super) fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }

    /// True if the logits are changed before sampling, by penalties or biases.
    pub(super) fn changes_logits(&self) -> bool {
        self.penalizes() || !self.logit_bias.is_empty()
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
            (SamplingParams { logprobs: Some(11), ..default() }, "logprobs must be at most the vocabulary's size 10, but is 11"),
        ];
        for (params, message) in bad {
            assert_eq!(params.validate(10).unwrap_err().to_string(), message);
        }
    }
}
