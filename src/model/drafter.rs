//! A drafter in files of its own (DFlash, DSpark): a small net that drafts a block of tokens in one pass.
//!
//! The hidden states that the model had at a position become, projected and normalized, keys and values of
//! each of the drafter's layers. The rows of a block, the newest token and MASK tokens, attend to these and
//! to each other. Keys and values of a block lie where those of its positions will be.

use super::check::{self, ModelError};
use super::draft::{Draft, DraftJob, bytes};
use super::forward::Pass;
use super::inputs::{Exec, Fill};
use super::profile::Phase;
use super::{Model, Runtime, Span, SparsityRule, Workspace, work};
use crate::batch_types::{AttentionMask, LogitRows};
use crate::cache::{DraftLayers, KvPool};
use crate::decode::{DraftNet, DraftNetKind};
use crate::format::{
    DrafterCheckpoint, DrafterConfig, DrafterScales, DrafterWeights, Linear, MarkovWeights, Spec,
    Weights,
};
use crate::par::Chunks;
use std::sync::OnceLock;

/// Number of features of the signal-to-noise ratio: sines, then cosines.
const SNR_FEATURES: usize = 128;

/// A drafter and what it borrows from its model.
pub(super) struct Drafter {
    /// Its layers and head, and the table of embeddings.
    net: Model,
    config: DrafterConfig,
    /// Projection of the hidden states, and its norm.
    input: Linear,
    hidden_norm: Vec<f32>,
    /// Embedding of MASK tokens, if it is not their row of the table.
    mask_row: Option<Vec<f32>>,
    /// Ids of the tokens that the head predicts, if these are not all.
    target_ids: Option<Vec<u32>>,
    /// Size of the model's vocabulary.
    vocab: usize,
    markov: Option<MarkovWeights>,
    confidence: Option<Confidence>,
    /// Vectors that are added to the embedding of the newest token, and to that of MASK tokens.
    conditioning: Option<[Vec<f32>; 2]>,
    bytes: usize,
}

/// Predicts whether a token is right: σ(weights · [hidden state; row of the token before] + bias).
struct Confidence {
    weights: Vec<f32>,
    bias: f32,
}

impl Model {
    /// Adds a drafter that was trained for this model. It replaces the model's own block for multi-token
    /// prediction. Call it when the model's weights are in their final memory, which the drafter shares.
    ///
    /// # Errors
    /// When the drafter does not fit the model, or a tensor's shape does not match its configuration.
    pub fn with_drafter(mut self, checkpoint: DrafterCheckpoint) -> Result<Self, ModelError> {
        let drafter = Drafter::new(&self, checkpoint)?;
        (self.spec.mtp_layers, self.weights.mtp) = (0, None);
        self.drafter = Some(Box::new(drafter));
        self.draft_costs = OnceLock::new();
        Ok(self)
    }

    /// Returns how the drafter was read, if the model has one.
    pub fn drafter(&self) -> Option<&DrafterConfig> {
        self.drafter.as_deref().map(|drafter| &drafter.config)
    }

    /// Returns about how many bytes the drafter's buffers take after passes of the model of `rows` rows: the
    /// hidden states that it reads, and those of its own passes.
    pub fn draft_buffer_bytes(&self, rows: usize) -> usize {
        let Some(drafter) = self.drafter.as_deref() else { return 0 };
        // They are kept by the pass, by the sequence, and for the drafter's pass with its inputs.
        let states = rows.saturating_mul(4 * self.state_width() * size_of::<f32>());
        Workspace::bytes(&drafter.net.spec, drafter.config.block).saturating_add(states)
    }

    /// Number of positions that the drafter was trained for, if the model has one.
    pub fn drafter_context(&self) -> Option<usize> {
        self.drafter.as_deref().map(|drafter| drafter.net.spec.context_length)
    }

    /// Bytes of the drafter's weights.
    pub fn drafter_bytes(&self) -> usize {
        self.drafter.as_deref().map_or(0, |drafter| drafter.bytes)
    }
}

