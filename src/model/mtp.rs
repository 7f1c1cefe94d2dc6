//! The block for multi-token prediction (MTP): drafts tokens from the model's hidden states.
//!
//! The row of position p reads the token there and the final hidden state before it, and predicts the
//! token after it. Where that state is not known yet, because the token itself is a draft, the block's
//! own output takes its place. Keys and values of the block are a layer of the same pages.

use super::draft::{Draft, DraftJob, bytes};
use super::forward::{Ending, Pass};
use super::inputs::{Exec, Fill};
use super::profile::Phase;
use super::{Model, Runtime, Span, SparsityRule, Workspace};
use crate::batch_types::{AttentionMask, LogitRows, Logits};
use crate::cache::KvPool;
use crate::format::{Mixer, MtpWeights};
use crate::par::Chunks;

/// The result of [`Model::mtp_pass`] for the rows that were asked for.
#[derive(Clone, Copy, Debug)]
pub struct MtpRows<'w> {
    /// Logits of the token after each row, `[rows][vocab_size]`.
    pub logits: Logits<'w>,
    /// Output of the block before the head, `[rows][hidden_size]`: stands for the hidden state of the
    /// row's position.
    pub hidden: &'w [f32],
}

impl Model {
    /// Bytes of weights that a drafted token reads.
    pub(super) fn mtp_bytes(&self, mtp: &MtpWeights) -> usize {
        let layer: usize = mtp.layer.linears().map(bytes).sum();
        let head = match &mtp.head {
            Some(head) => bytes(head),
            None => self.work[Phase::Head as usize].bytes,
        };
        bytes(&mtp.input) + layer + head
    }

    /// Drafts with the block for multi-token prediction: [`Model::draft`]. Its first pass reads the
    /// positions, and each further one reads the token that the last one drafted.
    pub(super) fn draft_by_mtp(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        jobs: &mut [DraftJob<'_>],
        ws: &mut Workspace,
    ) -> Vec<Draft> {
        let hidden = self.spec.hidden_size;
        let mut drafts = vec![Draft::default(); jobs.len()];
        let mut before: Vec<f32> = jobs.iter().flat_map(|job| job.states).copied().collect();
        let mut active: Vec<usize> = (0..jobs.len()).collect();
        while !active.is_empty() {
            let spans: Vec<Span<'_>> =
                active.iter().map(|&i| mtp_span(&jobs[i], &drafts[i].tokens)).collect();
            let MtpRows { logits, hidden: states } = self.mtp_pass(rt, kv, &spans, &before, ws);
            before.clear();
            active.retain(|&i| jobs[i].wanted > 0);
            for (row, &i) in active.iter().enumerate() {
                drafts[i].tokens.push(jobs[i].choose(logits.row(row)));
                if drafts[i].tokens.len() < jobs[i].wanted {
                    before.extend_from_slice(&states[row * hidden..(row + 1) * hidden]);
                }
            }
            active.retain(|&i| drafts[i].tokens.len() < jobs[i].wanted);
        }
        drafts
    }

    /// Runs the block for multi-token prediction over rows of sequences, and writes its keys and values.
    /// `before` has the hidden state of the position before each row, `[rows][hidden_size]`; zeros where
    /// it is unknown. Nothing that the model computes depends on it.
    ///
    /// # Panics
    /// When the model has no such block, `before` has another size, or a span is not causal, outside of
    /// its sequence's pages or of the vocabulary.
    pub fn mtp_pass<'w>(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        before: &[f32],
        ws: &'w mut Workspace,
    ) -> MtpRows<'w> {
        let mtp = self.weights.mtp.as_deref().expect("the model has a block that drafts");
        let rows = spans.iter().map(|span| span.tokens.len()).sum::<usize>();
        assert_eq!(before.len(), rows * self.spec.hidden_size, "a hidden state for each row");
        for span in spans {
            assert_eq!(span.attention_mask, AttentionMask::Causal, "the block attends causally");
            assert!(span.end() <= kv.capacity(span.seq), "a span fits its sequence's pages");
            let known = |&token: &u32| (token as usize) < self.spec.vocab_size;
            assert!(span.tokens.iter().all(known), "tokens are in the vocabulary");
        }
        let bound = Self::bound(self.mtp_bytes(mtp), rows);
        ws.batch.fill(spans, &[], self.group_size(spans, rt.thread_pool.workers(bound)));
        let mut profile = std::mem::take(&mut ws.profile);
        rt.thread_pool.run(bound, |scope| {
            let exec = Exec { scope, kernels: &rt.kernels, profile: &mut profile };
            let mut pass = Pass { model: self, exec, ws };
            pass.exec.profile.begin();
            pass.mtp(mtp, before, kv);
        });
        ws.profile = profile;
        let (rows, spec) = (ws.batch.wanted.len(), &self.spec);
        MtpRows {
            logits: Logits::new(&ws.logits[..rows * spec.vocab_size], spec.vocab_size),
            hidden: &ws.hidden[..rows * spec.hidden_size],
        }
    }
}

