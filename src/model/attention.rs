//! Attention layers in a pass: projections, keys and values, attention, gate.

use super::forward::Pass;
use super::heads::Heads;
use super::heads_in_parts::KeyParts;
use super::inputs::Fill;
use super::profile::Phase;
use super::{Model, Workspace};
use crate::cache::LayerPages;
use crate::format::{AttentionWeights, LowRank};
use crate::kernel::Kernels;
use crate::par::Chunks;

impl Pass<'_, '_> {
    /// Computes y = o(attention(q, k, v)) and writes keys and values to their pages. A row sees the positions
    /// of a `window` up to its own, if there is one. In the `last` layer, rows without logits are dropped once
    /// their keys and values are written.
    pub fn attention(
        &mut self,
        weights: &AttentionWeights,
        mut pages: LayerPages<'_>,
        window: Option<usize>,
        last: bool,
    ) {
        self.keys_and_values(weights, &mut pages);
        if last {
            self.narrow();
        }
        if !self.ws.batch.rows.is_empty() {
            self.attend(weights, &pages, window);
            self.attention_output(weights);
        }
    }

    /// Computes queries, keys and values, and writes keys and values to their pages.
    fn keys_and_values(&mut self, weights: &AttentionWeights, kept: &mut LayerPages<'_>) {
        let queries = self.model.spec.query_outputs();
        let Self { exec, ws, .. } = self;
        ws.inputs.product(exec, &[&weights.q, &weights.k, &weights.v], &mut ws.qkv);
        exec.profile.lap(Phase::Qkv);
        self.write_keys(weights, kept, queries);
    }