impl Drafter {
    fn new(model: &Model, checkpoint: DrafterCheckpoint) -> Result<Self, ModelError> {
        let DrafterCheckpoint { spec, config, weights, .. } = checkpoint;
        check_fit(model, &spec, &config, &weights)?;
        let bytes = weights.bytes();
        let DrafterWeights { input, hidden_norm, layers, final_norm, markov, .. } = weights;
        let rank = markov.as_ref().map_or(0, |markov| markov.previous.cols());
        let conditioning = match &weights.log_snr {
            Some(matrices) => Some(conditioning(&spec, matrices)?),
            None => None,
        };
        let confidence = match &weights.confidence {
            Some(head) => {
                check::linear("drafter confidence", head, 1, spec.hidden_size + rank)?;
                let mut weights = vec![0.0; spec.hidden_size + rank];
                head.weight.row_f32(0, &mut weights);
                let bias = head.bias.as_ref().map_or(0.0, |bias| bias[0]);
                Some(Confidence { weights, bias })
            }
            None => None,
        };
        let (own_head, vocab) = (weights.head.is_some(), model.spec.vocab_size);
        // A reduced head has other rows than the embeddings.
        let (reduced, head) = match &weights.target_ids {
            Some(_) => (weights.head, None),
            None => (None, Some(weights.head.unwrap_or_else(|| model.head.clone()))),
        };
        let embed_rotation = match &weights.embed {
            Some(_) => None,
            None => model.weights.embed_rotation.clone(),
        };
        let net = Weights {
            embed: weights.embed.unwrap_or_else(|| model.weights.embed.clone()),
            embed_rotation,
            head,
            final_norm,
            layers,
            mtp: None,
        };
        let mut net = Model::new(Spec { vocab_size: vocab, ..spec }, net)?;
        if let Some(head) = reduced {
            (net.spec.vocab_size, net.head) = (head.weight.rows(), head);
            net.work = work(&net.spec, &net.weights, &net.head, false);
        }
        net.windows.clone_from(&config.windows);
        // Only the largest logits of a screened head are exact, and those may change.
        net.screened = model.screened && !own_head && markov.is_none();
        let (mask_row, target_ids) = (weights.mask_row, weights.target_ids);
        Ok(Self {
            net,
            config,
            input,
            hidden_norm,
            mask_row,
            target_ids,
            vocab,
            markov,
            confidence,
            conditioning,
            bytes,
        })
    }

    /// Shape of its layers.
    pub fn layers(&self) -> DraftLayers {
        let Spec { layers, kv_heads, head_dim, .. } = self.net.spec;
        DraftLayers { layers, kv_heads, head_dim }
    }

    /// Layers of the model whose hidden states it reads.
    pub fn taps(&self) -> &[usize] {
        &self.config.taps
    }

    /// Its properties next to a model of which a row reads `all` bytes.
    pub fn net(&self, all: f32) -> DraftNet {
        let pass = self.net.bytes_per_token() + bytes(&self.input);
        let token = self.markov.as_ref().map_or(0, |markov| bytes(&markov.next));
        DraftNet {
            kind: DraftNetKind::Blocks,
            pass_cost: pass as f32 / all,
            token_cost: token as f32 / all,
            measured: false,
            longest: self.config.block - self.config.layout.unread_rows(),
            confident: self.confidence.is_some(),
        }
    }

