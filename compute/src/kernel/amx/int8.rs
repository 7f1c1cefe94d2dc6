//! int8 × int8: 16 blocks of packed weights are a tile without decoding. Two planes of activations are
//! neighboring rows, whose sums are joined in 64 bits.

use super::product::{ColumnChunks, PanelSteps, ProductBuffers, product};
use super::tiles::{ROW_BYTES, ROWS, Weights};
use crate::kernel::avx512::Avx512;
use crate::kernel::avx512::int8::{block, block_position, int8 as in_vectors, join};
use crate::kernel::packing::{BLOCKS, SIX, SPLIT, UPPER, WHOLE};
use crate::kernel::simd::Simd;
use crate::kernel::{Quantized, panel_rows};
use crate::matrix::{Int8View, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Number of rows, counting all planes, from which tiles are faster.
const TILED_ROWS: usize = 4;
/// Most steps of a chunk.
const CHUNK: usize = 8;
/// Most columns whose products fit 32-bit sums: 128 · 128 · 65,536 < 2³¹.
const MAX_COLS: usize = 65_536;
/// Number of strips in a step.
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
    let one_scale = w.groups() == 1 && x.groups.is_none();
    let fits = one_scale && w.cols() <= MAX_COLS && x.rows() >= TILED_ROWS;
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

/// Computes the product with `P` planes of activations and packing `W` of the weights.
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
    let split = ColumnChunks { steps, chunk, separate_sums: false };
    let (s, first) = (Avx512::new(), panels.start);
    // A group of rows contains whole tokens.
    const { assert!(ROWS.is_multiple_of(P)) };
    // SAFETY: this table is only handed out where tiles are available. The tiles lie within the panel,
    // or are written to `out`.
    unsafe {
        product::<true>(
            x,
            panels,
            &split,
            ProductBuffers { decoded: &mut scratch.decoded, sums: &mut scratch.sums },
            |PanelSteps { panel, steps }, _, out| weights::<W>(w, *panel, steps, out),
            |panel, _, rows, sums| {
                let scales = panel_rows::int8_scales(s, &w.scales(panel), 0);
                for (token, sums) in (rows.start / P..).zip(sums.as_chunks::<P>().0) {
                    let mut planes = [_mm512_setzero_si512(); P];
                    for (plane, sums) in planes.iter_mut().zip(sums) {
                        *plane = _mm512_loadu_si512(sums.as_ptr().cast());
                    }
                    let mut total = s.panel(s.splat(0.0));
                    let value = s.wide_round(join(&planes));
                    panel_rows::add_scaled(s, &mut total, value, scales);
                    let out = &mut y.row(token)[(panel - first) * PANEL_ROWS..];
                    panel_rows::store(s, total, x.joined_step(token), out, false);
                }
            },
        );
    }
}

/// Returns the tiles of some steps of a panel. They are written to `out` if planes have to be combined
/// or the panel ends within the last tile; otherwise they are where they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn weights<const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    steps: &Range<usize>,
    out: &mut [Weights],
) -> *const Weights {
    let end = (steps.end * STRIPS).min(w.strips());
    let values = w.panel(panel, steps.start * STRIPS..end);
    if W == WHOLE && end == steps.end * STRIPS {
        return values.values.as_ptr().cast();
    }
    let (strips, missing) = out[..steps.len()]
        .as_flattened_mut()
        .as_chunks_mut::<BLOCKS>()
        .0
        .split_at_mut(end - steps.start * STRIPS);
    for (i, out) in strips.iter_mut().enumerate() {
        for (b, out) in out.iter_mut().enumerate() {
            let (line, part) = block_position::<W>(i, b);
            *out = bytemuck::must_cast(block::<W>(&values, line, part, 0));
        }
    }
    missing.fill([[0; ROW_BYTES]; BLOCKS]);
    out.as_ptr()
}
