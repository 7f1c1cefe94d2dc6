//! int8 × int8: 16 blocks of packed weights are a tile as they stand. Two planes are rows beside each
//! other, whose sums are joined in 64 bits.

use super::product::{Cut, product};
use super::tiles::{ROW_BYTES, ROWS, Weights};
use crate::kernel::Quantised;
use crate::kernel::avx512::int8::{int8 as in_vectors, join, rounded};
use crate::kernel::avx512::ternary::store;
use crate::matrix::{INT8_PAD_COLS, Int8Matrix};
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

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: &Int8Matrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let fits = w.groups() == 1 && w.cols() <= MAX_COLS && x.rows() >= TILED_ROWS;
    match x.planes {
        _ if !fits => in_vectors(w, panels, x, y, scratch),
        1 => tiled::<1>(w, panels, x, y, scratch),
        _ => tiled::<2>(w, panels, x, y, scratch),
    }
}

/// The product with `P` planes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tiled<const P: usize>(
    w: &Int8Matrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let steps = w.cols().div_ceil(ROW_BYTES);
    let chunk = steps.div_ceil(steps.div_ceil(CHUNK).max(1)).max(1);
    let cut = Cut { steps, chunk, apart: false };
    let bytes = w.cols().next_multiple_of(INT8_PAD_COLS) * PANEL_ROWS;
    let panel_bytes = |panel: usize| &w.values()[panel * bytes..][..bytes];
    let first = panels.start;
    // Sums of a token's planes, of either panel of a pair.
    let mut planes = [[_mm512_setzero_si512(); P]; 2];
    // SAFETY: this table is only handed out where tiles are available. A place's tiles lie within
    // the panel, or are copied to the room for them where the panel ends within its last tile.
    unsafe {
        product::<true>(
            x,
            panels,
            &cut,
            (&mut scratch.places, &mut scratch.sums),
            |(panel, steps), _, room| {
                let values = panel_bytes(*panel);
                let from = steps.start * size_of::<Weights>();
                let to = steps.end * size_of::<Weights>();
                if to <= bytes {
                    return values[from..to].as_ptr().cast();
                }
                let room: &mut [u8] = room.as_flattened_mut().as_flattened_mut();
                let (there, lacks) = room[..to - from].split_at_mut(bytes - from);
                there.copy_from_slice(&values[from..]);
                lacks.fill(0);
                room.as_ptr().cast()
            },
            |panel, _, row, sums: &[i32; ROWS]| {
                let planes = &mut planes[(panel - first) % 2];
                planes[row % P] = _mm512_loadu_si512(sums.as_ptr().cast());
                if row % P + 1 == P {
                    let scales = bytemuck::must_cast(w.scales().as_chunks::<64>().0[panel]);
                    let value = _mm512_mul_ps(rounded(join(planes)), scales);
                    let total = _mm512_add_ps(_mm512_setzero_ps(), value);
                    let out = &mut y.row(row / P)[(panel - first) * PANEL_ROWS..];
                    store(total, x.joined_step(row / P), out, false);
                }
            },
        );
    }
}
