//! The loop over pages that attention runs on every SIMD instruction set.
//!
//! An instruction set supplies the operations on one page ([`PageOps`]). A page is read once for all
//! rows of a block, so a long sequence is read once for the whole block. A row's result does not
//! depend on the rows next to it.

use super::{Attention, KvCodec, KvType, PAGE, PageCodes, PageElements};
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// The `i`-th page that the rows read.
#[derive(Clone, Copy)]
pub struct PageData<'a, N = PageElements<'a>> {
    pub i: usize,
    /// Its keys `[head_dim][PAGE]` or values `[PAGE][head_dim]`.
    pub elements: N,
    /// Scale of each position, `[PAGE]`; empty if the type has no scales.
    pub scales: &'a [f32],
    /// Bytes of the next page to prefetch while this page is computed, to the second-level cache: the
    /// first one can wait for fewer lines at a time.
    ///
    /// They are requested a few lines at a time. Requesting all of them at once would stall the core
    /// until most had arrived. Empty if several rows read a page, because the first rows load it for
    /// the others. With one row the hardware prefetcher does not detect the next page in time.
    pub next: &'a [u8],
}

impl<'a, N> PageData<'a, N> {
    /// Returns the same page with its elements as another type.
    #[inline(always)]
    pub fn with<M>(&self, elements: M) -> PageData<'a, M> {
        PageData { elements, i: self.i, scales: self.scales, next: self.next }
    }

    /// The places to prefetch in the next page, from its element `first` on, `step` elements apart.
    #[inline(always)]
    pub fn ahead(&self, head_dim: usize, first: usize, step: usize) -> Ahead {
        let size = self.next.len() / (PAGE * head_dim);
        Ahead { place: self.next.as_ptr().wrapping_add(first * size), step: step * size }
    }
}

/// A place of a page to prefetch, and the bytes from one to the next.
#[derive(Clone, Copy)]
pub struct Ahead {
    place: *const u8,
    step: usize,
}

impl Ahead {
    /// Returns this place and moves on to the next.
    #[inline(always)]
    pub fn advance(&mut self) -> *const u8 {
        let place = self.place;
        self.place = place.wrapping_add(self.step);
        place
    }
}

/// Functions that load numbers of one type.
#[derive(Clone, Copy)]
pub struct Loads<Pair, Join, Split, Single, One> {
    /// Loads two vectors, in the order that is fastest.
    pub pair: Pair,
    /// Puts such a pair into the order of the numbers.
    pub join: Join,
    /// Puts a pair in the order of the numbers into the order in which `pair` loads it.
    pub split: Split,
    /// Loads one vector.
    pub single: Single,
    /// Loads one number.
    pub one: One,
}

/// The operations of an instruction set on one page.
pub struct PageOps<Score, Exponents, Accumulate, Total> {
    /// Writes the scores of some rows for a page to `[rows][group][position]`.
    pub score: Score,
    /// Replaces the first scores, as many as it is told, by exp(s − max), and the rest by 0. Returns max.
    pub exponents: Exponents,
    /// Adds a page's values, weighted by a row's scores, to `[group][head_dim]`.
    pub accumulate: Accumulate,
    /// Returns Σ of the scores.
    pub total: Total,
    /// True if a single row reads codes directly. It reads each code once, so decoding codes to memory
    /// first would only cost time.
    pub reads_codes: bool,
}

/// See the scalar definition.
#[inline(always)]
pub fn attention_loop(
    a: &Attention<'_>,
    kv: &[KvCodec; KvType::COUNT],
    out: &mut Columns<'_>,
    scratch: &mut Scratch,
    ops: PageOps<
        impl Fn(Range<usize>, PageData<'_>, &mut [f32]),
        impl Fn(&mut [f32], usize) -> f32,
        impl Fn(usize, PageData<'_>, &[f32], &mut [f32]),
        impl Fn(&[f32]) -> f32,
    >,
) {
    let (rows, group, pages) = (a.ends.len(), a.group(), a.pages());
    let padded = pages * PAGE;
    let Scratch { floats, page: decoded, softmax, .. } = scratch;
    floats.grow(rows * group * padded);
    decoded.grow(a.head_dim() * PAGE);
    softmax.grow(rows * group);
    // `[row][query of the group][position]`.
    let scores = &mut floats[..rows * group * padded];
    let of_row = group * padded;
    let direct = ops.reads_codes && rows == 1;

    for i in 0..pages {
        let page = read_page(a, kv, i, direct, decoded);
        for rows in a.rows_with_page(i) {
            let scores = &mut scores[rows.start * of_row..rows.end * of_row];
            (ops.score)(rows, page, scores);
        }
    }
    for (query, scores) in scores.chunks_exact_mut(padded).enumerate() {
        softmax[query][0] = (ops.exponents)(scores, a.ends[query / group]);
    }
    (0..rows).for_each(|row| out.row(row).fill(0.0));
    for i in 0..pages {
        let page = PageData { i, ..read_page(a, kv, pages + i, direct, decoded) };
        for row in a.rows_with_page(i).flatten() {
            (ops.accumulate)(row, page, &scores[row * of_row..][..of_row], out.row(row));
        }
    }
    for (row, scores) in scores.chunks_exact(of_row).enumerate() {
        let queries = out.row(row).chunks_exact_mut(a.head_dim()).zip(&mut softmax[row * group..]);
        for (scores, (out, softmax)) in scores.chunks_exact(padded).zip(queries) {
            softmax[1] = (ops.total)(scores);
            let inverse = 1.0 / softmax[1];
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }
}

/// Returns the `i`-th page of those that attention reads: first the keys of all pages, then their values.
/// They are read as codes if `direct`, else decoded to a buffer.
#[inline(always)]
fn read_page<'a>(
    a: &Attention<'a>,
    kv: &[KvCodec; KvType::COUNT],
    i: usize,
    direct: bool,
    buffer: &'a mut [f32],
) -> PageData<'a> {
    let (pages, codes) = (a.pages(), half(a, i));
    let elements = if direct { PageElements::of_codes(kv, codes) } else { None };
    let elements = match elements {
        Some(elements) => elements,
        None => PageElements::F32(codes.decode(kv, i < pages, buffer)),
    };
    let next = if a.ends.len() == 1 { half(a, (i + 1).min(2 * pages - 1)).codes } else { &[] };
    PageData { i, elements, scales: codes.scales, next }
}

/// Returns the codes of the `i`-th page, as [`read_page`] counts them.
#[inline(always)]
fn half<'a>(a: &Attention<'a>, i: usize) -> PageCodes<'a> {
    let pages = a.pages();
    if i < pages {
        a.layout.key_codes_of(a.page(i))
    } else {
        a.layout.value_codes_of(a.page(i - pages))
    }
}

/// Returns the number of queries to process together, of `left` in a group. It is `most`, which fills
/// the registers, unless that would leave a single query, which would not.
pub fn queries_per_tile(left: usize, most: usize) -> usize {
    match left {
        _ if left <= most => left,
        _ if left == most + 1 => most - 1,
        _ => most,
    }
}

/// Returns the scores of `G` queries for page `i`.
#[inline]
pub fn page_weights<const G: usize>(scores: &[f32], i: usize) -> [&[f32]; G] {
    let padded = scores.len() / G;
    std::array::from_fn(|g| &scores[g * padded + i * PAGE..][..PAGE])
}
