//! Float × f32. Each output has eight partial sums for every batch size, so a row's result does not
//! depend on the rows beside it.

use super::lanes::{load, load_half, load_u8, sum};
use crate::matrix::{FloatMatrix, FloatType};
use crate::par::Columns;
use std::arch::x86_64::*;
use std::ops::Range;

/// A [`FloatType`] known at compile time.
trait Element {
    const TYPE: FloatType;
    const SIZE: usize = match Self::TYPE {
        FloatType::F32 => 4,
        FloatType::F16 | FloatType::Bf16 => 2,
    };
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    const TYPE: FloatType = FloatType::F32;
}

impl Element for F16 {
    const TYPE: FloatType = FloatType::F16;
}

impl Element for Bf16 {
    const TYPE: FloatType = FloatType::Bf16;
}

/// Reads 8 elements from the first `8 · SIZE` bytes as f32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn read<E: Element>(bytes: &[u8]) -> __m256 {
    if let FloatType::F32 = E::TYPE {
        return _mm256_castsi256_ps(load_u8(bytes.first_chunk().expect("8 elements")));
    }
    let half = load_half(bytes.first_chunk().expect("8 elements"));
    match E::TYPE {
        FloatType::F16 => _mm256_cvtph_ps(half),
        _ => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half))),
    }
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn float(w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    match w.dtype() {
        FloatType::F32 => product::<F32>(w, rows, x, y),
        FloatType::F16 => product::<F16>(w, rows, x, y),
        FloatType::Bf16 => product::<Bf16>(w, rows, x, y),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn product<E: Element>(w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    let first = rows.start;
    let batch = x.len() / w.cols();
    let mut row = rows.start;
    while row < rows.end {
        let (mut b, wide) = (0, rows.end - row >= 4);
        while b < batch {
            let at = (row - first, b);
            b += match (wide, batch - b) {
                (true, 2..) => tile::<E, 4, 2>(w, row, x, at, y),
                (true, _) => tile::<E, 4, 1>(w, row, x, at, y),
                (false, 2..) => tile::<E, 1, 2>(w, row, x, at, y),
                (false, _) => tile::<E, 1, 1>(w, row, x, at, y),
            };
        }
        row += if wide { 4 } else { 1 };
    }
}

/// Multiplies `R` weight rows × `N` activation rows; `column` and `b` are the first column of the view
/// and the first batch row. Returns `N`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<E: Element, const R: usize, const N: usize>(
    w: &FloatMatrix,
    row: usize,
    x: &[f32],
    (column, b): (usize, usize),
    y: &mut Columns<'_>,
) -> usize {
    let cols = w.cols();
    let ws: [&[u8]; R] = std::array::from_fn(|r| w.row(row + r));
    let xs: [&[f32]; N] = std::array::from_fn(|n| &x[(b + n) * cols..][..cols]);
    let mut sums = [[_mm256_setzero_ps(); N]; R];
    let whole = cols / 8;
    let x_lanes = xs.map(|x| &x.as_chunks::<8>().0[..whole]);
    let w_lanes = ws.map(|w| w.chunks_exact(8 * E::SIZE));
    for (k, w) in zip_rows(w_lanes).enumerate() {
        let w = w.map(|w| read::<E>(w));
        for n in 0..N {
            let x = load(&x_lanes[n][k]);
            for r in 0..R {
                sums[r][n] = _mm256_fmadd_ps(w[r], x, sums[r][n]);
            }
        }
    }
    let rest = cols - 8 * whole;
    if rest > 0 {
        for r in 0..R {
            let mut bytes = [0u8; 32];
            bytes[..rest * E::SIZE].copy_from_slice(&ws[r][8 * whole * E::SIZE..]);
            let w = read::<E>(&bytes);
            for n in 0..N {
                let mut lanes = [0f32; 8];
                lanes[..rest].copy_from_slice(&xs[n][8 * whole..]);
                sums[r][n] = _mm256_fmadd_ps(w, load(&lanes), sums[r][n]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (n, &lanes) in sums.iter().enumerate() {
            y.row(b + n)[column + r] = sum(lanes);
        }
    }
    N
}

/// Zips `R` iterators.
fn zip_rows<'a, const R: usize>(
    mut rows: [std::slice::ChunksExact<'a, u8>; R],
) -> impl Iterator<Item = [&'a [u8]; R]> {
    let count = rows[0].len();
    (0..count).map(move |_| std::array::from_fn(|r| rows[r].next().expect("rows are equally long")))
}
