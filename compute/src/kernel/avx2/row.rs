//! Kernels over single rows.

use super::lanes::{exp, load, max, store, sum, sum_i32, zip8};
use crate::kernel::finite::{self, norm_factor};
use crate::kernel::{exp as weights, scalar};
use std::arch::x86_64::*;

const MIN_MAX: f32 = 1e-5;

/// Returns max |x|, at least 1e-5.
#[target_feature(enable = "avx2,fma,f16c")]
fn absmax(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<8>();
    let sign = _mm256_set1_ps(-0.0);
    let mut m = _mm256_set1_ps(MIN_MAX);
    for c in chunks {
        // max(NaN, m) is m: the second operand wins.
        m = _mm256_max_ps(_mm256_andnot_ps(sign, load(c)), m);
    }
    rest.iter().fold(max(m), |m, v| if v.abs() > m { v.abs() } else { m })
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn quantize8(x: &[f32], values: &mut [i8]) -> (i32, f32) {
    let scale = 127.0 / absmax(x);
    let factor = _mm256_set1_ps(scale);
    let top = _mm256_set1_ps(127.0);
    // Packing 32-bit to 8-bit lanes works within halves; this puts the quads back in order.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let ones = _mm256_set1_epi8(1);
    let mut total = _mm256_setzero_si256();
    let (xs, x_rest) = x.as_chunks::<32>();
    let (qs, q_rest) = values[..x.len()].as_chunks_mut::<32>();
    for (x, q) in xs.iter().zip(qs) {
        let (parts, _) = x.as_chunks::<8>();
        let mut ints = [_mm256_setzero_si256(); 4];
        for (i, p) in ints.iter_mut().zip(parts) {
            // min(127, NaN) is NaN, which converts to the most negative int and packs to −128.
            let v = _mm256_min_ps(top, _mm256_mul_ps(load(p), factor));
            *i = _mm256_cvtps_epi32(v);
        }
        let pairs = [_mm256_packs_epi32(ints[0], ints[1]), _mm256_packs_epi32(ints[2], ints[3])];
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(pairs[0], pairs[1]), order);
        *q = bytemuck::must_cast(bytes);
        let pairs = _mm256_maddubs_epi16(ones, bytes);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    let mut total = sum_i32(total);
    for (v, q) in x_rest.iter().zip(q_rest) {
        *q = scalar::row::round_to_i8(v * scale);
        total += i32::from(*q);
    }
    (total, 1.0 / scale)
}

/// See the scalar definition. The compiler vectorizes it; only heads and group-scaled layers use it.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn quantize16(x: &[f32], high: &mut [i8], low: &mut [i8]) -> ([i32; 2], f32) {
    scalar::quantize16(x, high, low)
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (chunks, rest) = x.as_chunks::<8>();
    let mut squares = [_mm256_setzero_ps(); 2];
    for (i, c) in chunks.iter().enumerate() {
        squares[i % 2] = _mm256_fmadd_ps(load(c), load(c), squares[i % 2]);
    }
    let rest: f32 = rest.iter().map(|v| v * v).sum();
    let squares = sum(_mm256_add_ps(squares[0], squares[1])) + rest;
    let factor = norm_factor(squares, x.len(), eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * factor * w;
    }
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn rope(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    scalar::rope(head, cos, sin);
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    let (sign, one) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(1.0));
    zip8!(gate, up, |g, u| {
        let v = load(g);
        let denominator = _mm256_add_ps(one, exp(_mm256_xor_ps(v, sign)));
        store(g, _mm256_mul_ps(_mm256_div_ps(v, denominator), load(u)));
    });
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn relu2_mul(gate: &mut [f32], up: &[f32]) {
    scalar::relu2_mul(gate, up);
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn within(x: &[f32], bound: f32) -> bool {
    finite::within(x, bound)
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn add(x: &mut [f32], y: &[f32]) {
    scalar::add(x, y);
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn sum_exp(logits: &[f32], max: f32) -> f64 {
    weights::sum_exp(logits, max)
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn weigh(logits: &mut [f32], max: f32, scale: f32) {
    weights::weigh(logits, max, scale);
}
