//! Softmax attention over bf16 keys and values, in tiles. Queries and weights are each the sum of two
//! bf16, which gives 16 bits of significand at several times the speed of f32.
//!
//! A row's sums take its pages in order, and positions that it does not see are zero. So its result does
//! not depend on the rows next to it. Pages of other types use the AVX-512 kernel.

use super::bf16_product::{Bf16TileProduct, LeftTiles, RightTiles, SUM_TILES};
use super::kv::{ACROSS, DEPTH, KV, MOST_CHUNKS, TILE_BYTES, is_tiled};
use super::tiles::{ROW_BYTES, ROWS, Tiles};
use crate::kernel::avx2::fetch;
use crate::kernel::avx512::attend::attend_with;
use crate::kernel::avx512::lanes::{exp, max, splat};
use crate::kernel::{Attention, PAGE};
use crate::par::{Columns, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    if !is_tiled(&a.layout) {
        return attend_with(a, &KV, out, scratch);
    }
    let attention = TiledAttention::new(a);
    let Scratch { floats, page, shorts, softmax, .. } = scratch;
    softmax.grow(attention.count);
    floats.grow(attention.count * attention.padded);
    page.grow(attention.count + SUM_TILES * ROWS * ROWS);
    shorts.grow(2 * a.queries.len());
    let scores = &mut floats[..attention.count * attention.padded];
    let queries: &mut [u16] = bytemuck::cast_slice_mut(&mut shorts[..2 * a.queries.len()]);
    split(a.queries, a.scale, queries);
    let (inverse, sums) = page.split_at_mut(attention.count);

    // SAFETY: this table is only handed out where tiles are available.
    let _tiles = unsafe { Tiles::new(attention.count) };
    for pair in attention.pairs() {
        attention.score(&pair, queries, scores);
    }
    for (query, scores) in scores.chunks_exact_mut(attention.padded).enumerate() {
        softmax[query] = weigh(scores, a.ends[query / attention.group]);
        inverse[query] = 1.0 / softmax[query][1];
    }
    for pair in attention.pairs() {
        attention.accumulate(&pair, (scores, inverse), sums, out);
    }
}

/// Writes queries times `scale` as two planes of bf16, each `[queries][head_dim]`, in pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn split(queries: &[f32], scale: f32, planes: &mut [u16]) {
    let (high, low) = planes.split_at_mut(queries.len());
    let planes = high.as_chunks_mut::<DEPTH>().0.iter_mut().zip(low.as_chunks_mut::<DEPTH>().0);
    for (query, (high, low)) in queries.as_chunks::<DEPTH>().0.iter().zip(planes) {
        let [a, b]: [[f32; ROWS]; 2] = bytemuck::must_cast(*query);
        let scaled = |x| _mm512_mul_ps(bytemuck::must_cast(x), splat(scale));
        [*high, *low] = pairs(scaled(a), scaled(b)).map(bytemuck::must_cast);
    }
}

/// Splits the numbers in `a` and `b` into two bf16 each: the rounded number and the rounded remainder
/// (half rounds up). Returns the high and the low plane of the pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(a: __m512, b: __m512) -> [__m512i; 2] {
    let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
    let half = _mm512_set1_epi32(0x8000);
    let whole = |x| _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
    let left = |x, high| whole(_mm512_sub_ps(x, _mm512_castsi512_ps(high)));
    let joined = |a, b| _mm512_or_si512(_mm512_srli_epi32::<16>(a), b);
    let (high_a, high_b) = (whole(a), whole(b));
    [joined(high_a, high_b), joined(left(a, high_a), left(b, high_b))]
}