    /// Drafts for a model of which the drafter's layers come after layer `first` of the pages:
    /// [`Model::draft`].
    pub fn draft(
        &self,
        first: usize,
        rt: &Runtime,
        kv: &mut KvPool,
        jobs: &mut [DraftJob<'_>],
        ws: &mut Workspace,
    ) -> Vec<Draft> {
        self.read(first, rt, kv, jobs, ws);
        let wanted: Vec<bool> = jobs.iter().map(|job| job.wanted > 0).collect();
        let mut due: Vec<&mut DraftJob<'_>> =
            jobs.iter_mut().filter(|job| job.wanted > 0).collect();
        let mut made = Vec::new();
        if !due.is_empty() {
            self.run_block(first, rt, kv, &due, ws);
            made = self.choose(rt, &mut due, ws);
        }
        let mut made = made.into_iter();
        let draft =
            |wanted| if wanted { made.next().unwrap_or_default() } else { Draft::default() };
        wanted.into_iter().map(draft).collect()
    }

    /// Number of tokens to draft for a job.
    fn slots(&self, job: &DraftJob<'_>) -> usize {
        job.wanted.min(self.config.block - self.config.layout.unread_rows())
    }

    /// Writes the keys and values of positions whose hidden states are known.
    fn read(
        &self,
        first: usize,
        rt: &Runtime,
        kv: &mut KvPool,
        jobs: &[DraftJob<'_>],
        ws: &mut Workspace,
    ) {
        let reading = jobs.iter().filter(|job| !job.positions.is_empty());
        let spans: Vec<Span<'_>> = reading
            .map(|job| Span {
                seq: job.seq,
                start: job.positions.start,
                tokens: &job.tokens[job.positions.clone()],
                attention_mask: AttentionMask::Causal,
                logits: LogitRows::None,
            })
            .collect();
        if spans.is_empty() {
            return;
        }
        let states: Vec<f32> = jobs.iter().flat_map(|job| job.states).copied().collect();
        self.run(rt, kv, &spans, ws, |pass, kv| pass.read_states(self, &states, kv, first));
    }

    /// Runs the layers over a block for each job: logits and hidden states of the rows that predict.
    fn run_block(
        &self,
        first: usize,
        rt: &Runtime,
        kv: &mut KvPool,
        due: &[&mut DraftJob<'_>],
        ws: &mut Workspace,
    ) {
        let unread = self.config.layout.unread_rows();
        let rows: Vec<usize> = (unread..self.config.block).collect();
        let mut blocks = Vec::new();
        for job in due {
            let anchor = *job.tokens.last().expect("a text has a token");
            let mut block = vec![self.config.mask; unread + self.slots(job)];
            block[0] = anchor;
            blocks.push(block);
        }
        let spans = due.iter().zip(&blocks).map(|(job, block)| {
            let start = job.tokens.len() - 1;
            let end = start + block.len();
            let attention_mask =
                if self.config.causal { AttentionMask::Causal } else { AttentionMask::Prefix(end) };
            let logits = LogitRows::Only(&rows[..self.slots(job)]);
            Span { seq: job.seq, start, tokens: block, attention_mask, logits }
        });
        let spans: Vec<Span<'_>> = spans.collect();
        self.run(rt, kv, &spans, ws, |pass, kv| {
            pass.embed();
            pass.condition(self, &spans);
            pass.layers(kv, first);
            pass.logits(&self.net.ending(), true);
        });
    }

    /// Runs a pass of the drafter over spans.
    fn run(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        spans: &[Span<'_>],
        ws: &mut Workspace,
        compute: impl FnOnce(&mut Pass<'_, '_>, &mut KvPool),
    ) {
        for span in spans {
            assert!(span.end() <= kv.capacity(span.seq), "a span fits its sequence's pages");
        }
        let rows = spans.iter().map(|span| span.tokens.len()).sum();
        let bound = Model::bound(self.net.bytes_per_token() + bytes(&self.input), rows);
        let workers = rt.thread_pool.workers(bound);
        ws.batch.fill(spans, &[], self.net.group_size(spans, workers));
        let mut profile = std::mem::take(&mut ws.profile);
        rt.thread_pool.run(bound, |scope| {
            let exec = Exec { scope, kernels: &rt.kernels, profile: &mut profile };
            let mut pass = Pass { model: &self.net, exec, ws };
            pass.exec.profile.begin();
            compute(&mut pass, kv);
        });
        ws.profile = profile;
    }

    /// Chooses the tokens of each block one after the other, because each corrects the logits of the next.
    fn choose(
        &self,
        rt: &Runtime,
        due: &mut [&mut DraftJob<'_>],
        ws: &mut Workspace,
    ) -> Vec<Draft> {
        let (vocab, hidden) = (self.net.spec.vocab_size, self.net.spec.hidden_size);
        let (mut drafts, mut all) = (vec![Draft::default(); due.len()], Vec::new());
        let mut firsts = Vec::new();
        let mut rows = 0;
        for job in &*due {
            firsts.push(rows);
            rows += self.slots(job);
        }
        let mut active: Vec<usize> = (0..due.len()).collect();
        for slot in 0.. {
            active.retain(|&i| drafts[i].tokens.len() == slot && slot < self.slots(due[i]));
            if active.is_empty() {
                break;
            }
            let before = |i: usize| {
                let draft: &Draft = &drafts[i];
                draft.tokens.last().or(due[i].tokens.last()).copied().expect("a token before")
            };
            let before: Vec<u32> = active.iter().map(|&i| before(i)).collect();
            if let Some(markov) = &self.markov {
                correct(rt, markov, &before, ws);
            }
            for (n, &i) in active.iter().enumerate() {
                let row = firsts[i] + slot;
                let logits = &mut ws.logits[row * vocab..][..vocab];
                scale_logits(&self.config.scales, logits);
                if self.markov.is_some() {
                    (rt.kernels.add)(logits, &ws.spare[n * vocab..][..vocab]);
                }
                let state = &ws.hidden[row * hidden..][..hidden];
                let confidence = self.confidence(state, before[n]);
                drafts[i].confidences.extend(confidence);
                // NaN ends the draft too.
                if confidence.is_none_or(|confidence| confidence >= due[i].threshold) {
                    let token = match &self.target_ids {
                        Some(ids) => due[i].choose(self.scattered(ids, logits, &mut all)),
                        None => due[i].choose(logits),
                    };
                    drafts[i].tokens.push(token);
                }
            }
        }
        drafts
    }

    /// Logits of the model's whole vocabulary: tokens that the head does not predict have −∞.
    fn scattered<'a>(&self, ids: &[u32], logits: &[f32], all: &'a mut Vec<f32>) -> &'a [f32] {
        all.clear();
        all.resize(self.vocab, f32::NEG_INFINITY);
        ids.iter().zip(logits).for_each(|(&id, &logit)| all[id as usize] = logit);
        all
    }

    /// Confidence in the token that a row predicts, if there is a head for it.
    fn confidence(&self, state: &[f32], before: u32) -> Option<f32> {
        let Confidence { weights, bias } = self.confidence.as_ref()?;
        let mut input = state.to_vec();
        if let Some(markov) = &self.markov {
            input.resize(weights.len(), 0.0);
            markov.previous.row_f32(before as usize, &mut input[state.len()..]);
        }
        let sum: f32 = input.iter().zip(weights).map(|(x, w)| x * w).sum();
        Some(1.0 / (1.0 + libm::expf(-(sum + bias))))
    }
}

/// Multiplies logits by their factor and bounds them.
fn scale_logits(scales: &DrafterScales, logits: &mut [f32]) {
    if scales.logit != 1.0 {
        logits.iter_mut().for_each(|x| *x *= scales.logit);
    }
    if let Some(cap) = scales.logit_cap {
        logits.iter_mut().for_each(|x| *x = cap * libm::tanhf(*x / cap));
    }
}

/// Computes the corrections of logits after each of these tokens: `spare` is `[tokens][vocab_size]`.
fn correct(rt: &Runtime, markov: &MarkovWeights, before: &[u32], ws: &mut Workspace) {
    let Workspace { inputs, spare, profile, .. } = ws;
    let (rows, width) = (before.len(), markov.previous.cols());
    rt.thread_pool.run(Model::bound(bytes(&markov.next), rows), |scope| {
        let exec = &mut Exec { scope, kernels: &rt.kernels, profile };
        inputs.rule = SparsityRule::Off;
        let fill = Fill { phase: Phase::Norm, rows, width, readers: &[&markov.next] };
        inputs.fill(exec, &fill, (), |i, out, ()| markov.previous.row_f32(before[i] as usize, out));
        inputs.product(exec, &[&markov.next], spare);
        exec.profile.lap(Phase::Head);
    });
}

impl Pass<'_, '_> {
    /// Keeps the hidden states after a layer of the rows that keep theirs, if the drafter reads them.
    pub(super) fn tap(&mut self, layer: usize) {
        let Some(drafter) = self.model.drafter.as_deref() else { return };
        let Workspace { batch, x, tapped, .. } = &mut *self.ws;
        let Some(at) = drafter.taps().iter().position(|&tap| tap == layer) else { return };
        if !batch.keeps_hidden {
            return;
        }
        let (hidden, rows) = (self.model.spec.hidden_size, batch.wanted.len());
        let width = drafter.taps().len() * hidden;
        tapped.grow(rows * width);
        for (i, state) in tapped[..rows * width].chunks_exact_mut(width).enumerate() {
            let row = batch.wanted_row(i);
            state[at * hidden..][..hidden].copy_from_slice(&x[row * hidden..][..hidden]);
        }
    }

    /// Writes keys and values of all layers from the model's hidden states.
    fn read_states(&mut self, drafter: &Drafter, states: &[f32], kv: &mut KvPool, first: usize) {
        let Self { model, exec, ws } = self;
        let Workspace { batch, inputs, y, cos, sin, .. } = &mut **ws;
        let (rows, spec, kernels) = (&batch.rows, &model.spec, exec.kernels);
        let (hidden, half) = (spec.hidden_size, spec.rotary_dim() / 2);
        cos.grow(rows.len() * half);
        sin.grow(rows.len() * half);
        inputs.rule = SparsityRule::Off;
        let (count, width) = (rows.len(), drafter.input.weight.cols());
        let angles = (Chunks::new(cos, half), Chunks::new(sin, half));
        let fill = Fill { phase: Phase::Embed, rows: count, width, readers: &[&drafter.input] };
        inputs.fill(exec, &fill, angles, |i, out, (cos, sin)| {
            out.copy_from_slice(&states[i * width..(i + 1) * width]);
            model.frequencies.angles(rows[i].position, cos, sin);
        });
        inputs.product(exec, &[&drafter.input], y);
        let attentions = model.weights.layers.iter().filter_map(|layer| layer.mixer.attention());
        let attentions: Vec<_> = attentions.collect();
        let readers: Vec<&Linear> = attentions.iter().flat_map(|w| [&w.k, &w.v]).collect();
        let fill = Fill { phase: Phase::Norm, rows: count, width: hidden, readers: &readers };
        inputs.fill(exec, &fill, Chunks::new(y, hidden), |_, out, y| {
            (kernels.rms_norm)(y, &drafter.hidden_norm, spec.norm_eps, out);
        });
        for (i, weights) in attentions.into_iter().enumerate() {
            self.ws.inputs.product(&mut self.exec, &[&weights.k, &weights.v], &mut self.ws.qkv);
            self.write_keys(weights, &mut kv.layer(first + i), 0);
        }
    }

    /// Replaces the embeddings of MASK tokens by a row of their own, scales all, and adds the conditioning.
    /// Each span begins with the newest token.
    fn condition(&mut self, drafter: &Drafter, spans: &[Span<'_>]) {
        let scale = drafter.config.scales.embedding;
        let mut rows = self.ws.x.chunks_exact_mut(self.model.spec.hidden_size);
        for span in spans {
            for (i, row) in rows.by_ref().take(span.tokens.len()).enumerate() {
                if let Some(own) = drafter.mask_row.as_ref().filter(|_| i > 0) {
                    row.copy_from_slice(own);
                }
                if scale != 1.0 {
                    row.iter_mut().for_each(|x| *x *= scale);
                }
                if let Some([of_anchor, of_masks]) = &drafter.conditioning {
                    (self.exec.kernels.add)(row, if i == 0 { of_anchor } else { of_masks });
                }
            }
        }
    }
}

/// Checks that a drafter fits the model, and the shapes of its tensors that no layer has.
fn check_fit(
    model: &Model,
    spec: &Spec,
    config: &DrafterConfig,
    weights: &DrafterWeights,
) -> Result<(), ModelError> {
    let error = |part: &str, expected: String, found: String| {
        Err(check::error(&format!("drafter {part}"), expected, found))
    };
    let Spec { vocab_size: vocab, hidden_size: width, layers, .. } = model.spec;
    if model.spec.factors.is_some() {
        let expected = "a model without factors of its embeddings".to_owned();
        return error("embeddings", expected, "MiniCPM's factors".into());
    }
    if spec.vocab_size != 0 && spec.vocab_size != vocab {
        let expected = format!("the model's {vocab} tokens");
        return error("vocabulary", expected, spec.vocab_size.to_string());
    }
    if config.mask as usize >= vocab {
        let expected = format!("an id below {vocab}");
        return error("`mask_token_id`", expected, config.mask.to_string());
    }
    if let Some(&last) = config.taps.last().filter(|&&last| last >= layers) {
        let expected = format!("layers below the model's {layers}");
        return error("`target_layer_ids`", expected, last.to_string());
    }
    let borrows = weights.embed.is_none() || weights.head.is_none();
    if borrows && spec.hidden_size != width {
        let expected = format!("the model's {width}, whose embeddings or head it uses");
        return error("hidden size", expected, spec.hidden_size.to_string());
    }
    let (hidden, taps) = (spec.hidden_size, config.taps.len());
    check::linear("drafter input", &weights.input, hidden, taps * width)?;
    if weights.input.bias.is_some() {
        return error("input", "no bias".into(), "a bias".into());
    }
    check::vector("drafter hidden norm", &weights.hidden_norm, hidden)?;
    let mut predicted = vocab;
    if let Some(ids) = &weights.target_ids {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
            let expected = format!("ids below the model's {vocab}");
            return error("`d2t`", expected, id.to_string());
        }
        let Some(head) = &weights.head else {
            return error("head", "its own for a reduced vocabulary".into(), "none".into());
        };
        predicted = ids.len();
        check::linear("drafter head", head, predicted, hidden)?;
    }
    if let Some(row) = &weights.mask_row {
        check::vector("drafter mask embedding", row, hidden)?;
    }
    if !config.windows.is_empty() && config.windows.len() != spec.layers {
        let expected = format!("{}, one for each layer", spec.layers);
        return error("windows", expected, config.windows.len().to_string());
    }
    if let Some(markov) = &weights.markov {
        let rank = markov.previous.cols();
        check::matrix("drafter Markov head, tokens before", &markov.previous, vocab, rank)?;
        check::linear("drafter Markov head", &markov.next, predicted, rank)?;
    }
    Ok(())
}

/// Computes the vectors that the conditioning adds to the embeddings of the newest token and of MASK tokens:
/// the newest token has no noise, the others have nothing else.
fn conditioning(spec: &Spec, [first, second]: &[Linear; 2]) -> Result<[Vec<f32>; 2], ModelError> {
    let width = first.weight.rows();
    check::linear("drafter log-SNR input", first, width, SNR_FEATURES)?;
    check::linear("drafter log-SNR output", second, spec.hidden_size, width)?;
    let added = |time: f64| {
        let half = SNR_FEATURES / 2;
        let angle = |i: usize| time * libm::pow(10_000.0, -(i as f64) / half as f64);
        let sines = (0..half).map(|i| libm::sin(angle(i)) as f32);
        let cosines = (0..half).map(|i| libm::cos(angle(i)) as f32);
        let features: Vec<f32> = sines.chain(cosines).collect();
        let mut inner = times(first, &features);
        inner.iter_mut().for_each(|x| *x /= 1.0 + libm::expf(-*x));
        times(second, &inner)
    };
    Ok([added(1000.0), added(0.0)])
}

/// Computes the product of a matrix with a vector, and adds the bias.
fn times(linear: &Linear, x: &[f32]) -> Vec<f32> {
    let mut row = vec![0.0; x.len()];
    let output = |r: usize| {
        linear.weight.row_f32(r, &mut row);
        let bias = linear.bias.as_ref().map_or(0.0, |bias| bias[r]);
        row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + bias
    };
    (0..linear.weight.rows()).map(output).collect()
}
