//! Summary of a page's keys: mean and variance of each dimension. Page selection reads it instead of
//! the keys.

use super::PAGE;

/// Number of partial sums of an estimate.
const LANES: usize = 8;

/// See [`Kernels::summarize`](crate::kernel::Kernels::summarize).
#[inline(always)]
pub fn summarize(keys: &[f32], summary: &mut [f32]) {
    let (means, variances) = summary.split_at_mut(keys.len() / PAGE);
    let keys = keys.as_chunks::<PAGE>().0;
    for ((keys, mean), variance) in keys.iter().zip(means).zip(variances) {
        *mean = sum(keys, |k| k) / PAGE as f32;
        *variance = sum(keys, |k| (k - *mean) * (k - *mean)) / PAGE as f32;
    }
}

/// Returns Σ of a function of each key.
#[inline(always)]
fn sum(keys: &[f32; PAGE], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    for keys in keys.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            sums[i] += of(keys[i]);
        }
    }
    sums.iter().sum()
}

/// See [`Kernels::estimate`](crate::kernel::Kernels::estimate).
#[inline(always)]
pub fn estimate(queries: &[f32], scale: f32, summary: &[f32]) -> f32 {
    let (means, variances) = summary.split_at(summary.len() / 2);
    let of = |query| estimate_of(query, scale, means, variances);
    // NaN is kept, so that a page with unknown keys is never dropped.
    let larger = |a: f32, b: f32| if b.is_nan() || b > a { b } else { a };
    queries.chunks_exact(means.len()).map(of).fold(f32::NEG_INFINITY, larger)
}

/// Returns Σ scale · q · mean + (scale · q)² · variance / 2.
#[inline(always)]
fn estimate_of(query: &[f32], scale: f32, means: &[f32], variances: &[f32]) -> f32 {
    let part = |q: f32, mean: f32, variance: f32| {
        let q = scale * q;
        q * (mean + 0.5 * q * variance)
    };
    let (queries, rest) = query.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    let keys = means.as_chunks::<LANES>().0.iter().zip(variances.as_chunks::<LANES>().0);
    for (q, (mean, variance)) in queries.iter().zip(keys) {
        for i in 0..LANES {
            sums[i] += part(q[i], mean[i], variance[i]);
        }
    }
    let done = query.len() - rest.len();
    for (i, q) in rest.iter().enumerate() {
        sums[i] += part(*q, means[done + i], variances[done + i]);
    }
    sums.iter().sum()
}
