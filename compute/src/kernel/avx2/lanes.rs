//! Operations on 256-bit vectors. Loads and stores take arrays of the right length.

pub use super::KV;
use crate::kernel::simd::lanes;
use std::arch::x86_64::*;

/// A vector of 8 floats.
pub type Vector = __m256;

/// An integer of each of a panel's 16 rows, as f64.
pub type Wide = [__m256d; 4];

lanes! { "avx2,fma,f16c":
    /// Loads 32 bytes.
    fn load_u8(bytes: &[u8; 32]) -> __m256i { bytemuck::must_cast(*bytes) }

    fn load(x: &[f32; 8]) -> __m256 { bytemuck::must_cast(*x) }
    fn load_f16(codes: &[u16; 8]) -> __m256 { _mm256_cvtph_ps(bytemuck::must_cast(*codes)) }

    fn load_bf16(codes: &[u16; 8]) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(bytemuck::must_cast(*codes));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }

    /// Loads 16 numbers of [`KvType::Bf16`](crate::kernel::KvType::Bf16): the even ones and the odd ones.
    /// So each vector takes one operation.
    fn load_bf16_pair(codes: &[u16; 16]) -> [__m256; 2] {
        let pairs: __m256i = bytemuck::must_cast(*codes);
        let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed()));
        [bytemuck::must_cast(_mm256_slli_epi32::<16>(pairs)), bytemuck::must_cast(odd)]
    }

    /// Loads 16 numbers of [`KvType::F16`](crate::kernel::KvType::F16), in order.
    fn load_f16_pair(codes: &[u16; 16]) -> [__m256; 2] {
        let [a, b]: [[u16; 8]; 2] = bytemuck::must_cast(*codes);
        [load_f16(&a), load_f16(&b)]
    }

    /// Loads 8 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), without their scale.
    fn load_int8(codes: &[i8; 8]) -> __m256 { floats(ints(codes)) }

    /// Loads 16 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), in order.
    fn load_int8_pair(codes: &[i8; 16]) -> [__m256; 2] {
        let [a, b]: [[i8; 8]; 2] = bytemuck::must_cast(*codes);
        [load_int8(&a), load_int8(&b)]
    }

    /// Returns a pair of vectors that is in order.
    fn in_order(pair: [__m256; 2]) -> [__m256; 2] { pair }

    /// Returns the vectors whose even numbers are `a` and whose odd ones are `b`.
    fn interleave([a, b]: [__m256; 2]) -> [__m256; 2] {
        let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
    }

    /// Returns the even and the odd numbers of two vectors.
    fn deinterleave([a, b]: [__m256; 2]) -> [__m256; 2] {
        let low = _mm256_permute2f128_ps::<0x20>(a, b);
        let high = _mm256_permute2f128_ps::<0x31>(a, b);
        let even = _mm256_shuffle_ps::<0b10_00_10_00>(low, high);
        [even, _mm256_shuffle_ps::<0b11_01_11_01>(low, high)]
    }

    fn store(x: &mut [f32; 8], v: __m256) { *x = bytemuck::must_cast(v); }

    /// Returns 8 zeros.
    fn zero() -> __m256 { _mm256_setzero_ps() }

    fn splat(x: f32) -> __m256 { _mm256_set1_ps(x) }
    fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
    fn add_product(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }

    /// As [`add_product`], for single floats.
    fn add_product_one(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }

    /// Returns the sum of whole vectors.
    fn total(x: &[f32]) -> f32 {
        let vectors = x.as_chunks().0.iter();
        sum(vectors.fold(zero(), |total, x| _mm256_add_ps(total, load(x))))
    }

    fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
    fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
    fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }

    /// Returns the larger of each pair; `b` if one is NaN.
    fn larger(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }

    fn rectified(x: __m256) -> __m256 { larger(_mm256_setzero_ps(), x) }

    fn larger_magnitude(x: __m256, top: __m256) -> __m256 {
        larger(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x), top)
    }

    fn splat_int(x: i32) -> __m256i { _mm256_set1_epi32(x) }

    fn round(x: __m256, nan: i32) -> __m256i {
        let number = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_ORD_Q>(x, x));
        _mm256_blendv_epi8(splat_int(nan), _mm256_cvtps_epi32(x), number)
    }

    fn add_ints(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
    fn sub_ints(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
    fn left8(x: __m256i) -> __m256i { _mm256_slli_epi32::<8>(x) }
    fn right8(x: __m256i) -> __m256i { _mm256_srai_epi32::<8>(x) }
    fn floats(x: __m256i) -> __m256 { _mm256_cvtepi32_ps(x) }

    fn ints(x: &[i8; 8]) -> __m256i {
        _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytemuck::must_cast(*x))))
    }

    fn wide_zero() -> Wide { [_mm256_setzero_pd(); 4] }

    fn wide_add(a: Wide, b: [__m256i; 2]) -> Wide {
        let (quarters, mut out): ([__m128i; 4], Wide) = (bytemuck::must_cast(b), a);
        for (out, quarter) in out.iter_mut().zip(quarters) {
            *out = _mm256_add_pd(*out, _mm256_cvtepi32_pd(quarter));
        }
        out
    }

    fn wide_join(high: Wide, low: Wide) -> Wide {
        let mut out = low;
        for (out, high) in out.iter_mut().zip(high) {
            *out = _mm256_fmadd_pd(high, _mm256_set1_pd(256.0), *out);
        }
        out
    }

    fn wide_sub(a: Wide, b: i64) -> Wide {
        let mut out = a;
        for out in &mut out {
            *out = _mm256_sub_pd(*out, _mm256_set1_pd(b as f64));
        }
        out
    }

    fn wide_round([a, b, c, d]: Wide) -> [__m256; 2] {
        [
            _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)),
            _mm256_set_m128(_mm256_cvtpd_ps(d), _mm256_cvtpd_ps(c)),
        ]
    }

    fn narrow([a, b, c, d]: [__m256i; 4], out: &mut [i8; 32]) {
        // Packing works within halves; this puts the quads back in order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        *out = bytemuck::must_cast(_mm256_permutevar8x32_epi32(bytes, order));
    }

    fn exp(x: __m256) -> __m256 {
        // In this order a NaN stays NaN.
        let x = _mm256_min_ps(_mm256_set1_ps(88.0), _mm256_max_ps(_mm256_set1_ps(-87.0), x));
        let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
            x,
            _mm256_set1_ps(std::f32::consts::LOG2_E),
        ));
        let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
        let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
        // Without a loop: the compiler would not inline that everywhere.
        let p = _mm256_fmadd_ps(splat(1.987_569_1e-4), r, splat(1.398_199_9e-3));
        let p = _mm256_fmadd_ps(p, r, splat(8.333_452e-3));
        let p = _mm256_fmadd_ps(p, r, splat(4.166_579_6e-2));
        let p = _mm256_fmadd_ps(p, r, splat(1.666_666_5e-1));
        let p = _mm256_fmadd_ps(p, r, splat(0.5));
        let p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1.0)));
        let power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(power)))
    }

    fn hadamard(v: __m256) -> __m256 {
        // Each stage adds a number's partner to it, or subtracts it from the partner.
        let signs = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
        let v = _mm256_fmadd_ps(signs, v, _mm256_permute_ps::<0b10_11_00_01>(v));
        let signs = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
        let v = _mm256_fmadd_ps(signs, v, _mm256_permute_ps::<0b01_00_11_10>(v));
        let signs = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
        _mm256_fmadd_ps(signs, v, _mm256_permute2f128_ps::<0x01>(v, v))
    }

    /// Transposes 8 × 8 floats.
    fn transpose8(rows: &[__m256; 8]) -> [__m256; 8] {
        let mut pairs = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        // Rows 0 to 3 (i = 0) or 4 to 7 (i = 1) of the columns k and k + 4.
        let mut fours = [[_mm256_setzero_ps(); 4]; 2];
        for i in 0..2 {
            let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
            fours[i] = [
                _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
                _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
                _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
                _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
            ];
        }
        let mut columns = [_mm256_setzero_ps(); 8];
        for k in 0..4 {
            columns[k] = _mm256_permute2f128_ps::<0x20>(fours[0][k], fours[1][k]);
            columns[k + 4] = _mm256_permute2f128_ps::<0x31>(fours[0][k], fours[1][k]);
        }
        columns
    }

    fn splat_byte(x: u8) -> __m256i { _mm256_set1_epi8(x.cast_signed()) }
    fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
    fn right2(x: __m256i) -> __m256i { _mm256_srli_epi16::<2>(x) }

    fn add_quads(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x))
    }

    fn widen(sum: __m256i) -> __m256i { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) }

    fn sum(v: __m256) -> f32 {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }

    fn max(v: __m256) -> f32 {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
    }

    fn sum_ints(v: __m256i) -> i32 {
        let lanes: [i32; 8] = bytemuck::must_cast(v);
        lanes.iter().sum()
    }

    /// Prefetches the cache line `ahead` bytes past `here`; harmless past the end.
    fn prefetch(here: *const u8, ahead: usize) {
        _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(ahead).cast());
    }

    /// Prefetches the cache line `ahead` bytes past `here` to the second-level cache; harmless past the end.
    fn prefetch_second(here: *const u8, ahead: usize) {
        _mm_prefetch::<_MM_HINT_T1>(here.wrapping_add(ahead).cast());
    }

    /// Prefetches two lines of a stream: the one `second_level` bytes past `here` to the second-level
    /// cache, and the one `first_level` bytes past it to the first-level cache.
    fn prefetch_stream(here: *const u8, second_level: usize, first_level: usize) {
        prefetch_second(here, second_level);
        prefetch(here, first_level);
    }

    /// Prefetches bytes.
    fn fetch(bytes: &[u8]) { bytes.iter().step_by(64).for_each(|line| prefetch(line, 0)); }
}
