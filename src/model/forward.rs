//! The forward pass, over any mix of prompts, decoding rows and drafts. A row's result does not depend
//! on the other rows of the batch, on how a prompt is split, or on the number of threads.

use super::batch::{Batch, Span};
use super::heads::Heads;
use super::inputs::Exec;
use super::profile::Phase;
use super::{Model, Runtime, SparsityRule, Workspace};
use crate::batch_types::{Logits, Output};
use crate::cache::{KvPool, LayerPages};
use crate::format::{Activation, AttentionWeights, LayerWeights, Linear, Mixer, Spec};
use crate::kernel::{Kernels, PAGE};
use crate::par::{Bound, Chunks};

/// Bytes of weights × rows from which a pass uses more than one worker: about 300 µs of work. Below
/// that, synchronizing a small model's many steps costs more than a second core gains.
const WORTH_BYTES: usize = 24 << 20;
/// Number of rows from which arithmetic bounds a pass rather than memory: a processor can multiply a
/// weight about eight times in the time that reading it takes.
const MANY_ROWS: usize = 8;
/// Largest number of rows that attend together.
const MAX_GROUP: usize = 8;
/// Largest number of attention scores of such a group.
const MAX_SCORES: usize = 64 << 10;
/// Parts of the attention for each worker.
const PARTS: usize = 4;

impl Model {
    /// Runs one pass over a batch: writes keys and values to the cache, and returns the requested
    /// logits, `[rows][vocab_size]`. Written positions become final with [`KvPool::commit`].
    ///
    /// # Panics
    /// When a span is invalid: see the fields of [`Span`].
    pub fn forward<'w>(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        ws: &'w mut Workspace,
    ) -> Logits<'w> {
        self.compute(rt, kv, spans, ws, Output::Logits)
    }

    /// As [`forward`](Self::forward), but returns logits or final hidden states
    /// (`[rows][hidden_size]`), as `output` says.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn compute<'w>(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        ws: &'w mut Workspace,
        output: Output,
    ) -> Logits<'w> {
        let vocab = self.spec.vocab_size;
        let bound = self.bound(spans.iter().map(|span| span.tokens.len()).sum());
        ws.batch.fill(spans, kv, vocab, self.group_size(spans, rt.thread_pool.workers(bound)));
        rt.thread_pool.run(bound, |scope| {
            let exec = Exec { scope, kernels: &rt.kernels };
            let mut pass = Pass { model: self, exec, ws };
            pass.ws.profile.begin();
            pass.embed();
            let mut before = None;
            for (i, layer) in self.weights.layers.iter().enumerate() {
                let Mixer::Attention(weights) = &layer.mixer else { unreachable!("checked") };
                pass.mixer_inputs(layer, before);
                pass.keys_and_values(weights, kv.layer(i));
                if i + 1 == self.weights.layers.len() {
                    pass.narrow();
                }
                if !pass.ws.batch.rows.is_empty() {
                    pass.attention(weights, kv.layer(i));
                    pass.feed_forward(layer);
                }
                before = Some(layer);
            }
            match output {
                _ if pass.ws.batch.rows.is_empty() => {}
                Output::Logits => pass.logits(),
                Output::Hidden => pass.final_norm(&[]),
            }
        });
        for span in spans {
            kv.mark_written(span.seq, span.end());
        }
        let (values, width) = match output {
            Output::Logits => (&ws.logits, vocab),
            Output::Hidden => (ws.inputs.floats(), self.spec.hidden_size),
        };
        Logits::new(&values[..ws.batch.wanted.len() * width], width)
    }

    /// The resource that bounds a pass of this many rows.
    fn bound(&self, rows: usize) -> Bound {
        match rows {
            _ if self.bytes_per_token() * rows < WORTH_BYTES => Bound::Small,
            ..MANY_ROWS => Bound::Memory,
            _ => Bound::Arithmetic,
        }
    }

    /// Number of a sequence's rows that attend together. More rows share each page that is read; fewer
    /// leave several parts for every worker, and their scores in the processor's cache.
    fn group_size(&self, spans: &[Span<'_>], workers: usize) -> usize {
        let Spec { heads, kv_heads, .. } = self.spec;
        let rows: usize = spans.iter().map(|s| s.tokens.len()).sum();
        let keys = spans.iter().map(Span::end).max().unwrap_or(1).next_multiple_of(PAGE);
        let shared = rows * kv_heads / (workers * PARTS);
        let fitting = MAX_SCORES / (keys * (heads / kv_heads));
        MAX_GROUP.min(shared).min(fitting).max(1)
    }
}

