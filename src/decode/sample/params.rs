//! How tokens are chosen, and which values make sense.

use super::Constraint;

/// How tokens are chosen.
#[derive(Clone, Debug)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k most likely; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set with at least this mass; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this × the most likely; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted per earlier occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from tokens that occur in the output; 0 is off.
    pub presence_penalty: f32,
    /// Added to the logits of single tokens; −∞ bans one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same output.
    pub seed: u64,
    /// Also report log-probabilities of this many most likely tokens.
    pub logprobs: Option<usize>,
    /// Report them for the prompt as well. Only autoregressive decoding can.
    pub score_prompt: bool,
    /// What the output must be.
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

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {range}, but is {value}")]
pub struct SamplingError {
    /// The field of [`SamplingParams`].
    pub field: &'static str,
    /// What it may be, in words.
    pub range: String,
    /// What it is.
    pub value: String,
}

impl SamplingError {
    /// A name for the kind of error that never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_sampling_parameter"
    }
}

impl SamplingParams {
    /// Checks every parameter for a model of `vocab` tokens.
    ///
    /// # Errors
    /// Names the first field outside its range.
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

    /// Whether earlier tokens matter.
    pub(super) fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }

    /// Whether the model's logits are not taken as they are.
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
