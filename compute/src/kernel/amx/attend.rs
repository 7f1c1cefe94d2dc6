//! Softmax attention in bf16 tiles. Queries, weights, keys and values are each the sum of two bf16, and
//! of their four products three count: 16 bits of significand, at several times the speed of f32.
//!
//! A row's sums take its pages in order, and what it does not see counts as zero; so its result does not
//! depend on the rows beside it. Pages of types that have no tiles go the way of vectors.

use super::kv::{ACROSS, DEPTH, KV, TILE_BYTES, planes};
use super::tiles::{self, ROW_BYTES, ROWS, Tiles};
use crate::kernel::avx2::fetch;
use crate::kernel::avx512::attend::attend_with;
use crate::kernel::avx512::lanes::{exp, max, splat};
use crate::kernel::{Attention, PAGE};
use crate::par::{Columns, Scratch};
use std::arch::x86_64::*;

/// Tiles of sums at a time.
const SUMS: usize = 4;
/// Sums of a tile.
type Sums = [[f32; ROWS]; ROWS];
/// Where a page's weights stand: the high plane in its first half, the low one in the other.
const LOW: usize = ROW_BYTES;

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    let planes = |dtype| planes(dtype, a.head_dim());
    let (Some(keys), Some(values)) = (planes(a.layout.keys), planes(a.layout.values)) else {
        return attend_with(a, &KV, out, scratch);
    };
    // Whole pages, and a cache line more: the same page of many queries does not fall into the same few
    // sets of a cache.
    let (count, padded) = (a.ends.len() * a.group(), a.pages() * PAGE + ROWS);
    let Scratch { floats, page, shorts, .. } = scratch;
    floats.grow(count * padded);
    page.grow(count + size_of::<[Sums; SUMS]>() / size_of::<f32>());
    shorts.grow(2 * count * a.head_dim());
    let scores = &mut floats[..count * padded];
    let queries: &mut [u16] = bytemuck::cast_slice_mut(&mut shorts[..2 * count * a.head_dim()]);
    split(a.queries, a.scale, queries);
    let (inverse, sums) = page.split_at_mut(count);

    // SAFETY: this table is only handed out where tiles are available.
    let _tiles = unsafe { Tiles::new(count) };
    for pair in Pair::all(a) {
        score(a, &pair, keys, queries, scores);
    }
    let of_queries = scores.chunks_exact_mut(padded).zip(inverse.iter_mut());
    for (query, (scores, inverse)) in of_queries.enumerate() {
        *inverse = 1.0 / weigh(scores, a.ends[query / a.group()]);
    }
    for pair in Pair::all(a) {
        mix(a, &pair, values, (scores, inverse), sums, out);
    }
}

/// Up to two tiles of queries.
struct Pair {
    /// The first query of each tile. The last tile reaches back into the one before it, so that all are
    /// whole; only where there are fewer queries than that is it smaller.
    starts: [usize; 2],
    /// The queries that are in no pair before, and that each tile has for itself.
    own: [std::ops::Range<usize>; 2],
    /// Pages that some query sees.
    pages: usize,
}

impl Pair {
    fn all(a: &Attention<'_>) -> impl Iterator<Item = Self> {
        let count = a.ends.len() * a.group();
        let own = move |from: usize| from.min(count)..(from + ROWS).min(count);
        let start = move |from: usize| from.min(count.saturating_sub(ROWS));
        (0..count).step_by(2 * ROWS).map(move |from| {
            let starts = [start(from), start(from + ROWS)];
            let own = [own(from), own(from + ROWS)];
            let rows = starts[0] / a.group()..own[0].end.max(own[1].end).div_ceil(a.group());
            let end = a.ends[rows].iter().max().copied().unwrap_or(0);
            Self { starts, own, pages: end.div_ceil(PAGE) }
        })
    }

    /// Whether there is a second tile.
    fn is_whole(&self) -> bool {
        !self.own[1].is_empty()
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
        [*high, *low] = pairs(scaled(a), scaled(b)).map(|v| bytemuck::must_cast(v));
    }
}

/// The pairs of numbers in `a` and `b` as two bf16 each: what they round to, half away from zero, and
/// what is left of that, cut off.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(a: __m512, b: __m512) -> [__m512i; 2] {
    let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
    let half = _mm512_set1_epi32(0x8000);
    let whole = |x| _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
    let joined = |a, b| _mm512_or_si512(_mm512_srli_epi32::<16>(a), _mm512_and_si512(b, upper));
    let left = |x, whole| _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(whole)));
    let (high_a, high_b) = (whole(a), whole(b));
    [joined(high_a, high_b), joined(left(a, high_a), left(b, high_b))]
}