/// Replaces a query's scores by weights: exp(s − max) of the first `end` scores and 0 for the rest, as two
/// bf16 each, page by page the high plane, then the low one. Returns max and the sum of the weights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma")]
fn weigh(scores: &mut [f32], end: usize) -> [f32; 2] {
    let (whole, rest) = scores.split_at_mut(end.div_ceil(PAGE) * PAGE);
    rest.fill(0.0);
    whole[end..].fill(f32::NEG_INFINITY);
    let mut top = splat(f32::NEG_INFINITY);
    for s in whole.as_chunks::<ROWS>().0 {
        // In this order the number wins over a NaN.
        top = _mm512_max_ps(bytemuck::must_cast(*s), top);
    }
    let largest = max(top);
    let (top, mut totals) = (splat(largest), [splat(0.0); 2]);
    for (i, page) in whole.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
        let seen = u32::MAX >> (PAGE - PAGE.min(end - i * PAGE));
        let [a, b]: [[f32; ROWS]; 2] = bytemuck::must_cast(*page);
        let a = exp(_mm512_sub_ps(bytemuck::must_cast(a), top));
        let b = exp(_mm512_sub_ps(bytemuck::must_cast(b), top));
        let a = _mm512_maskz_mov_ps(seen as u16, a);
        let b = _mm512_maskz_mov_ps((seen >> ROWS) as u16, b);
        totals = [_mm512_add_ps(totals[0], a), _mm512_add_ps(totals[1], b)];
        let planes: [[f32; ROWS]; 2] = pairs(a, b).map(bytemuck::must_cast);
        *page = bytemuck::must_cast(planes);
    }
    [largest, _mm512_reduce_add_ps(_mm512_add_ps(totals[0], totals[1]))]
}

/// Up to two tiles of queries.
struct QueryPair {
    /// For each tile, the queries that no earlier tile has.
    own: [Range<usize>; 2],
    /// First query of each tile. The last tile overlaps the one before it, so that all tiles are whole.
    /// Only with fewer than 16 queries is there a smaller tile.
    starts: [usize; 2],
    /// Number of pages that some query sees.
    pages: usize,
}

impl QueryPair {
    /// Returns true if there is a second tile.
    fn is_whole(&self) -> bool {
        !self.own[1].is_empty()
    }
}

/// Attention of all rows over their pages.
struct TiledAttention<'a> {
    a: &'a Attention<'a>,
    /// Number of queries of a row.
    group: usize,
    /// Number of queries of all rows.
    count: usize,
    /// Number of floats of a query's scores: whole pages and one cache line more, so that the same page of
    /// many queries does not fall into the same few cache sets.
    padded: usize,
}

impl<'a> TiledAttention<'a> {
    fn new(a: &'a Attention<'a>) -> Self {
        let (group, pages) = (a.group(), a.pages());
        // Tiles are read through pointers.
        assert!(
            a.table[..pages]
                .iter()
                .all(|&page| { (page as usize + 1) * a.layout.bytes() <= a.pages.len() })
        );
        Self { a, group, count: a.ends.len() * group, padded: pages * PAGE + ROWS }
    }

    fn pairs(&self) -> impl Iterator<Item = QueryPair> {
        (0..self.count).step_by(2 * ROWS).map(|from| {
            let own =
                [from, from + ROWS].map(|from| from.min(self.count)..(from + ROWS).min(self.count));
            let starts = [from, from + ROWS].map(|from| from.min(self.count.saturating_sub(ROWS)));
            let rows = starts[0] / self.group..own[1].end.div_ceil(self.group);
            let end = self.a.ends[rows].iter().max().copied().unwrap_or(0);
            QueryPair { own, starts, pages: end.div_ceil(PAGE) }
        })
    }

