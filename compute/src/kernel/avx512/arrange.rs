//! Rearranges activations in the order in which tiles of rows read them.

use crate::kernel::Quantized;
use crate::mem::AlignedVec;
use crate::ternary::BLOCK_COLS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Number of rows that are moved at a time.
const QUAD: usize = 4;

/// A row's activations for four columns, which `vpdpbusd` multiplies at once.
pub type ColumnQuad = [i8; 4];

/// Number of column quads that are moved at a time.
const STEPS: usize = BLOCK_COLS / size_of::<ColumnQuad>();

/// Splits rows into tiles of at most `most` rows, as even as possible, in whole `unit`s of rows.
#[derive(Clone)]
pub struct TileSplit {
    pub rows: Range<usize>,
    pub most: usize,
    pub unit: usize,
}

impl TileSplit {
    fn iter(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Self { rows, unit, .. } = self.clone();
        let (units, tiles) = (rows.len().div_ceil(unit), rows.len().div_ceil(self.most));
        let bound = move |t: usize| rows.start + (units * t / tiles * unit).min(rows.len());
        (0..tiles).map(move |t| bound(t)..bound(t + 1))
    }

    /// Returns the number of rows that a tile is padded to with zeros: whole units.
    fn width(&self, tile: &Range<usize>) -> usize {
        tile.len().next_multiple_of(self.unit)
    }
}

/// Rearranged activations of some rows.
pub struct ArrangedRows<'a> {
    tiles: TileSplit,
    steps: usize,
    /// `[tile][step][row of the tile]`
    values: &'a [ColumnQuad],
}

impl<'a> ArrangedRows<'a> {
    /// Rearranges the activations of `columns` columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn new(
        x: &Quantized<'_>,
        tiles: TileSplit,
        columns: usize,
        buffer: &'a mut AlignedVec<i8>,
    ) -> Self {
        let blocks = columns.div_ceil(BLOCK_COLS);
        let steps = blocks * STEPS;
        let rows: usize = tiles.iter().map(|tile| tiles.width(&tile)).sum();
        buffer.grow((rows * steps + QUAD) * size_of::<ColumnQuad>());
        let values: &mut [ColumnQuad] = buffer.as_chunks_mut().0;
        let mut rest = &mut *values;
        for tile in tiles.iter() {
            let width = tiles.width(&tile);
            rearrange(x, &tile, (width, blocks), rest);
            rest = &mut rest[steps * width..];
        }
        Self { tiles, steps, values }
    }

    /// Returns each tile, its padded number of rows, and its activations, `[step][row of the tile]`.
    pub fn tiles(&self) -> impl Iterator<Item = (Range<usize>, usize, &'a [ColumnQuad])> {
        let mut rest = self.values;
        self.tiles.iter().map(move |tile| {
            let width = self.tiles.width(&tile);
            let (own, others) = rest.split_at(self.steps * width);
            rest = others;
            (tile, width, own)
        })
    }
}

/// Writes a tile's activations as `[step][row of the tile]`. The last rows come first, because an
/// incomplete group of four rows writes past its end, and later writes overwrite that.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rearrange(
    x: &Quantized<'_>,
    tile: &Range<usize>,
    (width, blocks): (usize, usize),
    out: &mut [ColumnQuad],
) {
    for first in (0..width).step_by(QUAD).rev() {
        let mut rows: [Option<&[[i8; BLOCK_COLS]]>; QUAD] = [None; QUAD];
        for (row, out) in (tile.start + first..tile.end).zip(&mut rows) {
            *out = Some(&x.row_chunks(row)[..blocks]);
        }
        for b in 0..blocks {
            let mut lanes = [_mm_setzero_si128(); QUAD];
            for (row, lanes) in rows.iter().zip(&mut lanes) {
                if let Some(x) = row {
                    *lanes = bytemuck::must_cast(x[b]);
                }
            }
            for (f, quad) in transpose(lanes).into_iter().enumerate() {
                let at = (b * STEPS + f) * width + first;
                *out[at..].first_chunk_mut().expect("room after the last step") = quad;
            }
        }
    }
}

/// Transposes four rows of four steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn transpose([a, b, c, d]: [__m128i; QUAD]) -> [[ColumnQuad; QUAD]; STEPS] {
    let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
    let (ef, gh) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
    bytemuck::must_cast([
        _mm_unpacklo_epi64(ab, cd),
        _mm_unpackhi_epi64(ab, cd),
        _mm_unpacklo_epi64(ef, gh),
        _mm_unpackhi_epi64(ef, gh),
    ])
}

/// Adds the products of four columns of 16 weight rows with each of `N` activation rows to the sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn add<const N: usize>(sums: &mut [__m512i; N], weights: __m512i, x: &[ColumnQuad; N]) {
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum = _mm512_dpbusd_epi32(*sum, weights, _mm512_set1_epi32(bytemuck::must_cast(*x)));
    }
}