/// A running pass.
struct Pass<'p, 'c> {
    model: &'p Model,
    exec: Exec<'p, 'c>,
    ws: &'p mut Workspace,
}

impl Pass<'_, '_> {
    /// Looks up token embeddings and computes the angles of each row's position.
    fn embed(&mut self) {
        let Workspace { batch: Batch { rows, .. }, x, cos, sin, .. } = &mut *self.ws;
        let (model, hidden, half) =
            (self.model, self.model.spec.hidden_size, self.model.spec.head_dim / 2);
        x.grow(rows.len() * hidden);
        cos.grow(rows.len() * half);
        sin.grow(rows.len() * half);
        let angles = (Chunks::new(cos, half), Chunks::new(sin, half));
        let chunks = (Chunks::new(x, hidden), angles);
        self.exec.scope.chunks(rows.len(), true, chunks, |i, (x, (cos, sin)), _| {
            model.weights.embed.row_f32(rows[i].token as usize, x);
            model.frequencies.angles(rows[i].position, cos, sin);
        });
        self.ws.profile.lap(Phase::Embed);
    }

    /// Computes the inputs of a layer's mixer: x += y of the layer `before`, then norm(x).
    fn mixer_inputs(&mut self, layer: &LayerWeights, before: Option<&LayerWeights>) {
        self.ws.inputs.rule = self.model.sparsity.rule_except_down();
        let readers = layer.mixer.linears();
        let readers = &readers[..readers.len() - 1];
        match before {
            Some(before) => self.add_and_norm(&before.down, &layer.mixer_norm, readers),
            None => self.norm(&layer.mixer_norm, readers),
        }
    }

