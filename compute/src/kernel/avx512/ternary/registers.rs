//! Ternary × int8 for up to a few dozen rows where `vpdpbusd` alone bounds: a panel's codes are decoded in
//! registers, beside the products, and meet as many rows there as registers hold sums.

use super::{AHEAD, FIELDS, Walk, tight};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::arrange::{Arranged, Step, Tiles, add};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, Layout};
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows of a tile at most: their sums, and what decodes codes, fit the 32 registers.
const TILE: usize = 24;
/// Rows of a tile are a multiple of this: each number of rows has loops of its own.
const UNIT: usize = 2;

/// Products of `panels` with some rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch(
    walk: &Walk<'_>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
) {
    let columns = match walk.w.layout() {
        Layout::TwoBit => walk.w.cols(),
        Layout::Tight => walk.w.cols().next_multiple_of(tight::COLS),
    };
    let tiles = Tiles { rows, most: TILE, unit: UNIT };
    let x = Arranged::new(walk.x, tiles, columns, rearranged);
    for panel in panels {
        for (tile, width, x) in x.tiles() {
            match width {
                2 => product::<2>(walk, panel, &tile, x, y),
                4 => product::<4>(walk, panel, &tile, x, y),
                6 => product::<6>(walk, panel, &tile, x, y),
                8 => product::<8>(walk, panel, &tile, x, y),
                10 => product::<10>(walk, panel, &tile, x, y),
                12 => product::<12>(walk, panel, &tile, x, y),
                14 => product::<14>(walk, panel, &tile, x, y),
                16 => product::<16>(walk, panel, &tile, x, y),
                18 => product::<18>(walk, panel, &tile, x, y),
                20 => product::<20>(walk, panel, &tile, x, y),
                22 => product::<22>(walk, panel, &tile, x, y),
                _ => product::<TILE>(walk, panel, &tile, x, y),
            }
        }
    }
}

/// A panel × a tile of up to `N` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<const N: usize>(
    walk: &Walk<'_>,
    panel: usize,
    tile: &Range<usize>,
    x: &[Step],
    y: &mut Columns<'_>,
) {
    let x = x.as_chunks::<N>().0;
    let mut totals = [_mm512_setzero_ps(); N];
    for g in 0..walk.groups {
        let blocks = walk.group(g);
        let exact = match walk.w.layout() {
            Layout::TwoBit => dot(&walk.codes(panel)[blocks.clone()], &x[blocks.start * FIELDS..]),
            // SAFETY: this CPU has VBMI, or the matrix would not have come here.
            Layout::Tight => unsafe { tight::dot_rows(walk.tight(panel), x) },
        };
        let scales = walk.scales(panel, g);
        for (n, row) in tile.clone().enumerate() {
            totals[n] = _mm512_add_ps(totals[n], walk.scaled(exact[n], row, g, scales));
        }
    }
    for (n, row) in tile.clone().enumerate() {
        walk.store(panel, row, totals[n], y);
    }
}

/// Exact Σ c·q of some blocks of a panel × `N` rows. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize>(codes: &[[u8; BLOCK_BYTES]], x: &[[Step; N]]) -> [__m512i; N] {
    let mask = _mm512_set1_epi8(3);
    let mut sums = [_mm512_setzero_si512(); N];
    for (block, x) in codes.iter().zip(x.as_chunks::<FIELDS>().0) {
        prefetch(block.as_ptr(), AHEAD);
        let mut q = bytemuck::must_cast(*block);
        for x in x {
            add(&mut sums, _mm512_and_si512(q, mask), x);
            q = _mm512_srli_epi16::<2>(q);
        }
    }
    sums
}
