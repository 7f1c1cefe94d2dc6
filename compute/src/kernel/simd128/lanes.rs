//! Operations on 128-bit vectors. Loads and stores take arrays of the right length.

pub(super) use super::KV;
use crate::kernel::simd::lanes;
use std::arch::wasm32::*;

/// A vector of 4 floats.
pub type Vector = v128;

/// Added to a float between −2²² and 2²², it leaves the number, rounded half to even, in the lowest bits.
/// The saturating conversion to int is not a single instruction in engines.
const MAGIC: f32 = 12_582_912.0;

/// An integer of each of a panel's 16 rows, as f64.
pub type Wide = [[v128; 2]; 4];

lanes! { "simd128":
    /// Does nothing: WebAssembly has no prefetch.
    fn prefetch(_: *const u8, _: usize) {}

    /// Does nothing, too.
    fn prefetch_second(_: *const u8, _: usize) {}

    fn load(x: &[f32; 4]) -> v128 { bytemuck::must_cast(*x) }
    fn load_f16(codes: &[u16; 4]) -> v128 { widen_f16(load_codes(codes)) }
    fn load_bf16(codes: &[u16; 4]) -> v128 { i32x4_shl(load_codes(codes), 16) }

    /// Loads 4 codes to the lower halves of the lanes.
    fn load_codes(codes: &[u16; 4]) -> v128 {
        u32x4_extend_low_u16x8(u64x2(bytemuck::must_cast(*codes), 0))
    }

    fn store(x: &mut [f32; 4], v: v128) { *x = bytemuck::must_cast(v); }

    /// Returns 4 zeros.
    fn zero() -> v128 { splat(0.0) }

    fn splat(x: f32) -> v128 { f32x4_splat(x) }
    fn mul(a: v128, b: v128) -> v128 { f32x4_mul(a, b) }
    fn add_product(a: v128, b: v128, c: v128) -> v128 { f32x4_add(c, mul(a, b)) }

    /// As [`add_product`], for single floats.
    fn add_product_one(a: f32, b: f32, c: f32) -> f32 { c + a * b }

    fn add(a: v128, b: v128) -> v128 { f32x4_add(a, b) }
    fn div(a: v128, b: v128) -> v128 { f32x4_div(a, b) }

    fn hadamard(v: v128) -> v128 {
        // Each stage adds a number's partner to it, or subtracts it from the partner.
        let signs = f32x4(1.0, -1.0, 1.0, -1.0);
        let v = add(mul(signs, v), i32x4_shuffle::<1, 0, 3, 2>(v, v));
        let signs = f32x4(1.0, 1.0, -1.0, -1.0);
        add(mul(signs, v), i32x4_shuffle::<2, 3, 0, 1>(v, v))
    }

    fn sub(a: v128, b: v128) -> v128 { f32x4_sub(a, b) }

    /// Returns the larger of each pair; `b` if one is NaN.
    fn larger(a: v128, b: v128) -> v128 { pick(f32x4_gt(a, b), a, b) }

    fn rectified(x: v128) -> v128 {
        // A negative float is negative as an integer, too; a positive NaN is the largest.
        v128_bitselect(i32x4_max(x, i32x4_splat(0)), x, f32x4_eq(x, x))
    }

    fn larger_magnitude(x: v128, top: v128) -> v128 {
        // Positive floats compare like their bits; those of NaN are greater than those of infinity.
        let magnitude = f32x4_abs(x);
        let nan = i32x4_gt(magnitude, f32x4_splat(f32::INFINITY));
        i32x4_max(top, v128_andnot(magnitude, nan))
    }

    fn splat_int(x: i32) -> v128 { i32x4_splat(x) }

    fn round(x: v128, nan: i32) -> v128 {
        let magic = splat(MAGIC);
        let rounded = i32x4_sub(f32x4_add(x, magic), magic);
        v128_bitselect(rounded, i32x4_splat(nan), f32x4_eq(x, x))
    }

    fn add_ints(a: v128, b: v128) -> v128 { i32x4_add(a, b) }
    fn sub_ints(a: v128, b: v128) -> v128 { i32x4_sub(a, b) }
    fn left8(x: v128) -> v128 { i32x4_shl(x, 8) }
    fn right8(x: v128) -> v128 { i32x4_shr(x, 8) }
    fn floats(x: v128) -> v128 { f32x4_convert_i32x4(x) }

    fn ints(x: &[i8; 4]) -> v128 {
        let bytes = u32x4(bytemuck::must_cast(*x), 0, 0, 0);
        i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(bytes))
    }

    fn wide_zero() -> Wide { [[f64x2_splat(0.0); 2]; 4] }

    fn wide_add(a: Wide, b: [v128; 4]) -> Wide {
        let mut out = a;
        for (out, b) in out.iter_mut().zip(b) {
            let upper = i32x4_shuffle::<2, 3, 2, 3>(b, b);
            out[0] = f64x2_add(out[0], f64x2_convert_low_i32x4(b));
            out[1] = f64x2_add(out[1], f64x2_convert_low_i32x4(upper));
        }
        out
    }

    fn wide_join(high: Wide, low: Wide) -> Wide {
        let mut out = low;
        for (out, high) in out.as_flattened_mut().iter_mut().zip(high.as_flattened()) {
            *out = f64x2_add(f64x2_mul(*high, f64x2_splat(256.0)), *out);
        }
        out
    }

    fn wide_sub(a: Wide, b: i64) -> Wide {
        let mut out = a;
        for out in out.as_flattened_mut() {
            *out = f64x2_sub(*out, f64x2_splat(b as f64));
        }
        out
    }

    fn wide_round(a: Wide) -> [v128; 4] {
        let mut out = [splat(0.0); 4];
        for (out, [low, high]) in out.iter_mut().zip(a) {
            let (low, high) = (f32x4_demote_f64x2_zero(low), f32x4_demote_f64x2_zero(high));
            *out = i32x4_shuffle::<0, 1, 4, 5>(low, high);
        }
        out
    }

    fn narrow([a, b, c, d]: [v128; 4], out: &mut [i8; 16]) {
        let bytes = i8x16_narrow_i16x8(i16x8_narrow_i32x4(a, b), i16x8_narrow_i32x4(c, d));
        *out = bytemuck::must_cast(bytes);
    }
}

