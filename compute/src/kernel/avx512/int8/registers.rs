//! int8 × int8 for batches. Values are decoded in registers, once for as many rows as the registers hold
//! sums for. Two planes are neighboring rows.

use super::{CHUNK, SHIFT, block, block_position, fetch, join};
use crate::kernel::avx512::Avx512;
use crate::kernel::avx512::arrange::{ArrangedRows, ColumnQuad, TileSplit, add};
use crate::kernel::packing::{BLOCKS, SIX, SPLIT, UPPER, WHOLE};
use crate::kernel::simd::Simd;
use crate::kernel::{Quantized, panel_rows};
use crate::matrix::{Int8Panel, Int8View, Packing};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Number of rows, counting all planes, from which this is faster than two interleaved panels.
const LEAST: usize = 9;
/// Most rows of a tile.
const TILE: usize = 24;
/// Rows of a tile are a multiple of this, which keeps the planes of a token together.
const UNIT: usize = 4;

/// Returns true if [`batch`] can compute a product and is faster: sums of a single group must fit 32
/// bits.
pub fn applies(w: Int8View<'_>, x: &Quantized<'_>) -> bool {
    w.groups() == 1 && x.groups.is_none() && w.strips() <= CHUNK && x.rows() >= LEAST
}

/// Multiplies `panels` with all rows, whose shift of weights adds `offsets`, by token.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: (&Quantized<'_>, &[i64]),
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
) {
    let tiles = TileSplit { rows: 0..x.0.rows(), most: TILE, unit: UNIT };
    let arranged = ArrangedRows::new(x.0, tiles, w.cols(), rearranged);
    match w.packing() {
        Packing::Whole => products::<WHOLE>(w, panels, x, y, &arranged),
        Packing::Upper => products::<UPPER>(w, panels, x, y, &arranged),
        Packing::Six => products::<SIX>(w, panels, x, y, &arranged),
        Packing::Split => products::<SPLIT>(w, panels, x, y, &arranged),
    }
}

/// As [`batch`], for packing `W`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn products<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    (x, offsets): (&Quantized<'_>, &[i64]),
    y: &mut Columns<'_>,
    arranged: &ArrangedRows<'_>,
) {
    let s = Avx512::new();
    for panel in panels.clone() {
        let values = w.panel(panel, 0..w.strips());
        let scales = panel_rows::int8_scales(s, &w.scales(panel), 0);
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
            for (i, planes) in sums[..tile.len()].chunks(x.planes).enumerate() {
                let token = tile.start / x.planes + i;
                let exact = s.wide_sub(join(planes), offsets[token]);
                let mut total = s.panel(s.splat(0.0));
                panel_rows::add_scaled(s, &mut total, s.wide_round(exact), scales);
                let out = &mut y.row(token)[from..];
                panel_rows::store(s, total, x.joined_step(token), out, false);
            }
        }
    }
}

/// Writes the exact Σ (w + 128)·q of a panel × `N` rows to the first `N` of `sums`. Not inlined, so that
/// the compiler keeps the sums in registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    steps: &[ColumnQuad],
    sums: &mut [__m512i; TILE],
) {
    let out = sums.first_chunk_mut::<N>().expect("as many rows as a tile has");
    let mut sums = [_mm512_setzero_si512(); N];
    let strips = steps.as_chunks::<N>().0.as_chunks::<BLOCKS>().0;
    for (i, strip) in strips.iter().enumerate() {
        for (b, x) in strip.iter().enumerate() {
            let (line, part) = block_position::<W>(i, b);
            if part == 0 {
                fetch::<W>(values, line);
            }
            add(&mut sums, block::<W>(values, line, part, SHIFT), x);
        }
    }
    *out = sums;
}