    /// Computes queries, keys and values, and writes keys and values to their pages.
    fn keys_and_values(&mut self, weights: &AttentionWeights, kept: LayerPages<'_>) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, cos, sin, inputs, qkv, profile, .. } = &mut **ws;
        let spec = &model.spec;
        inputs.product(exec, &[&weights.q, &weights.k, &weights.v], qkv);
        profile.lap(Phase::Qkv);
        let LayerPages { pages, summaries, tables } = kept;
        let heads = Heads { spec, kernels: exec.kernels, weights, tables, batch, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let chunks = (Chunks::new(pages, bytes), Chunks::new(summaries, floats));
        // The same worker attends to this head afterwards, so the pages are in its cache.
        exec.scope.chunks(spec.kv_heads, true, chunks, |head, (pages, summaries), scratch| {
            heads.write(head, pages, summaries, scratch);
        });
        profile.lap(Phase::Cache);
    }

    /// Drops the rows without logits; the last layer needs only their keys and values.
    fn narrow(&mut self) {
        let Workspace { batch, cos, sin, x, qkv, spare, .. } = &mut *self.ws;
        if !batch.needs_narrowing() {
            return;
        }
        let spec = &self.model.spec;
        let (half, heads) = (spec.head_dim / 2, spec.heads + 2 * spec.kv_heads);
        let buffers =
            [(x, spec.hidden_size), (qkv, heads * spec.head_dim), (cos, half), (sin, half)];
        for (buffer, width) in buffers {
            spare.grow(batch.wanted.len() * width);
            for (to, &row) in spare.chunks_exact_mut(width).zip(&batch.wanted) {
                to.copy_from_slice(&buffer[row * width..(row + 1) * width]);
            }
            std::mem::swap(buffer, spare);
        }
        batch.narrow();
    }

    /// Computes y = o(attention(q, k, v)).
    fn attention(&mut self, weights: &AttentionWeights, kept: LayerPages<'_>) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, cos, sin, inputs, qkv, attn_out, y, profile, .. } = &mut **ws;
        let (rows, spec, kernels) = (batch.rows.len(), &model.spec, exec.kernels);
        let LayerPages { pages, summaries, tables } = kept;
        let heads = Heads { spec, kernels, weights, tables, batch, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let width = spec.heads * spec.head_dim;
        attn_out.grow(rows * width);
        let out = &mut attn_out[..rows * width];
        let columns = (0..=width).step_by(width / spec.kv_heads);
        exec.scope.tiles(out, width, &batch.bounds, columns, |(i, head), mut out, scratch| {
            let rows = batch.bounds[i]..batch.bounds[i + 1];
            let pages = &pages[head * bytes..][..bytes];
            let summaries = &summaries[head * floats..][..floats];
            heads.attend(rows, head, pages, summaries, &mut out, scratch);
        });
        profile.lap(Phase::Attention);

        let source = Chunks::new(attn_out, width);
        inputs.fill(exec, rows, width, &[&weights.o], source, |_, out, attn_out| {
            match &weights.sub_norm {
                Some(norm) => (kernels.rms_norm)(attn_out, norm, spec.norm_eps, out),
                None => out.copy_from_slice(attn_out),
            }
        });
        profile.lap(Phase::Norm);
        inputs.product(exec, &[&weights.o], y);
        profile.lap(Phase::Output);
    }

    /// Computes x += y; y = down(act(gate(norm(x))) · up(norm(x))).
    fn feed_forward(&mut self, layer: &LayerWeights) {
        let readers = [&layer.gate, &layer.up];
        self.add_and_norm(layer.mixer.output(), &layer.ffn_norm, &readers);

        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, gate_up, y, profile, .. } = &mut **ws;
        let (spec, width, rows) = (&model.spec, model.spec.intermediate_size, batch.rows.len());
        let kernels = exec.kernels;
        inputs.product(exec, &readers, gate_up);
        profile.lap(Phase::GateUp);
        inputs.rule = model.sparsity.rule;
        let source = Chunks::new(gate_up, 2 * width);
        inputs.fill(exec, rows, width, &[&layer.down], source, |_, out, gate_up| {
            let (gate, up) = gate_up.split_at_mut(width);
            add_bias(kernels, gate, &layer.gate);
            add_bias(kernels, up, &layer.up);
            match spec.activation {
                Activation::Silu => (kernels.silu_mul)(gate, up),
                Activation::Relu2 => (kernels.relu2_mul)(gate, up),
            }
            match &layer.ffn_sub_norm {
                Some(norm) => (kernels.rms_norm)(gate, norm, spec.norm_eps, out),
                None => out.copy_from_slice(gate),
            }
        });
        profile.lap(Phase::Activation);
        inputs.product(exec, &[&layer.down], y);
        profile.lap(Phase::Down);
    }

    /// Computes the final norm of the remaining rows as the input of `readers`, without sparsity.
    fn final_norm(&mut self, readers: &[&Linear]) {
        self.ws.inputs.rule = SparsityRule::Off;
        let model = self.model;
        let last = model.weights.layers.last().expect("a model has layers");
        self.add_and_norm(&last.down, &model.weights.final_norm, readers);
    }

    /// Computes the logits of the remaining rows.
    fn logits(&mut self) {
        let (model, head) = (self.model, &self.model.head);
        self.final_norm(&[head]);
        let Self { exec, ws, .. } = self;
        let Workspace { batch, inputs, logits, screen, .. } = &mut **ws;
        if model.screened {
            inputs.upper_product(exec, head, logits);
        } else {
            inputs.product(exec, &[head], logits);
        }
        let logits = &mut logits[..batch.rows.len() * model.spec.vocab_size];
        for row in logits.chunks_exact_mut(model.spec.vocab_size) {
            add_bias(exec.kernels, row, head);
        }
        if model.screened {
            screen.refine(exec, inputs, head, logits);
        }
        self.ws.profile.lap(Phase::Head);
    }

    /// Computes norm(x) as the input of `readers`.
    fn norm(&mut self, norm: &[f32], readers: &[&Linear]) {
        let Self { model, exec, ws } = self;
        let (hidden, eps, kernels) = (model.spec.hidden_size, model.spec.norm_eps, exec.kernels);
        let source = Chunks::new(&mut ws.x, hidden);
        ws.inputs.fill(exec, ws.batch.rows.len(), hidden, readers, source, |_, out, x| {
            (kernels.rms_norm)(x, norm, eps, out);
        });
        ws.profile.lap(Phase::Norm);
    }

    /// Computes x += y and the bias of `from`, whose product y is; then norm(x) as the input of
    /// `readers`.
    fn add_and_norm(&mut self, from: &Linear, norm: &[f32], readers: &[&Linear]) {
        let Self { model, exec, ws } = self;
        let (hidden, eps, kernels) = (model.spec.hidden_size, model.spec.norm_eps, exec.kernels);
        let source = (Chunks::new(&mut ws.x, hidden), Chunks::new(&mut ws.y, hidden));
        ws.inputs.fill(exec, ws.batch.rows.len(), hidden, readers, source, |_, out, (x, y)| {
            (kernels.add)(x, y);
            add_bias(kernels, x, from);
            (kernels.rms_norm)(x, norm, eps, out);
        });
        ws.profile.lap(Phase::Norm);
    }
}

/// Adds the bias of `linear`, if it has one, to x.
fn add_bias(kernels: &Kernels, x: &mut [f32], linear: &Linear) {
    if let Some(bias) = &linear.bias {
        (kernels.add)(x, bias);
    }
}
