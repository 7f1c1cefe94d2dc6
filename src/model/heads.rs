//! Per-head work between the q, k, v products and the output projection: biases, q and k norms,
//! RoPE, the cache, attention.

use super::batch::Batch;
use crate::cache::{self, Tables};
use crate::format::{LayerWeights, Linear, Spec};
use crate::kernel::{Attention, Kernels};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// One layer's heads for all rows of a batch.
pub(super) struct Heads<'a> {
    pub spec: &'a Spec,
    pub k: &'a Kernels,
    pub layer: &'a LayerWeights,
    pub tables: Tables<'a>,
    pub batch: &'a Batch,
    /// `[rows][(heads + 2 · kv_heads) · head_dim]`.
    pub qkv: &'a [f32],
    /// `[rows][head_dim / 2]`.
    pub cos: &'a [f32],
    pub sin: &'a [f32],
}

impl Heads<'_> {
    /// Writes the keys and values of all rows of one KV head to its pages.
    pub fn write(&self, head: usize, pages: &mut [f32], scratch: &mut Scratch) {
        let dim = self.spec.head_dim;
        let keys = self.spec.heads + head;
        let values = keys + self.spec.kv_heads;
        scratch.heads.grow(2 * dim);
        let (key, value) = scratch.heads[..2 * dim].split_at_mut(dim);
        for (i, row) in self.batch.rows.iter().enumerate() {
            self.copy(i, keys, &self.layer.k, head, key);
            self.rotate(i, self.layer.k_norm.as_deref(), key);
            self.copy(i, values, &self.layer.v, head, value);
            cache::write(pages, self.tables.get(row.seq), row.position, key, value);
        }
    }

    /// Attention of some rows of one sequence with the queries that share a KV head; the view
    /// `out` holds these rows and queries, `[rows][group · head_dim]`.
    pub fn attend(
        &self,
        rows: Range<usize>,
        head: usize,
        pages: &[f32],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let dim = self.spec.head_dim;
        let group = self.spec.heads / self.spec.kv_heads;
        let count = rows.len() * group;
        // Taken out of the scratch while the kernel uses the rest of it.
        let mut queries: AlignedVec<f32> = std::mem::take(&mut scratch.heads);
        queries.grow(count * dim);
        for (n, query) in queries.chunks_exact_mut(dim).take(count).enumerate() {
            let (row, head) = (rows.start + n / group, head * group + n % group);
            self.copy(row, head, &self.layer.q, head, query);
            self.rotate(row, self.layer.q_norm.as_deref(), query);
        }
        let attention = Attention {
            queries: &queries[..count * dim],
            head_dim: dim,
            scale: 1.0 / (dim as f32).sqrt(),
            pages,
            table: self.tables.get(self.batch.rows[rows.start].seq),
            ends: &self.batch.ends[rows],
        };
        (self.k.attend)(&attention, out, scratch);
        scratch.heads = queries;
    }

    /// Copies head `column` of row `i`'s products and adds the bias, of which it is head `head`.
    fn copy(&self, i: usize, column: usize, linear: &Linear, head: usize, out: &mut [f32]) {
        let dim = self.spec.head_dim;
        let width = (self.spec.heads + 2 * self.spec.kv_heads) * dim;
        out.copy_from_slice(&self.qkv[i * width + column * dim..][..dim]);
        if let Some(bias) = &linear.bias {
            (self.k.add)(out, &bias[head * dim..(head + 1) * dim]);
        }
    }

    /// Norm, where the model has one, and rotation to row `i`'s position.
    fn rotate(&self, i: usize, norm: Option<&[f32]>, head: &mut [f32]) {
        let half = head.len() / 2;
        if let Some(norm) = norm {
            let plain = head.to_vec();
            (self.k.rms_norm)(&plain, norm, self.spec.norm_eps, head);
        }
        (self.k.rope)(head, &self.cos[i * half..][..half], &self.sin[i * half..][..half]);
    }
}
