//! Kernels over single rows.

use super::lanes::{load, max, pick, store, sum, sum_i32, zip4};
use crate::kernel::finite::norm_factor;
use crate::kernel::scalar;
use std::arch::wasm32::*;

const MIN_MAX: f32 = 1e-5;
/// Added to a float between −2²² and 2²², it leaves the number, rounded half to even, in the lowest bits.
/// The saturating conversion to int is not a single instruction in engines.
const MAGIC: f32 = 12_582_912.0;

/// Returns max |x|, at least 1e-5; NaN is ignored.
fn absmax(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<8>();
    let mut m = [f32x4_splat(MIN_MAX); 2];
    for c in chunks {
        for (m, c) in m.iter_mut().zip(c.as_chunks::<4>().0) {
            // Positive floats compare like their bits.
            *m = i32x4_max(*m, number(f32x4_abs(load(c))));
        }
    }
    let m = max(i32x4_max(m[0], m[1]));
    rest.iter().fold(m, |m, v| if v.abs() > m { v.abs() } else { m })
}

/// Replaces a positive NaN by 0. Its bits, as an integer, are greater than those of infinity.
#[inline]
fn number(v: v128) -> v128 {
    v128_andnot(v, i32x4_gt(v, f32x4_splat(f32::INFINITY)))
}

/// See the scalar definition.
pub fn quantize8(x: &[f32], values: &mut [i8]) -> (i32, f32) {
    let scale = 127.0 / absmax(x);
    let (factor, magic) = (f32x4_splat(scale), f32x4_splat(MAGIC));
    let mut total = i32x4_splat(0);
    let (xs, x_rest) = x.as_chunks::<16>();
    let (qs, q_rest) = values[..x.len()].as_chunks_mut::<16>();
    for (x, q) in xs.iter().zip(qs) {
        let mut ints = [i32x4_splat(0); 4];
        for (i, x) in ints.iter_mut().zip(x.as_chunks::<4>().0) {
            // The scale keeps every number within ±127.
            let v = f32x4_mul(load(x), factor);
            let rounded = i32x4_sub(f32x4_add(v, magic), magic);
            *i = v128_bitselect(rounded, i32x4_splat(-128), f32x4_eq(v, v));
            total = i32x4_add(total, *i);
        }
        let pairs = [i16x8_narrow_i32x4(ints[0], ints[1]), i16x8_narrow_i32x4(ints[2], ints[3])];
        *q = bytemuck::must_cast(i8x16_narrow_i16x8(pairs[0], pairs[1]));
    }
    let mut total = sum_i32(total);
    for (v, q) in x_rest.iter().zip(q_rest) {
        *q = scalar::row::round_to_i8(v * scale);
        total += i32::from(*q);
    }
    (total, 1.0 / scale)
}

/// See the scalar definition.
pub fn quantize16(x: &[f32], high: &mut [i8], low: &mut [i8]) -> ([i32; 2], f32) {
    let scale = 32512.0 / absmax(x);
    let factor = f32x4_splat(scale);
    let mut totals = [i32x4_splat(0); 2];
    let (xs, x_rest) = x.as_chunks::<16>();
    let (highs, high_rest) = high[..x.len()].as_chunks_mut::<16>();
    let (lows, low_rest) = low[..x.len()].as_chunks_mut::<16>();
    for ((x, h), l) in xs.iter().zip(highs).zip(lows) {
        let mut ints = [[i32x4_splat(0); 4]; 2];
        for (i, x) in x.as_chunks::<4>().0.iter().enumerate() {
            // NaN becomes 0, as in the definition.
            let q = i32x4_trunc_sat_f32x4(f32x4_nearest(f32x4_mul(load(x), factor)));
            ints[0][i] = i32x4_shr(i32x4_add(q, i32x4_splat(128)), 8);
            ints[1][i] = i32x4_sub(q, i32x4_shl(ints[0][i], 8));
            totals[0] = i32x4_add(totals[0], ints[0][i]);
            totals[1] = i32x4_add(totals[1], ints[1][i]);
        }
        [*h, *l] = ints.map(|[a, b, c, d]| {
            let pairs = [i16x8_narrow_i32x4(a, b), i16x8_narrow_i32x4(c, d)];
            bytemuck::must_cast(i8x16_narrow_i16x8(pairs[0], pairs[1]))
        });
    }
    let mut sums = totals.map(sum_i32);
    for ((v, h), l) in x_rest.iter().zip(high_rest).zip(low_rest) {
        [*h, *l] = scalar::row::split(v * scale);
        sums[0] += i32::from(*h);
        sums[1] += i32::from(*l);
    }
    (sums, 1.0 / scale)
}

/// See the scalar definition.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (chunks, rest) = x.as_chunks::<16>();
    let mut squares = [f32x4_splat(0.0); 4];
    for c in chunks {
        for (sum, c) in squares.iter_mut().zip(c.as_chunks::<4>().0) {
            *sum = f32x4_add(*sum, f32x4_mul(load(c), load(c)));
        }
    }
    let rest: f32 = rest.iter().map(|v| v * v).sum();
    let [a, b, c, d] = squares;
    let squares = sum(f32x4_add(f32x4_add(a, b), f32x4_add(c, d))) + rest;
    let factor = norm_factor(squares, x.len(), eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * factor * w;
    }
}

/// See the scalar definition.
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    let one = f32x4_splat(1.0);
    zip4!(gate, up, |g, u| {
        let v = load(g);
        let denominator = f32x4_add(one, exp(f32x4_neg(v)));
        store(g, f32x4_mul(f32x4_div(v, denominator), load(u)));
    });
}

/// See the scalar definition.
pub fn relu2_mul(gate: &mut [f32], up: &[f32]) {
    zip4!(gate, up, |g, u| {
        // A negative float is negative as an integer, too; a positive NaN is the largest.
        let v = load(g);
        let r = v128_bitselect(i32x4_max(v, i32x4_splat(0)), v, f32x4_eq(v, v));
        store(g, f32x4_mul(f32x4_mul(r, r), load(u)));
    });
}

/// Returns eˣ of 4 lanes, by the steps of the scalar definition.
#[inline]
pub fn exp(x: v128) -> v128 {
    let (bottom, top) = (f32x4_splat(-87.0), f32x4_splat(88.0));
    let x = pick(f32x4_lt(x, bottom), bottom, x);
    let x = pick(f32x4_gt(x, top), top, x);
    let magic = f32x4_splat(MAGIC);
    let whole = f32x4_add(f32x4_mul(x, f32x4_splat(std::f32::consts::LOG2_E)), magic);
    let n = f32x4_sub(whole, magic);
    let r = f32x4_sub(x, f32x4_mul(n, f32x4_splat(0.693_359_4)));
    let r = f32x4_sub(r, f32x4_mul(n, f32x4_splat(-2.121_944_4e-4)));
    let mut p = f32x4_splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = f32x4_add(f32x4_mul(p, r), f32x4_splat(c));
    }
    let p = f32x4_add(f32x4_add(f32x4_mul(f32x4_mul(p, r), r), r), f32x4_splat(1.0));
    // The shift drops everything of the magic number except n.
    let power = i32x4_shl(i32x4_add(whole, i32x4_splat(127)), 23);
    f32x4_mul(p, power)
}
