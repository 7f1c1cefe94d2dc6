//! Mirostat (arXiv 2007.14966): keeps the surprise of the output near a target.

use super::filters::{best_first, total};

/// Number of most likely tokens from which version 1 estimates the exponent of Zipf's law.
const ESTIMATED: usize = 100;

/// Settings of Mirostat. It truncates the tokens that other filters leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// Algorithm.
    pub version: MirostatVersion,
    /// Surprise that the output should have, in bits (τ).
    pub target: f32,
    /// Rate at which the limit follows the surprise of sampled tokens (η).
    pub rate: f32,
}

/// Algorithms of [`Mirostat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// Estimates the exponent of Zipf's law and keeps the k most likely tokens.
    One,
    /// Keeps the tokens whose surprise is at most the limit.
    Two,
}

impl Default for Mirostat {
    fn default() -> Self {
        Self { version: MirostatVersion::Two, target: 5.0, rate: 0.1 }
    }
}

impl Mirostat {
    /// Returns the first limit of the surprise (μ).
    pub(super) fn first_limit(&self) -> f64 {
        2.0 * f64::from(self.target)
    }

    /// Returns the limit after a token with this share of the kept weights.
    pub(super) fn next_limit(&self, limit: f64, share: f64) -> f64 {
        limit - f64::from(self.rate) * (surprise(share) - f64::from(self.target))
    }

    /// Keeps the tokens within the limit, at least the most likely one. The list has weights, sorted by
    /// id; it is sorted by weight afterwards. `vocab` is the size of the vocabulary.
    pub(super) fn truncate(&self, list: &mut Vec<(u32, f32)>, limit: f64, vocab: usize) {
        let total = total(list);
        list.sort_unstable_by(best_first);
        let kept = match self.version {
            MirostatVersion::One => most_likely(list, limit, vocab),
            MirostatVersion::Two => {
                list.partition_point(|entry| surprise(f64::from(entry.1) / total) <= limit)
            }
        };
        list.truncate(kept.max(1));
    }
}

/// Surprise of an outcome of this probability, in bits.
fn surprise(probability: f64) -> f64 {
    -libm::log2(probability)
}

/// Number of tokens to keep so that the expected surprise is the limit, if probabilities follow Zipf's
/// law. The list is sorted by weight.
fn most_likely(list: &[(u32, f32)], limit: f64, vocab: usize) -> usize {
    let (mut products, mut squares) = (0.0, 0.0);
    for (i, pair) in list.windows(2).take(ESTIMATED - 1).enumerate() {
        if pair[1].1 == 0.0 {
            break;
        }
        let t = libm::log((i + 2) as f64 / (i + 1) as f64);
        products += t * libm::log(f64::from(pair[0].1) / f64::from(pair[1].1));
        squares += t * t;
    }
    let exponent = products / squares;
    let epsilon = exponent - 1.0;
    let ratio = epsilon * libm::exp2(limit) / (1.0 - libm::pow(vocab as f64, -epsilon));
    let k = libm::pow(ratio, 1.0 / exponent);
    // Also if k is not a number, as for equal probabilities.
    if k < list.len() as f64 { k as usize } else { list.len() }
}