/// Scores of the queries of a pair for all pages that they see, `[queries][padded]`; what is past a
/// query's end is garbage.
#[inline]
#[target_feature(enable = "avx512f")]
fn score(a: &Attention<'_>, pair: &Pair, planes: usize, queries: &[u16], scores: &mut [f32]) {
    let (dim, count) = (a.head_dim(), a.ends.len() * a.group());
    let (padded, steps) = (scores.len() / count, dim / DEPTH);
    let ends = queries.len() == 2 * count * dim && pair.pages * PAGE <= padded;
    assert!(ends && pair.own.iter().all(|own| own.end <= count), "room for all");
    let mut page = 0;
    while page < pair.pages {
        let together = if pair.is_whole() { 1 } else { 2.min(pair.pages - page) };
        if a.ends.len() == 1 {
            (page + together..pair.pages.min(page + 2 * together))
                .for_each(|next| fetch(a.layout.key_bytes(a.page(next))));
        }
        let keys: [&[u8]; 2] =
            std::array::from_fn(|p| a.layout.key_bytes(a.page(page + p.min(together - 1))));
        let product = Product {
            steps,
            left: pair.starts.map(|start| queries[start * dim..].as_ptr().cast()),
            left_step: DEPTH * size_of::<u16>(),
            left_stride: dim * size_of::<u16>(),
            left_low: count * dim * size_of::<u16>(),
            right: |step: usize| {
                let at = step * planes * ACROSS * TILE_BYTES;
                std::array::from_fn(|p| keys[p / ACROSS][at + p % ACROSS * TILE_BYTES..].as_ptr())
            },
            right_low: (planes == 2).then_some(ACROSS * TILE_BYTES),
        };
        let mut to = |g: usize, p: usize| {
            let at = pair.starts[g] * padded + page * PAGE + p * ROWS;
            (scores[at..].as_mut_ptr().cast(), padded * size_of::<f32>())
        };
        // SAFETY: tiles are there; queries have both planes from each start on, keys all tiles of
        // `steps`, and scores a row of `padded` for each query.
        unsafe {
            match (pair.is_whole(), together) {
                (true, _) => product.run::<2, 2>(&mut to),
                (false, 2) => product.run::<1, 4>(&mut to),
                (false, _) => product.run::<1, 2>(&mut to),
            }
        }
        page += together;
    }
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
        let planes: [[f32; ROWS]; 2] = pairs(a, b).map(|plane| bytemuck::must_cast(plane));
        *page = bytemuck::must_cast(planes);
    }
    _mm512_reduce_add_ps(_mm512_add_ps(totals[0], totals[1]))
}

/// Values mixed by the weights of a pair's queries, to the rows of `out`.
#[inline]
#[target_feature(enable = "avx512f")]
fn mix(
    a: &Attention<'_>,
    pair: &Pair,
    planes: usize,
    (weights, inverse): (&[f32], &[f32]),
    sums: &mut [f32],
    out: &mut Columns<'_>,
) {
    let (dim, group, padded) = (a.head_dim(), a.group(), weights.len() / inverse.len());
    let sums: &mut [Sums] = sums[..SUMS * ROWS * ROWS].as_chunks_mut().0.as_chunks_mut().0;
    assert!(pair.pages * PAGE <= padded && pair.own.iter().all(|own| own.end <= inverse.len()));
    let mut block = 0;
    while block < dim / ROWS {
        let together = if pair.is_whole() { 2 } else { 4.min(dim / ROWS - block) };
        let blocks = block * planes * TILE_BYTES..(block + together) * planes * TILE_BYTES;
        let product = Product {
            steps: pair.pages,
            left: pair.starts.map(|start| weights[start * padded..].as_ptr().cast()),
            left_step: PAGE * size_of::<f32>(),
            left_stride: padded * size_of::<f32>(),
            left_low: LOW,
            right: |page: usize| {
                if a.ends.len() == 1 && page + 1 < pair.pages {
                    fetch(&a.layout.value_bytes(a.page(page + 1))[blocks.clone()]);
                }
                let values = &a.layout.value_bytes(a.page(page))[blocks.clone()];
                let tiles = values.as_ptr();
                std::array::from_fn(|p| tiles.wrapping_add(p * planes * TILE_BYTES))
            },
            right_low: (planes == 2).then_some(TILE_BYTES),
        };
        let mut to = |g: usize, p: usize| (sums[g * together + p].as_mut_ptr().cast(), ROW_BYTES);
        // SAFETY: tiles are there; weights have a row of `padded` for each query, values all tiles of
        // a page, and each of the four sums is a tile.
        unsafe {
            match (pair.is_whole(), together) {
                (true, _) => product.run::<2, 2>(&mut to),
                (false, 4) => product.run::<1, 4>(&mut to),
                (false, _) => product.run::<1, 2>(&mut to),
            }
        }
        for (g, own) in pair.own.iter().enumerate() {
            for query in own.clone() {
                let row = &mut out.row(query / group)[query % group * dim + block * ROWS..];
                let tiles = &sums[g * together..][..together];
                for (out, tile) in row.as_chunks_mut::<ROWS>().0.iter_mut().zip(tiles) {
                    let sum = bytemuck::must_cast(tile[query - pair.starts[g]]);
                    *out = bytemuck::must_cast(_mm512_mul_ps(sum, splat(inverse[query])));
                }
            }
        }
        block += together;
    }
}

