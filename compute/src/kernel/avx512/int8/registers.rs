//! int8 × int8 for batches: values are put together in registers, once for as many rows as registers hold
//! sums of. Two planes are rows beside each other.

use super::{CHUNK, Inputs, SHIFT, block, fetch, group_scales, join, place, rounded};
use crate::kernel::avx512::arrange::{Arranged, Step, Tiles, add};
use crate::kernel::avx512::ternary::store;
use crate::kernel::packing::BLOCKS;
use crate::matrix::{Int8Panel, Int8View};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows, all planes counted, from which this pays: fewer are walked in two panels side by side.
const LEAST: usize = 9;
/// Rows of a tile at most.
const TILE: usize = 24;
/// Rows of a tile are a multiple of this, which leaves planes together.
const UNIT: usize = 4;

/// Whether a product goes this way: sums of a single group must fit 32 bits.
pub fn pays(w: Int8View<'_>, x: &Inputs<'_>) -> bool {
    w.groups() == 1 && w.strips() <= CHUNK && x.x.rows() >= LEAST
}

/// Products of `panels` with all rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: Inputs<'_>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
) {
    let tiles = Tiles { rows: 0..x.x.rows(), most: TILE, unit: UNIT };
    let arranged = Arranged::new(x.x, tiles, w.cols(), rearranged);
    for panel in panels.clone() {
        let values = w.panel(panel, 0..w.strips());
        let scales = group_scales(&w.scales(panel), 0);
        let from = (panel - panels.start) * PANEL_ROWS;
        for (tile, width, steps) in arranged.tiles() {
            let mut sums = [_mm512_setzero_si512(); TILE];
            match width {
                4 => dot::<4, W>(&values, steps, &mut sums),
                8 => dot::<8, W>(&values, steps, &mut sums),
                12 => dot::<12, W>(&values, steps, &mut sums),
                16 => dot::<16, W>(&values, steps, &mut sums),
                20 => dot::<20, W>(&values, steps, &mut sums),
                _ => dot::<TILE, W>(&values, steps, &mut sums),
            }
            for (i, planes) in sums[..tile.len()].chunks(x.x.planes).enumerate() {
                let token = tile.start / x.x.planes + i;
                let offset = _mm512_set1_epi64(x.offsets[token]);
                let exact = join(planes).map(|e| _mm512_sub_epi64(e, offset));
                let total = _mm512_mul_ps(rounded(exact), scales);
                let total = _mm512_add_ps(_mm512_setzero_ps(), total);
                store(total, x.x.joined_step(token), &mut y.row(token)[from..], false);
            }
        }
    }
}

/// Exact Σ (w + 128)·q of a panel × `N` rows, the first of `sums`. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    steps: &[Step],
    sums: &mut [__m512i; TILE],
) {
    let out = sums.first_chunk_mut::<N>().expect("as many rows as a tile has");
    let mut sums = [_mm512_setzero_si512(); N];
    let strips = steps.as_chunks::<N>().0.as_chunks::<BLOCKS>().0;
    for (i, strip) in strips.iter().enumerate() {
        for (b, x) in strip.iter().enumerate() {
            let (line, part) = place::<W>(i, b);
            if part == 0 {
                fetch::<W>(values, line);
            }
            add(&mut sums, block::<W>(values, line, part, SHIFT), x);
        }
    }
    *out = sums;
}
