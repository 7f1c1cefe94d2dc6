//! Operations on 256-bit vectors. Loads and stores take arrays of the right length.

pub use super::KV;
use std::arch::x86_64::*;

/// A vector of 8 floats.
pub type Vector = __m256;

/// Loads 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_u8(bytes: &[u8; 32]) -> __m256i {
    bytemuck::must_cast(*bytes)
}

/// Loads 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_half(bytes: &[u8; 16]) -> __m128i {
    bytemuck::must_cast(*bytes)
}

/// Loads 8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load(x: &[f32; 8]) -> __m256 {
    bytemuck::must_cast(*x)
}

/// Loads 8 numbers of [`KvType::F16`](crate::kernel::KvType::F16).
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn load_f16(codes: &[u16; 8]) -> __m256 {
    _mm256_cvtph_ps(bytemuck::must_cast(*codes))
}

/// Loads 8 numbers of [`KvType::Bf16`](crate::kernel::KvType::Bf16).
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_bf16(codes: &[u16; 8]) -> __m256 {
    let wide = _mm256_cvtepu16_epi32(bytemuck::must_cast(*codes));
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
}

/// Stores 8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn store(x: &mut [f32; 8], v: __m256) {
    *x = bytemuck::must_cast(v);
}

/// Returns 8 zeros.
#[inline]
#[target_feature(enable = "avx2")]
pub fn zero() -> __m256 {
    _mm256_setzero_ps()
}

/// Returns a vector of 8 equal numbers.
#[inline]
#[target_feature(enable = "avx2")]
pub fn splat(x: f32) -> __m256 {
    _mm256_set1_ps(x)
}

/// Returns a · b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn mul(a: __m256, b: __m256) -> __m256 {
    _mm256_mul_ps(a, b)
}

/// Returns a · b + c, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub fn add_product(a: __m256, b: __m256, c: __m256) -> __m256 {
    _mm256_fmadd_ps(a, b, c)
}

/// As [`add_product`], for single floats.
#[inline]
#[target_feature(enable = "fma")]
pub fn add_product_one(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Returns the sum of whole vectors.
#[inline]
#[target_feature(enable = "avx2")]
pub fn total(x: &[f32]) -> f32 {
    let vectors = x.as_chunks().0.iter();
    sum(vectors.fold(zero(), |total, x| _mm256_add_ps(total, load(x))))
}

/// Returns a + b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn add(a: __m256, b: __m256) -> __m256 {
    _mm256_add_ps(a, b)
}

/// Returns a / b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn div(a: __m256, b: __m256) -> __m256 {
    _mm256_div_ps(a, b)
}

/// Returns a − b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sub(a: __m256, b: __m256) -> __m256 {
    _mm256_sub_ps(a, b)
}

/// Returns the larger of each pair; `b` if one is NaN.
#[inline]
#[target_feature(enable = "avx2")]
pub fn larger(a: __m256, b: __m256) -> __m256 {
    _mm256_max_ps(a, b)
}

/// Returns eˣ of 8 lanes, by the steps of the scalar definition.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn exp(x: __m256) -> __m256 {
    // In this order a NaN stays NaN.
    let x = _mm256_min_ps(_mm256_set1_ps(88.0), _mm256_max_ps(_mm256_set1_ps(-87.0), x));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    let mut p = _mm256_set1_ps(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    }
    let p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1.0)));
    let power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(power)))
}

/// Returns the Walsh–Hadamard transform of 8 floats, not normalized.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub fn hadamard(v: __m256) -> __m256 {
    // Each stage adds a number's partner to it, or subtracts it from the partner.
    let signs = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
    let v = _mm256_fmadd_ps(signs, v, _mm256_permute_ps::<0b10_11_00_01>(v));
    let signs = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
    let v = _mm256_fmadd_ps(signs, v, _mm256_permute_ps::<0b01_00_11_10>(v));
    let signs = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
    _mm256_fmadd_ps(signs, v, _mm256_permute2f128_ps::<0x01>(v, v))
}

/// Transposes 8 × 8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transpose8(rows: &[__m256; 8]) -> [__m256; 8] {
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

/// Repeats 4 bytes in every 32-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
pub fn repeat4(x: &[i8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_le_bytes(bytemuck::must_cast(*x)))
}

/// Prefetches the cache line `ahead` bytes past `here`; harmless past the end.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch(here: *const u8, ahead: usize) {
    _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(ahead).cast());
}

/// Prefetches two lines of a stream: the one `second_level` bytes past `here` to the second-level cache,
/// and the one `first_level` bytes past it to the first-level cache.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch_stream(here: *const u8, second_level: usize, first_level: usize) {
    _mm_prefetch::<_MM_HINT_T1>(here.wrapping_add(second_level).cast());
    prefetch(here, first_level);
}

/// Prefetches bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub fn fetch(bytes: &[u8]) {
    bytes.iter().step_by(64).for_each(|line| prefetch(line, 0));
}

/// Returns the sum of 8 floats: adds halves, then quarters, then the last pair.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Returns the largest of 8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn max(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

/// Returns the sum of 8 integers.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_i32(v: __m256i) -> i32 {
    let lanes: [i32; 8] = bytemuck::must_cast(v);
    lanes.iter().sum()
}

/// Runs the body on every 8 columns of `x` and `y`, and once more on a zero-padded rest, of which only
/// the real columns are written back.
macro_rules! zip8 {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $body:block) => {{
        let (xs, x_rest) = $x.as_chunks_mut::<8>();
        let (ys, y_rest) = $y.as_chunks::<8>();
        for ($a, $b) in xs.iter_mut().zip(ys) $body
        if !x_rest.is_empty() {
            let (mut x_pad, mut y_pad) = ([0.0; 8], [0.0; 8]);
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
pub(super) use zip8;
