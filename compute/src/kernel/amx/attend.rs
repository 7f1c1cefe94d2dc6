//! Softmax attention over keys and values of bf16, in tiles. Queries and weights are each the sum of two
//! bf16: 16 bits of significand, at several times the speed of f32.
//!
//! A row's sums take its pages in order, and what it does not see counts as zero; so its result does not
//! depend on the rows beside it. Pages of types that have no tiles go the way of vectors.

use super::kv::{ACROSS, DEPTH, KV, MOST_CHUNKS, TILE_BYTES, is_tiled};
use super::meet::{Left, Meeting, Right, SUMS};
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
    let walk = Walk::new(a);
    let Scratch { floats, page, shorts, .. } = scratch;
    floats.grow(walk.count * walk.padded);
    page.grow(walk.count + SUMS * ROWS * ROWS);
    shorts.grow(2 * a.queries.len());
    let scores = &mut floats[..walk.count * walk.padded];
    let queries: &mut [u16] = bytemuck::cast_slice_mut(&mut shorts[..2 * a.queries.len()]);
    split(a.queries, a.scale, queries);
    let (inverse, sums) = page.split_at_mut(walk.count);

    // SAFETY: this table is only handed out where tiles are available.
    let _tiles = unsafe { Tiles::new(walk.count) };
    for pair in walk.pairs() {
        walk.score(&pair, queries, scores);
    }
    for (query, scores) in scores.chunks_exact_mut(walk.padded).enumerate() {
        inverse[query] = 1.0 / weigh(scores, a.ends[query / walk.group]);
    }
    for pair in walk.pairs() {
        walk.mix(&pair, (scores, inverse), sums, out);
    }
}

/// Queries times `scale` in two planes of bf16, each `[queries][head_dim]`, in pairs.
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

/// The pairs of numbers in `a` and `b` as two bf16 each, what they round to and what is left: both the
/// nearest, of two the larger.
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

/// Makes a query's scores weights, exp(s − max) of the first `end` and 0 for the rest, as two bf16 in the
/// place of each f32: page by page the high plane, then the low one. Returns their sum.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma")]
fn weigh(scores: &mut [f32], end: usize) -> f32 {
    let (whole, rest) = scores.split_at_mut(end.div_ceil(PAGE) * PAGE);
    rest.fill(0.0);
    whole[end..].fill(f32::NEG_INFINITY);
    let mut top = splat(f32::NEG_INFINITY);
    for s in whole.as_chunks::<ROWS>().0 {
        // In this order: of a NaN and a number the number counts.
        top = _mm512_max_ps(bytemuck::must_cast(*s), top);
    }
    let (top, mut totals) = (splat(max(top)), [splat(0.0); 2]);
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
    _mm512_reduce_add_ps(_mm512_add_ps(totals[0], totals[1]))
}

/// Up to two tiles of queries.
struct Pair {
    /// The queries that are in no pair before, and that each tile has for itself.
    own: [Range<usize>; 2],
    /// The first query of each tile. The last tile reaches back into the one before it, so that all are
    /// whole; only where there are fewer queries than that is it smaller.
    starts: [usize; 2],
    /// Pages that some query sees.
    pages: usize,
}

impl Pair {
    /// Whether there is a second tile.
    fn is_whole(&self) -> bool {
        !self.own[1].is_empty()
    }
}

/// The way of all rows over their pages.
struct Walk<'a> {
    a: &'a Attention<'a>,
    /// Queries of a row, and of all.
    group: usize,
    count: usize,
    /// Floats of a query's scores: whole pages, and a cache line more, so that the same page of many
    /// queries does not fall into the same few sets of a cache.
    padded: usize,
}

impl<'a> Walk<'a> {
    fn new(a: &'a Attention<'a>) -> Self {
        let (group, pages) = (a.group(), a.pages());
        // Tiles are read from pointers.
        assert!(
            a.table[..pages]
                .iter()
                .all(|&page| { (page as usize + 1) * a.layout.bytes() <= a.pages.len() })
        );
        Self { a, group, count: a.ends.len() * group, padded: pages * PAGE + ROWS }
    }

    fn pairs(&self) -> impl Iterator<Item = Pair> {
        (0..self.count).step_by(2 * ROWS).map(|from| {
            let own =
                [from, from + ROWS].map(|from| from.min(self.count)..(from + ROWS).min(self.count));
            let starts = [from, from + ROWS].map(|from| from.min(self.count.saturating_sub(ROWS)));
            let rows = starts[0] / self.group..own[1].end.div_ceil(self.group);
            let end = self.a.ends[rows].iter().max().copied().unwrap_or(0);
            Pair { own, starts, pages: end.div_ceil(PAGE) }
        })
    }

