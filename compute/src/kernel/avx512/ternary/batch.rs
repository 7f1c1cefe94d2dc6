//! Ternary × int8 for batches, which arithmetic limits. Two panels are decoded to bytes and multiplied
//! with one tile of rows after the other. Activations are rearranged in the order in which tiles read
//! them.

use super::{Codes, FIELDS, Field, fields};
use crate::kernel::avx512::arrange::{ArrangedRows, ColumnQuad, TileSplit};
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::BLOCK_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most rows of a tile: with two panels, 24 sums, two vectors of codes and one of activations fit the 32
/// registers.
const TILE: usize = 12;
/// Rows of a tile are a multiple of this.
const QUAD: usize = 4;
/// Number of panels that are multiplied with a tile together.
const PANELS: usize = 2;

/// Multiplies `panels` with some rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch<C: Codes>(
    args: &TernaryArgs<'_, C>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
    decoded: &mut AlignedVec<u8>,
) {
    let steps = fields(args);
    let tiles = TileSplit { rows, most: TILE, unit: QUAD };
    let x = ArrangedRows::new(args.x, tiles, args.w.cols(), rearranged);
    decoded.grow(PANELS * steps * BLOCK_BYTES);
    for first in panels.clone().step_by(PANELS) {
        let pair = first..panels.end.min(first + PANELS);
        let codes = decoded.as_chunks_mut().0;
        for (panel, out) in pair.clone().zip(codes.chunks_exact_mut(steps)) {
            C::unpack(args, (panel, 0..steps), Some((panel + PANELS, 0)), out);
        }
        for (tile, width, x) in x.tiles() {
            match width {
                4 => product::<_, 4>(args, &pair, &tile, (codes, x), y),
                8 => product::<_, 8>(args, &pair, &tile, (codes, x), y),
                _ => product::<_, TILE>(args, &pair, &tile, (codes, x), y),
            }
        }
    }
}

/// Multiplies one or two panels × a tile of up to `N` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<C: Codes, const N: usize>(
    args: &TernaryArgs<'_, C>,
    pair: &Range<usize>,
    tile: &Range<usize>,
    (codes, x): (&[Field], &[ColumnQuad]),
    y: &mut Columns<'_>,
) {
    let (low, high) = codes.split_at(fields(args));
    let x = x.as_chunks::<N>().0;
    let mut totals = [[[_mm512_setzero_ps()]; N]; PANELS];
    for g in 0..args.groups {
        let blocks = args.group(g);
        let steps = blocks.start * FIELDS..blocks.end * FIELDS;
        let exact = dot::<N>([&low[steps.clone()], &high[steps.clone()]], &x[steps]);
        for (p, panel) in pair.clone().enumerate() {
            args.scale(panel, g, tile.start, &exact[p][..tile.len()], &mut totals[p]);
        }
    }
    for (panel, totals) in pair.clone().zip(totals) {
        args.store(panel, tile.start, &totals[..tile.len()], y);
    }
}

/// Returns the exact Σ c·q of two panels × `N` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize>(
    fields: [&[Field]; PANELS],
    x: &[[ColumnQuad; N]],
) -> [[[__m512i; 1]; N]; PANELS] {
    let mut sums = [[_mm512_setzero_si512(); PANELS]; N];
    for ((low, high), x) in fields[0].iter().zip(fields[1]).zip(x) {
        let (low, high) = (bytemuck::must_cast(*low), bytemuck::must_cast(*high));
        for n in 0..N {
            let x = _mm512_set1_epi32(bytemuck::must_cast(x[n]));
            sums[n][0] = _mm512_dpbusd_epi32(sums[n][0], low, x);
            sums[n][1] = _mm512_dpbusd_epi32(sums[n][1], high, x);
        }
    }
    let mut out = [[[_mm512_setzero_si512()]; N]; PANELS];
    for n in 0..N {
        (out[0][n], out[1][n]) = ([sums[n][0]], [sums[n][1]]);
    }
    out
}
