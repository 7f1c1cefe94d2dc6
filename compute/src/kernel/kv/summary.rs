//! What is known of a page's keys without reading them: the least and the largest number of each
//! dimension, as in Quest (arXiv 2406.10774, section 3.2).

use super::PAGE;

/// Sums that a bound is made of.
const LANES: usize = 8;

/// Writes the summary of a page's keys, `[head_dim][PAGE]`: `[least: head_dim | largest: head_dim]`.
/// NaN is passed over.
#[inline(always)]
pub fn summarise(keys: &[f32], summary: &mut [f32]) {
    let (least, largest) = summary.split_at_mut(keys.len() / PAGE);
    let keys = keys.as_chunks::<PAGE>().0;
    for ((keys, least), largest) in keys.iter().zip(least).zip(largest) {
        let fold = |better: fn(f32, f32) -> f32| keys.iter().copied().reduce(better);
        *least = fold(f32::min).unwrap_or(0.0);
        *largest = fold(f32::max).unwrap_or(0.0);
    }
}

/// The largest product that any of the queries, `[queries][head_dim]`, can have with a key of the
/// page.
#[inline(always)]
pub fn bound(queries: &[f32], summary: &[f32]) -> f32 {
    let (least, largest) = summary.split_at(summary.len() / 2);
    let of = |query| bound_of(query, least, largest);
    queries.chunks_exact(least.len()).map(of).fold(f32::NEG_INFINITY, f32::max)
}

/// Σ of the larger of both products in each dimension.
#[inline(always)]
fn bound_of(query: &[f32], least: &[f32], largest: &[f32]) -> f32 {
    let larger = |q: f32, least: f32, largest: f32| {
        let (a, b) = (q * least, q * largest);
        if a > b { a } else { b }
    };
    let (queries, rest) = query.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    let keys = least.as_chunks::<LANES>().0.iter().zip(largest.as_chunks::<LANES>().0);
    for (q, (least, largest)) in queries.iter().zip(keys) {
        for i in 0..LANES {
            sums[i] += larger(q[i], least[i], largest[i]);
        }
    }
    let done = query.len() - rest.len();
    for (i, q) in rest.iter().enumerate() {
        sums[i] += larger(*q, least[done + i], largest[done + i]);
    }
    sums.iter().sum()
}
