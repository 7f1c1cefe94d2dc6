//! Range checks of configuration values, on which later layers rely.

use super::mixer::MOST_LAYERS;
use super::{DlmConfig, LoadError, LoadErrorKind as Kind, MixerKind, RopeScaling, Spec};
use crate::kernel::DeltaShape;

impl Spec {
    /// Refuses values out of range, which would overflow, divide by zero or loop for too long.
    pub(super) fn check(&self, file: &str) -> Result<(), LoadError> {
        let sizes = [
            ("vocabulary size", self.vocab_size, 1 << 24),
            ("hidden size", self.hidden_size, 1 << 18),
            ("intermediate size", self.intermediate_size, 1 << 20),
            ("layer count", self.layers, MOST_LAYERS),
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
        let rotary = self.rotary_dim();
        if rotary == 0 || !rotary.is_multiple_of(2) || rotary > self.head_dim {
            let want = format!("RoPE over an even part of {} columns", self.head_dim);
            return Err(bad(file, want, rotary));
        }
        if self.mtp_layers > 1 {
            return Err(bad(file, "at most one block for multi-token prediction", self.mtp_layers));
        }
        if let Some(f) = self.factors
            && ![f.embedding, f.residual, f.logit_divisor].iter().all(|x| x.is_normal())
        {
            let want = "factors of embeddings, blocks and logits that are finite and not 0";
            return Err(bad(file, want, format!("{f:?}")));
        }
        self.check_mixers(file)?;
        self.check_rope(file)
    }

    fn check_mixers(&self, file: &str) -> Result<(), LoadError> {
        if !self.mixers.is_empty() && self.mixers.len() != self.layers {
            let want = format!("a mixer for each of {} layers", self.layers);
            return Err(bad(file, want, self.mixers.len()));
        }
        let Some(shape) = &self.linear_attention else {
            return if self.mixers.contains(&MixerKind::Linear) {
                Err(bad(file, "the shape of linear attention", "none"))
            } else {
                Ok(())
            };
        };
        let taps = DeltaShape::MAX_TAPS;
        let sizes = [
            ("key head count", shape.key_heads, 1 << 12),
            ("value head count", shape.value_heads, 1 << 12),
            ("width of keys", shape.key_dim, 1 << 12),
            ("width of values", shape.value_dim, 1 << 12),
            ("number of convolved positions", shape.conv_kernel, taps),
        ];
        for (what, size, most) in sizes {
            if size == 0 || size > most {
                let want = format!("linear attention with a {what} from 1 to {most}");
                return Err(bad(file, want, size));
            }
        }
        if !shape.value_heads.is_multiple_of(shape.key_heads) {
            let want =
                format!("linear attention with a multiple of {} value heads", shape.key_heads);
            return Err(bad(file, want, shape.value_heads));
        }
        Ok(())
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
            Some(RopeScaling::LongRope(s)) => {
                self.check_divisors(file, &s.long)?;
                self.check_divisors(file, &s.short)?;
                positive(s.attention_factor) && s.original_context > 0
            }
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
                    && s.query_beta.is_finite()
                    && s.query_beta >= 0.0
            }
        };
        if sane {
            Ok(())
        } else {
            Err(bad(
                file,
                "RoPE scaling by positive factors, the low-frequency one below the high-frequency one",
                format!("{:?}", self.rope.scaling),
            ))
        }
    }
}

impl Spec {
    fn check_divisors(&self, file: &str, divisors: &[f32]) -> Result<(), LoadError> {
        let pairs = self.rotary_dim() / 2;
        if divisors.len() != pairs {
            let want = format!("{pairs} RoPE divisors, one per pair of columns");
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
        if self.blocks_from_prompt && self.clean_attention != "causal" {
            let want = "clean_attention `causal` with blocks_from_prompt";
            return Err(bad(file, want, &self.clean_attention));
        }
        Ok(())
    }
}

fn bad(file: &str, want: impl Into<String>, found: impl ToString) -> LoadError {
    LoadError::new(Kind::Value, file, want, found.to_string())
}
