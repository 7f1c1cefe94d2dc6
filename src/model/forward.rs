//! The one forward pass: any mix of prompts, decoding and drafts, row by row the same result
//! whatever stands beside it in the batch, however a prompt is cut, and on any number of threads.

use super::batch::{Batch, Span};
use super::heads::Heads;
use super::profile::Phase;
use super::{Model, Rule, Runtime, Workspace};
use crate::batch_types::{Logits, Output};
use crate::cache::{KvPool, LayerPages};
use crate::format::{Activation, LayerWeights, Linear, Spec};
use crate::kernel::{Kernels, PAGE};
use crate::par::{Bound, Chunks, PoolScope};

/// Bytes of weights × rows from which a pass is worth the helpers: some 300 µs of work. Below, the
/// hand-overs of a small model's many steps cost more than a second core gives.
const WORTH_BYTES: usize = 24 << 20;
/// Rows from which arithmetic bounds a pass rather than memory: a processor that reads a weight can
/// multiply it some eight times meanwhile.
const MANY_ROWS: usize = 8;
/// Rows that attend together at most, and scores that they make at most.
const TOGETHER: usize = 8;
const SCORES: usize = 64 << 10;
/// Parts of the attention for each worker.
const PARTS: usize = 4;

impl Model {
    /// One pass over a batch: writes keys and values, returns the logits that were asked for. What
    /// is written becomes final with [`KvPool::commit`].
    ///
    /// # Panics
    /// When a span asks for what cannot be: see the fields of [`Span`].
    pub fn forward<'w>(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        ws: &'w mut Workspace,
    ) -> Logits<'w> {
        self.compute(rt, kv, spans, ws, Output::Logits)
    }

    /// As [`forward`](Self::forward), with hidden states or logits for the rows that are asked for.
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
        ws.batch.fill(spans, kv, vocab, self.together(spans, rt.thread_pool.workers(bound)));
        rt.thread_pool.run(bound, |scope| {
            let mut pass = Pass { model: self, k: &rt.kernels, scope, ws };
            pass.ws.profile.begin();
            pass.embed();
            let mut before = None;
            for (i, layer) in self.weights.layers.iter().enumerate() {
                pass.enter(layer, before);
                pass.keys_and_values(layer, kv.layer(i));
                if i + 1 == self.weights.layers.len() {
                    pass.narrow();
                }
                if !pass.ws.batch.rows.is_empty() {
                    pass.attention(layer, kv.layer(i));
                    pass.feed_forward(layer);
                }
                before = Some(layer);
            }
            match output {
                _ if pass.ws.batch.rows.is_empty() => {}
                Output::Logits => pass.head(),
                Output::Hidden => pass.leave(&[]),
            }
        });
        for span in spans {
            kv.wrote(span.seq, span.end());
        }
        let (values, width) = match output {
            Output::Logits => (&ws.logits, vocab),
            Output::Hidden => (ws.inputs.floats(), self.spec.hidden_size),
        };
        Logits::new(&values[..ws.batch.wanted.len() * width], width)
    }

    /// What bounds a pass of so many rows.
    fn bound(&self, rows: usize) -> Bound {
        match rows {
            _ if self.bytes_per_token() * rows < WORTH_BYTES => Bound::Small,
            ..MANY_ROWS => Bound::Memory,
            _ => Bound::Arithmetic,
        }
    }

    /// Rows of a sequence that attend together: enough to make the most of each page that is read,
    /// few enough to leave every worker several parts and the scores in the cache.
    fn together(&self, spans: &[Span<'_>], workers: usize) -> usize {
        let Spec { heads, kv_heads, .. } = self.spec;
        let rows: usize = spans.iter().map(|s| s.tokens.len()).sum();
        let keys = spans.iter().map(Span::end).max().unwrap_or(1).next_multiple_of(PAGE);
        let shared = rows * kv_heads / (workers * PARTS);
        let fitting = SCORES / (keys * (heads / kv_heads));
        TOGETHER.min(shared).min(fitting).max(1)
    }
}

/// One pass under way.
struct Pass<'p, 'c> {
    model: &'p Model,
    k: &'p Kernels,
    scope: &'p mut PoolScope<'c>,
    ws: &'p mut Workspace,
}

