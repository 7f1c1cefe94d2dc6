//! RoPE of a GGUF file. Linear scaling and YaRN are metadata; the divisors of Llama 3's frequency
//! scaling are a tensor, those of LongRoPE two.

use super::meta::Metadata;
use crate::format::index::{Tensor, TensorIndex};
use crate::format::{
    LoadError, LoadErrorKind as Kind, LongRopeScaling, Rope, RopeScaling, YarnScaling,
};

pub(super) const FACTORS: &str = "rope_freqs.weight";
/// The lists of LongRoPE, for long and for short contexts.
pub(super) const LONG_FACTORS: [&str; 2] =
    ["rope_factors_long.weight", "rope_factors_short.weight"];

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
    let long = long_rope(meta, &key, (rotary_dim, longest), index)?.map(RopeScaling::LongRope);
    let mut rules = [by_rule(meta, &key, longest)?, divisors, long].into_iter().flatten();
    let scaling = rules.next();
    if let Some(other) = rules.next() {
        let want = format!("RoPE scaling by metadata, `{FACTORS}` or {LONG_FACTORS:?}, not by two");
        return Err(unsupported(meta, want, format!("{scaling:?} and {other:?}")));
    }
    Ok(Rope { theta, scaling })
}

/// Reads LongRoPE, if the file has it. Files without its type may have the lists, as llama.cpp reads
/// them.
fn long_rope(
    meta: &Metadata<'_>,
    key: &impl Fn(&str) -> String,
    (rotary_dim, longest): (usize, usize),
    index: &mut TensorIndex,
) -> Result<Option<LongRopeScaling>, LoadError> {
    let [long, short] = LONG_FACTORS.map(|name| index.take(name));
    let (long, short) = match (long, short) {
        (None, None) if meta.text(&key("scaling.type"))? != Some(LONG_ROPE) => return Ok(None),
        (Some(long), Some(short)) => (long, short),
        (long, _) => {
            let name = LONG_FACTORS[usize::from(long.is_some())];
            return Err(LoadError::new(
                Kind::Missing,
                meta.file,
                "it in the file",
                "no such tensor",
            )
            .tensor(name)
            .advice("LongRoPE needs both lists of factors"));
        }
    };
    let original = meta.size(&key("scaling.original_context_length"))?;
    Ok(Some(LongRopeScaling {
        long: positive(&long, rotary_dim / 2)?,
        short: positive(&short, rotary_dim / 2)?,
        original_context: original.unwrap_or(longest),
        attention_factor: meta.float(&key("scaling.attn_factor"))?.unwrap_or(1.0),
    }))
}

/// Returns the base of the frequencies of Hunyuan: `theta` is scaled already, except where the file
/// states the `alpha` to scale it with.
pub(super) fn hunyuan_base(
    meta: &Metadata<'_>,
    arch: &str,
    theta: f64,
    head_dim: usize,
) -> Result<f64, LoadError> {
    let key = |name: &str| format!("{arch}.rope.{name}");
    let sections = key("dimension_sections");
    if meta.values.contains_key(sections.as_str()) {
        let want = format!("no `{sections}`, which vision models have");
        return Err(unsupported(meta, want, "it".into())
            .advice("the text models are `hunyuan-dense`; convert the model's text part again"));
    }
    match meta.float(&key("scaling.alpha"))? {
        None => Ok(theta),
        Some(alpha) => Rope::alpha_base(theta, alpha, head_dim).ok_or_else(|| {
            let want = format!("`{}` above 0", key("scaling.alpha"));
            LoadError::new(Kind::Value, meta.file, want, alpha.to_string())
        }),
    }
}

/// `rope.scaling.type` of LongRoPE.
pub(super) const LONG_ROPE: &str = "longrope";

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
        LONG_ROPE => Ok(None),
        other => {
            let want = "RoPE scaling none, linear, yarn, longrope or that of Llama 3";
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
