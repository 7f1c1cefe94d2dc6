//! int8 × int8: 16 blocks of packed weights are a tile as they stand. Two planes are rows beside each
//! other, whose sums are joined in 64 bits.

use super::product::{Cut, product};
use super::tiles::{ROW_BYTES, ROWS, Weights};
use crate::kernel::Quantized;
use crate::kernel::avx512::int8::{block, group_scales, int8 as in_vectors, join, place, rounded};
use crate::kernel::avx512::ternary::store;
use crate::kernel::packing::{BLOCKS, SIX, SPLIT, UPPER, WHOLE};
use crate::matrix::{Int8View, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows, all planes counted, from which tiles pay.
const TILED_ROWS: usize = 4;
/// Steps of a chunk at most.
const CHUNK: usize = 8;
/// Columns whose products fit 32-bit sums: 128 · 128 · 65,536 < 2³¹.
const MAX_COLS: usize = 65_536;
/// Strips in a step.
const STRIPS: usize = ROWS / BLOCKS;

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let fits = w.groups() == 1 && w.cols() <= MAX_COLS && x.rows() >= TILED_ROWS;
    match (x.planes, w.packing()) {
        _ if !fits => in_vectors(w, panels, x, y, scratch),
        (1, Packing::Whole) => tiled::<1, WHOLE>(w, panels, x, y, scratch),
        (_, Packing::Whole) => tiled::<2, WHOLE>(w, panels, x, y, scratch),
        (1, Packing::Upper) => tiled::<1, UPPER>(w, panels, x, y, scratch),
        (_, Packing::Upper) => tiled::<2, UPPER>(w, panels, x, y, scratch),
        (1, Packing::Six) => tiled::<1, SIX>(w, panels, x, y, scratch),
        (_, Packing::Six) => tiled::<2, SIX>(w, panels, x, y, scratch),
        (1, Packing::Split) => tiled::<1, SPLIT>(w, panels, x, y, scratch),
        (_, Packing::Split) => tiled::<2, SPLIT>(w, panels, x, y, scratch),
    }
}

/// The product with `P` planes of activations, and weights packed as `W` says.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tiled<const P: usize, const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let steps = w.cols().div_ceil(ROW_BYTES);
    let chunk = steps.div_ceil(steps.div_ceil(CHUNK).max(1)).max(1);
    let cut = Cut { steps, chunk, apart: false };
    let first = panels.start;
    // A group of rows has whole tokens.
    const { assert!(ROWS.is_multiple_of(P)) };
    // SAFETY: this table is only handed out where tiles are available. A place's tiles lie within
    // the panel, or are written to the room for them.
    unsafe {
        product::<true>(
            x,
            panels,
            &cut,
            (&mut scratch.decoded, &mut scratch.sums),
            |(panel, steps), _, room| weights::<W>(w, *panel, steps, room),
            |panel, _, rows, sums| {
                let scales = group_scales(&w.scales(panel), 0);
                for (token, sums) in (rows.start / P..).zip(sums.as_chunks::<P>().0) {
                    let mut planes = [_mm512_setzero_si512(); P];
                    for (plane, sums) in planes.iter_mut().zip(sums) {
                        *plane = _mm512_loadu_si512(sums.as_ptr().cast());
                    }
                    let value = _mm512_mul_ps(rounded(join(&planes)), scales);
                    let total = _mm512_add_ps(_mm512_setzero_ps(), value);
                    let out = &mut y.row(token)[(panel - first) * PANEL_ROWS..];
                    store(total, x.joined_step(token), out, false);
                }
            },
        );
    }
}

/// The tiles of some steps of a panel: where they stand, or in the room for them where they have to be
/// put together or the panel ends within the last one.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn weights<const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    steps: &Range<usize>,
    room: &mut [Weights],
) -> *const Weights {
    let end = (steps.end * STRIPS).min(w.strips());
    let values = w.panel(panel, steps.start * STRIPS..end);
    if W == WHOLE && end == steps.end * STRIPS {
        return values.values.as_ptr().cast();
    }
    let (strips, lacks) = room[..steps.len()]
        .as_flattened_mut()
        .as_chunks_mut::<BLOCKS>()
        .0
        .split_at_mut(end - steps.start * STRIPS);
    for (i, out) in strips.iter_mut().enumerate() {
        for (b, out) in out.iter_mut().enumerate() {
            let (line, part) = place::<W>(i, b);
            *out = bytemuck::must_cast(block::<W>(&values, line, part, 0));
        }
    }
    lacks.fill([[0; ROW_BYTES]; BLOCKS]);
    room.as_ptr()
}
