//! Vectors of 16 floats, from and to arrays.

use std::arch::x86_64::*;

/// Loads 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn load(x: &[f32; 16]) -> __m512 {
    bytemuck::must_cast(*x)
}

/// Stores 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn store(x: &mut [f32; 16], v: __m512) {
    *x = bytemuck::must_cast(v);
}

/// 16 zeroes.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn zero() -> __m512 {
    _mm512_setzero_ps()
}

/// 16 times the same.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn splat(x: f32) -> __m512 {
    _mm512_set1_ps(x)
}

/// a · b.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn mul(a: __m512, b: __m512) -> __m512 {
    _mm512_mul_ps(a, b)
}

/// a · b + c, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
    _mm512_fmadd_ps(a, b, c)
}
