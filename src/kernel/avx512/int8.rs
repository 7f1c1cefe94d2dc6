//! int8 × int8 with `vpdpbusd`, whose first operand is unsigned: activations are shifted by 128,
//! and 128 · Σ w is taken off again.

use super::ternary::store;
use crate::kernel::Quantised;
use crate::kernel::avx2::prefetch;
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: &Int8Matrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    let first = panels.start;
    for panel in panels {
        let mut row = 0;
        while row < x.rows() {
            let from = (panel - first) * PANEL_ROWS;
            row += match x.rows() - row {
                4.. => tile::<4>(w, panel, x, row, from, y),
                3 => tile::<3>(w, panel, x, row, from, y),
                2 => tile::<2>(w, panel, x, row, from, y),
                _ => tile::<1>(w, panel, x, row, from, y),
            };
        }
    }
}

/// One panel × `N` activation rows from `row` on; returns `N`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile<const N: usize>(
    w: &Int8Matrix,
    panel: usize,
    x: &Quantised<'_>,
    row: usize,
    from: usize,
    y: &mut Columns<'_>,
) -> usize {
    let blocks = w.cols().next_multiple_of(INT8_PAD_COLS) / INT8_BLOCK_COLS;
    let values = &w.values()[panel * blocks * BLOCK..][..blocks * BLOCK];
    let values = values.as_chunks::<BLOCK>().0;
    let xs: [&[[i8; INT8_BLOCK_COLS]]; N] =
        std::array::from_fn(|n| &x.row_chunks::<INT8_BLOCK_COLS>(row + n)[..blocks]);
    let group_blocks = w.group().div_ceil(INT8_BLOCK_COLS);
    let scales = w.scales().as_chunks::<64>().0;
    let mut totals = [_mm512_setzero_ps(); N];
    for g in 0..w.groups() {
        let range = g * group_blocks..((g + 1) * group_blocks).min(blocks);
        let exact = dot(&values[range.clone()], xs.map(|x| &x[range.clone()]));
        let scales: __m512 = bytemuck::must_cast(scales[panel * w.groups() + g]);
        for n in 0..N {
            let value = _mm512_mul_ps(_mm512_cvtepi32_ps(exact[n]), scales);
            totals[n] = _mm512_add_ps(totals[n], value);
        }
    }
    for (n, total) in totals.iter().enumerate() {
        store(x, row + n, *total, from, y);
    }
    N
}

/// Exact Σ w·q of 16 rows × `N` activation rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize>(values: &[[u8; BLOCK]], xs: [&[[i8; INT8_BLOCK_COLS]]; N]) -> [__m512i; N] {
    let shift = _mm512_set1_epi8(-128);
    // Two chains per row hide the latency; the shift's part is shared by all rows.
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    let mut shifted = [_mm512_setzero_si512(); 2];
    let xs = xs.map(|x| &x[..values.len()]);
    for (b, block) in values.iter().enumerate() {
        prefetch(block.as_ptr(), AHEAD);
        let w = bytemuck::must_cast(*block);
        shifted[b % 2] = _mm512_dpbusd_epi32(shifted[b % 2], shift, w);
        for n in 0..N {
            let x = _mm512_xor_si512(_mm512_set1_epi32(bytemuck::must_cast(xs[n][b])), shift);
            sums[n][b % 2] = _mm512_dpbusd_epi32(sums[n][b % 2], x, w);
        }
    }
    let shifted = _mm512_add_epi32(shifted[0], shifted[1]);
    sums.map(|s| _mm512_sub_epi32(_mm512_add_epi32(s[0], s[1]), shifted))
}
