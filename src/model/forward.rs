//! The forward pass, over any mix of prompts, decoding rows and drafts. A row's result does not depend
//! on the other rows of the batch, on how a prompt is split, or on the number of threads.

use super::batch::{Batch, Span};
use super::inputs::{Exec, Fill};
use super::profile::Phase;
use super::{Model, Runtime, SparsityRule, Workspace};
use crate::batch_types::{Logits, Output};
use crate::cache::KvPool;
use crate::format::{Activation, LayerWeights, Linear, Mixer, Spec};
use crate::kernel::{Attention, Kernels, PAGE};
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
pub(super) const PARTS: usize = 4;

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
        self.run(rt, kv, (spans, &[]), ws, output);
        let (values, width) = match output {
            Output::Logits => (&ws.logits, self.spec.vocab_size),
            Output::Hidden => (ws.inputs.floats(), self.spec.hidden_size),
        };
        Logits::new(&values[..ws.batch.wanted.len() * width], width)
    }

    /// As [`forward`](Self::forward), and returns the states that the net reads which drafts, `[rows]` of
    /// [`state_width`](Self::state_width): the final hidden states, or those after the layers that a drafter
    /// names. They are those of all rows of the spans for which `keeps` is true, and of the rows that get
    /// logits of the others.
    ///
    /// # Panics
    /// As [`forward`](Self::forward), or if `keeps` has another length than `spans`.
    pub fn forward_keeping<'w>(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        keeps: &[bool],
        ws: &'w mut Workspace,
    ) -> (Logits<'w>, &'w [f32]) {
        assert_eq!(keeps.len(), spans.len(), "each span keeps its hidden states or not");
        self.run(rt, kv, (spans, keeps), ws, Output::Logits);
        let (vocab, width) = (self.spec.vocab_size, self.state_width());
        let batch = &ws.batch;
        let logits = &ws.logits[..batch.logit_rows() * vocab];
        let kept = if batch.keeps_hidden { batch.wanted.len() * width } else { 0 };
        let states = if self.drafter.is_some() { &ws.tapped } else { &ws.hidden };
        (Logits::new(logits, vocab), &states[..kept])
    }

    /// Runs a pass over spans, which keep their hidden states or not.
    fn run(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        (spans, keeps): (&[Span<'_>], &[bool]),
        ws: &mut Workspace,
        output: Output,
    ) {
        let vocab = self.spec.vocab_size;
        spans.iter().for_each(|span| span.check(kv, vocab));
        let bound =
            Self::bound(self.bytes_per_token(), spans.iter().map(|span| span.tokens.len()).sum());
        ws.batch.fill(spans, keeps, self.group_size(spans, rt.thread_pool.workers(bound)));
        let mut profile = std::mem::take(&mut ws.profile);
        rt.thread_pool.run(bound, |scope| {
            let exec = Exec { scope, kernels: &rt.kernels, profile: &mut profile };
            let mut pass = Pass { model: self, exec, ws };
            pass.exec.profile.begin();
            pass.embed();
            pass.layers(kv, 0);
            match output {
                _ if pass.ws.batch.rows.is_empty() => {}
                Output::Logits => pass.logits(&self.ending(), keeps.contains(&true)),
                Output::Hidden => pass.hidden(),
            }
        });
        ws.profile = profile;
        for span in spans {
            kv.mark_written(span.seq, span.end());
        }
    }

    /// The end of a pass over all layers.
    pub(super) fn ending(&self) -> Ending<'_> {
        let last = self.weights.layers.last().expect("a model has layers");
        let (norm, head, screened) = (&self.weights.final_norm, &self.head, self.screened);
        Ending { down: &last.down, norm, head, screened }
    }

    /// Looks up a token's embedding, `[hidden_size]`.
    pub(super) fn embedding(&self, kernels: &Kernels, token: u32, out: &mut [f32]) {
        self.weights.embed.row_f32(token as usize, out);
        if let Some(rotation) = &self.weights.embed_rotation {
            rotation.invert(kernels.hadamard, out);
        }
        if let Some(factors) = self.spec.factors {
            out.iter_mut().for_each(|x| *x *= factors.embedding);
        }
    }

    /// The resource that bounds a pass of this many rows, each of which reads so many bytes of weights.
    pub(super) fn bound(bytes: usize, rows: usize) -> Bound {
        match rows {
            _ if bytes * rows < WORTH_BYTES => Bound::Small,
            ..MANY_ROWS => Bound::Memory,
            _ => Bound::Arithmetic,
        }
    }

    /// Number of a sequence's rows that attend together. More rows share each page that is read; fewer
    /// leave several parts for every worker, and their scores in the processor's cache.
    pub(super) fn group_size(&self, spans: &[Span<'_>], workers: usize) -> usize {
        let Spec { heads, kv_heads, .. } = self.spec;
        let rows: usize = spans.iter().map(|s| s.tokens.len()).sum();
        let keys = spans.iter().map(Span::end).max().unwrap_or(1).next_multiple_of(PAGE);
        let shared = rows * kv_heads / (workers * PARTS);
        let fitting = MAX_SCORES / (keys.min(Attention::PART) * (heads / kv_heads));
        MAX_GROUP.min(shared).min(fitting).max(1)
    }
}

/// The end of a pass: norm and head of the rows that the last layer leaves.
pub(super) struct Ending<'a> {
    /// Last matrix of the last layer, whose product is to be added.
    pub down: &'a Linear,
    pub norm: &'a [f32],
    pub head: &'a Linear,
    /// True for two-pass logits.
    pub screened: bool,
}