    /// Writes the scores of a pair's queries for all pages that they see, `[queries][padded]`. Scores past
    /// a query's end are undefined.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn score(&self, pair: &QueryPair, queries: &[u16], scores: &mut [f32]) {
        /// Consecutive chunks of dimensions.
        const ORDER: [u32; MOST_CHUNKS] = {
            let mut order = [0; MOST_CHUNKS];
            let mut i = 0;
            while i < order.len() {
                order[i] = i as u32;
                i += 1;
            }
            order
        };
        let (a, dim, padded) = (self.a, self.a.head_dim(), self.padded);
        assert!(queries.len() == 2 * self.count * dim && scores.len() == self.count * padded);
        let left = LeftTiles {
            tiles: pair.starts.map(|start| queries[start * dim..].as_ptr().cast()),
            step: DEPTH * size_of::<u16>(),
            row: dim * size_of::<u16>(),
            low: self.count * dim * size_of::<u16>(),
        };
        let mut page = 0;
        while page < pair.pages {
            // A single tile of queries leaves tiles for the sums of two pages.
            let together = if pair.is_whole() { 1 } else { 2.min(pair.pages - page) };
            if a.ends.len() == 1 {
                (page + together..pair.pages.min(page + 2 * together))
                    .for_each(|next| fetch(a.layout.key_bytes(a.page(next))));
            }
            let first = a.layout.key_bytes(a.page(page)).as_ptr();
            let second = a.layout.key_bytes(a.page(page + together - 1)).as_ptr();
            let right = RightTiles {
                tiles: [first, first, second, second],
                order: &ORDER[..dim / DEPTH],
                step: ACROSS * TILE_BYTES,
                ahead: 0,
            }
            .with_tile_offsets(|p| p % ACROSS * TILE_BYTES);
            let product = Bf16TileProduct { left: &left, right: &right };
            let at = |g: usize| pair.starts[g] * padded + page * PAGE;
            let to = [scores[at(0)..].as_mut_ptr().cast(), scores[at(1)..].as_mut_ptr().cast()];
            let (row, tile) = (padded * size_of::<f32>(), ROW_BYTES);
            // SAFETY: tiles exist; queries have both planes from each start on, keys all tiles of
            // the chunks, and scores a row of `padded` for each query.
            unsafe {
                match (pair.is_whole(), together) {
                    (true, _) => product.run::<2, 2>(to, row, tile),
                    (false, 2) => product.run::<1, 4>(to, row, tile),
                    (false, _) => product.run::<1, 2>(to, row, tile),
                }
            }
            page += together;
        }
    }

    /// Writes the weighted sums of values of a pair's queries to the rows of `out`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn accumulate(
        &self,
        pair: &QueryPair,
        (weights, inverse): (&[f32], &[f32]),
        sums: &mut [f32],
        out: &mut Columns<'_>,
    ) {
        let (a, dim, padded) = (self.a, self.a.head_dim(), self.padded);
        assert!(weights.len() == self.count * padded && pair.pages * PAGE <= padded);
        let left = LeftTiles {
            tiles: pair.starts.map(|start| weights[start * padded..].as_ptr().cast()),
            step: PAGE * size_of::<f32>(),
            row: padded * size_of::<f32>(),
            low: ROW_BYTES,
        };
        let values = a.layout.value_start();
        let sums: &mut [[[f32; ROWS]; ROWS]; SUM_TILES] =
            &mut sums.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0[0];
        let mut block = 0;
        while block < dim / ROWS {
            let together = if pair.is_whole() { 2 } else { 4.min(dim / ROWS - block) };
            let right = RightTiles {
                tiles: [a.pages[values + block * TILE_BYTES..].as_ptr(); SUM_TILES],
                order: &a.table[..pair.pages],
                step: a.layout.bytes(),
                ahead: if a.ends.len() == 1 { together * TILE_BYTES } else { 0 },
            }
            .with_tile_offsets(|p| p * TILE_BYTES);
            let product = Bf16TileProduct { left: &left, right: &right };
            let (first, second) = sums.split_at_mut(together);
            let to = [first.as_mut_ptr().cast(), second.as_mut_ptr().cast()];
            let (row, tile) = (ROW_BYTES, TILE_BYTES);
            // SAFETY: tiles exist; weights have a row of `padded` for each query, values all tiles
            // of a page, whose pages `new` has checked, and each of the four sums is a tile.
            unsafe {
                match (pair.is_whole(), together) {
                    (true, _) => product.run::<2, 2>(to, row, tile),
                    (false, 4) => product.run::<1, 4>(to, row, tile),
                    (false, _) => product.run::<1, 2>(to, row, tile),
                }
            }
            self.write_rows(pair, block..block + together, (sums, inverse), out);
            block += together;
        }
    }

    /// Divides a pair's sums of some blocks of dimensions by the sums of the weights, and writes them to
    /// the rows of `out`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn write_rows(
        &self,
        pair: &QueryPair,
        blocks: Range<usize>,
        (sums, inverse): (&[[[f32; ROWS]; ROWS]], &[f32]),
        out: &mut Columns<'_>,
    ) {
        let tiles = pair.starts.iter().zip(sums.chunks_exact(blocks.len()));
        for (own, (start, tiles)) in pair.own.iter().zip(tiles) {
            for query in own.clone() {
                let (row, nth) = (query / self.group, query % self.group);
                let out = &mut out.row(row)[nth * self.a.head_dim() + blocks.start * ROWS..];
                for (out, tile) in out.as_chunks_mut::<ROWS>().0.iter_mut().zip(tiles) {
                    let sum = bytemuck::must_cast(tile[query - start]);
                    *out = bytemuck::must_cast(_mm512_mul_ps(sum, splat(inverse[query])));
                }
            }
        }
    }
}
