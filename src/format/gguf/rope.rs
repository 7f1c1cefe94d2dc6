//! RoPE of a GGUF file. Llama-3's frequency scaling is stored as a tensor of divisors; the
//! parameters that made it are found again and must reproduce every divisor.

use super::meta::Meta;
use crate::format::index::Index;
use crate::format::{Llama3Scaling, LoadError, LoadErrorKind as Kind, Rope};

const FACTORS: &str = "rope_freqs.weight";
/// What every Llama-3 model was scaled with.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
const ORIGINAL: usize = 8192;

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
    let scaling = match index.take(FACTORS) {
        None => None,
        Some(t) => {
            let factors = t.vector(head_dim / 2)?;
            let stored = meta.size(&key("scaling.original_context_length"))?;
            match llama3(theta, &factors, stored.into_iter().chain([ORIGINAL])) {
                Some(found) => found,
                None => {
                    return Err(t.error(
                        Kind::UnsupportedFeature,
                        "the frequency scaling of Llama-3",
                        "other factors",
                    ));
                }
            }
        }
    };
    Ok(Rope { theta, scaling })
}

/// The parameters that give these divisors: `Some(None)` when they are all 1.
fn llama3(
    theta: f64,
    factors: &[f32],
    originals: impl Iterator<Item = usize>,
) -> Option<Option<Llama3Scaling>> {
    let factor = factors.iter().copied().fold(f32::MIN, f32::max).into();
    if factor == 1.0 && factors.iter().all(|&f| f == 1.0) {
        return Some(None);
    }
    originals
        .map(|original_context| Llama3Scaling {
            factor,
            low_freq_factor: LOW,
            high_freq_factor: HIGH,
            original_context,
        })
        .find(|s| {
            factors.iter().enumerate().all(|(i, &f)| {
                let want = divisor(s, theta, i as f64 / factors.len() as f64);
                (f64::from(f) - want).abs() <= 1e-4 * want.abs()
            })
        })
        .map(Some)
}

/// What the frequency θ^−`exponent` is divided by.
fn divisor(s: &Llama3Scaling, theta: f64, exponent: f64) -> f64 {
    let wavelength = 2.0 * std::f64::consts::PI * libm::pow(theta, exponent);
    let turns = s.original_context as f64 / wavelength;
    if turns > s.high_freq_factor {
        1.0
    } else if turns < s.low_freq_factor {
        s.factor
    } else {
        let smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        1.0 / ((1.0 - smooth) / s.factor + smooth)
    }
}
