//! Quality and speed of a rule for activation sparsity.

use super::finite;
use super::perplexity::Loss;
use crate::eval::activation_stats::{Counter, Counts};
use std::time::Instant;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{
    AttentionMask, LogitRows, Logits, Model, Runtime, Span, Sparsity, Workspace,
};

/// Rows of a pass that all get logits.
const ROWS: usize = 64;

/// Similarity of logits with those of another rule at the same positions.
#[derive(Clone, Copy, Debug)]
pub struct Cosines {
    sum: f64,
    count: usize,
    /// The least.
    pub min: f64,
}

impl Default for Cosines {
    fn default() -> Self {
        Self { sum: 0.0, count: 0, min: 1.0 }
    }
}

impl Cosines {
    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn add(&mut self, a: &[f32], b: &[f32]) {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
        self.sum += cosine;
        self.count += 1;
        self.min = self.min.min(cosine);
    }
}

/// Effect of a rule on a text.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    /// Loss on the text.
    pub loss: Loss,
    /// Similarity of its logits with those of `off`.
    pub cosines: Cosines,
    /// Zeros in front of ternary matrices.
    pub counts: Counts,
}

/// Runs a rule over independent windows of a text, compared with `off`.
///
/// # Errors
/// When there is no memory for the KV cache.
pub fn quality(
    model: &mut Model,
    runtime: &Runtime,
    policy: Sparsity,
    windows: &[&[u32]],
) -> anyhow::Result<Quality> {
    let mut quality = Quality::default();
    let longest = windows.iter().map(|window| window.len()).max().unwrap_or(1);
    let mut kv = KvPool::new(model.spec(), 2 * longest.div_ceil(PAGE), KvConfig::EXACT)?;
    let (mut reference, mut workspace) = (Workspace::default(), Workspace::default());
    let counter = Counter::new(model, &mut workspace);
    for window in windows {
        let seqs = [kv.open(window.len())?, kv.open(window.len())?];
        for start in (0..window.len()).step_by(ROWS) {
            let end = (start + ROWS).min(window.len());
            let [off, on] = seqs.map(|seq| Span {
                seq,
                start,
                tokens: &window[start..end],
                attention_mask: AttentionMask::Causal,
                logits: LogitRows::All,
            });
            model.sparsity = Sparsity::default();
            let off = finite(model.forward(runtime, &mut kv, &[off], &mut reference))?;
            model.sparsity = policy;
            let on = finite(model.forward(runtime, &mut kv, &[on], &mut workspace))?;
            for row in 0..on.len() {
                quality.cosines.add(on.row(row), off.row(row));
                if let Some(&next) = window.get(start + row + 1) {
                    quality.loss.add(on.row(row), next);
                }
            }
        }
        seqs.into_iter().for_each(|seq| kv.close(seq));
    }
    quality.counts = counter.counts();
    Ok(quality)
}

/// Decoding with a policy, and in turn with `off` and a kernel that skips nothing.
#[derive(Clone, Debug, Default)]
pub struct Speed {
    /// Tokens per second of each round.
    pub samples: Vec<f64>,
    /// The same without policy and skipping.
    pub dense: Vec<f64>,
    /// True if the last logits were the same, bit for bit.
    pub equal: bool,
}

impl Speed {
    /// Tokens per second, the median of the rounds.
    pub fn tokens_per_second(&self) -> f64 {
        median(self.samples.iter().copied())
    }

    /// The same as a multiple of what went without policy and skipping just before, the median.
    pub fn times_dense(&self) -> f64 {
        median(self.samples.iter().zip(&self.dense).map(|(sample, dense)| sample / dense))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Decodes `tokens` one by one, with each policy right after a run that multiplies zeros, and so on
/// for `rounds` rounds that begin with another policy each: so a noisy minute meets them all.
///
/// # Errors
/// When there is no memory for the KV cache.
pub fn speeds(
    model: &mut Model,
    runtime: &mut Runtime,
    policies: &[Sparsity],
    tokens: &[u32],
    rounds: usize,
) -> anyhow::Result<Vec<Speed>> {
    let kernels = runtime.kernels;
    let mut kv = KvPool::new(model.spec(), tokens.len().div_ceil(PAGE), KvConfig::EXACT)?;
    let mut workspace = Workspace::default();
    let mut decode = |policy: Sparsity, kernels: Kernels| -> anyhow::Result<(f64, Vec<u32>)> {
        (model.sparsity, runtime.kernels) = (policy, kernels);
        let seq = kv.open(tokens.len())?;
        let begin = Instant::now();
        let mut last = Vec::new();
        for (start, token) in tokens.chunks(1).enumerate() {
            let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::Last);
            let span = Span { seq, start, tokens: token, attention_mask, logits };
            let logits: Logits<'_> =
                finite(model.forward(runtime, &mut kv, &[span], &mut workspace))?;
            last.clear();
            last.extend(logits.row(0).iter().map(|x| x.to_bits()));
        }
        let seconds = begin.elapsed().as_secs_f64();
        kv.close(seq);
        Ok((tokens.len() as f64 / seconds, last))
    };
    decode(Sparsity::default(), kernels)?;
    let mut speeds = vec![Speed::default(); policies.len()];
    for round in 0..rounds {
        for i in (0..policies.len()).map(|i| (i + round) % policies.len()) {
            let (policy, speed) = (policies[i], &mut speeds[i]);
            let (dense, reference) = decode(Sparsity::default(), kernels.dense())?;
            let (sample, last) = decode(policy, kernels)?;
            speed.samples.push(sample);
            speed.dense.push(dense);
            speed.equal = last == reference;
        }
    }
    runtime.kernels = kernels;
    Ok(speeds)
}
