//! int8 × int8: both sides widened to 16 bits (`vpmaddubsw` would saturate), exact in 32.

use super::lanes::{load_half, prefetch};
use super::ternary::store;
use crate::kernel::Quantised;
use crate::matrix::{INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Matrix};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// How far ahead of the panel's walk memory is asked for, in bytes.
const AHEAD: usize = 2048;
/// Bytes in a block of 16 rows × 4 columns.
const BLOCK: usize = PANEL_ROWS * INT8_BLOCK_COLS;

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn int8(
    w: &Int8Matrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    scratch.shorts.grow(x.values.len());
    for (wide, narrow) in scratch.shorts.iter_mut().zip(x.values) {
        *wide = i16::from(*narrow);
    }
    let first = panels.start;
    for panel in panels {
        let mut row = 0;
        while row < x.rows() {
            let from = (panel - first) * PANEL_ROWS;
            row += match x.rows() - row {
                2.. => tile::<2>(w, panel, x, &scratch.shorts, row, from, y),
                _ => tile::<1>(w, panel, x, &scratch.shorts, row, from, y),
            };
        }
    }
}

/// One panel × `N` activation rows from `row` on; returns `N`. `wide`: `x.values` as i16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<const N: usize>(
    w: &Int8Matrix,
    panel: usize,
    x: &Quantised<'_>,
    wide: &[i16],
    row: usize,
    from: usize,
    y: &mut Columns<'_>,
) -> usize {
    let padded = w.cols().next_multiple_of(INT8_PAD_COLS);
    let blocks = padded / INT8_BLOCK_COLS;
    let values = &w.values()[panel * blocks * BLOCK..][..blocks * BLOCK];
    let values = values.as_chunks::<BLOCK>().0;
    let xs: [&[[i16; 4]]; N] = std::array::from_fn(|n| {
        &wide[(row + n) * x.stride..][..padded].as_chunks::<INT8_BLOCK_COLS>().0[..blocks]
    });
    let group_blocks = w.group().div_ceil(INT8_BLOCK_COLS);
    let scales = w.scales().as_chunks::<64>().0;
    let mut totals = [[_mm256_setzero_ps(); 2]; N];
    for g in 0..w.groups() {
        let range = g * group_blocks..((g + 1) * group_blocks).min(blocks);
        let exact = dot(&values[range.clone()], xs.map(|x| &x[range.clone()]));
        let scales: [__m256; 2] = bytemuck::must_cast(scales[panel * w.groups() + g]);
        for n in 0..N {
            for h in 0..2 {
                let value = _mm256_mul_ps(_mm256_cvtepi32_ps(exact[n][h]), scales[h]);
                totals[n][h] = _mm256_add_ps(totals[n][h], value);
            }
        }
    }
    for (n, total) in totals.iter().enumerate() {
        store(x, row + n, total, from, y);
    }
    N
}

/// Exact Σ w·q of 16 rows × `N` activation rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<const N: usize>(values: &[[u8; BLOCK]], xs: [&[[i16; 4]]; N]) -> [[__m256i; 2]; N] {
    // Four rows a vector, two partial sums a row.
    let mut sums = [[_mm256_setzero_si256(); 4]; N];
    let xs = xs.map(|x| &x[..values.len()]);
    for (b, block) in values.iter().enumerate() {
        prefetch(block.as_ptr(), AHEAD);
        let quarters: &[[u8; 16]; 4] = bytemuck::must_cast_ref(block);
        for (k, quarter) in quarters.iter().enumerate() {
            let w = _mm256_cvtepi8_epi16(load_half(quarter));
            for n in 0..N {
                let x = _mm256_set1_epi64x(bytemuck::must_cast(xs[n][b]));
                sums[n][k] = _mm256_add_epi32(sums[n][k], _mm256_madd_epi16(w, x));
            }
        }
    }
    // Rows 0–3 and 4–7 (8–11 and 12–15): add the partial sums, then put the rows in order.
    sums.map(|s| {
        [_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3])]
            .map(|v| _mm256_permute4x64_epi64::<0b11_01_10_00>(v))
    })
}