impl Pass<'_, '_> {
    /// Token embeddings and the angles of each row's position.
    fn embed(&mut self) {
        let Workspace { batch: Batch { rows, .. }, x, cos, sin, .. } = &mut *self.ws;
        let (model, hidden, half) =
            (self.model, self.model.spec.hidden_size, self.model.spec.head_dim / 2);
        x.grow(rows.len() * hidden);
        cos.grow(rows.len() * half);
        sin.grow(rows.len() * half);
        let angles = (Chunks::new(cos, half), Chunks::new(sin, half));
        let chunks = (Chunks::new(x, hidden), angles);
        self.scope.chunks(rows.len(), true, chunks, |i, (x, (cos, sin)), _| {
            model.weights.embed.row_f32(rows[i].token as usize, x);
            model.frequencies.angles(rows[i].position, cos, sin);
        });
        self.ws.profile.lap(Phase::Embed);
    }

    /// The input of a layer's first products: norm(x), where x has taken in what the layer
    /// `before` left in y.
    fn enter(&mut self, layer: &LayerWeights, before: Option<&LayerWeights>) {
        self.ws.inputs.rule = self.model.sparsity.elsewhere();
        let readers = [&layer.q, &layer.k, &layer.v];
        match before {
            Some(before) => self.add_and_norm(&before.down, &layer.attn_norm, &readers),
            None => self.norm(&layer.attn_norm, &readers),
        }
    }

