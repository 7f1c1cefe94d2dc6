//! Measures of certainty: confidence of a distribution in the token that was drawn from it.

use super::candidates::{highest, log_sum_exp};
use super::filters::total;
use crate::kernel::exp;

/// A measure of certainty; a larger value is more certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The token's probability.
    Probability,
    /// The difference between the two highest probabilities (arXiv 2502.06768).
    Margin,
    /// The negative entropy −H of the distribution, in nats.
    Entropy,
}

impl Certainty {
    /// Returns the certainty of `token` under the softmax of `logits`; [`none`](Self::none) if no logit is
    /// above −∞.
    pub(super) fn of_logits(self, logits: &[f32], token: u32) -> f32 {
        let max = highest(logits);
        if max == f32::NEG_INFINITY {
            return self.none();
        }
        if max == f32::INFINITY {
            return self.full();
        }
        let norm = log_sum_exp(logits);
        let probability = |logit: f32| libm::expf(logit - norm);
        match self {
            Self::Probability => probability(logits[token as usize]),
            Self::Margin => probability(max) - second(logits, max).map_or(0.0, probability),
            Self::Entropy => {
                let finite = logits.iter().filter(|x| x.is_finite());
                -entropy(finite.map(|&x| (exp(x - max), x - max)))
            }
        }
    }

    /// Returns the certainty of the entry with weight `chosen` in `list`. Weights are probabilities times a
    /// constant.
    pub(super) fn of_weights(self, list: &[(u32, f32)], chosen: f32) -> f32 {
        let share = |weight: f32| (f64::from(weight) / total(list)) as f32;
        match self {
            Self::Probability => share(chosen),
            Self::Margin => {
                let (mut first, mut second) = (0.0f32, 0.0f32);
                for &(_, weight) in list {
                    (first, second) =
                        if weight > first { (weight, first) } else { (first, second.max(weight)) };
                }
                share(first) - share(second)
            }
            Self::Entropy => -entropy(list.iter().map(|&(_, w)| (w, libm::logf(w)))),
        }
    }

    /// The certainty of a token with probability 1.
    fn full(self) -> f32 {
        match self {
            Self::Probability | Self::Margin => 1.0,
            Self::Entropy => 0.0,
        }
    }

    /// The certainty where there is no distribution.
    pub(super) fn none(self) -> f32 {
        match self {
            Self::Probability | Self::Margin => 0.0,
            Self::Entropy => f32::NEG_INFINITY,
        }
    }
}

/// Returns the second highest logit; `max` is the highest one.
fn second(logits: &[f32], max: f32) -> Option<f32> {
    let first = logits.iter().position(|&logit| logit == max)?;
    let (before, after) = (highest(&logits[..first]), highest(&logits[first + 1..]));
    Some(before.max(after)).filter(|&logit| logit > f32::NEG_INFINITY)
}

/// Returns Σ p · ln(1/p) of weights and their logarithms; never below zero.
fn entropy(weights: impl Iterator<Item = (f32, f32)>) -> f32 {
    let (mut sum, mut weighted) = (0.0f64, 0.0f64);
    for (weight, logarithm) in weights.filter(|entry| entry.0 > 0.0) {
        sum += f64::from(weight);
        weighted += f64::from(weight) * f64::from(logarithm);
    }
    (libm::log(sum) - weighted / sum).max(0.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The softmax by definition, largest probability first.
    fn softmax(logits: &[f32]) -> Vec<f64> {
        let weights: Vec<f64> = logits.iter().map(|&x| f64::from(x).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut p: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        p.sort_by(|a, b| b.total_cmp(a));
        p
    }

    #[test]
    fn all_measures_match_their_definitions() {
        let (inf, cases) = (f32::NEG_INFINITY, 200);
        for case in 0..cases {
            let mut logits: Vec<f32> =
                (0..90).map(|i| ((i * 37 + case * 11) % 101) as f32 / 9.0 - 6.0).collect();
            logits[case % 90] = inf;
            let p = softmax(&logits);
            let h: f64 = p.iter().filter(|&&x| x > 0.0).map(|x| -x * x.ln()).sum();
            let best = logits.iter().position(|&x| x == highest(&logits)).unwrap();
            let list: Vec<(u32, f32)> =
                (0..).zip(logits.iter().map(|&x| exp(x - logits[best]))).collect();
            let list: Vec<_> = list.into_iter().filter(|entry| entry.1 > 0.0).collect();
            for (by, want) in [
                (Certainty::Probability, p[0]),
                (Certainty::Margin, p[0] - p[1]),
                (Certainty::Entropy, -h),
            ] {
                for got in [by.of_logits(&logits, best as u32), by.of_weights(&list, 1.0)] {
                    assert!((f64::from(got) - want).abs() < 1e-5, "{by:?}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn a_single_token_is_certain_and_no_token_is_not() {
        let inf = f32::NEG_INFINITY;
        for (by, one, none) in [
            (Certainty::Probability, 1.0, 0.0),
            (Certainty::Margin, 1.0, 0.0),
            (Certainty::Entropy, 0.0, inf),
        ] {
            assert_eq!(by.of_logits(&[inf, 3.0, f32::NAN], 1), one, "{by:?}");
            assert_eq!(by.of_weights(&[(7, 1.0)], 1.0), one, "{by:?}");
            assert_eq!(by.of_logits(&[2.0, f32::INFINITY], 1), one, "{by:?}");
            assert_eq!(by.of_logits(&[inf, f32::NAN], 0), none, "{by:?}");
        }
        assert_eq!(Certainty::Margin.of_logits(&[2.0, 2.0, 1.0], 0), 0.0);
    }
}