/// A running pass.
pub(super) struct Pass<'p, 'c> {
    pub model: &'p Model,
    pub exec: Exec<'p, 'c>,
    pub ws: &'p mut Workspace,
}

impl Pass<'_, '_> {
    /// Looks up token embeddings and computes the angles of each row's position.
    pub(super) fn embed(&mut self) {
        let Workspace { batch: Batch { rows, .. }, x, cos, sin, .. } = &mut *self.ws;
        let (model, kernels) = (self.model, self.exec.kernels);
        let (hidden, half) = (model.spec.hidden_size, model.spec.rotary_dim() / 2);
        x.grow(rows.len() * hidden);
        cos.grow(rows.len() * half);
        sin.grow(rows.len() * half);
        let angles = (Chunks::new(cos, half), Chunks::new(sin, half));
        let chunks = (Chunks::new(x, hidden), angles);
        self.exec.scope.chunks(rows.len(), true, chunks, |i, (x, (cos, sin)), _| {
            model.embedding(kernels, rows[i].token, x);
            model.frequencies.angles(rows[i].position, cos, sin);
        });
        self.exec.profile.lap(Phase::Embed);
    }

    /// Runs all layers, the keys and values of which begin with layer `first` of the pages. The last one
    /// computes only rows that get logits, once its mixer has taken what later rows need of the others.
    pub(super) fn layers(&mut self, kv: &mut KvPool, first: usize) {
        let layers = &self.model.weights.layers;
        let mut before = None;
        for (i, layer) in layers.iter().enumerate() {
            let last = i + 1 == layers.len();
            self.mixer_inputs(layer, before);
            if i > 0 {
                self.tap(i - 1);
            }
            match &layer.mixer {
                Mixer::Attention(weights) => {
                    let window = self.model.windows.get(i).copied().flatten();
                    self.attention(weights, kv.layer(first + i), window, last);
                }
                Mixer::Linear(weights) => {
                    self.linear_attention(weights, &self.model.conv[i], kv.states(i), last);
                }
            }
            if !self.ws.batch.rows.is_empty() {
                self.feed_forward(layer);
            }
            before = Some(layer);
        }
    }

    /// Computes the inputs of a layer's mixer: x += y of the layer `before`, then norm(x).
    pub(super) fn mixer_inputs(&mut self, layer: &LayerWeights, before: Option<&LayerWeights>) {
        self.ws.inputs.rule = self.model.sparsity.rule_except_down();
        // On the stack, because a pass allocates nothing.
        let (of_attention, of_linear);
        let readers: &[&Linear] = match &layer.mixer {
            Mixer::Attention(w) => {
                of_attention = [&w.q, &w.k, &w.v];
                &of_attention
            }
            Mixer::Linear(w) => {
                of_linear = [&w.qkv, &w.z, &w.alpha, &w.beta];
                &of_linear
            }
        };
        match before {
            Some(before) => self.add_and_norm(&before.down, &layer.mixer_norm, readers),
            None => self.norm(&layer.mixer_norm, readers),
        }
    }

