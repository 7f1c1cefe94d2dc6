//! Operations on 128-bit vectors. Loads and stores take arrays of the right length.

pub(super) use super::KV;
pub use super::row::exp;
use std::arch::wasm32::*;

/// A vector of 4 floats.
pub type Vector = v128;

/// Does nothing: WebAssembly has no prefetch.
#[inline]
pub fn prefetch(_: *const u8, _: usize) {}

/// Loads 4 floats.
#[inline]
pub fn load(x: &[f32; 4]) -> v128 {
    bytemuck::must_cast(*x)
}

/// Stores 4 floats.
#[inline]
pub fn store(x: &mut [f32; 4], v: v128) {
    *x = bytemuck::must_cast(v);
}

/// Returns 4 zeros.
#[inline]
pub fn zero() -> v128 {
    splat(0.0)
}

/// Returns a vector of 4 equal numbers.
#[inline]
pub fn splat(x: f32) -> v128 {
    f32x4_splat(x)
}

/// Returns a · b.
#[inline]
pub fn mul(a: v128, b: v128) -> v128 {
    f32x4_mul(a, b)
}

/// Returns a · b + c, rounded twice, because there is no fused instruction.
#[inline]
pub fn add_product(a: v128, b: v128, c: v128) -> v128 {
    f32x4_add(c, mul(a, b))
}

/// As [`add_product`], for single floats.
#[inline]
pub fn add_product_one(a: f32, b: f32, c: f32) -> f32 {
    c + a * b
}

/// Returns a + b.
#[inline]
pub fn add(a: v128, b: v128) -> v128 {
    f32x4_add(a, b)
}

/// Returns a / b.
#[inline]
pub fn div(a: v128, b: v128) -> v128 {
    f32x4_div(a, b)
}

/// Returns the Walsh–Hadamard transform of 4 floats, not normalized.
#[inline]
pub fn hadamard(v: v128) -> v128 {
    // Each stage adds a number's partner to it, or subtracts it from the partner.
    let signs = f32x4(1.0, -1.0, 1.0, -1.0);
    let v = add(mul(signs, v), i32x4_shuffle::<1, 0, 3, 2>(v, v));
    let signs = f32x4(1.0, 1.0, -1.0, -1.0);
    add(mul(signs, v), i32x4_shuffle::<2, 3, 0, 1>(v, v))
}

/// Returns a − b.
#[inline]
pub fn sub(a: v128, b: v128) -> v128 {
    f32x4_sub(a, b)
}

/// Returns the larger of each pair; `b` if one is NaN.
#[inline]
pub fn larger(a: v128, b: v128) -> v128 {
    pick(f32x4_gt(a, b), a, b)
}

/// Returns the sum of whole vectors.
#[inline]
pub fn total(x: &[f32]) -> f32 {
    let vectors = x.as_chunks().0.iter();
    sum(vectors.fold(zero(), |total, x| f32x4_add(total, load(x))))
}

/// Transposes 4 × 4 floats.
#[inline]
pub fn transpose4(rows: &[v128; 4]) -> [v128; 4] {
    let [a, b, c, d] = *rows;
    let (ac, bd) = (i32x4_shuffle::<0, 4, 1, 5>(a, c), i32x4_shuffle::<0, 4, 1, 5>(b, d));
    let (ca, db) = (i32x4_shuffle::<2, 6, 3, 7>(a, c), i32x4_shuffle::<2, 6, 3, 7>(b, d));
    [
        i32x4_shuffle::<0, 4, 1, 5>(ac, bd),
        i32x4_shuffle::<2, 6, 3, 7>(ac, bd),
        i32x4_shuffle::<0, 4, 1, 5>(ca, db),
        i32x4_shuffle::<2, 6, 3, 7>(ca, db),
    ]
}

/// Returns the sum of 4 floats: adds halves, then the last pair.
#[inline]
pub fn sum(v: v128) -> f32 {
    let [a, b, c, d]: [f32; 4] = bytemuck::must_cast(v);
    (a + c) + (b + d)
}

/// Returns the largest of 4 floats.
#[inline]
pub fn max(v: v128) -> f32 {
    let lanes: [f32; 4] = bytemuck::must_cast(v);
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Returns the sum of 4 integers.
#[inline]
pub fn sum_i32(v: v128) -> i32 {
    let lanes: [i32; 4] = bytemuck::must_cast(v);
    lanes.iter().sum()
}

/// Selects `a` in lanes where the comparison is true, else `b`.
#[inline]
pub fn pick(comparison: v128, a: v128, b: v128) -> v128 {
    v128_bitselect(a, b, comparison)
}

/// Widens 16 bytes to 16-bit lanes: the even columns, then the odd ones. Each four columns become a pair
/// in one 32-bit lane. That is cheaper than widening the lower and the upper half.
#[inline]
pub fn even_odd(bytes: v128) -> [v128; 2] {
    [i16x8_shr(i16x8_shl(bytes, 8), 8), i16x8_shr(bytes, 8)]
}

/// Converts f16 in the lower halves of 32-bit lanes to f32. The bits are shifted to their place and a
/// multiplication by 2¹¹² corrects the exponent's bias, which is exact and makes subnormals normal.
#[inline]
pub fn widen_f16(bits: v128) -> v128 {
    let sign = i32x4_shl(v128_and(bits, i32x4_splat(0x8000)), 16);
    let magnitude = i32x4_shl(v128_and(bits, i32x4_splat(0x7FFF)), 13);
    let value = f32x4_mul(magnitude, f32x4_splat(f32::from_bits(0x7780_0000)));
    // The largest exponent means infinity or NaN in both formats.
    let beyond = i32x4_gt(magnitude, i32x4_splat((0x7C00 << 13) - 1));
    let exponent = v128_and(beyond, f32x4_splat(f32::INFINITY));
    v128_or(v128_or(value, exponent), sign)
}

/// Converts 8 f16 to f32.
#[inline]
pub fn widen_8_f16(bits: v128) -> [v128; 2] {
    [u32x4_extend_low_u16x8(bits), u32x4_extend_high_u16x8(bits)].map(widen_f16)
}

/// Runs the body on every 4 columns of `x` and `y`, and once more on a zero-padded rest, of which only
/// the real columns are written back.
macro_rules! zip4 {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $body:block) => {{
        let (xs, x_rest) = $x.as_chunks_mut::<4>();
        let (ys, y_rest) = $y.as_chunks::<4>();
        for ($a, $b) in xs.iter_mut().zip(ys) $body
        if !x_rest.is_empty() {
            let (mut x_pad, mut y_pad) = ([0.0; 4], [0.0; 4]);
            x_pad[..x_rest.len()].copy_from_slice(x_rest);
            y_pad[..y_rest.len()].copy_from_slice(y_rest);
            {
                let ($a, $b) = (&mut x_pad, &y_pad);
                $body
            }
            x_rest.copy_from_slice(&x_pad[..x_rest.len()]);
        }
    }};
}
pub(super) use zip4;
