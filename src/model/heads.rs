//! Work per head between the products of q, k, v and the output projection: biases, q and k norms,
//! RoPE, writing to the cache, attention.

use super::batch::{Batch, BatchRow};
use crate::cache::{PAGE, PageTables, QueryContext};
use crate::format::{AttentionWeights, Linear, Spec};
use crate::kernel::{Attention, Kernels};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// Bound of the elements of queries and keys: below it no score overflows. No model comes near it.
const LARGEST: f32 = 1e17;

/// One layer's heads for all rows of a batch.
pub(super) struct Heads<'a> {
    pub spec: &'a Spec,
    pub kernels: &'a Kernels,
    pub weights: &'a AttentionWeights,
    pub tables: PageTables<'a>,
    pub batch: &'a Batch,
    /// Number of columns of `qkv` before the keys.
    pub queries: usize,
    /// `[rows][qkv_width]`: queries, each followed by its gate if there are any; keys; values.
    pub qkv: &'a [f32],
    /// `[rows][rotary_dim / 2]`.
    pub cos: &'a [f32],
    pub sin: &'a [f32],
}

impl Heads<'_> {
    /// Writes one KV head's keys and values of all rows to its pages, and updates the pages'
    /// summaries, if the cache has any.
    pub fn write(
        &self,
        head: usize,
        pages: &mut [u8],
        summaries: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (dim, layout) = (self.spec.head_dim, self.tables.layout());
        let keys = self.queries + head * dim;
        let values = keys + self.spec.kv_heads * dim;
        scratch.heads.grow(3 * dim);
        let (key, rest) = scratch.heads[..3 * dim].split_at_mut(dim);
        let (value, plain) = rest.split_at_mut(dim);
        for (i, row) in self.batch.rows.iter().enumerate() {
            self.copy(i, keys, &self.weights.k, head * dim, key);
            self.rotate(i, self.weights.k_norm.as_deref(), key, plain);
            self.copy(i, values, &self.weights.v, head * dim, value);
            let within = self.kernels.within;
            if !within(key, LARGEST) || !within(value, f32::INFINITY) {
                // Every row that sees it fails, whatever weight it gives to it.
                key.fill(f32::NAN);
                value.fill(f32::NAN);
            }
            let page = self.tables.table(row.seq)[row.position / PAGE] as usize * layout.bytes();
            let page = &mut pages[page..][..layout.bytes()];
            layout.write(&self.kernels.kv, page, row.position % PAGE, (key, value));
        }
        if !summaries.is_empty() {
            self.summarize(pages, summaries, scratch);
        }
    }

    /// Updates the summaries of the pages that rows were written to, if the pages are full.
    fn summarize(&self, pages: &[u8], summaries: &mut [f32], scratch: &mut Scratch) {
        let (layout, width) = (self.tables.layout(), 2 * self.spec.head_dim);
        scratch.page.grow(self.spec.head_dim * PAGE);
        for rows in self.batch.rows.chunk_by(|a, b| a.seq == b.seq) {
            let (first, end) = (rows[0].position, rows[rows.len() - 1].position + 1);
            let table = self.tables.table(rows[0].seq);
            let whole = end.max(self.tables.written(rows[0].seq)) / PAGE;
            for &page in &table[(first / PAGE).min(whole)..end.div_ceil(PAGE).min(whole)] {
                let page = page as usize;
                let bytes = &pages[page * layout.bytes()..][..layout.bytes()];
                let keys = layout.keys(&self.kernels.kv, bytes, &mut scratch.page);
                (self.kernels.summarize)(keys, &mut summaries[page * width..][..width]);
            }
        }
    }

    /// Computes attention of some rows of one sequence, for the query heads that share a KV head. The
    /// view `out` is `[rows][group · head_dim]`.
    pub fn attend(
        &self,
        rows: Range<usize>,
        head: usize,
        pages: &[u8],
        summaries: &[f32],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        // Taken out of the scratch, because the kernel uses the rest of it.
        let mut queries = std::mem::take(&mut scratch.heads);
        let failed = self.queries(rows.clone(), head, &mut queries);
        let width = self.group() * self.spec.head_dim;
        self.read(rows.clone(), &queries[..rows.len() * width], pages, summaries, out, scratch);
        failed.into_iter().for_each(|row| out.row(row).fill(f32::NAN));
        scratch.heads = queries;
    }

    /// As [`attend`](Self::attend), to one part of the keys and without a page selection; see
    /// [`Kernels::attend_part`].
    pub fn attend_part(
        &self,
        rows: Range<usize>,
        (head, part): (usize, usize),
        pages: &[u8],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let mut queries = std::mem::take(&mut scratch.heads);
        let failed = self.queries(rows.clone(), head, &mut queries);
        let dim = self.spec.head_dim;
        let attention = Attention {
            queries: &queries[..rows.len() * self.group() * dim],
            scale: 1.0 / (dim as f32).sqrt(),
            layout: self.tables.layout(),
            pages,
            table: self.tables.table(self.batch.rows[rows.start].seq),
            ends: &self.batch.ends[rows],
        };
        self.kernels.attend_part(&attention, part, out, scratch);
        failed.into_iter().for_each(|row| out.row(row).fill(f32::NAN));
        scratch.heads = queries;
    }

    /// Number of query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.spec.heads / self.spec.kv_heads
    }

    /// Writes the queries of some rows that share a KV head, `[rows][group][head_dim]`. Returns the rows
    /// that have a query without usable scores, counted from the first of them.
    pub(super) fn queries(
        &self,
        rows: Range<usize>,
        head: usize,
        out: &mut AlignedVec<f32>,
    ) -> Vec<usize> {
        let (dim, group) = (self.spec.head_dim, self.group());
        let count = rows.len() * group;
        out.grow((count + 1) * dim);
        let (own, rest) = out.split_at_mut(count * dim);
        let plain = &mut rest[..dim];
        let mut failed = Vec::new();
        for (n, query) in own.chunks_exact_mut(dim).enumerate() {
            let (row, head) = (rows.start + n / group, head * group + n % group);
            let column = head * (self.spec.query_outputs() / self.spec.heads);
            self.copy(row, column, &self.weights.q, column, query);
            self.rotate(row, self.weights.q_norm.as_deref(), query, plain);
            let factor = self.spec.rope.query_factor(self.batch.rows[row].position);
            if factor != 1.0 {
                query.iter_mut().for_each(|x| *x *= factor);
            }
            if !(self.kernels.within)(query, LARGEST) {
                failed.push(n / group);
            }
        }
        failed
    }

    /// Computes attention of some rows over the pages that are selected for each. Neighboring rows with
    /// the same pages read them together.
    fn read(
        &self,
        rows: Range<usize>,
        queries: &[f32],
        pages: &[u8],
        summaries: &[f32],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let (dim, width) = (self.spec.head_dim, queries.len() / rows.len());
        let (scale, layout) = (1.0 / (dim as f32).sqrt(), self.tables.layout());
        let mut attend = |rows: Range<usize>, table: &[u32], ends: &[usize], s: &mut Scratch| {
            let queries = &queries[rows.start * width..rows.end * width];
            let attention = Attention { queries, scale, layout, pages, table, ends };
            self.kernels.attention(&attention, &mut out.lines(rows), s);
        };
        let (mut table, mut next) =
            (std::mem::take(&mut scratch.table), std::mem::take(&mut scratch.next_table));
        let (mut ends, mut read, mut seen) = (std::mem::take(&mut scratch.ends), 0, 0);
        ends.clear();
        for (i, row) in rows.clone().enumerate() {
            let BatchRow { seq, position, .. } = self.batch.rows[row];
            let (end, table_of) = (self.batch.ends[row], self.tables.table(seq));
            let queries = &queries[i * width..][..width];
            let query = QueryContext {
                position,
                end,
                table: table_of,
                head_dim: dim,
                queries,
                scale,
                summaries,
            };
            let visible = self.tables.selection().choose(self.kernels, &query, &mut next);
            (read, seen) = (read + visible.div_ceil(PAGE), seen + end.div_ceil(PAGE));
            if !ends.is_empty() && next != table {
                attend(i - ends.len()..i, &table, &ends, scratch);
                ends.clear();
            }
            std::mem::swap(&mut table, &mut next);
            ends.push(visible);
        }
        attend(rows.len() - ends.len()..rows.len(), &table, &ends, scratch);
        self.tables.count_reads(read, seen);
        (scratch.table, scratch.next_table, scratch.ends) = (table, next, ends);
    }

    /// Copies the head at `column` of row `i` from `qkv` and adds `linear`'s bias from its output
    /// `output` on.
    fn copy(&self, i: usize, column: usize, linear: &Linear, output: usize, out: &mut [f32]) {
        let dim = self.spec.head_dim;
        let width = self.queries + 2 * self.spec.kv_heads * dim;
        out.copy_from_slice(&self.qkv[i * width + column..][..dim]);
        if let Some(bias) = &linear.bias {
            (self.kernels.add)(out, &bias[output..][..dim]);
        }
    }

    /// Applies the norm, if the model has one, and RoPE at row `i`'s position, in the model's order.
    /// `plain` is a buffer for one head.
    fn rotate(&self, i: usize, norm: Option<&[f32]>, head: &mut [f32], plain: &mut [f32]) {
        let (half, norm_last) = (self.spec.rotary_dim() / 2, self.spec.norms_after_rope());
        let mut normalize = |head: &mut [f32]| {
            if let Some(norm) = norm {
                plain.copy_from_slice(head);
                (self.kernels.rms_norm)(plain, norm, self.spec.norm_eps, head);
            }
        };
        if !norm_last {
            normalize(head);
        }
        let (cos, sin) = (&self.cos[i * half..][..half], &self.sin[i * half..][..half]);
        (self.kernels.rope)(&mut head[..2 * half], cos, sin);
        if norm_last {
            normalize(head);
        }
    }
}
