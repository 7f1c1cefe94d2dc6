//! The tokens that may be drawn, and the draw. Selects instead of sorting: of a vocabulary of
//! 128,000 only the few that filters keep are ever put in order.

use super::{Choice, SamplingParams};
use std::cmp::Ordering;

/// Working memory of a draw, kept between tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// (id, logit, weight).
    list: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Probability × a constant; the most likely has 1.
    weight: f32,
}

/// First guess of how many tokens a nucleus has.
const NUCLEUS: usize = 128;

impl Candidates {
    /// Draws with a `random` number in [0, 1).
    pub(super) fn draw(&mut self, logits: &[f32], p: &SamplingParams, random: f64) -> Choice {
        let list = &mut self.list;
        list.clear();
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            return Choice { token: 0, probability: 0.0 };
        }
        // exp(−104) is 0 in f32: such tokens have no weight, whatever the filters.
        let least = max - 104.0 * p.temperature;
        let least = if max == f32::INFINITY { max } else { least };
        for (id, &logit) in (0u32..).zip(logits) {
            if logit >= least {
                let weight = 0.0;
                list.push(Candidate { id, logit, weight });
            }
        }
        if p.top_k > 0 && p.top_k < list.len() {
            list.select_nth_unstable_by(p.top_k - 1, best_first);
            list.truncate(p.top_k);
        }
        for candidate in list.iter_mut() {
            let distance =
                if candidate.logit == max { 0.0 } else { (candidate.logit - max) / p.temperature };
            candidate.weight = libm::expf(distance);
        }
        if p.top_p < 1.0 {
            // Summed by id: after a selection the order is anyone's.
            list.sort_unstable_by_key(|candidate| candidate.id);
            let total = total(list);
            keep_nucleus(list, f64::from(p.top_p) * total);
        }
        list.retain(|candidate| candidate.weight >= p.min_p);
        list.sort_unstable_by_key(|candidate| candidate.id);
        pick(list, random)
    }
}

/// Keeps the most likely tokens, best first, until their weights sum to `mass`; at least one.
fn keep_nucleus(list: &mut Vec<Candidate>, mass: f64) {
    let (mut sorted, mut sum) = (0, 0.0);
    let mut chunk = NUCLEUS;
    while sorted < list.len() {
        let rest = &mut list[sorted..];
        let count = chunk.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count - 1, best_first);
        }
        rest[..count].sort_unstable_by(best_first);
        for (i, candidate) in rest[..count].iter().enumerate() {
            sum += f64::from(candidate.weight);
            if sum >= mass {
                list.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += count;
        chunk *= 4;
    }
}

/// The candidate at `random` of the way through the weights.
fn pick(list: &[Candidate], random: f64) -> Choice {
    let total = total(list);
    let target = random * total;
    let mut sum = 0.0;
    let mut chosen = list[0];
    for &candidate in list {
        if candidate.weight > 0.0 {
            chosen = candidate;
        }
        sum += f64::from(candidate.weight);
        if sum > target {
            break;
        }
    }
    Choice { token: chosen.id, probability: (f64::from(chosen.weight) / total) as f32 }
}

fn total(list: &[Candidate]) -> f64 {
    list.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// Highest logit first; of equal ones, lowest id first. No logit is NaN.
fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    higher_first(a.logit, b.logit).then(a.id.cmp(&b.id))
}

/// Zeros of either sign are equal, as in [`best`].
fn higher_first(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

/// The lowest id with the highest logit.
pub(super) fn best(logits: &[f32]) -> u32 {
    let (mut token, mut highest) = (0, f32::NEG_INFINITY);
    for (id, &logit) in (0u32..).zip(logits) {
        // False for NaN.
        if logit > highest {
            (token, highest) = (id, logit);
        }
    }
    token
}

/// ln Σ exp(logit), in a fixed order, NaN left out.
pub(super) fn log_sum_exp(logits: &[f32]) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max.is_infinite() {
        return max;
    }
    let numbers = logits.iter().filter(|logit| !logit.is_nan());
    let sum: f64 = numbers.map(|&logit| f64::from(libm::expf(logit - max))).sum();
    max + libm::log(sum) as f32
}

/// The `n` highest logits, best first; of equal ones the lowest id first.
pub(super) fn top(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    if n == 0 {
        return Vec::new();
    }
    let order = |a: &(u32, f32), b: &(u32, f32)| higher_first(a.1, b.1).then(a.0.cmp(&b.0));
    let numbers = (0u32..).zip(logits.iter().copied()).filter(|entry| !entry.1.is_nan());
    let mut list: Vec<(u32, f32)> = Vec::with_capacity(2 * n.min(logits.len()));
    for entry in numbers {
        // Twice as many as wanted, then the better half: each entry is looked at a few times.
        if list.len() == list.capacity() {
            list.select_nth_unstable_by(n - 1, order);
            list.truncate(n);
        }
        list.push(entry);
    }
    list.sort_unstable_by(order);
    list.truncate(n);
    list
}