    /// Scores of the queries of a pair for all pages that they see, `[queries][padded]`; what is past a
    /// query's end is garbage.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn score(&self, pair: &Pair, queries: &[u16], scores: &mut [f32]) {
        /// Chunks of dimensions follow each other.
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
        let left = Left {
            tiles: pair.starts.map(|start| queries[start * dim..].as_ptr().cast()),
            step: DEPTH * size_of::<u16>(),
            row: dim * size_of::<u16>(),
            low: self.count * dim * size_of::<u16>(),
        };
        let mut page = 0;
        while page < pair.pages {
            // A single tile of queries has room for the sums of two pages.
            let together = if pair.is_whole() { 1 } else { 2.min(pair.pages - page) };
            if a.ends.len() == 1 {
                (page + together..pair.pages.min(page + 2 * together))
                    .for_each(|next| fetch(a.layout.key_bytes(a.page(next))));
            }
            let first = a.layout.key_bytes(a.page(page)).as_ptr();
            let second = a.layout.key_bytes(a.page(page + together - 1)).as_ptr();
            let right = Right {
                tiles: [first, first, second, second],
                order: &ORDER[..dim / DEPTH],
                step: ACROSS * TILE_BYTES,
                ahead: 0,
            }
            .across(|p| p % ACROSS * TILE_BYTES);
            let meeting = Meeting { left: &left, right: &right };
            let at = |g: usize| pair.starts[g] * padded + page * PAGE;
            let to = [scores[at(0)..].as_mut_ptr().cast(), scores[at(1)..].as_mut_ptr().cast()];
            let (row, tile) = (padded * size_of::<f32>(), ROW_BYTES);
            // SAFETY: tiles are there; queries have both planes from each start on, keys all tiles of
            // the chunks, and scores a row of `padded` for each query.
            unsafe {
                match (pair.is_whole(), together) {
                    (true, _) => meeting.run::<2, 2>(to, row, tile),
                    (false, 2) => meeting.run::<1, 4>(to, row, tile),
                    (false, _) => meeting.run::<1, 2>(to, row, tile),
                }
            }
            page += together;
        }
    }

    /// Values mixed by the weights of a pair's queries, to the rows of `out`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mix(
        &self,
        pair: &Pair,
        (weights, inverse): (&[f32], &[f32]),
        sums: &mut [f32],
        out: &mut Columns<'_>,
    ) {
        let (a, dim, padded) = (self.a, self.a.head_dim(), self.padded);
        assert!(weights.len() == self.count * padded && pair.pages * PAGE <= padded);
        let left = Left {
            tiles: pair.starts.map(|start| weights[start * padded..].as_ptr().cast()),
            step: PAGE * size_of::<f32>(),
            row: padded * size_of::<f32>(),
            low: ROW_BYTES,
        };
        let values = a.layout.value_start();
        let sums: &mut [[[f32; ROWS]; ROWS]; SUMS] =
            &mut sums.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0[0];
        let mut block = 0;
        while block < dim / ROWS {
            let together = if pair.is_whole() { 2 } else { 4.min(dim / ROWS - block) };
            let right = Right {
                tiles: [a.pages[values + block * TILE_BYTES..].as_ptr(); SUMS],
                order: &a.table[..pair.pages],
                step: a.layout.bytes(),
                ahead: if a.ends.len() == 1 { together * TILE_BYTES } else { 0 },
            }
            .across(|p| p * TILE_BYTES);
            let meeting = Meeting { left: &left, right: &right };
            let (first, second) = sums.split_at_mut(together);
            let to = [first.as_mut_ptr().cast(), second.as_mut_ptr().cast()];
            let (row, tile) = (ROW_BYTES, TILE_BYTES);
            // SAFETY: tiles are there; weights have a row of `padded` for each query, values all tiles
            // of a page, whose pages `new` has checked, and each of the four sums is a tile.
            unsafe {
                match (pair.is_whole(), together) {
                    (true, _) => meeting.run::<2, 2>(to, row, tile),
                    (false, 4) => meeting.run::<1, 4>(to, row, tile),
                    (false, _) => meeting.run::<1, 2>(to, row, tile),
                }
            }
            self.spread(pair, block..block + together, (sums, inverse), out);
            block += together;
        }
    }

    /// A pair's sums of some blocks of dimensions, divided by those of the weights, to the rows of `out`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn spread(
        &self,
        pair: &Pair,
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
