//! Ternary × int8: the columns of a step decode to a tile of weights, field by field.

use super::product::{BLOCK_PANELS, BLOCK_ROWS, ColumnChunks, PanelSteps, ProductBuffers, product};
use super::tiles::ROW_BYTES;
use crate::kernel::Quantized;
use crate::kernel::avx512::ternary::{Codes, fields as panel_fields, ternary as in_vectors};
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::{PANEL_ROWS, Scales, TernaryMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

/// Number of rows from which tiles are faster than vectors if all columns share a scale.
const TILED_ROWS: usize = 5;
/// As [`TILED_ROWS`], if each group has a scale and its sums leave the tiles. With groups of 128 columns, eight
/// rows take 1.04 to 1.17 times as long as in vectors on an Emerald Rapids Xeon, nine 0.6 to 0.75 times.
const TILED_GROUP_ROWS: usize = 9;
/// Most steps of a chunk: the tiles of two panels take 16 kB of the first-level cache, and as much is
/// left for activations.
const CHUNK: usize = 8;
/// Number of fields of a step: rows of its tile.
const FIELDS: usize = ROW_BYTES / 4;

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn ternary<C: Codes>(
    codes: C,
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let tiled = |split: &ColumnChunks| {
        x.rows() >= if split.separate_sums { TILED_GROUP_ROWS } else { TILED_ROWS }
    };
    let Some(split) = split(w).filter(tiled) else {
        return in_vectors::<C, false>(codes, w, panels, x, y, scratch);
    };
    let Scratch { ints, decoded, sums, floats, .. } = scratch;
    let args = TernaryArgs::new(codes, w, x, panels.start, ints);
    let mut totals = Totals::new(panels.start, x.rows(), floats);
    // SAFETY: this table is only handed out where tiles are available; `unpack` fills all tiles.
    unsafe {
        product::<false>(
            x,
            panels,
            &split,
            ProductBuffers { decoded, sums },
            |PanelSteps { panel, steps }, next, tiles| {
                let mut first = None;
                if let Some(next) = next {
                    first = Some((next.panel, next.steps.start * FIELDS));
                }
                let out = tiles[..steps.len()].as_flattened_mut();
                let fields = steps.start * FIELDS..(steps.end * FIELDS).min(panel_fields(&args));
                let (out, beyond) = out.split_at_mut(fields.len());
                C::unpack(&args, (*panel, fields), first, out);
                beyond.fill([0; ROW_BYTES]);
                tiles.as_ptr()
            },
            |panel, chunk, rows, sums| {
                let group = if split.separate_sums { chunk } else { 0 };
                let scales = args.scales(panel, group);
                for (row, sums) in rows.zip(sums) {
                    let exact = _mm512_loadu_si512(sums.as_ptr().cast());
                    let mut total = [_mm512_setzero_ps()];
                    if group > 0 {
                        total = bytemuck::must_cast(*totals.of(panel, row));
                    }
                    args.add_scaled(&mut total, [exact], (row, group), scales);
                    if group + 1 == args.groups {
                        args.store(panel, row, &[total], y);
                    } else {
                        *totals.of(panel, row) = bytemuck::must_cast(total);
                    }
                }
            },
        );
    }
}

/// Splits the columns into chunks; a scale group is a chunk. Returns `None` if a group is not a whole
/// number of steps.
fn split(w: &TernaryMatrix) -> Option<ColumnChunks> {
    let steps = w.cols().div_ceil(ROW_BYTES);
    match w.scales() {
        Scales::Tensor(_) => {
            let chunk = steps.div_ceil(steps.div_ceil(CHUNK).max(1)).max(1);
            Some(ColumnChunks { steps, chunk, separate_sums: false })
        }
        Scales::Groups(g) if g.size().is_multiple_of(ROW_BYTES) => {
            Some(ColumnChunks { steps, chunk: g.size() / ROW_BYTES, separate_sums: true })
        }
        Scales::Groups(_) => None,
    }
}

/// Sums over the scale groups so far, of the rows and panels that are in progress.
struct Totals<'a> {
    /// `[panel][row]`.
    values: &'a mut [[f32; PANEL_ROWS]],
    first: usize,
    rows: usize,
}

impl<'a> Totals<'a> {
    fn new(first: usize, rows: usize, values: &'a mut AlignedVec<f32>) -> Self {
        let rows = rows.min(BLOCK_ROWS);
        values.grow(BLOCK_PANELS * rows * PANEL_ROWS);
        Self { values: values.as_chunks_mut().0, first, rows }
    }

    /// Returns the sums of a panel and a row.
    #[inline(always)]
    fn of(&mut self, panel: usize, row: usize) -> &mut [f32; PANEL_ROWS] {
        let at = (panel - self.first) % BLOCK_PANELS * self.rows + row % BLOCK_ROWS;
        &mut self.values[at]
    }
}
