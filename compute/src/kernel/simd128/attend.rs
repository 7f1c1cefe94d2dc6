//! Softmax attention over pages: 16 keys at a time with keys stored by dimension, then values by
//! position. No horizontal sums, and the order of additions is the order of positions.

use super::KV;
use super::lanes::{load, max, pick, store, sum};
use super::row::exp;
use crate::kernel::walk::{Page, Steps, tile, walk, weights};
use crate::kernel::{Attention, PAGE};
use crate::par::{Columns, Scratch};
use std::arch::wasm32::*;

/// Vectors of scores that are computed together: half a page, of up to three queries.
const VECTORS: usize = PAGE / 2 / 4;

/// See the scalar definition.
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
fn score(a: &Attention<'_>, row: usize, page: Page<'_>, scores: &mut [f32]) {
    let padded = scores.len() / a.group();
    let mut queries = a.row(row);
    let mut scores = scores;
    while !queries.is_empty() {
        let size = tile(queries.len() / a.head_dim(), 3);
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
fn score_tile<const G: usize>(
    a: &Attention<'_>,
    queries: &[f32],
    (i, keys): Page<'_>,
    scores: &mut [f32],
) {
    let queries: [&[f32]; G] =
        std::array::from_fn(|g| &queries[g * a.head_dim()..][..a.head_dim()]);
    let padded = scores.len() / G;
    for half in 0..2 {
        let mut sums = [[f32x4_splat(0.0); VECTORS]; G];
        for (d, keys) in keys.as_chunks::<PAGE>().0.iter().enumerate() {
            let halves: &[[[f32; 4]; VECTORS]; 2] = bytemuck::must_cast_ref(keys);
            for g in 0..G {
                let q = f32x4_splat(queries[g][d]);
                for v in 0..VECTORS {
                    let product = f32x4_mul(q, load(&halves[half][v]));
                    sums[g][v] = f32x4_add(sums[g][v], product);
                }
            }
        }
        for g in 0..G {
            let out = &mut scores[g * padded + i * PAGE + half * PAGE / 2..][..PAGE / 2];
            for (out, sum) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums[g]) {
                store(out, f32x4_mul(sum, f32x4_splat(a.scale)));
            }
        }
    }
}

/// exp(s − max) of the first `end` scores, 0 for the rest.
#[inline]
fn exponents(scores: &mut [f32], end: usize) {
    scores[end..].fill(f32::NEG_INFINITY);
    let lanes = scores.as_chunks_mut::<4>().0;
    let mut top = f32x4_splat(f32::NEG_INFINITY);
    for s in lanes.iter() {
        // A NaN is passed over.
        top = pick(f32x4_gt(load(s), top), load(s), top);
    }
    let top = f32x4_splat(max(top));
    for s in lanes.iter_mut() {
        store(s, exp(f32x4_sub(load(s), top)));
    }
    scores[end..].fill(0.0);
}

/// Σ of the scores.
#[inline]
fn total(scores: &[f32]) -> f32 {
    let mut total = f32x4_splat(0.0);
    for s in scores.as_chunks::<4>().0 {
        total = f32x4_add(total, load(s));
    }
    sum(total)
}

/// Adds the values of page `i`, weighted by one row's scores, to its `out`: `[group][head_dim]`.
#[inline]
fn mix(a: &Attention<'_>, row: usize, (i, values): Page<'_>, scores: &[f32], out: &mut [f32]) {
    let padded = scores.len() / a.group();
    let slots = PAGE.min(a.ends[row] - i * PAGE);
    let values = &values[..slots * a.head_dim()];
    let (mut scores, mut out) = (scores, out);
    while !out.is_empty() {
        let size = tile(out.len() / a.head_dim(), 3);
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
fn mix_tile<const G: usize>(values: &[f32], weights: &[&[f32]; G], sums: &mut [f32]) {
    let head_dim = sums.len() / G;
    let mut d = 0;
    while d < head_dim {
        d += match head_dim - d {
            16.. => mix_lanes::<G, 4>(values, weights, d, sums),
            4.. => mix_lanes::<G, 1>(values, weights, d, sums),
            _ => mix_one(values, weights, d, sums),
        };
    }
}

/// The dimensions `d..d + 4·V`; returns `4·V`.
#[inline]
fn mix_lanes<const G: usize, const V: usize>(
    values: &[f32],
    weights: &[&[f32]; G],
    d: usize,
    out: &mut [f32],
) -> usize {
    let head_dim = out.len() / G;
    let mut sums = [[f32x4_splat(0.0); V]; G];
    for g in 0..G {
        let out = out[g * head_dim + d..][..4 * V].as_chunks::<4>().0;
        for v in 0..V {
            sums[g][v] = load(&out[v]);
        }
    }
    for (slot, value) in values.chunks_exact(head_dim).enumerate() {
        let value = &value[d..d + 4 * V].as_chunks::<4>().0[..V];
        for g in 0..G {
            let p = f32x4_splat(weights[g][slot]);
            for v in 0..V {
                sums[g][v] = f32x4_add(sums[g][v], f32x4_mul(p, load(&value[v])));
            }
        }
    }
    for g in 0..G {
        let out = out[g * head_dim + d..][..4 * V].as_chunks_mut::<4>().0;
        for v in 0..V {
            store(&mut out[v], sums[g][v]);
        }
    }
    4 * V
}

/// Dimension `d` alone; returns 1.
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
            *sum += p * value[d];
        }
    }
    1
}