/// Rows of the next pass for a job: the positions to read first, then the last drafted token.
fn mtp_span<'a>(job: &DraftJob<'a>, draft: &'a [u32]) -> Span<'a> {
    let (start, tokens) = match draft.len() {
        0 => (job.positions.start, &job.tokens[job.positions.clone()]),
        drafted => (job.positions.end + drafted - 1, &draft[drafted - 1..]),
    };
    let logits = if job.wanted > 0 { LogitRows::Last } else { LogitRows::None };
    Span { seq: job.seq, start, tokens, attention_mask: AttentionMask::Causal, logits }
}

impl Pass<'_, '_> {
    fn mtp(&mut self, mtp: &MtpWeights, before: &[f32], kv: &mut KvPool) {
        self.draft_inputs(mtp, before);
        self.mixer_inputs(&mtp.layer, None);
        if let Mixer::Attention(weights) = &mtp.layer.mixer {
            self.attention(weights, kv.layer(self.model.spec.layers), None, true);
        }
        if self.ws.batch.rows.is_empty() {
            return;
        }
        self.feed_forward(&mtp.layer);
        let model = self.model;
        let ending = Ending {
            down: &mtp.layer.down,
            norm: mtp.head_norm.as_ref().unwrap_or(&model.weights.final_norm),
            head: mtp.head.as_ref().unwrap_or(&model.head),
            screened: model.screened && mtp.head.is_none(),
        };
        self.logits(&ending, true);
    }

    /// Computes x = input · [norm(embedding); norm(hidden state before)] and the angles of each row's
    /// position.
    fn draft_inputs(&mut self, mtp: &MtpWeights, before: &[f32]) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, x, cos, sin, .. } = &mut **ws;
        let (rows, spec, kernels) = (&batch.rows, &model.spec, exec.kernels);
        let (hidden, half, eps) = (spec.hidden_size, spec.rotary_dim() / 2, spec.norm_eps);
        x.grow(rows.len() * hidden);
        cos.grow(rows.len() * half);
        sin.grow(rows.len() * half);
        inputs.rule = SparsityRule::Off;
        let angles = (Chunks::new(cos, half), Chunks::new(sin, half));
        let source = (Chunks::new(x, hidden), angles);
        let (count, readers) = (rows.len(), &[&mtp.input]);
        let fill = Fill { phase: Phase::Embed, rows: count, width: 2 * hidden, readers };
        inputs.fill(exec, &fill, source, |i, out, (x, (cos, sin))| {
            match &mtp.embed {
                Some(embed) => embed.row_f32(rows[i].token as usize, x),
                None => model.embedding(kernels, rows[i].token, x),
            }
            let (of_embedding, of_hidden) = out.split_at_mut(hidden);
            (kernels.rms_norm)(x, &mtp.embed_norm, eps, of_embedding);
            let before = &before[i * hidden..(i + 1) * hidden];
            (kernels.rms_norm)(before, &mtp.hidden_norm, eps, of_hidden);
            model.frequencies.angles(rows[i].position, cos, sin);
        });
        inputs.product(exec, &[&mtp.input], x);
        exec.profile.lap(Phase::Embed);
    }
}