    /// Computes x += y; y = down(act(gate(norm(x))) · up(norm(x))).
    pub(super) fn feed_forward(&mut self, layer: &LayerWeights) {
        let readers = [&layer.gate, &layer.up];
        self.add_and_norm(layer.mixer.output(), &layer.ffn_norm, &readers);

        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, gate_up, y, .. } = &mut **ws;
        let (spec, width, rows) = (&model.spec, model.spec.intermediate_size, batch.rows.len());
        let kernels = exec.kernels;
        inputs.product(exec, &readers, gate_up);
        exec.profile.lap(Phase::GateUp);
        inputs.rule = model.sparsity.rule;
        let source = Chunks::new(gate_up, 2 * width);
        let fill = Fill { phase: Phase::Activation, rows, width, readers: &[&layer.down] };
        inputs.fill(exec, &fill, source, |_, out, gate_up| {
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
        inputs.product(exec, &[&layer.down], y);
        exec.profile.lap(Phase::Down);
    }

    /// Computes the final norm of the remaining rows as the input of `readers`, without sparsity.
    fn final_norm(&mut self, ending: &Ending<'_>, readers: &[&Linear]) {
        self.ws.inputs.rule = SparsityRule::Off;
        self.add_and_norm(ending.down, ending.norm, readers);
    }

    /// Computes the hidden states of the remaining rows.
    fn hidden(&mut self) {
        self.final_norm(&self.model.ending(), &[]);
        let (rows, width) = (self.ws.batch.rows.len(), self.model.spec.hidden_size);
        finish(&mut self.exec, &mut self.ws.inputs.floats_mut()[..rows * width], width, None);
    }

    /// Computes the logits of the remaining rows that get any. Keeps the hidden states of all of them if
    /// `keeps` is true.
    pub(super) fn logits(&mut self, ending: &Ending<'_>, keeps: bool) {
        let (model, head) = (self.model, ending.head);
        let (hidden, rows) = (model.spec.hidden_size, self.ws.batch.logit_rows());
        let (all, others) = (self.ws.batch.rows.len(), self.ws.batch.leaves_rows_without_logits());
        let readers: &[&Linear] = if others { &[] } else { &[head] };
        self.final_norm(ending, readers);
        self.tap(model.spec.layers - 1);
        let Self { exec, ws, .. } = self;
        let Workspace { batch, inputs, logits, screen, hidden: kept, .. } = &mut **ws;
        if keeps {
            kept.grow(all * hidden);
            kept[..all * hidden].copy_from_slice(&inputs.floats()[..all * hidden]);
        }
        if rows == 0 {
            return;
        }
        if others {
            let fill = Fill { phase: Phase::Norm, rows, width: hidden, readers: &[head] };
            inputs.fill(exec, &fill, (), |i, out, ()| {
                out.copy_from_slice(&kept[batch.with_logits[i] * hidden..][..hidden]);
            });
        }
        if ending.screened {
            inputs.upper_product(exec, head, logits);
        } else {
            inputs.product(exec, &[head], logits);
        }
        let logits = &mut logits[..rows * model.spec.vocab_size];
        for row in logits.chunks_exact_mut(model.spec.vocab_size) {
            add_bias(exec.kernels, row, head);
        }
        if ending.screened {
            screen.refine(exec, inputs, head, logits);
        }
        let divisor = model.spec.factors.map(|factors| factors.logit_divisor);
        finish(exec, logits, model.spec.vocab_size, divisor);
        self.exec.profile.lap(Phase::Head);
    }

    /// Computes norm(x) as the input of `readers`.
    fn norm(&mut self, norm: &[f32], readers: &[&Linear]) {
        let Self { model, exec, ws } = self;
        let (hidden, eps, kernels) = (model.spec.hidden_size, model.spec.norm_eps, exec.kernels);
        let source = Chunks::new(&mut ws.x, hidden);
        let fill = Fill { phase: Phase::Norm, rows: ws.batch.rows.len(), width: hidden, readers };
        ws.inputs.fill(exec, &fill, source, |_, out, x| {
            (kernels.rms_norm)(x, norm, eps, out);
        });
    }

    /// Computes x += f · (y + the bias of `from`), whose product y is, with the model's factor f of
    /// blocks, if it has one; then norm(x) as the input of `readers`.
    fn add_and_norm(&mut self, from: &Linear, norm: &[f32], readers: &[&Linear]) {
        let Self { model, exec, ws } = self;
        let (hidden, eps, kernels) = (model.spec.hidden_size, model.spec.norm_eps, exec.kernels);
        let source = (Chunks::new(&mut ws.x, hidden), Chunks::new(&mut ws.y, hidden));
        let fill = Fill { phase: Phase::Norm, rows: ws.batch.rows.len(), width: hidden, readers };
        let residual = model.spec.factors.map(|factors| factors.residual);
        ws.inputs.fill(exec, &fill, source, |_, out, (x, y)| {
            match residual {
                None => {
                    (kernels.add)(x, y);
                    add_bias(kernels, x, from);
                }
                Some(factor) => {
                    add_bias(kernels, y, from);
                    y.iter_mut().for_each(|y| *y *= factor);
                    (kernels.add)(x, y);
                }
            }
            (kernels.rms_norm)(x, norm, eps, out);
        });
    }
}

/// Divides outputs, and fills each row of `width` of them that has one which is not finite with NaN
/// ([`Logits::is_failed`]).
fn finish(exec: &mut Exec<'_, '_>, outputs: &mut [f32], width: usize, divisor: Option<f32>) {
    let (count, kernels) = (outputs.len() / width, exec.kernels);
    exec.scope.chunks(count, count > 1, Chunks::new(outputs, width), |_, row, _| {
        if let Some(divisor) = divisor {
            row.iter_mut().for_each(|x| *x /= divisor);
        }
        if !(kernels.within)(row, f32::INFINITY) {
            row.fill(f32::NAN);
        }
    });
}

/// Adds the bias of `linear`, if it has one, to x.
pub(super) fn add_bias(kernels: &Kernels, x: &mut [f32], linear: &Linear) {
    if let Some(bias) = &linear.bias {
        (kernels.add)(x, bias);
    }
}
