//! Operations on vectors of 16 floats. Loads and stores take arrays.

pub use crate::kernel::avx2::{KV, add_product_one, prefetch, total};
use std::arch::x86_64::*;

/// A vector of 16 floats.
pub type Vector = __m512;

/// Loads 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn load(x: &[f32; 16]) -> __m512 {
    bytemuck::must_cast(*x)
}

/// Loads 16 numbers of [`KvType::F16`](crate::kernel::KvType::F16).
#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_f16(codes: &[u16; 16]) -> __m512 {
    _mm512_cvtph_ps(bytemuck::must_cast(*codes))
}

/// Loads 16 numbers of [`KvType::Bf16`](crate::kernel::KvType::Bf16).
#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_bf16(codes: &[u16; 16]) -> __m512 {
    let wide = _mm512_cvtepu16_epi32(bytemuck::must_cast(*codes));
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
}

/// Stores 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn store(x: &mut [f32; 16], v: __m512) {
    *x = bytemuck::must_cast(v);
}

/// Returns 16 zeros.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn zero() -> __m512 {
    _mm512_setzero_ps()
}

/// Returns a vector of 16 equal numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn splat(x: f32) -> __m512 {
    _mm512_set1_ps(x)
}

/// Returns a · b.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn mul(a: __m512, b: __m512) -> __m512 {
    _mm512_mul_ps(a, b)
}

/// Returns a · b + c, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn add_product(a: __m512, b: __m512, c: __m512) -> __m512 {
    _mm512_fmadd_ps(a, b, c)
}

/// Returns a + b.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn add(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(a, b)
}

/// Returns a / b.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn div(a: __m512, b: __m512) -> __m512 {
    _mm512_div_ps(a, b)
}

/// Returns the sum of 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn sum(v: __m512) -> f32 {
    _mm512_reduce_add_ps(v)
}

/// Returns the Walsh–Hadamard transform of 16 floats, not normalized.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn hadamard(v: __m512) -> __m512 {
    // Each stage adds a number's partner to it, or subtracts it from the partner.
    let partner = _mm512_permute_ps::<0b10_11_00_01>(v);
    let v = _mm512_mask_sub_ps(_mm512_add_ps(v, partner), 0b1010_1010_1010_1010, partner, v);
    let partner = _mm512_permute_ps::<0b01_00_11_10>(v);
    let v = _mm512_mask_sub_ps(_mm512_add_ps(v, partner), 0b1100_1100_1100_1100, partner, v);
    let partner = _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v);
    let v = _mm512_mask_sub_ps(_mm512_add_ps(v, partner), 0b1111_0000_1111_0000, partner, v);
    let partner = _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v);
    _mm512_mask_sub_ps(_mm512_add_ps(v, partner), 0b1111_1111_0000_0000, partner, v)
}

/// Returns a − b.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn sub(a: __m512, b: __m512) -> __m512 {
    _mm512_sub_ps(a, b)
}

/// Returns the larger of each pair; `b` if one is NaN.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn larger(a: __m512, b: __m512) -> __m512 {
    _mm512_max_ps(a, b)
}

/// Returns the largest of 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn max(v: __m512) -> f32 {
    _mm512_reduce_max_ps(v)
}

/// Returns eˣ of 16 lanes, by the steps of the scalar definition.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn exp(x: __m512) -> __m512 {
    /// To the nearest, without exceptions.
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    // In this order a NaN stays NaN.
    let x = _mm512_min_ps(splat(88.0), _mm512_max_ps(splat(-87.0), x));
    let n = _mm512_roundscale_ps::<NEAREST>(mul(x, splat(std::f32::consts::LOG2_E)));
    let r = _mm512_fnmadd_ps(n, splat(0.693_359_4), x);
    let r = _mm512_fnmadd_ps(n, splat(-2.121_944_4e-4), r);
    let mut p = splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = add_product(p, r, splat(c));
    }
    let p = add_product(mul(p, r), r, _mm512_add_ps(r, splat(1.0)));
    _mm512_scalef_ps(p, n)
}
