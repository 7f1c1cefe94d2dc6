//! Loads, stores and sums of 256-bit vectors, from and to arrays of the right length.

pub use super::KV;
use std::arch::x86_64::*;

/// 8 floats.
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

/// 8 numbers of [`KvType::F16`](crate::kernel::KvType::F16).
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn load_f16(codes: &[u16; 8]) -> __m256 {
    _mm256_cvtph_ps(bytemuck::must_cast(*codes))
}

/// 8 numbers of [`KvType::Bf16`](crate::kernel::KvType::Bf16).
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

/// 8 zeroes.
#[inline]
#[target_feature(enable = "avx2")]
pub fn zero() -> __m256 {
    _mm256_setzero_ps()
}

/// 8 times the same.
#[inline]
#[target_feature(enable = "avx2")]
pub fn splat(x: f32) -> __m256 {
    _mm256_set1_ps(x)
}

/// a · b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn mul(a: __m256, b: __m256) -> __m256 {
    _mm256_mul_ps(a, b)
}

/// a · b + c, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub fn add_product(a: __m256, b: __m256, c: __m256) -> __m256 {
    _mm256_fmadd_ps(a, b, c)
}

/// The same of single floats.
#[inline]
#[target_feature(enable = "fma")]
pub fn add_product_one(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Σ of whole vectors.
#[inline]
#[target_feature(enable = "avx2")]
pub fn total(x: &[f32]) -> f32 {
    let vectors = x.as_chunks().0.iter();
    sum(vectors.fold(zero(), |total, x| _mm256_add_ps(total, load(x))))
}

/// a − b.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sub(a: __m256, b: __m256) -> __m256 {
    _mm256_sub_ps(a, b)
}

/// The larger of each pair; of a NaN and a number `b`.
#[inline]
#[target_feature(enable = "avx2")]
pub fn larger(a: __m256, b: __m256) -> __m256 {
    _mm256_max_ps(a, b)
}

/// eˣ of 8 lanes, by the steps of the scalar definition.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn exp(x: __m256) -> __m256 {
    // In this order: a NaN stays one.
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

/// Columns of eight rows.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transpose8(rows: &[__m256; 8]) -> [__m256; 8] {
    let mut pairs = [_mm256_setzero_ps(); 8];
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // Rows 0 to 3 (i = 0) or 4 to 7 of the columns k and k + 4.
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

/// Repeats 4 bytes in every lane.
#[inline]
#[target_feature(enable = "avx2")]
pub fn repeat4(x: &[i8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_le_bytes(bytemuck::must_cast(*x)))
}

/// Asks for the cache line `ahead` bytes past `here`; harmless past the end.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch(here: *const u8, ahead: usize) {
    _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(ahead).cast());
}

/// Asks memory for two lines: one to come near, into the second cache, and one that is near already into the
/// first. What streams through a core is asked for so many bytes ahead of where it is read.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch_stream(here: *const u8, near: usize, first: usize) {
    _mm_prefetch::<_MM_HINT_T1>(here.wrapping_add(near).cast());
    prefetch(here, first);
}

/// Asks memory for bytes that are read soon.
#[inline]
#[target_feature(enable = "avx2")]
pub fn fetch(bytes: &[u8]) {
    bytes.iter().step_by(64).for_each(|line| prefetch(line, 0));
}

/// Σ of 8 floats: halves, then quarters, then the last pair.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Largest of 8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn max(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

/// Σ of 8 ints.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_i32(v: __m256i) -> i32 {
    let lanes: [i32; 8] = bytemuck::must_cast(v);
    lanes.iter().sum()
}

/// Calls `full` on every 8 columns of `x` and `y`, and once more on a zero-padded rest, of which
/// only the real part is written back.
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
