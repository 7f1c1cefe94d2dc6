//! Logits of given tokens, and how two sets of them differ.

use super::finite;
use serde::Serialize;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};

/// Rows of a pass: a row of logits can be half a megabyte.
const ROWS: usize = 64;

/// Computes the logits after each token and hands them out row by row. The cache is exact.
///
/// # Errors
/// If there is no memory for the cache, the model computes a number that is not finite, or `take` fails.
pub(crate) fn each_row(
    runtime: &Runtime,
    model: &Model,
    tokens: &[u32],
    attention_mask: AttentionMask,
    mut take: impl FnMut(&[f32]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut kv = KvPool::new(model.spec(), tokens.len().div_ceil(PAGE), KvConfig::EXACT)?;
    let seq = kv.open(tokens.len())?;
    let mut workspace = Workspace::default();
    let rows = match attention_mask {
        AttentionMask::BlockCausal(n) => n * (ROWS / n).max(1), // a block is never torn apart
        _ => ROWS,
    };
    for (chunk, tokens) in tokens.chunks(rows).enumerate() {
        let (start, logits) = (chunk * rows, LogitRows::All);
        let span = Span { seq, start, tokens, attention_mask, logits };
        let logits = finite(model.forward(runtime, &mut kv, &[span], &mut workspace))?;
        (0..logits.len()).try_for_each(|row| take(logits.row(row)))?;
    }
    Ok(())
}

/// Computes the logits after each token, `[tokens][vocab_size]`.
///
/// # Errors
/// If there is no memory for the cache, or the model computes a number that is not finite.
pub fn all(runtime: &Runtime, model: &Model, tokens: &[u32]) -> anyhow::Result<Vec<f32>> {
    let mut all = Vec::new();
    each_row(runtime, model, tokens, AttentionMask::Causal, |row| {
        all.extend_from_slice(row);
        Ok(())
    })?;
    Ok(all)
}

/// Tokens that spread over a vocabulary.
pub fn spread(count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|i| ((i * 7919 + 1) % vocab) as u32).collect()
}

/// Difference of logits from a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// Number of positions.
    pub positions: usize,
    /// Largest difference of a logit.
    pub largest: f64,
    /// Position and token of the largest difference.
    pub at: (usize, usize),
    /// Mean difference of a logit.
    pub mean: f64,
    /// Largest difference over the largest logit.
    pub relative: f64,
    /// Smallest cosine of the rows of a position.
    pub cosine: f64,
    /// Positions with the same most likely token.
    pub top1: usize,
    /// Mean of the Kullback–Leibler divergence from the reference, in nats.
    pub kl_mean: f64,
    /// Largest Kullback–Leibler divergence of a position.
    pub kl_largest: f64,
}

impl Difference {
    /// Compares rows of `vocab` logits with those of a reference, which has as many.
    pub(crate) fn of(reference: &[f32], found: &[f32], vocab: usize) -> Self {
        let mut all = Self {
            positions: reference.len() / vocab,
            largest: 0.0,
            at: (0, 0),
            mean: 0.0,
            relative: 0.0,
            cosine: 1.0,
            top1: 0,
            kl_mean: 0.0,
            kl_largest: 0.0,
        };
        let mut greatest = f64::MIN_POSITIVE;
        let rows = reference.chunks_exact(vocab).zip(found.chunks_exact(vocab));
        for (position, (a, b)) in rows.enumerate() {
            let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
            for (token, (a, b)) in a.iter().zip(b).enumerate() {
                let (a, b) = (f64::from(*a), f64::from(*b));
                let difference = (a - b).abs();
                if difference > all.largest {
                    (all.largest, all.at) = (difference, (position, token));
                }
                all.mean += difference;
                greatest = greatest.max(a.abs());
                (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
            }
            if aa * bb > 0.0 {
                all.cosine = all.cosine.min(ab / (aa * bb).sqrt());
            }
            all.top1 += usize::from(best(a) == best(b));
            let kl = divergence(a, b);
            all.kl_mean += kl;
            all.kl_largest = all.kl_largest.max(kl);
        }
        all.mean /= reference.len().max(1) as f64;
        all.kl_mean /= all.positions.max(1) as f64;
        all.relative = all.largest / greatest;
        all
    }
}

fn best(row: &[f32]) -> Option<usize> {
    row.iter().enumerate().max_by(|x, y| x.1.total_cmp(y.1)).map(|x| x.0)
}

/// Kullback–Leibler divergence of the distribution of `b` from that of `a`.
fn divergence(a: &[f32], b: &[f32]) -> f64 {
    let normalizer = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
        f64::from(most) + sum.ln()
    };
    let (za, zb) = (normalizer(a), normalizer(b));
    let terms = a.iter().zip(b).map(|(a, b)| {
        let (log_a, log_b) = (f64::from(*a) - za, f64::from(*b) - zb);
        log_a.exp() * (log_a - log_b)
    });
    terms.sum::<f64>().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_do_not_differ() {
        let same = Difference::of(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!((same.largest, same.top1, same.positions, same.kl_mean), (0.0, 2, 2, 0.0));
        assert!((same.cosine - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_difference_is_found_where_it_is() {
        let found = Difference::of(&[0.0, 0.0, 0.0, 4.0], &[0.0, 0.0, 2.0, 1.0], 2);
        assert_eq!((found.largest, found.at, found.top1), (3.0, (1, 1), 1));
        assert_eq!((found.mean, found.relative), (1.25, 0.75));
        // p = (0.018, 0.982) of the reference, q = (0.731, 0.269).
        let (p, q) = (1.0 / (1.0 + 4f64.exp()), 1.0 / (1.0 + (-1f64).exp()));
        let want = p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
        assert!(
            (found.kl_largest - want).abs() < 1e-12 && (found.kl_mean - want / 2.0).abs() < 1e-12
        );
    }
}
