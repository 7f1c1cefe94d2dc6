//! Operations on vectors of 16 floats. Loads and stores take arrays.

pub use crate::kernel::avx2::{KV, add_product_one, prefetch, prefetch_second, total};
use crate::kernel::simd::lanes;
use std::arch::x86_64::*;

/// A vector of 16 floats.
pub type Vector = __m512;

/// An integer of each of a panel's 16 rows, in 64 bits.
pub type Wide = [__m512i; 2];

lanes! { "avx512f":
    fn load(x: &[f32; 16]) -> __m512 { bytemuck::must_cast(*x) }
    fn load_f16(codes: &[u16; 16]) -> __m512 { _mm512_cvtph_ps(bytemuck::must_cast(*codes)) }

    fn load_bf16(codes: &[u16; 16]) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(bytemuck::must_cast(*codes));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }

    /// As AVX2's function.
    fn load_bf16_pair(codes: &[u16; 32]) -> [__m512; 2] {
        let pairs: __m512i = bytemuck::must_cast(*codes);
        let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed()));
        [bytemuck::must_cast(_mm512_slli_epi32::<16>(pairs)), bytemuck::must_cast(odd)]
    }

    /// Loads 32 numbers of [`KvType::F16`](crate::kernel::KvType::F16), in order.
    fn load_f16_pair(codes: &[u16; 32]) -> [__m512; 2] {
        let [a, b]: [[u16; 16]; 2] = bytemuck::must_cast(*codes);
        [load_f16(&a), load_f16(&b)]
    }

    /// Loads 16 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), without their scale.
    fn load_int8(codes: &[i8; 16]) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytemuck::must_cast(*codes)))
    }

    /// Loads 32 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), in order.
    fn load_int8_pair(codes: &[i8; 32]) -> [__m512; 2] {
        let [a, b]: [[i8; 16]; 2] = bytemuck::must_cast(*codes);
        [load_int8(&a), load_int8(&b)]
    }

    /// Returns a pair of vectors that is in order.
    fn in_order(pair: [__m512; 2]) -> [__m512; 2] { pair }

    /// Returns the vectors whose even numbers are `a` and whose odd ones are `b`.
    fn interleave([a, b]: [__m512; 2]) -> [__m512; 2] {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        [_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b)]
    }

    /// Returns the even and the odd numbers of two vectors.
    fn deinterleave([a, b]: [__m512; 2]) -> [__m512; 2] {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        [_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)]
    }

    fn store(x: &mut [f32; 16], v: __m512) { *x = bytemuck::must_cast(v); }

    /// Returns 16 zeros.
    fn zero() -> __m512 { _mm512_setzero_ps() }

    fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
    fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
    fn add_product(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
    fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
    fn sum(v: __m512) -> f32 { _mm512_reduce_add_ps(v) }

    fn hadamard(v: __m512) -> __m512 {
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

    fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }

    /// Returns the larger of each pair; `b` if one is NaN.
    fn larger(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }

    fn rectified(x: __m512) -> __m512 { larger(zero(), x) }
    fn larger_magnitude(x: __m512, top: __m512) -> __m512 { larger(_mm512_abs_ps(x), top) }
    fn splat_int(x: i32) -> __m512i { _mm512_set1_epi32(x) }

    fn round(x: __m512, nan: i32) -> __m512i {
        let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x);
        _mm512_mask_cvtps_epi32(splat_int(nan), number, x)
    }

    fn add_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
    fn sub_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
    fn left8(x: __m512i) -> __m512i { _mm512_slli_epi32::<8>(x) }
    fn right8(x: __m512i) -> __m512i { _mm512_srai_epi32::<8>(x) }
    fn sum_ints(x: __m512i) -> i32 { _mm512_reduce_add_epi32(x) }
    fn floats(x: __m512i) -> __m512 { _mm512_cvtepi32_ps(x) }
    fn ints(x: &[i8; 16]) -> __m512i { _mm512_cvtepi8_epi32(bytemuck::must_cast(*x)) }
    fn wide_zero() -> Wide { [_mm512_setzero_si512(); 2] }

    fn wide_add([low, high]: Wide, b: [__m512i; 1]) -> Wide {
        let [b_low, b_high]: [__m256i; 2] = bytemuck::must_cast(b);
        [
            _mm512_add_epi64(low, _mm512_cvtepi32_epi64(b_low)),
            _mm512_add_epi64(high, _mm512_cvtepi32_epi64(b_high)),
        ]
    }

    fn wide_join(high: Wide, low: Wide) -> Wide {
        let mut out = low;
        for (out, high) in out.iter_mut().zip(high) {
            *out = _mm512_add_epi64(_mm512_slli_epi64::<8>(high), *out);
        }
        out
    }

    fn wide_sub([low, high]: Wide, b: i64) -> Wide {
        let b = _mm512_set1_epi64(b);
        [_mm512_sub_epi64(low, b), _mm512_sub_epi64(high, b)]
    }

    fn narrow(x: [__m512i; 4], out: &mut [i8; 64]) {
        for (x, out) in x.into_iter().zip(out.as_chunks_mut().0) {
            *out = bytemuck::must_cast::<__m128i, [i8; 16]>(_mm512_cvtepi32_epi8(x));
        }
    }

    fn max(v: __m512) -> f32 { _mm512_reduce_max_ps(v) }

    fn exp(x: __m512) -> __m512 {
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
}

lanes! { "avx512f,avx512dq":
    fn wide_round([low, high]: Wide) -> [__m512; 1] {
        bytemuck::must_cast([_mm512_cvtepi64_ps(low), _mm512_cvtepi64_ps(high)])
    }
}

lanes! { "avx512f,avx512bw,avx512vnni":
    fn splat_byte(x: u8) -> __m512i { _mm512_set1_epi8(x.cast_signed()) }
    fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
    fn right2(x: __m512i) -> __m512i { _mm512_srli_epi16::<2>(x) }

    fn add_quads(sum: __m512i, w: __m512i, x: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, w, x)
    }

    fn widen(sum: __m512i) -> __m512i { sum }
}
