//! The walk over pages that attention takes on every SIMD set; what happens on a page is the set's own.
//!
//! A page meets all rows before the next one is read, so a long sequence is read once for a whole
//! block of rows. What a row gets does not depend on the rows beside it.

use super::{Attention, KvCodec, KvType, Numbers, PAGE};
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// The `i`-th page that the rows read.
#[derive(Clone, Copy)]
pub struct Page<'a, N = Numbers<'a>> {
    pub i: usize,
    /// Its keys `[head_dim][PAGE]` or values `[PAGE][head_dim]`.
    pub numbers: N,
    /// The bytes of the next page's, or of the last page's own. They are asked for little by little
    /// while this page is computed with: a core waits for a few lines at a time, and asked for all of
    /// them at once it would compute nothing until most had come. Empty where several rows read a
    /// page, whose first ones bring it for the others; a single row is done with a page before the
    /// processor has seen that another one follows.
    pub next: &'a [u8],
}

impl<'a, N> Page<'a, N> {
    /// The same page with its numbers as a type of their own.
    #[inline(always)]
    pub fn with<M>(&self, numbers: M) -> Page<'a, M> {
        Page { i: self.i, numbers, next: self.next }
    }

    /// Bytes of one of the next page's numbers.
    #[inline(always)]
    pub fn next_size(&self, head_dim: usize) -> usize {
        self.next.len() / (PAGE * head_dim)
    }
}

/// What a set does.
pub struct Steps<Score, Exponents, Mix, Total> {
    /// Writes some rows' scores for a page to `[rows][group][position]`.
    pub score: Score,
    /// exp(s − max) of the first so many scores, 0 for the rest.
    pub exponents: Exponents,
    /// Adds a page's values, weighted by a row's scores, to `[group][head_dim]`.
    pub mix: Mix,
    /// Σ of the scores.
    pub total: Total,
    /// Whether a single row takes codes of 16 bits as they stand: it reads each once, so that decoding
    /// them to memory would only cost time.
    pub takes_codes: bool,
}

/// See the scalar definition.
#[inline(always)]
pub fn walk(
    a: &Attention<'_>,
    kv: &[KvCodec; KvType::COUNT],
    out: &mut Columns<'_>,
    scratch: &mut Scratch,
    steps: Steps<
        impl Fn(Range<usize>, Page<'_>, &mut [f32]),
        impl Fn(&mut [f32], usize),
        impl Fn(usize, Page<'_>, &[f32], &mut [f32]),
        impl Fn(&[f32]) -> f32,
    >,
) {
    let (rows, group, padded) = (a.ends.len(), a.group(), a.pages() * PAGE);
    let Scratch { floats, page: room, .. } = scratch;
    floats.grow(rows * group * padded);
    room.grow(a.head_dim() * PAGE);
    // `[row][query of the group][position]`.
    let scores = &mut floats[..rows * group * padded];
    let of_row = group * padded;
    let codes = |dtype, bytes| match steps.takes_codes && rows == 1 {
        true => Numbers::of_codes(dtype, kv, bytes),
        false => None,
    };

    let next = |i: usize| match rows {
        1 => Some(a.page((i + 1).min(a.pages() - 1))),
        _ => None,
    };
    for i in 0..a.pages() {
        let keys = codes(a.layout.keys, a.layout.key_bytes(a.page(i)));
        let numbers = keys.unwrap_or_else(|| Numbers::F32(a.layout.keys(kv, a.page(i), room)));
        let page = Page { i, numbers, next: next(i).map_or(&[], |page| a.layout.key_bytes(page)) };
        for rows in a.rows_with_page(i) {
            let scores = &mut scores[rows.start * of_row..rows.end * of_row];
            (steps.score)(rows, page, scores);
        }
    }
    for (query, scores) in scores.chunks_exact_mut(padded).enumerate() {
        (steps.exponents)(scores, a.ends[query / group]);
    }
    (0..rows).for_each(|row| out.row(row).fill(0.0));
    for i in 0..a.pages() {
        let values = codes(a.layout.values, a.layout.value_bytes(a.page(i)));
        let numbers = values.unwrap_or_else(|| Numbers::F32(a.layout.values(kv, a.page(i), room)));
        let page =
            Page { i, numbers, next: next(i).map_or(&[], |page| a.layout.value_bytes(page)) };
        for row in a.rows_with_page(i).flatten() {
            (steps.mix)(row, page, &scores[row * of_row..][..of_row], out.row(row));
        }
    }
    for (row, scores) in scores.chunks_exact(of_row).enumerate() {
        let queries = out.row(row).chunks_exact_mut(a.head_dim());
        for (scores, out) in scores.chunks_exact(padded).zip(queries) {
            let inverse = 1.0 / (steps.total)(scores);
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }
}

/// How many of the `left` queries of a group go together: as many as fill the registers, three or
/// four, but so that no single one is left, which would leave them idle.
pub fn tile(left: usize, most: usize) -> usize {
    match left {
        _ if left <= most => left,
        _ if left == most + 1 => most - 1,
        _ => most,
    }
}

/// The scores of page `i` of `G` queries.
#[inline]
pub fn weights<const G: usize>(scores: &[f32], i: usize) -> [&[f32]; G] {
    let padded = scores.len() / G;
    std::array::from_fn(|g| &scores[g * padded + i * PAGE..][..PAGE])
}
