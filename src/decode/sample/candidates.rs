//! The tokens that pass the filters, and the draw. Only the few tokens that filters keep are sorted, never
//! a whole vocabulary of 128,000.

use super::filters::{best_first, keep_near, keep_typical, remove_top_choices, total};
use super::{Certainty, Prediction, SamplingParams};
use crate::kernel::Kernels;
use std::sync::LazyLock;

/// Kernels for `exp` of logits. All instruction sets give the same bits, so the widest one of the machine
/// is used, whichever one the model runs on.
static KERNELS: LazyLock<Kernels> = LazyLock::new(Kernels::best);

/// Working memory of a draw, reused between tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// Ids with logits or weights.
    list: Vec<(u32, f32)>,
    /// Weights of all tokens, or of the selected ones.
    weights: Vec<f32>,
}

/// First guess of the number of tokens in a nucleus.
const NUCLEUS: usize = 128;

impl Candidates {
    /// Draws a token with two `random` numbers in [0, 1). Also returns the limit of Mirostat after it.
    pub(super) fn draw(
        &mut self,
        logits: &[f32],
        p: &SamplingParams,
        random: [f64; 2],
        limit: f64,
        by: Certainty,
    ) -> (Prediction, f64) {
        let max = highest(logits);
        if max == f32::NEG_INFINITY {
            return (Prediction { token: 0, certainty: by.none() }, limit);
        }
        self.filter(logits, max, p);
        let list = &mut self.list;
        if random[1] < f64::from(p.xtc_probability) {
            remove_top_choices(list, f64::from(p.xtc_threshold));
        }
        if let Some(infill) = &p.infill {
            infill.keep(list, logits);
        }
        if let Some(mirostat) = &p.mirostat {
            mirostat.truncate(list, limit, logits.len());
            list.sort_unstable_by_key(|entry| entry.0);
        }
        let (token, weight) = pick(list, random[0]);
        let next = p
            .mirostat
            .map_or(limit, |mirostat| mirostat.next_limit(limit, f64::from(weight) / total(list)));
        (Prediction { token, certainty: by.of_weights(list, weight) }, next)
    }

    /// Fills the list with the tokens that pass the filters, sorted by id, and their weights. A weight is
    /// a probability times a constant; the most likely token has weight 1. `max` is the highest logit.
    fn filter(&mut self, logits: &[f32], max: f32, p: &SamplingParams) {
        let scale = (1.0 / p.temperature).min(f32::MAX);
        let list = &mut self.list;
        if p.top_k > 0 && p.top_k < logits.len() {
            top(logits, p.top_k, list);
            list.sort_unstable_by_key(|entry| entry.0);
            self.weights.clear();
            self.weights.extend(list.iter().map(|entry| entry.1));
            (KERNELS.weigh)(&mut self.weights, max, scale);
            list.iter_mut().zip(&self.weights).for_each(|(entry, &weight)| entry.1 = weight);
        } else {
            self.weights.clear();
            self.weights.extend_from_slice(logits);
            (KERNELS.weigh)(&mut self.weights, max, scale);
            list.clear();
            list.extend((0u32..).zip(self.weights.iter().copied()).filter(|entry| entry.1 > 0.0));
        }
        if p.top_n_sigma > 0.0 {
            keep_near(list, logits, max, p.top_n_sigma);
        }
        if p.typical_p < 1.0 {
            keep_typical(list, f64::from(p.typical_p));
        }
        if p.top_p < 1.0 {
            keep_nucleus(list, f64::from(p.top_p));
        }
        if p.min_p > 0.0 {
            let least = p.min_p * list.iter().fold(0.0, |most: f32, entry| most.max(entry.1));
            list.retain(|entry| entry.1 >= least);
        }
        list.sort_unstable_by_key(|entry| entry.0);
    }
}

/// Keeps the most likely tokens, best first, until they have the share `top_p` of the weight; at least
/// one. The list must be sorted by id, so that sums have a fixed order.
fn keep_nucleus(list: &mut Vec<(u32, f32)>, top_p: f64) {
    let total = total(list);
    let mass = top_p * total;
    // All tokens below this weight together weigh less than the share that is left out.
    let light = (1.0 - top_p) * total / list.len() as f64;
    list.retain(|entry| f64::from(entry.1) >= light);
    let (mut sorted, mut sum) = (0, 0.0);
    let mut chunk = NUCLEUS;
    while sorted < list.len() {
        let rest = &mut list[sorted..];
        let count = chunk.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count - 1, best_first);
        }
        rest[..count].sort_unstable_by(best_first);
        for (i, entry) in rest[..count].iter().enumerate() {
            sum += f64::from(entry.1);
            if sum >= mass {
                list.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += count;
        chunk *= 4;
    }
}

/// Returns the entry at the fraction `random` of the cumulative weight.
fn pick(list: &[(u32, f32)], random: f64) -> (u32, f32) {
    let target = random * total(list);
    let mut sum = 0.0;
    let mut chosen = list[0];
    for &entry in list {
        chosen = entry;
        sum += f64::from(entry.1);
        if sum > target {
            break;
        }
    }
    chosen
}

/// Returns the lowest id with the highest logit; 0 if no logit is above −∞.
pub(super) fn best(logits: &[f32]) -> u32 {
    let max = highest(logits);
    if max == f32::NEG_INFINITY {
        return 0;
    }
    logits.iter().position(|&logit| logit == max).map_or(0, |id| id as u32)
}

/// Returns the highest logit, or −∞ if there is none. Works on eight lanes, so that it is vectorized.
pub(super) fn highest(logits: &[f32]) -> f32 {
    // The comparison is false for NaN.
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; 8];
    let chunks = logits.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = higher(*lane, logit);
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, higher)
}

/// Returns ln Σ exp(logit); NaN is left out.
pub(super) fn log_sum_exp(logits: &[f32]) -> f32 {
    let max = highest(logits);
    if max.is_infinite() {
        return max;
    }
    max + libm::log((KERNELS.sum_exp)(logits, max)) as f32
}

/// Fills `list` with the `n` highest logits, best first; equal ones by id.
pub(super) fn top(logits: &[f32], n: usize, list: &mut Vec<(u32, f32)>) {
    list.clear();
    if n == 0 {
        return;
    }
    // Collects 2n entries, then keeps the better half: the cost is linear.
    let full = 2 * n.min(logits.len());
    let mut floor = f32::NEG_INFINITY;
    for (id, &logit) in (0u32..).zip(logits) {
        // Entries equal to `floor` have a higher id than `n` better ones.
        if logit > floor || (list.len() < n && !logit.is_nan()) {
            list.push((id, logit));
            if list.len() == full {
                list.select_nth_unstable_by(n - 1, best_first);
                list.truncate(n);
                floor = list[n - 1].1;
            }
        }
    }
    list.sort_unstable_by(best_first);
    list.truncate(n);
}