/// See [`Simd::exp`](crate::kernel::simd::Simd::exp). The compiler would not inline it everywhere.
#[inline(always)]
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

lanes! { "simd128":
    /// Returns the sum of whole vectors.
    fn total(x: &[f32]) -> f32 {
        let vectors = x.as_chunks().0.iter();
        sum(vectors.fold(zero(), |total, x| f32x4_add(total, load(x))))
    }

    /// Transposes 4 × 4 floats.
    fn transpose4(rows: &[v128; 4]) -> [v128; 4] {
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

    fn sum(v: v128) -> f32 {
        let [a, b, c, d]: [f32; 4] = bytemuck::must_cast(v);
        (a + c) + (b + d)
    }

    fn max(v: v128) -> f32 {
        let lanes: [f32; 4] = bytemuck::must_cast(v);
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    fn sum_ints(v: v128) -> i32 {
        let lanes: [i32; 4] = bytemuck::must_cast(v);
        lanes.iter().sum()
    }

    /// Selects `a` in lanes where the comparison is true, else `b`.
    fn pick(comparison: v128, a: v128, b: v128) -> v128 { v128_bitselect(a, b, comparison) }

    /// Widens 16 bytes to 16-bit lanes: the even columns, then the odd ones. Each four columns become a pair
    /// in one 32-bit lane. That is cheaper than widening the lower and the upper half.
    fn even_odd(bytes: v128) -> [v128; 2] {
        [i16x8_shr(i16x8_shl(bytes, 8), 8), i16x8_shr(bytes, 8)]
    }

    /// Converts f16 in the lower halves of 32-bit lanes to f32. The bits are shifted to their place and a
    /// multiplication by 2¹¹² corrects the exponent's bias, which is exact and makes subnormals normal.
    fn widen_f16(bits: v128) -> v128 {
        let sign = i32x4_shl(v128_and(bits, i32x4_splat(0x8000)), 16);
        let magnitude = i32x4_shl(v128_and(bits, i32x4_splat(0x7FFF)), 13);
        let value = f32x4_mul(magnitude, f32x4_splat(f32::from_bits(0x7780_0000)));
        // The largest exponent means infinity or NaN in both formats.
        let beyond = i32x4_gt(magnitude, i32x4_splat((0x7C00 << 13) - 1));
        let exponent = v128_and(beyond, f32x4_splat(f32::INFINITY));
        v128_or(v128_or(value, exponent), sign)
    }

}