    /// Queries, keys and values; the latter two go to their pages.
    fn keys_and_values(&mut self, layer: &LayerWeights, kept: LayerPages<'_>) {
        let Self { model, k, scope, ws } = self;
        let Workspace { batch, cos, sin, inputs, qkv, profile, .. } = &mut **ws;
        let spec = &model.spec;
        inputs.product((scope, k), &[&layer.q, &layer.k, &layer.v], qkv);
        profile.lap(Phase::Qkv);
        let LayerPages { pages, summaries, books } = kept;
        let heads = Heads { spec, k, layer, books, batch, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let chunks = (Chunks::new(pages, bytes), Chunks::new(summaries, floats));
        // The same worker attends to a head afterwards: what is written is in its cache.
        scope.chunks(spec.kv_heads, true, chunks, |head, kept, scratch| {
            heads.write(head, kept, scratch);
        });
        profile.lap(Phase::Cache);
    }

    /// Behind the last layer's keys and values only the rows that get logits matter.
    fn narrow(&mut self) {
        let Workspace { batch, cos, sin, x, qkv, spare, .. } = &mut *self.ws;
        if !batch.wants_less() {
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

    /// y = o(attention(q, k, v)).
    fn attention(&mut self, layer: &LayerWeights, kept: LayerPages<'_>) {
        let Self { model, k, scope, ws } = self;
        let Workspace { batch, cos, sin, inputs, qkv, mixed, y, profile, .. } = &mut **ws;
        let (rows, spec) = (batch.rows.len(), &model.spec);
        let LayerPages { pages, summaries, books } = kept;
        let heads = Heads { spec, k, layer, books, batch, qkv, cos, sin };
        let (bytes, floats) = (pages.len() / spec.kv_heads, summaries.len() / spec.kv_heads);
        let width = spec.heads * spec.head_dim;
        mixed.grow(rows * width);
        let out = &mut mixed[..rows * width];
        let columns = (0..=width).step_by(width / spec.kv_heads);
        scope.tiles(out, width, &batch.bounds, columns, |(i, head), mut out, scratch| {
            let rows = batch.bounds[i]..batch.bounds[i + 1];
            let kept = (&pages[head * bytes..][..bytes], &summaries[head * floats..][..floats]);
            heads.attend(rows, head, kept, &mut out, scratch);
        });
        profile.lap(Phase::Attention);

        let source = Chunks::new(mixed, width);
        inputs.fill((scope, k), (rows, width), &[&layer.o], source, |_, out, mixed| {
            match &layer.attn_sub_norm {
                Some(norm) => (k.rms_norm)(mixed, norm, spec.norm_eps, out),
                None => out.copy_from_slice(mixed),
            }
        });
        profile.lap(Phase::Norm);
        inputs.product((scope, k), &[&layer.o], y);
        profile.lap(Phase::Output);
    }

    /// x += y; y = down(act(gate(norm(x))) · up(norm(x))).
    fn feed_forward(&mut self, layer: &LayerWeights) {
        let readers = [&layer.gate, &layer.up];
        self.add_and_norm(&layer.o, &layer.ffn_norm, &readers);

        let Self { model, k, scope, ws } = self;
        let Workspace { batch, inputs, gate_up, y, profile, .. } = &mut **ws;
        let (spec, width, rows) = (&model.spec, model.spec.intermediate_size, batch.rows.len());
        inputs.product((scope, k), &readers, gate_up);
        profile.lap(Phase::GateUp);
        inputs.rule = model.sparsity.rule;
        let source = Chunks::new(gate_up, 2 * width);
        inputs.fill((scope, k), (rows, width), &[&layer.down], source, |_, out, gate_up| {
            let (gate, up) = gate_up.split_at_mut(width);
            add_bias(k, gate, &layer.gate);
            add_bias(k, up, &layer.up);
            match spec.activation {
                Activation::Silu => (k.silu_mul)(gate, up),
                Activation::Relu2 => (k.relu2_mul)(gate, up),
            }
            match &layer.ffn_sub_norm {
                Some(norm) => (k.rms_norm)(gate, norm, spec.norm_eps, out),
                None => out.copy_from_slice(gate),
            }
        });
        profile.lap(Phase::Activation);
        inputs.product((scope, k), &[&layer.down], y);
        profile.lap(Phase::Down);
    }

    /// The final norm of the rows that are left, as the input of `readers`, who get all of it.
    fn leave(&mut self, readers: &[&Linear]) {
        self.ws.inputs.rule = Rule::Off;
        let model = self.model;
        let last = model.weights.layers.last().expect("a model has layers");
        self.add_and_norm(&last.down, &model.weights.final_norm, readers);
    }

    /// Logits of the rows that are left.
    fn head(&mut self) {
        let (model, head) = (self.model, &self.model.head);
        self.leave(&[head]);
        let Self { k, scope, ws, .. } = self;
        let Workspace { batch, inputs, logits, screen, .. } = &mut **ws;
        if model.is_screened() {
            inputs.upper_product((scope, k), head, logits);
        } else {
            inputs.product((scope, k), &[head], logits);
        }
        let logits = &mut logits[..batch.rows.len() * model.spec.vocab_size];
        for row in logits.chunks_exact_mut(model.spec.vocab_size) {
            add_bias(k, row, head);
        }
        if model.is_screened() {
            screen.refine((scope, k), inputs, head, logits);
        }
        self.ws.profile.lap(Phase::Head);
    }

    /// norm(x) becomes the input of `readers`.
    fn norm(&mut self, norm: &[f32], readers: &[&Linear]) {
        let Self { model, k, scope, ws } = self;
        let (hidden, eps) = (model.spec.hidden_size, model.spec.norm_eps);
        let source = Chunks::new(&mut ws.x, hidden);
        ws.inputs.fill((scope, k), (ws.batch.rows.len(), hidden), readers, source, |_, out, x| {
            (k.rms_norm)(x, norm, eps, out);
        });
        ws.profile.lap(Phase::Norm);
    }

    /// x += y, which `from` has computed but for its bias; norm(x) becomes the input of `readers`.
    fn add_and_norm(&mut self, from: &Linear, norm: &[f32], readers: &[&Linear]) {
        let Self { model, k, scope, ws } = self;
        let (hidden, eps) = (model.spec.hidden_size, model.spec.norm_eps);
        let source = (Chunks::new(&mut ws.x, hidden), Chunks::new(&mut ws.y, hidden));
        ws.inputs.fill(
            (scope, k),
            (ws.batch.rows.len(), hidden),
            readers,
            source,
            |_, out, (x, y)| {
                (k.add)(x, y);
                add_bias(k, x, from);
                (k.rms_norm)(x, norm, eps, out);
            },
        );
        ws.profile.lap(Phase::Norm);
    }
}

/// x += the bias of `linear`, if it has one.
fn add_bias(k: &Kernels, x: &mut [f32], linear: &Linear) {
    if let Some(bias) = &linear.bias {
        (k.add)(x, bias);
    }
}
