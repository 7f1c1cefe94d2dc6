//! Linear-attention layers in a pass: Gated DeltaNet over the recurrent states of all sequences.

use super::Workspace;
use super::batch::Batch;
use super::forward::Pass;
use super::inputs::Fill;
use super::profile::Phase;
use crate::cache::{LayerStates, PAGE, delta_shape};
use crate::format::{LinearAttention, LinearAttentionWeights};
use crate::kernel::{DeltaRows, Kernels};
use crate::mem::AlignedVec;
use crate::par::{Chunks, Columns, Scratch};
use std::ops::Range;

impl LinearAttention {
    /// Returns the columns of the convolution's channels that a key head reads, each with the column
    /// that the kernel has them at: query, key, then the value heads.
    fn channels_of(&self, key_head: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let shape = delta_shape(self);
        let (keys, width) = (self.key_width(), shape.key_width());
        let part = move |from: usize, len: usize, to: usize| (from..from + len, to);
        let query = part(key_head * self.key_dim, self.key_dim, 0);
        let key = part(keys + key_head * self.key_dim, self.key_dim, width);
        let values = (0..shape.values).map(move |n| {
            let from = 2 * keys + self.value_head(key_head, n) * self.value_dim;
            part(from, self.value_dim, 2 * width + n * shape.value_width())
        });
        [query, key].into_iter().chain(values)
    }

    /// Number of columns of a row of projections: channels, gates, decays and update rates.
    pub(super) fn projected_width(&self) -> usize {
        self.channels() + self.value_width() + 2 * self.value_heads
    }
}

/// Rearranges a convolution's weights, `[channels][taps]`, as the kernel reads them:
/// `[key_heads][taps][channels of a key head]`.
pub(super) fn arrange_conv(shape: &LinearAttention, conv: &[f32]) -> Vec<f32> {
    let delta = delta_shape(shape);
    let (taps, width) = (delta.taps, delta.channels());
    let mut arranged = vec![0.0; shape.key_heads * taps * width];
    for (head, arranged) in arranged.chunks_exact_mut(taps * width).enumerate() {
        for (from, to) in shape.channels_of(head) {
            for (channel, to) in from.zip(to..) {
                for tap in 0..taps {
                    arranged[tap * width + to] = conv[channel * taps + tap];
                }
            }
        }
    }
    arranged
}

impl Pass<'_, '_> {
    /// Computes y = out(norm(o) ⊙ SiLU(z)) and updates the states. In the `last` layer, rows without
    /// logits are dropped once they are in the states.
    pub fn linear_attention(
        &mut self,
        weights: &LinearAttentionWeights,
        conv: &[f32],
        states: LayerStates<'_>,
        last: bool,
    ) {
        let LinearAttentionWeights { qkv, z, alpha, beta, .. } = weights;
        self.ws.inputs.product(&mut self.exec, &[qkv, z, alpha, beta], &mut self.ws.qkv);
        self.exec.profile.lap(Phase::Qkv);
        self.update_states(weights, conv, states);
        if last {
            self.narrow_linear();
        }
        if !self.ws.batch.rows.is_empty() {
            self.linear_output(weights);
        }
    }

    /// Computes the heads' outputs of all rows, and updates the states.
    fn update_states(
        &mut self,
        weights: &LinearAttentionWeights,
        conv: &[f32],
        states: LayerStates<'_>,
    ) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, qkv, attn_out, .. } = &mut **ws;
        let Some(shape) = &model.spec.linear_attention else { return };
        let (rows, heads) = (batch.rows.len(), shape.key_heads);
        let width = shape.value_width() / heads;
        attn_out.grow(rows * shape.value_width());
        let LayerStates { states, slots, tables } = states;
        let floats = states.len() / heads;
        let delta = DeltaHeads { shape, kernels: exec.kernels, weights, conv, batch, rows: qkv };
        // The same worker updates a head's states in every pass, so they are in its cache.
        let chunks = (Chunks::new(states, floats), Chunks::new(attn_out, rows * width));
        exec.scope.chunks(heads, true, chunks, |head, (states, out), scratch| {
            let mut out = Columns::whole(out, width);
            let mut first = 0;
            for span in batch.rows.chunk_by(|a, b| a.seq == b.seq) {
                let slot = tables.slot(span[0].seq);
                let state = &mut states[slot * (floats / slots)..][..floats / slots];
                let rows = first..first + span.len();
                delta.run(head, rows.clone(), state, &mut out.lines(rows), scratch);
                first += span.len();
            }
        });
        exec.profile.lap(Phase::States);
    }

    /// Drops the rows without logits.
    fn narrow_linear(&mut self) {
        let Workspace { batch, x, qkv, spare, .. } = &mut *self.ws;
        let Some(shape) = &self.model.spec.linear_attention else { return };
        if !batch.needs_narrowing() {
            return;
        }
        batch.gather(x, self.model.spec.hidden_size, spare);
        batch.gather(qkv, shape.projected_width(), spare);
        batch.narrow();
    }

    /// Computes y = out(norm(o) ⊙ SiLU(z)).
    fn linear_output(&mut self, weights: &LinearAttentionWeights) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, qkv, attn_out, y, .. } = &mut **ws;
        let Some(shape) = &model.spec.linear_attention else { return };
        let (rows, width, kernels) = (batch.rows.len(), shape.value_width(), exec.kernels);
        let (dim, values, eps) = (shape.value_dim, shape.values_per_key(), model.spec.norm_eps);
        let (all_rows, attn_out) = (batch.all_rows, &*attn_out);
        let source = Chunks::new(qkv, shape.projected_width());
        let fill = Fill { phase: Phase::Norm, rows, width, readers: &[&weights.out] };
        let grouped = shape.output_is_grouped(weights.out.rotation.is_some());
        inputs.fill(exec, &fill, source, |i, out, row| {
            let z = &mut row[shape.channels()..][..width];
            let row = batch.row_before_narrowing(i);
            for (at, out) in out.chunks_exact_mut(dim).enumerate() {
                let (key_head, n) = output_head(shape, grouped, at);
                let head = (key_head * all_rows + row) * values + n;
                let z = &mut z[shape.value_head(key_head, n) * dim..][..dim];
                out.copy_from_slice(z);
                (kernels.rms_norm)(&attn_out[head * dim..][..dim], &weights.norm, eps, z);
                (kernels.silu_mul)(out, z);
            }
        });
        inputs.product(exec, &[&weights.out], y);
        exec.profile.lap(Phase::Output);
    }
}

