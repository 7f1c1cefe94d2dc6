//! The loop over pages that attention runs on every SIMD instruction set.
//!
//! An instruction set supplies the operations on one page ([`PageOps`]). A page is read once for all
//! rows of a block, so a long sequence is read once for the whole block. A row's result does not
//! depend on the rows beside it.

use super::{Attention, KvCodec, KvType, PAGE, PageElements};
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// The `i`-th page that the rows read.
#[derive(Clone, Copy)]
pub struct PageData<'a, N = PageElements<'a>> {
    pub i: usize,
    /// Its keys `[head_dim][PAGE]` or values `[PAGE][head_dim]`.
    pub elements: N,
    /// Bytes of the next page, or of the last page itself, to prefetch while this page is computed.
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
        PageData { i: self.i, elements, next: self.next }
    }

    /// Number of bytes of one element of the next page.
    #[inline(always)]
    pub fn next_element_size(&self, head_dim: usize) -> usize {
        self.next.len() / (PAGE * head_dim)
    }
}

/// The operations of an instruction set on one page.
pub struct PageOps<Score, Exponents, Accumulate, Total> {
    /// Writes the scores of some rows for a page to `[rows][group][position]`.
    pub score: Score,
    /// Replaces the first scores, as many as it is told, by exp(s − max), and the rest by 0.
    pub exponents: Exponents,
    /// Adds a page's values, weighted by a row's scores, to `[group][head_dim]`.
    pub accumulate: Accumulate,
    /// Returns Σ of the scores.
    pub total: Total,
    /// True if a single row reads 16-bit codes directly. It reads each code once, so decoding codes to
    /// memory first would only cost time.
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
        impl Fn(&mut [f32], usize),
        impl Fn(usize, PageData<'_>, &[f32], &mut [f32]),
        impl Fn(&[f32]) -> f32,
    >,
) {
    let (rows, group, padded) = (a.ends.len(), a.group(), a.pages() * PAGE);
    let Scratch { floats, page: decoded, .. } = scratch;
    floats.grow(rows * group * padded);
    decoded.grow(a.head_dim() * PAGE);
    // `[row][query of the group][position]`.
    let scores = &mut floats[..rows * group * padded];
    let of_row = group * padded;
    let codes = |dtype, bytes| match ops.reads_codes && rows == 1 {
        true => PageElements::of_codes(dtype, kv, bytes),
        false => None,
    };

    let next = |i: usize| match rows {
        1 => Some(a.page((i + 1).min(a.pages() - 1))),
        _ => None,
    };
    for i in 0..a.pages() {
        let keys = codes(a.layout.keys, a.layout.key_bytes(a.page(i)));
        let elements =
            keys.unwrap_or_else(|| PageElements::F32(a.layout.keys(kv, a.page(i), decoded)));
        let page =
            PageData { i, elements, next: next(i).map_or(&[], |page| a.layout.key_bytes(page)) };
        for rows in a.rows_with_page(i) {
            let scores = &mut scores[rows.start * of_row..rows.end * of_row];
            (ops.score)(rows, page, scores);
        }
    }
    for (query, scores) in scores.chunks_exact_mut(padded).enumerate() {
        (ops.exponents)(scores, a.ends[query / group]);
    }
    (0..rows).for_each(|row| out.row(row).fill(0.0));
    for i in 0..a.pages() {
        let values = codes(a.layout.values, a.layout.value_bytes(a.page(i)));
        let elements =
            values.unwrap_or_else(|| PageElements::F32(a.layout.values(kv, a.page(i), decoded)));
        let page =
            PageData { i, elements, next: next(i).map_or(&[], |page| a.layout.value_bytes(page)) };
        for row in a.rows_with_page(i).flatten() {
            (ops.accumulate)(row, page, &scores[row * of_row..][..of_row], out.row(row));
        }
    }
    for (row, scores) in scores.chunks_exact(of_row).enumerate() {
        let queries = out.row(row).chunks_exact_mut(a.head_dim());
        for (scores, out) in scores.chunks_exact(padded).zip(queries) {
            let inverse = 1.0 / (ops.total)(scores);
            out.iter_mut().for_each(|o| *o *= inverse);
        }
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
