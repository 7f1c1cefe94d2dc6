//! Softmax attention over pages: 32 keys at a time with keys stored by dimension, then values by
//! position. No horizontal sums, and the order of additions is the order of positions.

use super::KV;
use super::lanes::{load, max, store, sum};
use super::row::exp;
use crate::kernel::walk::{Page, Steps, tile, walk, weights};
use crate::kernel::{Attention, PAGE};
use crate::par::{Columns, Scratch};
use std::arch::x86_64::*;

/// Vectors of scores in a page.
const VECTORS: usize = PAGE / 8;

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    let steps = Steps {
        score: |row, page: Page<'_>, scores: &mut [f32]| score(a, row, page, scores),
        exponents: |scores: &mut [f32], end| exponents(scores, end),
        mix: |row, page: Page<'_>, scores: &[f32], out: &mut [f32]| mix(a, row, page, scores, out),
        total: |scores: &[f32]| total(scores),
    };
    walk(a, &KV, out, scratch, steps);
}

/// Scores of one row for page `i` with these keys; `scores`: `[group][position]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn score(a: &Attention<'_>, row: usize, page: Page<'_>, scores: &mut [f32]) {
    let padded = scores.len() / a.group();
    let mut queries = a.row(row);
    let mut scores = scores;
    while !queries.is_empty() {
        let size = tile(queries.len() / a.head_dim());
        let (now, later) = queries.split_at(size * a.head_dim());
        let (out, rest) = scores.split_at_mut(size * padded);
        match size {
            3 => score_tile::<3>(a, now, page, out),
            2 => score_tile::<2>(a, now, page, out),
            _ => score_tile::<1>(a, now, page, out),
        }
        (queries, scores) = (later, rest);
    }
}

/// q · k · scale of `G` queries for all 32 slots of page `i` (those past the end are garbage).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn score_tile<const G: usize>(
    a: &Attention<'_>,
    queries: &[f32],
    (i, keys): Page<'_>,
    scores: &mut [f32],
) {
    let queries: [&[f32]; G] =
        std::array::from_fn(|g| &queries[g * a.head_dim()..][..a.head_dim()]);
    let mut sums = [[_mm256_setzero_ps(); VECTORS]; G];
    for (d, keys) in keys.as_chunks::<PAGE>().0.iter().enumerate() {
        let keys: &[[f32; 8]; VECTORS] = bytemuck::must_cast_ref(keys);
        for g in 0..G {
            let q = _mm256_set1_ps(queries[g][d]);
            for v in 0..VECTORS {
                sums[g][v] = _mm256_fmadd_ps(q, load(&keys[v]), sums[g][v]);
            }
        }
    }
    let scale = _mm256_set1_ps(a.scale);
    let padded = scores.len() / G;
    for g in 0..G {
        let out = &mut scores[g * padded + i * PAGE..][..PAGE];
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums[g]) {
            store(out, _mm256_mul_ps(sum, scale));
        }
    }
}

/// exp(s − max) of the first `end` scores, 0 for the rest.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exponents(scores: &mut [f32], end: usize) {
    scores[end..].fill(f32::NEG_INFINITY);
    let lanes = scores.as_chunks_mut::<8>().0;
    let mut top = _mm256_set1_ps(f32::NEG_INFINITY);
    for s in lanes.iter() {
        // In this order: of a NaN and a number the instruction returns the second.
        top = _mm256_max_ps(load(s), top);
    }
    let top = _mm256_set1_ps(max(top));
    for s in lanes.iter_mut() {
        store(s, exp(_mm256_sub_ps(load(s), top)));
    }
    scores[end..].fill(0.0);
}

/// Σ of the scores.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn total(scores: &[f32]) -> f32 {
    let mut total = _mm256_setzero_ps();
    for s in scores.as_chunks::<8>().0 {
        total = _mm256_add_ps(total, load(s));
    }
    sum(total)
}

/// Adds the values of page `i`, weighted by one row's scores, to its `out`: `[group][head_dim]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn mix(a: &Attention<'_>, row: usize, (i, values): Page<'_>, scores: &[f32], out: &mut [f32]) {
    let padded = scores.len() / a.group();
    let slots = PAGE.min(a.ends[row] - i * PAGE);
    let values = &values[..slots * a.head_dim()];
    let (mut scores, mut out) = (scores, out);
    while !out.is_empty() {
        let size = tile(out.len() / a.head_dim());
        let (now, later) = scores.split_at(size * padded);
        let (sums, rest) = out.split_at_mut(size * a.head_dim());
        match size {
            3 => mix_tile::<3>(values, &weights(now, i), sums),
            2 => mix_tile::<2>(values, &weights(now, i), sums),
            _ => mix_tile::<1>(values, &weights(now, i), sums),
        }
        (scores, out) = (later, rest);
    }
}

/// Adds a page's values to the sums of `G` queries, `[G][head_dim]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn mix_tile<const G: usize>(values: &[f32], weights: &[&[f32]; G], sums: &mut [f32]) {
    let head_dim = sums.len() / G;
    let mut d = 0;
    while d < head_dim {
        d += match head_dim - d {
            32.. => mix_lanes::<G, 4>(values, weights, d, sums),
            8.. => mix_lanes::<G, 1>(values, weights, d, sums),
            _ => mix_one(values, weights, d, sums),
        };
    }
}

/// The dimensions `d..d + 8·V`; returns `8·V`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn mix_lanes<const G: usize, const V: usize>(
    values: &[f32],
    weights: &[&[f32]; G],
    d: usize,
    out: &mut [f32],
) -> usize {
    let head_dim = out.len() / G;
    let mut sums = [[_mm256_setzero_ps(); V]; G];
    for g in 0..G {
        let out = out[g * head_dim + d..][..8 * V].as_chunks::<8>().0;
        for v in 0..V {
            sums[g][v] = load(&out[v]);
        }
    }
    for (slot, value) in values.chunks_exact(head_dim).enumerate() {
        let value = &value[d..d + 8 * V].as_chunks::<8>().0[..V];
        for g in 0..G {
            let p = _mm256_set1_ps(weights[g][slot]);
            for v in 0..V {
                sums[g][v] = _mm256_fmadd_ps(p, load(&value[v]), sums[g][v]);
            }
        }
    }
    for g in 0..G {
        let out = out[g * head_dim + d..][..8 * V].as_chunks_mut::<8>().0;
        for v in 0..V {
            store(&mut out[v], sums[g][v]);
        }
    }
    8 * V
}

/// Dimension `d` alone; returns 1.
#[target_feature(enable = "avx2,fma,f16c")]
fn mix_one<const G: usize>(
    values: &[f32],
    weights: &[&[f32]; G],
    d: usize,
    out: &mut [f32],
) -> usize {
    let head_dim = out.len() / G;
    for g in 0..G {
        let sum = &mut out[g * head_dim + d];
        for (p, value) in weights[g].iter().zip(values.chunks_exact(head_dim)) {
            *sum = p.mul_add(value[d], *sum);
        }
    }
    1
}