/// Returns the key head of the value head that the output projection reads at place `at`, and the value
/// head's number among those of the key head.
fn output_head(shape: &LinearAttention, grouped: bool, at: usize) -> (usize, usize) {
    if grouped {
        (at / shape.values_per_key(), at % shape.values_per_key())
    } else {
        (at % shape.key_heads, at / shape.key_heads)
    }
}

/// The key heads of one layer, and the rows of a pass.
struct DeltaHeads<'a> {
    shape: &'a LinearAttention,
    kernels: &'a Kernels,
    weights: &'a LinearAttentionWeights,
    /// See [`arrange_conv`].
    conv: &'a [f32],
    batch: &'a Batch,
    /// `[rows][projected_width]`.
    rows: &'a [f32],
}

impl DeltaHeads<'_> {
    /// Computes one key head's outputs of some rows of one sequence, a chunk at a time.
    fn run(
        &self,
        head: usize,
        rows: Range<usize>,
        state: &mut [f32],
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let shape = delta_shape(self.shape);
        let conv = &self.conv[head * shape.taps * shape.channels()..];
        let conv = &conv[..shape.taps * shape.channels()];
        // Taken out of the scratch, because the kernel uses the rest of it.
        let mut buffer: AlignedVec<f32> = std::mem::take(&mut scratch.heads);
        buffer.grow(PAGE * (shape.channels() + 2 * shape.values));
        let mut first = rows.start;
        while first < rows.end {
            let position = self.batch.rows[first].position;
            let end = rows.end.min(first + PAGE - position % PAGE);
            let (inputs, rest) = buffer.split_at_mut((end - first) * shape.channels());
            let (decays, rest) = rest.split_at_mut((end - first) * shape.values);
            let betas = &mut rest[..(end - first) * shape.values];
            for row in first..end {
                let i = row - first;
                self.gather(head, row, &mut inputs[i * shape.channels()..][..shape.channels()]);
                let of_row = i * shape.values..(i + 1) * shape.values;
                self.rates(head, row, &mut decays[of_row.clone()], &mut betas[of_row]);
            }
            let delta = DeltaRows { shape, position, conv, inputs, decays, betas };
            let lines = first - rows.start..end - rows.start;
            (self.kernels.delta)(&delta, state, &mut out.lines(lines), scratch);
            first = end;
        }
        scratch.heads = buffer;
    }

    /// Copies a row's query, key and values to the columns where the kernel has them.
    fn gather(&self, head: usize, row: usize, out: &mut [f32]) {
        let projected = &self.rows[row * self.shape.projected_width()..];
        out.fill(0.0);
        for (from, to) in self.shape.channels_of(head) {
            out[to..][..from.len()].copy_from_slice(&projected[from]);
        }
    }

    /// Computes the logarithms of a row's decays, −exp(A_log) · softplus(α + bias), and its update
    /// rates σ(β), for each value head of a key head.
    fn rates(&self, head: usize, row: usize, decays: &mut [f32], betas: &mut [f32]) {
        let shape = self.shape;
        let width = shape.projected_width();
        let rates = &self.rows[(row + 1) * width - 2 * shape.value_heads..(row + 1) * width];
        let (alphas, raw_betas) = rates.split_at(shape.value_heads);
        for (n, (decay, beta)) in decays.iter_mut().zip(betas).enumerate() {
            let value = shape.value_head(head, n);
            *decay = self.weights.a[value] * softplus(alphas[value] + self.weights.dt_bias[value]);
            *beta = 1.0 / (1.0 + libm::expf(-raw_betas[value]));
        }
    }
}

/// Computes ln(1 + eˣ).
fn softplus(x: f32) -> f32 {
    // From here on 1 + eˣ is eˣ in f32.
    const LARGE: f32 = 20.0;
    if x > LARGE { x } else { libm::log1pf(libm::expf(x)) }
}
