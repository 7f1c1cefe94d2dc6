//! Kernels over single rows. Several independent sums or maxima hide the latency of an addition.

use super::lanes::{add_product, exp, larger, load, max, mul, splat, store, zero};
use crate::kernel::finite::{self, norm_factor};
use crate::kernel::{exp as weights, scalar};
use std::arch::x86_64::*;

/// Number of floats in a vector.
const LANES: usize = 16;
/// Number of independent chains.
const CHAINS: usize = 4;
const MIN_MAX: f32 = 1e-5;

/// Reduces the vectors of `x` in four chains by `step`, and the chains by `join`. Returns the result and
/// the rest of `x` that fills no vector.
macro_rules! chains {
    ($x:expr, $start:expr, $step:expr, $join:expr) => {{
        let (vectors, rest) = $x.as_chunks::<LANES>();
        let mut chains = [$start; CHAINS];
        let (fours, few) = vectors.as_chunks::<CHAINS>();
        for four in fours {
            for (chain, v) in chains.iter_mut().zip(four) {
                *chain = $step(load(v), *chain);
            }
        }
        for (chain, v) in chains.iter_mut().zip(few) {
            *chain = $step(load(v), *chain);
        }
        let [a, b, c, d] = chains;
        ($join($join(a, b), $join(c, d)), rest)
    }};
}

/// Returns max |x|, at least 1e-5.
#[target_feature(enable = "avx512f")]
fn absmax(x: &[f32]) -> f32 {
    // The second operand, a number, wins over a NaN.
    let (top, rest) = chains!(x, splat(MIN_MAX), |v, top| larger(_mm512_abs_ps(v), top), larger);
    rest.iter().fold(max(top), |m, v| if v.abs() > m { v.abs() } else { m })
}

/// See the scalar definition.
#[target_feature(enable = "avx512f")]
pub fn quantize8(x: &[f32], values: &mut [i8]) -> (i32, f32) {
    let scale = 127.0 / absmax(x);
    let (factor, top) = (splat(scale), splat(127.0));
    let mut total = _mm512_setzero_si512();
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (qs, q_rest) = values[..x.len()].as_chunks_mut::<LANES>();
    for (x, q) in xs.iter().zip(qs) {
        // min(127, NaN) is NaN, which converts to the most negative int and packs to −128.
        let ints = _mm512_cvtps_epi32(_mm512_min_ps(top, mul(load(x), factor)));
        let bytes = _mm512_cvtsepi32_epi8(ints);
        total = _mm512_add_epi32(total, _mm512_cvtepi8_epi32(bytes));
        *q = bytemuck::must_cast(bytes);
    }
    let mut total = _mm512_reduce_add_epi32(total);
    for (v, q) in x_rest.iter().zip(q_rest) {
        *q = scalar::row::round_to_i8(v * scale);
        total += i32::from(*q);
    }
    (total, 1.0 / scale)
}

/// See the scalar definition.
#[target_feature(enable = "avx512f")]
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (squares, rest) =
        chains!(x, zero(), |v, sum| add_product(v, v, sum), |a, b| _mm512_add_ps(a, b));
    let rest: f32 = rest.iter().map(|v| v * v).sum();
    let squares = _mm512_reduce_add_ps(squares) + rest;
    let factor = norm_factor(squares, x.len(), eps);
    let (outs, out_rest) = out[..x.len()].as_chunks_mut::<LANES>();
    let ((xs, x_rest), (ws, w_rest)) = (x.as_chunks::<LANES>(), weight.as_chunks::<LANES>());
    for ((o, v), w) in outs.iter_mut().zip(xs).zip(ws) {
        store(o, mul(mul(load(v), splat(factor)), load(w)));
    }
    for ((o, v), w) in out_rest.iter_mut().zip(x_rest).zip(w_rest) {
        *o = v * factor * w;
    }
}

/// Runs the body on every vector of `x` and `y`; returns the rests.
macro_rules! zip16 {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $value:expr) => {{
        let (xs, x_rest) = $x.as_chunks_mut::<LANES>();
        let (ys, y_rest) = $y.as_chunks::<LANES>();
        for (x, y) in xs.iter_mut().zip(ys) {
            let ($a, $b) = (load(x), load(y));
            store(x, $value);
        }
        (x_rest, y_rest)
    }};
}

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512dq")]
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    let one = splat(1.0);
    let (gate, up) = zip16!(gate, up, |g, u| {
        let denominator = _mm512_add_ps(one, exp(_mm512_xor_ps(g, splat(-0.0))));
        mul(_mm512_div_ps(g, denominator), u)
    });
    scalar::silu_mul(gate, up);
}

/// See the scalar definition.
#[target_feature(enable = "avx512f")]
pub fn relu2_mul(gate: &mut [f32], up: &[f32]) {
    let (gate, up) = zip16!(gate, up, |g, u| {
        // The second operand wins over zero if it is NaN.
        let r = larger(zero(), g);
        mul(mul(r, r), u)
    });
    scalar::relu2_mul(gate, up);
}

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn within(x: &[f32], bound: f32) -> bool {
    finite::within(x, bound)
}

/// See the scalar definition.
#[target_feature(enable = "avx512f")]
pub fn add(x: &mut [f32], y: &[f32]) {
    let (x, y) = zip16!(x, y, |a, b| _mm512_add_ps(a, b));
    scalar::add(x, y);
}

/// See the scalar definition. The compiler vectorizes it and may not fuse, so all instruction sets
/// give the same bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn sum_exp(logits: &[f32], max: f32) -> f64 {
    weights::sum_exp(logits, max)
}

/// See the scalar definition. As [`sum_exp`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn weigh(logits: &mut [f32], max: f32, scale: f32) {
    weights::weigh(logits, max, scale);
}
