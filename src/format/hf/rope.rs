//! The rotary embedding of `config.json`.

use super::fields::{Config, RopeConfig, need, unsupported};
use super::qwen35;
use crate::format::{
    Llama3Scaling, LoadError, LoadErrorKind as Kind, LongRopeScaling, Rope, RopeScaling,
    YarnScaling,
};

impl Config {
    /// A number of `rope_parameters` or, in older files, `rope_scaling`.
    fn rope_number(&self, field: fn(&RopeConfig) -> Option<f64>) -> Option<f64> {
        let both = [&self.rope_parameters, &self.rope_scaling];
        both.into_iter().find_map(|r| r.as_ref().and_then(field))
    }

    /// β of the growth of queries with their position.
    pub(super) fn query_beta(&self) -> Option<f64> {
        self.rope_number(|r| r.llama_4_scaling_beta)
    }

    /// Number of columns of a head that RoPE turns.
    pub(super) fn rotary_dim(
        &self,
        file: &str,
        head_dim: usize,
        hybrid: bool,
    ) -> Result<usize, LoadError> {
        let given = self.rope_number(|r| r.partial_rotary_factor).or(self.partial_rotary_factor);
        match given.unwrap_or(if hybrid { qwen35::PARTIAL_ROTARY } else { 1.0 }) {
            1.0 => Ok(head_dim),
            part if hybrid && part > 0.0 && part < 1.0 => Ok((head_dim as f64 * part) as usize),
            part => {
                let want =
                    if hybrid { "RoPE over a part of heads" } else { "RoPE over whole heads" };
                Err(unsupported(file, want, format!("over {part} of them")))
            }
        }
    }

    /// Reads the rotary embedding. `hunyuan` is the size of heads in Hunyuan's models, whose type
    /// `dynamic` is another rule than elsewhere.
    pub(super) fn rope(&self, file: &str, hunyuan: Option<usize>) -> Result<Rope, LoadError> {
        // The default of `transformers`, which configurations leave out.
        let base = self.rope_number(|r| r.rope_theta).or(self.rope_theta).unwrap_or(10_000.0);
        let (mut theta, mut scaling) = (base, None);
        for r in [&self.rope_parameters, &self.rope_scaling].into_iter().flatten() {
            match r.rope_type.as_deref().or(r.old_type.as_deref()) {
                None | Some("default") => {}
                Some("llama3") => scaling = Some(RopeScaling::Llama3(r.llama3(file)?)),
                Some("linear") => {
                    scaling = Some(RopeScaling::Linear(need(file, "factor", r.factor)?));
                }
                Some("yarn") => scaling = Some(RopeScaling::Yarn(self.yarn(file, r)?)),
                Some("longrope" | "su") => {
                    scaling = Some(RopeScaling::LongRope(self.long_rope(file, r)?));
                }
                Some(other) => match (other, hunyuan) {
                    ("dynamic", Some(head_dim)) => theta = r.alpha_base(file, base, head_dim)?,
                    _ => {
                        let want =
                            "RoPE scaling `default`, `linear`, `llama3`, `yarn` or `longrope`";
                        return Err(unsupported(file, want, format!("`{other}`")));
                    }
                },
            }
        }
        let beta = self.query_beta().filter(|&beta| beta != 0.0);
        if let Some(beta) = beta.filter(|_| !matches!(scaling, Some(RopeScaling::Yarn(_)))) {
            let want = "`llama_4_scaling_beta` next to RoPE scaling `yarn`";
            return Err(unsupported(file, want, format!("{beta} without it")));
        }
        Ok(Rope { theta, scaling })
    }

    /// Reads LongRoPE. Its factor of cosines and sines follows from the lengths.
    fn long_rope(&self, file: &str, r: &RopeConfig) -> Result<LongRopeScaling, LoadError> {
        let longest = need(file, "max_position_embeddings", self.max_position_embeddings)?;
        let original = self.original_max_position_embeddings;
        let original = original.or(r.original_max_position_embeddings).unwrap_or(longest);
        if r.long_mscale.or(r.short_mscale).is_some() {
            let want = "LongRoPE with one factor of cosines and sines";
            return Err(unsupported(file, want, "`long_mscale` or `short_mscale`"));
        }
        let inferred = || LongRopeScaling::attention_scale(longest, original);
        Ok(LongRopeScaling {
            long: need(file, "long_factor", r.long_factor.clone())?,
            short: need(file, "short_factor", r.short_factor.clone())?,
            original_context: original,
            attention_factor: r.attention_factor.unwrap_or_else(inferred),
        })
    }

    /// Reads YaRN as `transformers` does: missing values follow from the lengths and the paper.
    fn yarn(&self, file: &str, r: &RopeConfig) -> Result<YarnScaling, LoadError> {
        let longest = need(file, "max_position_embeddings", self.max_position_embeddings)?;
        let original = self.original_max_position_embeddings;
        let original = original.or(r.original_max_position_embeddings).unwrap_or(longest);
        let factor = r.factor.unwrap_or(longest as f64 / original as f64);
        let paper = YarnScaling::new(factor, original);
        let given = |x: Option<f64>| x.filter(|&x| x != 0.0);
        let attention = |scale| YarnScaling::attention_scale(factor, scale);
        let inferred = match (given(r.mscale), given(r.mscale_all_dim)) {
            (Some(own), Some(all)) => attention(own) / attention(all),
            _ => paper.attention_factor,
        };
        Ok(YarnScaling {
            beta_fast: given(r.beta_fast).unwrap_or(paper.beta_fast),
            beta_slow: given(r.beta_slow).unwrap_or(paper.beta_slow),
            attention_factor: r.attention_factor.unwrap_or(inferred),
            truncate: r.truncate.unwrap_or(paper.truncate),
            query_beta: self.query_beta().unwrap_or(0.0),
            ..paper
        })
    }
}

impl RopeConfig {
    /// Returns the base of Hunyuan's frequencies, which is the same at every length.
    fn alpha_base(&self, file: &str, theta: f64, head_dim: usize) -> Result<f64, LoadError> {
        let Some(alpha) = self.alpha else {
            return Err(unsupported(file, "RoPE of type `dynamic` with `alpha`", "no `alpha`"));
        };
        Rope::alpha_base(theta, alpha, head_dim)
            .ok_or_else(|| LoadError::new(Kind::Value, file, "`alpha` above 0", alpha.to_string()))
    }

    fn llama3(&self, file: &str) -> Result<Llama3Scaling, LoadError> {
        Ok(Llama3Scaling {
            factor: need(file, "factor", self.factor)?,
            low_freq_factor: need(file, "low_freq_factor", self.low_freq_factor)?,
            high_freq_factor: need(file, "high_freq_factor", self.high_freq_factor)?,
            original_context: need(
                file,
                "original_max_position_embeddings",
                self.original_max_position_embeddings,
            )?,
        })
    }
}
