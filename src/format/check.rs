//! Range checks of configuration values, on which later layers rely.

use super::{DlmConfig, LoadError, LoadErrorKind as Kind, RopeScaling, Spec};

impl Spec {
    /// Refuses values out of range, which would overflow, divide by zero or loop for too long.
    pub(super) fn check(&self, file: &str) -> Result<(), LoadError> {
        let sizes = [
            ("vocabulary size", self.vocab_size, 1 << 24),
            ("hidden size", self.hidden_size, 1 << 18),
            ("intermediate size", self.intermediate_size, 1 << 20),
            ("layer count", self.layers, 1 << 12),
            ("head count", self.heads, 1 << 12),
            ("key/value head count", self.kv_heads, 1 << 12),
            ("head size", self.head_dim, 1 << 12),
            ("context length", self.context_length, 1 << 30),
        ];
        for (what, size, most) in sizes {
            if size == 0 || size > most {
                return Err(bad(file, format!("a {what} from 1 to {most}"), size));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let want = format!("key/value heads that divide {} heads", self.heads);
            return Err(bad(file, want, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(bad(file, "an even head size", self.head_dim));
        }
        if !(0.0..=0.1).contains(&self.norm_eps) {
            return Err(bad(file, "a norm ε from 0 to 0.1", self.norm_eps));
        }
        self.check_rope(file)
    }

    fn check_rope(&self, file: &str) -> Result<(), LoadError> {
        let theta = self.rope.theta;
        if !(theta.is_finite() && theta > 1.0) {
            return Err(bad(file, "a RoPE base above 1", theta));
        }
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let sane = match &self.rope.scaling {
            None => true,
            Some(RopeScaling::Divisors(d)) => return self.check_divisors(file, d),
            Some(RopeScaling::Linear(factor)) => positive(*factor),
            Some(RopeScaling::Llama3(s)) => {
                [s.factor, s.low_freq_factor, s.high_freq_factor].into_iter().all(positive)
                    && s.high_freq_factor > s.low_freq_factor
                    && s.original_context > 0
            }
            Some(RopeScaling::Yarn(s)) => {
                [s.factor, s.beta_fast, s.beta_slow, s.attention_factor].into_iter().all(positive)
                    && s.beta_fast >= s.beta_slow
                    && s.original_context > 0
            }
        };
        match sane {
            true => Ok(()),
            false => Err(bad(
                file,
                "RoPE scaling by positive factors, the low-frequency one below the high-frequency one",
                format!("{:?}", self.rope.scaling),
            )),
        }
    }
}

impl Spec {
    fn check_divisors(&self, file: &str, divisors: &[f32]) -> Result<(), LoadError> {
        if divisors.len() != self.head_dim / 2 {
            let want = format!("{} RoPE divisors, one per pair of columns", self.head_dim / 2);
            return Err(bad(file, want, divisors.len()));
        }
        match divisors.iter().find(|d| !(d.is_finite() && **d > 0.0)) {
            Some(d) => Err(bad(file, "positive RoPE divisors", d)),
            None => Ok(()),
        }
    }
}

impl DlmConfig {
    /// Refuses values that the decoders do not support.
    pub(super) fn check(&self, file: &str, vocab_size: usize) -> Result<(), LoadError> {
        if self.bd_size == 0 || self.bd_size > 1 << 16 {
            return Err(bad(file, "a block size from 1 to 65536", self.bd_size));
        }
        if let Some(id) = self.mask_token_id.filter(|&id| id as usize >= vocab_size) {
            return Err(bad(file, format!("a mask token id below {vocab_size}"), id));
        }
        if !["block", "causal"].contains(&self.clean_attention.as_str()) {
            return Err(bad(file, "clean_attention `block` or `causal`", &self.clean_attention));
        }
        if self.logit_shift > 1 {
            return Err(bad(file, "a logit shift of 0 or 1", self.logit_shift));
        }
        Ok(())
    }
}

fn bad(file: &str, want: impl Into<String>, found: impl ToString) -> LoadError {
    LoadError::new(Kind::Value, file, want, found.to_string())
}
