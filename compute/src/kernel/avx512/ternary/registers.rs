//! Ternary × int8 for up to a few dozen rows, if `vpdpbusd` is the only limit. A panel's codes are decoded
//! in registers, in parallel with the products, for as many rows as the registers hold sums for.

use super::{AHEAD, Codes, FIELDS};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::arrange::{ArrangedRows, ColumnQuad, TileSplit, add};
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::BLOCK_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most rows of a tile: their sums and the decoding of codes fit the 32 registers.
const TILE: usize = 24;
/// Rows of a tile are a multiple of this, because each number of rows is compiled separately.
const UNIT: usize = 2;

/// Multiplies `panels` with some rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch<C: Codes>(
    args: &TernaryArgs<'_, C>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
) {
    let tiles = TileSplit { rows, most: TILE, unit: UNIT };
    let x = ArrangedRows::new(args.x, tiles, args.w.cols(), rearranged);
    for panel in panels {
        for (tile, width, x) in x.tiles() {
            match width {
                2 => product::<_, 2>(args, panel, &tile, x, y),
                4 => product::<_, 4>(args, panel, &tile, x, y),
                6 => product::<_, 6>(args, panel, &tile, x, y),
                8 => product::<_, 8>(args, panel, &tile, x, y),
                10 => product::<_, 10>(args, panel, &tile, x, y),
                12 => product::<_, 12>(args, panel, &tile, x, y),
                14 => product::<_, 14>(args, panel, &tile, x, y),
                16 => product::<_, 16>(args, panel, &tile, x, y),
                18 => product::<_, 18>(args, panel, &tile, x, y),
                20 => product::<_, 20>(args, panel, &tile, x, y),
                22 => product::<_, 22>(args, panel, &tile, x, y),
                _ => product::<_, TILE>(args, panel, &tile, x, y),
            }
        }
    }
}

/// Multiplies a panel × a tile of up to `N` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<C: Codes, const N: usize>(
    args: &TernaryArgs<'_, C>,
    panel: usize,
    tile: &Range<usize>,
    x: &[ColumnQuad],
    y: &mut Columns<'_>,
) {
    let x = x.as_chunks::<N>().0;
    let mut totals = [[_mm512_setzero_ps()]; N];
    for g in 0..args.groups {
        let blocks = args.group(g);
        let steps = &x[blocks.start * FIELDS..blocks.end * FIELDS];
        let exact = C::dot_rows(args, panel, g, steps);
        args.scale(panel, g, tile.start, &exact.as_chunks().0[..tile.len()], &mut totals);
    }
    args.store(panel, tile.start, &totals[..tile.len()], y);
}

/// Returns the exact Σ c·q of some blocks of a panel × `N` rows. Not inlined, so that the compiler keeps
/// the sums in registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn dot<const N: usize>(codes: &[[u8; BLOCK_BYTES]], x: &[[ColumnQuad; N]]) -> [__m512i; N] {
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
