//! Attention in parts of the keys.
//!
//! A row's keys are cut at fixed positions. Each part has a softmax of its own, and the results are merged
//! in order. So a result does not depend on who computes which part, nor on the rows next to it, while
//! workers can share the keys of a long text.

use super::{Attention, Kernels, PAGE, exp};
use crate::par::{Columns, Scratch};
use std::ops::Range;

impl Attention<'_> {
    /// Number of keys of a part: whole pages. Their scores and values fit the first cache levels.
    pub const PART: usize = 32 * PAGE;

    /// Number of parts that at least one row sees.
    pub fn parts(&self) -> usize {
        self.ends.iter().max().map_or(0, |end| end.div_ceil(Self::PART))
    }

    /// Width of a row of [`Kernels::attend_part`].
    pub fn part_width(&self) -> usize {
        self.group() * (self.head_dim() + 2)
    }

    /// Returns the rows from the first to the last that see a key of the part.
    fn rows_with_part(&self, part: usize) -> Range<usize> {
        let sees = |end: &usize| *end > part * Self::PART;
        let first = self.ends.iter().position(sees).unwrap_or(0);
        first..self.ends.iter().rposition(sees).map_or(first, |last| last + 1)
    }
}

impl Kernels {
    /// Computes softmax attention; the view `out` is `[rows][group · head_dim]`.
    pub fn attention(&self, a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
        if a.parts() <= 1 {
            return (self.attend)(a, out, scratch);
        }
        let (rows, width) = (a.ends.len(), a.part_width());
        let mut buffer = std::mem::take(&mut scratch.parts);
        buffer.grow(2 * rows * width);
        let (all, next) = buffer[..2 * rows * width].split_at_mut(rows * width);
        self.attend_part(a, 0, &mut Columns::whole(all, width), scratch);
        for part in 1..a.parts() {
            self.attend_part(a, part, &mut Columns::whole(next, width), scratch);
            let rows = all.chunks_exact_mut(width).zip(next.chunks_exact(width)).zip(a.ends);
            for ((all, next), _) in rows.filter(|(_, end)| **end > part * Attention::PART) {
                merge_part(all, next, a.group());
            }
        }
        for (row, all) in all.chunks_exact(width).enumerate() {
            let out = out.row(row);
            out.copy_from_slice(&all[..out.len()]);
        }
        scratch.parts = buffer;
    }

    /// Computes softmax attention to the keys of one part. A row of the view `out` has the results of its
    /// queries, `[group][head_dim]`, and then the largest score and the sum of weights of each. Rows that
    /// see no key of the part hold anything.
    ///
    /// # Panics
    /// If the view has other columns than [`Attention::part_width`].
    pub fn attend_part(
        &self,
        a: &Attention<'_>,
        part: usize,
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let (rows, first) = (a.rows_with_part(part), part * Attention::PART);
        if rows.is_empty() {
            return;
        }
        assert_eq!(out.range().len(), a.part_width(), "columns of a part");
        let mut ends = std::mem::take(&mut scratch.part_ends);
        ends.clear();
        let here = |end: &usize| end.saturating_sub(first).min(Attention::PART);
        ends.extend(a.ends[rows.clone()].iter().map(here));
        let (queries, table) = (a.rows(rows.clone()), &a.table[first / PAGE..]);
        let of_part = Attention { queries, table, ends: &ends, ..*a };
        let (width, group) = (a.group() * a.head_dim(), a.group());
        let mut out = out.lines(rows.clone());
        let from = out.range().start;
        (self.attend)(&of_part, &mut out.narrow(from, from + width), scratch);
        for (row, softmax) in scratch.softmax.chunks_exact(group).take(rows.len()).enumerate() {
            out.row(row)[width..].copy_from_slice(softmax.as_flattened());
        }
        scratch.part_ends = ends;
    }
}

/// Merges a row's attention to a part with that to all parts before it. Both are rows of
/// [`Kernels::attend_part`] with `group` queries.
pub fn merge_part(all: &mut [f32], part: &[f32], group: usize) {
    let width = all.len() - 2 * group;
    let (out, softmax) = all.split_at_mut(width);
    let (part, part_softmax) = part.split_at(width);
    let softmax = softmax.as_chunks_mut::<2>().0.iter_mut().zip(part_softmax.as_chunks::<2>().0);
    let queries = out.chunks_exact_mut(width / group).zip(part.chunks_exact(width / group));
    for ((out, part), (softmax, other)) in queries.zip(softmax) {
        let top = softmax[0].max(other[0]);
        let [before, here] = [*softmax, *other].map(|[max, sum]| sum * exp(max - top));
        let sum = before + here;
        let (before, here) = (before / sum, here / sum);
        out.iter_mut().zip(part).for_each(|(o, p)| *o = *o * before + p * here);
        *softmax = [top, sum];
    }
}
