//! Kernels over single rows.

use crate::kernel::finite::norm_factor;

/// Smallest max |x| that a quantization scale is made from (as `transformers` clamps it).
pub const MIN_MAX: f32 = 1e-5;

/// Quantizes a row to 8 bits by its absolute maximum: s = 127 / max |x|, q = clamp(round(x · s), −128, 127).
pub fn quantize8(x: &[f32], values: &mut [i8]) -> (i32, f32) {
    let scale = 127.0 / absmax(x);
    let mut sum = 0;
    for (v, q) in x.iter().zip(values) {
        *q = round_to_i8(v * scale);
        sum += i32::from(*q);
    }
    (sum, 1.0 / scale)
}

/// Quantizes a row to ±32512, split into a high and a low int8: q = 256 · high + low.
pub fn quantize16(x: &[f32], high: &mut [i8], low: &mut [i8]) -> ([i32; 2], f32) {
    let scale = 32512.0 / absmax(x);
    let mut sums = [0; 2];
    for ((v, h), l) in x.iter().zip(high).zip(low) {
        [*h, *l] = split(v * scale);
        sums[0] += i32::from(*h);
        sums[1] += i32::from(*l);
    }
    (sums, 1.0 / scale)
}

/// Rounds half to even and splits the result into both planes; NaN becomes 0.
pub fn split(v: f32) -> [i8; 2] {
    let q = v.round_ties_even() as i32;
    let high = (q + 128) >> 8;
    [high as i8, (q - 256 * high) as i8]
}

/// Returns max |x|, at least [`MIN_MAX`]; NaN is ignored.
pub fn absmax(x: &[f32]) -> f32 {
    x.iter().fold(MIN_MAX, |m, v| if v.abs() > m { v.abs() } else { m })
}

/// Rounds half to even and clamps; NaN becomes −128, as in vector instructions.
pub fn round_to_i8(v: f32) -> i8 {
    let r = v.round_ties_even();
    if r >= 127.0 {
        127
    } else if r > -128.0 {
        r as i8
    } else {
        -128
    }
}

/// Computes RMSNorm (arXiv 1910.07467): x / √(mean x² + ε) · weight. All NaN if Σ x² is not finite.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let squares: f32 = x.iter().map(|v| v * v).sum();
    let factor = norm_factor(squares, x.len(), eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * factor * w;
    }
}

/// Applies the rotary embedding in NeoX order: element i pairs with element i + head_dim / 2.
pub fn rope(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (a, b) = head.split_at_mut(cos.len());
    for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}

/// Computes gate = gate · sigmoid(gate) · up.
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = *g / (1.0 + exp(-*g)) * u;
    }
}

/// Computes gate = max(gate, 0)² · up; NaN stays.
pub fn relu2_mul(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        // Unlike `max`, it keeps NaN.
        let r = if *g < 0.0 { 0.0 } else { *g };
        *g = r * r * u;
    }
}

/// Computes x += y.
pub fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Returns eˣ to 2 ulp: 2ⁿ · p(r) with r = x − n·ln 2 and p by minimax (Cephes `expf`). The vector
/// kernels take the same steps. Below −87 the result is about 2⁻¹²⁶, never 0; above 88 it stays finite.
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let p = p * r * r + r + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}