/// Products of tiles on the left, of up to two sixteens of queries, with tiles on the right, step after
/// step added up.
struct Product<Right> {
    steps: usize,
    /// The high planes of the first step's tiles of queries; how far the next step's are, a tile's next
    /// row, and the low plane.
    left: [*const u8; 2],
    left_step: usize,
    left_stride: usize,
    left_low: usize,
    /// The high planes of a step's tiles, and how far their low ones are, if there are any.
    right: Right,
    right_low: Option<usize>,
}

impl<Right: Fn(usize) -> [*const u8; SUMS]> Product<Right> {
    /// `G` tiles of queries × `P` on the right; `to` says where each one's sums go, and how far apart
    /// their rows are. The sums are in the tiles 0 to 3, queries in 4 and 5, the right in 6 and 7.
    ///
    /// # Safety
    /// [`Tiles`] are there, and all pointers are those of whole tiles.
    #[inline(always)]
    unsafe fn run<const G: usize, const P: usize>(
        &self,
        to: &mut impl FnMut(usize, usize) -> (*mut u8, usize),
    ) {
        const { assert!(G * P <= SUMS) };
        /// Adds the three products of the tiles 4 to 7 to the sums in a tile.
        macro_rules! add {
            ($sums:literal) => {
                tiles::multiply_bf16::<$sums, 4, 6>();
                tiles::multiply_bf16::<$sums, 5, 6>();
                if self.right_low.is_some() {
                    tiles::multiply_bf16::<$sums, 4, 7>();
                }
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            tiles::zero::<0>();
            tiles::zero::<1>();
            if G * P == SUMS {
                tiles::zero::<2>();
                tiles::zero::<3>();
            }
            let mut left = self.left;
            for step in 0..self.steps {
                let right = (self.right)(step);
                self.load_right(right[0]);
                self.load_left(left[0]);
                add!(0);
                if G == 2 {
                    self.load_left(left[1]);
                    add!(2);
                }
                self.load_right(right[1]);
                if G == 2 {
                    add!(3);
                    self.load_left(left[0]);
                }
                add!(1);
                if P == 4 {
                    self.load_right(right[2]);
                    add!(2);
                    self.load_right(right[3]);
                    add!(3);
                }
                left = left.map(|tile| tile.wrapping_add(self.left_step));
            }
            let (to_0, stride) = to(0, 0);
            tiles::store_rows::<0>(to_0, stride);
            tiles::store_rows::<1>(to(0, 1).0, stride);
            if G * P == SUMS {
                tiles::store_rows::<2>(to(2 / P, 2 % P).0, stride);
                tiles::store_rows::<3>(to(3 / P, 3 % P).0, stride);
            }
        }
    }

    /// Both planes of a tile of queries.
    ///
    /// # Safety
    /// As [`Product::run`].
    #[inline(always)]
    unsafe fn load_left(&self, high: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            tiles::load::<4>(high, self.left_stride);
            tiles::load::<5>(high.add(self.left_low), self.left_stride);
        }
    }

    /// The planes of a tile on the right.
    ///
    /// # Safety
    /// As [`Product::run`].
    #[inline(always)]
    unsafe fn load_right(&self, high: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            tiles::load::<6>(high, ROW_BYTES);
            if let Some(low) = self.right_low {
                tiles::load::<7>(high.add(low), ROW_BYTES);
            }
        }
    }
}
