//! Filters of a distribution: top-nσ, locally typical sampling and XTC.

use std::cmp::Ordering;

/// Keeps tokens whose logit is at most `n` standard deviations of all logits below `max`, the highest.
pub(super) fn keep_near(list: &mut Vec<(u32, f32)>, logits: &[f32], max: f32, n: f32) {
    let finite = || logits.iter().filter(|logit| logit.is_finite()).map(|&x| f64::from(x));
    let count = finite().count() as f64;
    let mean = finite().sum::<f64>() / count;
    let variance = finite().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    let least = f64::from(max) - f64::from(n) * libm::sqrt(variance);
    // Without a finite logit there is no deviation.
    if !least.is_nan() {
        list.retain(|entry| f64::from(logits[entry.0 as usize]) >= least);
    }
}

/// Keeps the tokens whose surprise is nearest to the entropy, until they have the share `mass` of the
/// weight; at least one. The list must be sorted by id, and is so afterwards.
pub(super) fn keep_typical(list: &mut Vec<(u32, f32)>, mass: f64) {
    list.retain(|entry| entry.1 > 0.0);
    let total = total(list);
    let surprise = |weight: f32| libm::log(total) - libm::log(f64::from(weight));
    let entropy: f64 =
        list.iter().map(|&(_, weight)| f64::from(weight) / total * surprise(weight)).sum();
    let mut by_distance: Vec<(f64, (u32, f32))> =
        list.iter().map(|&entry| ((surprise(entry.1) - entropy).abs(), entry)).collect();
    by_distance.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let before = by_distance.iter().take_while(|(_, entry)| {
        sum += f64::from(entry.1);
        sum < mass * total
    });
    let kept = (before.count() + 1).min(by_distance.len());
    list.clear();
    list.extend(by_distance[..kept].iter().map(|&(_, entry)| entry));
    list.sort_unstable_by_key(|entry| entry.0);
}

/// Removes the tokens of at least the probability `threshold`, but the least likely of them.
pub(super) fn remove_top_choices(list: &mut Vec<(u32, f32)>, threshold: f64) {
    let least = threshold * total(list);
    let tops = list.iter().filter(|entry| f64::from(entry.1) >= least);
    if let Some(&last) = tops.max_by(|a, b| best_first(a, b)) {
        list.retain(|entry| f64::from(entry.1) < least || entry.0 == last.0);
    }
}

/// Returns the sum of the weights.
pub(super) fn total(list: &[(u32, f32)]) -> f64 {
    list.iter().map(|entry| f64::from(entry.1)).sum()
}

/// Orders by falling weight, then by id. Zeros of either sign are equal; no entry is NaN.
pub(super) fn best_first(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}
