//! RoPE of a GGUF file. Linear scaling and YaRN are metadata; Llama 3's frequency scaling is a tensor
//! of divisors.

use super::meta::Metadata;
use crate::format::index::{Tensor, TensorIndex};
use crate::format::{LoadError, LoadErrorKind as Kind, Rope, RopeScaling, YarnScaling};

pub(super) const FACTORS: &str = "rope_freqs.weight";

/// Reads the RoPE of a model of `longest` positions, which turns `rotary_dim` columns of a head.
pub(super) fn rope(
    meta: &Metadata<'_>,
    arch: &str,
    (rotary_dim, longest): (usize, usize),
    index: &mut TensorIndex,
) -> Result<Rope, LoadError> {
    let key = |name: &str| format!("{arch}.rope.{name}");
    let theta = meta.float(&key("freq_base"))?.unwrap_or(10_000.0);
    let divisors = index.take(FACTORS).map(|t| positive(&t, rotary_dim / 2)).transpose()?;
    let divisors = divisors.filter(|d| d.iter().any(|&d| d != 1.0)).map(RopeScaling::Divisors);
    let scaling = match (by_rule(meta, &key, longest)?, divisors) {
        (Some(rule), Some(_)) => {
            let want = format!("RoPE scaling by metadata or by `{FACTORS}`, not both");
            return Err(unsupported(meta, want, format!("{rule:?}")));
        }
        (rule, divisors) => rule.or(divisors),
    };
    Ok(Rope { theta, scaling })
}

/// Reads the scaling from metadata, as llama.cpp does.
fn by_rule(
    meta: &Metadata<'_>,
    key: &impl Fn(&str) -> String,
    longest: usize,
) -> Result<Option<RopeScaling>, LoadError> {
    let factor = match meta.float(&key("scaling.factor"))? {
        // Key of old files.
        None => meta.float(&key("scale_linear"))?,
        factor => factor,
    };
    // llama.cpp takes 0 for an absent factor.
    let factor = factor.filter(|&f| f != 0.0);
    match meta.text(&key("scaling.type"))?.unwrap_or("linear") {
        "none" => Ok(None),
        "linear" => Ok(factor.filter(|&f| f != 1.0).map(RopeScaling::Linear)),
        "yarn" => yarn(meta, key, factor, longest).map(|s| Some(RopeScaling::Yarn(s))),
        other => {
            let want = "RoPE scaling none, linear, yarn or that of Llama 3";
            Err(unsupported(meta, want.into(), format!("`{other}`")))
        }
    }
}

fn yarn(
    meta: &Metadata<'_>,
    key: &impl Fn(&str) -> String,
    factor: Option<f64>,
    longest: usize,
) -> Result<YarnScaling, LoadError> {
    let float = |name: &str| meta.float(&key(name));
    // Other families use these for the strength of attention and of the ramp.
    for (name, usual) in [("scaling.yarn_log_multiplier", 0.0), ("scaling.yarn_ext_factor", 1.0)] {
        if let Some(other) = float(name)?.filter(|&x| x != usual) {
            return Err(unsupported(meta, format!("`{}` {usual}", key(name)), other.to_string()));
        }
    }
    let factor = meta.need(&key("scaling.factor"), factor)?;
    let original = meta.size(&key("scaling.original_context_length"))?.unwrap_or(longest);
    let paper = YarnScaling::new(factor, original);
    let attention = float("scaling.attn_factor")?.unwrap_or(1.0)
        * float("scaling.yarn_attn_factor")?.unwrap_or(1.0);
    Ok(YarnScaling {
        beta_fast: float("scaling.yarn_beta_fast")?.unwrap_or(paper.beta_fast),
        beta_slow: float("scaling.yarn_beta_slow")?.unwrap_or(paper.beta_slow),
        attention_factor: paper.attention_factor * attention,
        ..paper
    })
}

fn unsupported(meta: &Metadata<'_>, want: String, found: String) -> LoadError {
    LoadError::new(Kind::UnsupportedFeature, meta.file, want, found)
}

/// Reads a vector of positive numbers.
fn positive(tensor: &Tensor, len: usize) -> Result<Vec<f32>, LoadError> {
    let divisors = tensor.vector(len)?;
    match divisors.iter().find(|&&d| d <= 0.0) {
        Some(d) => Err(tensor.error(Kind::Value, "positive RoPE divisors", d.to_string())),
        None => Ok(divisors),
    }
}
