//! Softmax attention over pages: 32 keys at a time with keys stored by dimension, then values by
//! position. No horizontal sums, and the order of additions is the order of positions.

use super::lanes::{load, max, store, sum};
use super::row::exp;
use crate::kernel::{Attention, PAGE};
use crate::par::Scratch;
use std::arch::x86_64::*;

/// Vectors of scores in a page.
const VECTORS: usize = PAGE / 8;

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut [f32], scratch: &mut Scratch) {
    let padded = a.end.next_multiple_of(PAGE);
    scratch.floats.grow(a.group() * padded);
    let mut first = 0;
    while first < a.group() {
        let queries = &a.queries[first * a.head_dim..];
        let out = &mut out[first * a.head_dim..];
        let scores = &mut scratch.floats[..];
        first += match a.group() - first {
            3.. => group::<3>(a, queries, padded, scores, out),
            2 => group::<2>(a, queries, padded, scores, out),
            _ => group::<1>(a, queries, padded, scores, out),
        };
    }
}

/// `G` queries together; returns `G`. `scores`: `[G][padded]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn group<const G: usize>(
    a: &Attention<'_>,
    queries: &[f32],
    padded: usize,
    scores: &mut [f32],
    out: &mut [f32],
) -> usize {
    for i in 0..padded / PAGE {
        score_page::<G>(a, queries, i, padded, scores);
    }
    let mut inverse = [0f32; G];
    for g in 0..G {
        inverse[g] = 1.0 / softmax(&mut scores[g * padded..][..padded], a.end);
    }
    let mut d = 0;
    while d < a.head_dim {
        d += match a.head_dim - d {
            32.. => mix::<G, 4>(a, scores, padded, &inverse, d, out),
            8.. => mix::<G, 1>(a, scores, padded, &inverse, d, out),
            _ => mix_one::<G>(a, scores, padded, &inverse, d, out),
        };
    }
    G
}

/// Scores of page `i`: q · k · scale for all 32 slots (those past the end are garbage).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn score_page<const G: usize>(
    a: &Attention<'_>,
    queries: &[f32],
    i: usize,
    padded: usize,
    scores: &mut [f32],
) {
    let (keys, _) = a.page(i);
    let queries: [&[f32]; G] = std::array::from_fn(|g| &queries[g * a.head_dim..][..a.head_dim]);
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
    for g in 0..G {
        let out = &mut scores[g * padded + i * PAGE..][..PAGE];
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums[g]) {
            store(out, _mm256_mul_ps(sum, scale));
        }
    }
}

/// exp(s − max) of the first `end` scores, 0 for the rest; returns their sum.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn softmax(scores: &mut [f32], end: usize) -> f32 {
    scores[end..].fill(f32::NEG_INFINITY);
    let lanes = scores.as_chunks_mut::<8>().0;
    let mut top = _mm256_set1_ps(f32::NEG_INFINITY);
    for s in lanes.iter() {
        top = _mm256_max_ps(top, load(s));
    }
    let top = _mm256_set1_ps(max(top));
    for s in lanes.iter_mut() {
        store(s, exp(_mm256_sub_ps(load(s), top)));
    }
    scores[end..].fill(0.0);
    let mut total = _mm256_setzero_ps();
    for s in scores.as_chunks::<8>().0 {
        total = _mm256_add_ps(total, load(s));
    }
    sum(total)
}

/// Output dimensions `d..d + 8·V` of `G` queries; returns `8·V`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn mix<const G: usize, const V: usize>(
    a: &Attention<'_>,
    scores: &[f32],
    padded: usize,
    inverse: &[f32; G],
    d: usize,
    out: &mut [f32],
) -> usize {
    let mut sums = [[_mm256_setzero_ps(); V]; G];
    for i in 0..padded / PAGE {
        let (_, values) = a.page(i);
        let weights: [&[f32]; G] =
            std::array::from_fn(|g| &scores[g * padded + i * PAGE..][..PAGE]);
        let slots = PAGE.min(a.end - i * PAGE);
        for (slot, value) in values.chunks_exact(a.head_dim).take(slots).enumerate() {
            let value = &value[d..d + 8 * V].as_chunks::<8>().0[..V];
            for g in 0..G {
                let p = _mm256_set1_ps(weights[g][slot]);
                for v in 0..V {
                    sums[g][v] = _mm256_fmadd_ps(p, load(&value[v]), sums[g][v]);
                }
            }
        }
    }
    for g in 0..G {
        let factor = _mm256_set1_ps(inverse[g]);
        let out = &mut out[g * a.head_dim + d..][..8 * V];
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums[g]) {
            store(out, _mm256_mul_ps(sum, factor));
        }
    }
    8 * V
}

/// Output dimension `d` of `G` queries; returns 1.
#[target_feature(enable = "avx2,fma,f16c")]
fn mix_one<const G: usize>(
    a: &Attention<'_>,
    scores: &[f32],
    padded: usize,
    inverse: &[f32; G],
    d: usize,
    out: &mut [f32],
) -> usize {
    for g in 0..G {
        let mut sum = 0f32;
        for (position, p) in scores[g * padded..][..a.end].iter().enumerate() {
            let (_, values) = a.page(position / PAGE);
            sum = p.mul_add(values[position % PAGE * a.head_dim + d], sum);
        }
        out[g * a.head_dim + d] = sum * inverse[g];
    }
    1
}