    /// Writes keys and values of all rows to their pages. In `qkv` they come after `queries` columns.
    pub(super) fn write_keys(
        &mut self,
        weights: &AttentionWeights,
        kept: &mut LayerPages<'_>,
        queries: usize,
    ) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, cos, sin, qkv, .. } = &mut **ws;
        let spec = &model.spec;
        let LayerPages { pages, summaries, tables } = kept;
        let (tables, kernels) = (*tables, exec.kernels);
        let heads = Heads { spec, kernels, weights, tables, batch, queries, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let chunks = (Chunks::new(pages, bytes), Chunks::new(summaries, floats));
        // The same worker attends to this head afterwards, so the pages are in its cache.
        exec.scope.chunks(spec.kv_heads, true, chunks, |head, (pages, summaries), scratch| {
            heads.write(head, pages, summaries, scratch);
        });
        exec.profile.lap(Phase::Cache);
    }

    /// Drops the rows without logits; the last layer needs only their keys and values.
    fn narrow(&mut self) {
        let Workspace { batch, cos, sin, x, qkv, spare, .. } = &mut *self.ws;
        if !batch.needs_narrowing() {
            return;
        }
        let spec = &self.model.spec;
        let (half, width) = (spec.rotary_dim() / 2, Model::qkv_width(spec));
        for (buffer, width) in [(x, spec.hidden_size), (qkv, width), (cos, half), (sin, half)] {
            batch.gather(buffer, width, spare);
        }
        batch.narrow();
    }

    /// Computes attention of all rows.
    fn attend(&mut self, weights: &AttentionWeights, kept: &LayerPages<'_>, window: Option<usize>) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, cos, sin, qkv, attn_out, attn_parts, part_bounds, .. } = &mut **ws;
        let (rows, spec, kernels) = (batch.rows.len(), &model.spec, exec.kernels);
        let LayerPages { pages, summaries, tables } = kept;
        let (tables, queries) = (*tables, spec.query_outputs());
        let heads = Heads { spec, kernels, weights, tables, batch, queries, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let width = spec.heads * spec.head_dim;
        attn_out.grow(rows * width);
        let out = &mut attn_out[..rows * width];
        let columns = (0..=width).step_by(width / spec.kv_heads);
        if window.is_none() && heads.need_parts(exec.scope.workers()) {
            let mut parts = KeyParts { all: attn_parts, bounds: part_bounds };
            parts.attend(exec.scope, &heads, pages);
            exec.scope.tiles(out, width, &batch.bounds, columns, |(i, head), mut out, scratch| {
                parts.merge(&heads, batch.bounds[i]..batch.bounds[i + 1], head, &mut out, scratch);
            });
            return exec.profile.lap(Phase::Attention);
        }
        exec.scope.tiles(out, width, &batch.bounds, columns, |(i, head), mut out, scratch| {
            let rows = batch.bounds[i]..batch.bounds[i + 1];
            let pages = &pages[head * bytes..][..bytes];
            let summaries = &summaries[head * floats..][..floats];
            match window.filter(|&window| heads.hides_keys(rows.clone(), window)) {
                Some(window) => {
                    heads.attend_in_window(rows, head, window, pages, &mut out, scratch)
                }
                None => heads.attend(rows, head, pages, summaries, &mut out, scratch),
            }
        });
        exec.profile.lap(Phase::Attention);
    }

    /// Computes y = o(norm(σ(gate) ⊙ attention)), without gate and norm where the model has none.
    fn attention_output(&mut self, weights: &AttentionWeights) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, qkv, attn_out, y, .. } = &mut **ws;
        let (rows, spec, kernels) = (batch.rows.len(), &model.spec, exec.kernels);
        let width = spec.heads * spec.head_dim;
        let source = (Chunks::new(attn_out, width), Chunks::new(qkv, Model::qkv_width(spec)));
        let fill = Fill { phase: Phase::Norm, rows, width, readers: &[&weights.o] };
        inputs.fill(exec, &fill, source, |_, out, (attn_out, qkv)| {
            if spec.attention_gate {
                gate(kernels, weights, spec.head_dim, qkv, attn_out);
            }
            match &weights.sub_norm {
                Some(norm) => (kernels.rms_norm)(attn_out, norm, spec.norm_eps, out),
                None => out.copy_from_slice(attn_out),
            }
        });
        inputs.product(exec, &[&weights.o], y);
        if let Some(adapter) = &weights.draft_adapter {
            self.adapt_drafts(adapter);
        }
        self.exec.profile.lap(Phase::Output);
    }

    /// Adds the adapter's product to the outputs of the rows of drafts. The other rows of the pass are
    /// computed too, because a pass rarely has both.
    fn adapt_drafts(&mut self, adapter: &LowRank) {
        let Self { exec, ws, .. } = self;
        let Workspace { batch, inputs, gate_up: low, spare: change, y, .. } = &mut **ws;
        if !batch.rows.iter().any(|row| row.drafts) {
            return;
        }
        let LowRank { down, up } = adapter;
        let (rows, rank, hidden) = (batch.rows.len(), up.weight.cols(), up.weight.rows());
        inputs.product(exec, &[down], low);
        let fill = Fill { phase: Phase::Output, rows, width: rank, readers: &[up] };
        inputs.fill(exec, &fill, Chunks::new(low, rank), |_, out, low| out.copy_from_slice(low));
        inputs.product(exec, &[up], change);
        let outputs = y.chunks_exact_mut(hidden).zip(change.chunks_exact(hidden));
        for ((y, change), _) in outputs.zip(&batch.rows).filter(|(_, row)| row.drafts) {
            (exec.kernels.add)(y, change);
        }
    }
}

/// Multiplies each head's output of one row with σ(gate). The gates stand after each head's query.
fn gate(kernels: &Kernels, weights: &AttentionWeights, dim: usize, q: &mut [f32], out: &mut [f32]) {
    for (head, out) in out.chunks_exact_mut(dim).enumerate() {
        let columns = (2 * head + 1) * dim..2 * (head + 1) * dim;
        let gate = &mut q[columns.clone()];
        if let Some(bias) = &weights.q.bias {
            (kernels.add)(gate, &bias[columns]);
        }
        (kernels.sigmoid_mul)(gate, out);
        out.copy_from_slice(gate);
    }
}
