//! RoPE of a GGUF file. Llama-3's frequency scaling is stored as a tensor of divisors.

use super::meta::Meta;
use crate::format::index::{Index, Tensor};
use crate::format::{LoadError, LoadErrorKind as Kind, Rope, RopeScaling};

const FACTORS: &str = "rope_freqs.weight";

pub(super) fn rope(
    meta: &Meta<'_>,
    arch: &str,
    head_dim: usize,
    index: &mut Index,
) -> Result<Rope, LoadError> {
    let unsupported = |want: String, found: String| {
        LoadError::new(Kind::UnsupportedFeature, meta.file, want, found)
    };
    let key = |name: &str| format!("{arch}.rope.{name}");
    let dims = meta.size(&key("dimension_count"))?.unwrap_or(head_dim);
    if dims != head_dim {
        let want = format!("RoPE over all {head_dim} columns of a head");
        return Err(unsupported(want, format!("over {dims}")));
    }
    if let Some(kind) = meta.text(&key("scaling.type"))?.filter(|&kind| kind != "none") {
        let factor = meta.float(&key("scaling.factor"))?.unwrap_or(1.0);
        if kind != "linear" || factor != 1.0 {
            let found = format!("`{kind}` by {factor}");
            return Err(unsupported("no RoPE scaling or that of Llama-3".into(), found));
        }
    }
    if let Some(factor) = meta.float(&key("scale_linear"))?.filter(|&f| f != 1.0) {
        return Err(unsupported("no linear RoPE scaling".into(), factor.to_string()));
    }
    let theta = meta.float(&key("freq_base"))?.unwrap_or(10_000.0);
    let divisors = index.take(FACTORS).map(|t| positive(&t, head_dim / 2)).transpose()?;
    let scaling = divisors.filter(|d| d.iter().any(|&d| d != 1.0)).map(RopeScaling::Divisors);
    Ok(Rope { theta, scaling })
}

/// A vector of numbers that one can divide by.
fn positive(tensor: &Tensor, len: usize) -> Result<Vec<f32>, LoadError> {
    let divisors = tensor.vector(len)?;
    match divisors.iter().find(|&&d| d <= 0.0) {
        Some(d) => Err(tensor.error(Kind::Value, "positive RoPE divisors", d.to_string())),
        None => Ok(divisors),
    }
}
