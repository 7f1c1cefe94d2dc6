//! Attention of rows that see a window of positions. Whole pages go to the kernels; the page in which a
//! window begins has few keys of it, which are computed here.

use super::heads::Heads;
use crate::cache::PAGE;
use crate::kernel::{Attention, merge_part};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use std::ops::Range;

impl Heads<'_> {
    /// Returns true if a window hides a key from one of these rows.
    pub fn hides_keys(&self, rows: Range<usize>, window: usize) -> bool {
        self.batch.rows[rows].iter().any(|row| row.position >= window)
    }

    /// As [`attend`](Self::attend), for rows that see `window` positions up to their own, and the later ones
    /// of their block.
    pub fn attend_in_window(
        &self,
        rows: Range<usize>,
        head: usize,
        window: usize,
        pages: &[u8],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let mut queries = std::mem::take(&mut scratch.heads);
        let failed = self.queries(rows.clone(), head, &mut queries);
        let width = self.group() * self.spec.head_dim;
        for (i, row) in rows.enumerate() {
            let first = (self.batch.rows[row].position + 1).saturating_sub(window);
            let queries = &queries[i * width..(i + 1) * width];
            self.attend_from(row, first, queries, pages, out.row(i), scratch);
        }
        failed.into_iter().for_each(|row| out.row(row).fill(f32::NAN));
        scratch.heads = queries;
    }

    /// Computes attention of a row to the keys from position `first` on; `queries` are `[group][head_dim]`.
    fn attend_from(
        &self,
        row: usize,
        first: usize,
        queries: &[f32],
        pages: &[u8],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (dim, group, layout) = (self.spec.head_dim, self.group(), self.tables.layout());
        let (table, end) = (self.tables.table(self.batch.rows[row].seq), self.batch.ends[row]);
        let (scale, whole) = (1.0 / (dim as f32).sqrt(), first.div_ceil(PAGE));
        let width = group * (dim + 2);
        let mut buffer = std::mem::take(&mut scratch.parts);
        buffer.grow(2 * width);
        let (all, next) = buffer[..2 * width].split_at_mut(width);
        let mut begun = !first.is_multiple_of(PAGE);
        if begun {
            let page = table[first / PAGE] as usize * layout.bytes();
            let page = &pages[page..][..layout.bytes()];
            let slots = first % PAGE..PAGE.min(end - first / PAGE * PAGE);
            self.attend_to_slots(slots, queries, scale, page, all, &mut scratch.page);
        }
        let ends = [end.saturating_sub(whole * PAGE)];
        if ends[0] > 0 {
            let table = &table[whole..];
            let attention = Attention { queries, scale, layout, pages, table, ends: &ends };
            for part in 0..attention.parts() {
                let to = if begun { &mut *next } else { &mut *all };
                self.kernels.attend_part(&attention, part, &mut Columns::whole(to, width), scratch);
                if begun {
                    merge_part(all, next, group);
                }
                begun = true;
            }
        }
        out.copy_from_slice(&all[..group * dim]);
        scratch.parts = buffer;
    }

    /// Computes attention to some slots of a page, as a part ([`merge_part`]).
    fn attend_to_slots(
        &self,
        slots: Range<usize>,
        queries: &[f32],
        scale: f32,
        page: &[u8],
        part: &mut [f32],
        decoded: &mut AlignedVec<f32>,
    ) {
        let (dim, group, layout) = (self.spec.head_dim, self.group(), self.tables.layout());
        decoded.grow(2 * dim * PAGE);
        let (keys, values) = decoded[..2 * dim * PAGE].split_at_mut(dim * PAGE);
        let keys = layout.keys(&self.kernels.kv, page, keys);
        let values = layout.values(&self.kernels.kv, page, values);
        let (out, softmax) = part.split_at_mut(group * dim);
        let of_queries = queries.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
        for ((query, out), softmax) in of_queries.zip(softmax.chunks_exact_mut(2)) {
            let score = |slot: usize| -> f32 {
                query.iter().enumerate().map(|(c, q)| q * keys[c * PAGE + slot]).sum::<f32>()
                    * scale
            };
            let scores: Vec<f32> = slots.clone().map(score).collect();
            let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|score| libm::expf(score - top)).collect();
            let sum: f32 = weights.iter().sum();
            out.fill(0.0);
            for (slot, weight) in slots.clone().zip(&weights) {
                let value = &values[slot * dim..][..dim];
                out.iter_mut().zip(value).for_each(|(o, v)| *o += weight / sum * v);
            }
            softmax.copy_from_slice(&[top, sum]);
        }
    }
}
