//! Cost of a KV cache configuration and its effect on results, at a depth of the context.

use super::finite;
use super::perplexity::Loss;
use anyhow::Context;
use std::hint::black_box;
use std::time::Instant;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, PAGE};
use wrinklefree::format::Spec;
use wrinklefree::model::{AttentionMask, LogitRows, Model, ModelError, Runtime, Span, Workspace};

/// Prompt rows of a pass at most, which are also those whose results are compared.
pub const ROWS: usize = 256;
/// Passes of a sample.
const PASSES: usize = 4;

/// A cache that holds a text.
pub struct Probe<'a> {
    model: &'a Model,
    runtime: &'a Runtime,
    kv: KvPool,
    workspace: Workspace,
    /// The text.
    deep: KvSeq,
    /// A single token: what a pass costs without the text.
    shallow: KvSeq,
    last: (usize, u32),
}

/// Results of the last rows of a text.
pub struct Results {
    /// `[row][vocabulary]`.
    pub logits: Vec<Vec<f32>>,
    /// Attention's output in the last layer, `[row][heads · head_dim]`.
    pub attention: Vec<Vec<f32>>,
    /// Loss of the rows on their next tokens.
    pub loss: Loss,
    /// Share of the pages that they saw and read.
    pub read: f64,
}

impl<'a> Probe<'a> {
    /// Reads a text into a cache of this kind.
    ///
    /// # Errors
    /// When there is no memory for it, or the model computes a number that is not finite.
    pub fn new(
        model: &'a Model,
        runtime: &'a Runtime,
        config: KvConfig,
        tokens: &[u32],
    ) -> anyhow::Result<(Self, Results)> {
        let pages = tokens.len().div_ceil(PAGE) + 1;
        let mut kv = KvPool::new(model.spec(), pages, config)?;
        let (deep, shallow) = (kv.open(tokens.len())?, kv.open(1)?);
        let last = tokens.len() - 1;
        let workspace = Workspace::default();
        let mut probe =
            Self { model, runtime, kv, workspace, deep, shallow, last: (last, tokens[last]) };
        // Those that are compared are a pass of their own.
        let compared = last.saturating_sub(ROWS);
        for start in (0..compared).step_by(ROWS) {
            let end = (start + ROWS).min(compared);
            probe.pass(deep, start, &tokens[start..end], LogitRows::None)?;
            probe.kv.commit(deep, end);
        }
        let before = probe.kv.reads();
        let rows = probe.pass(deep, compared, &tokens[compared..last], LogitRows::All)?;
        let after = probe.kv.reads();
        let seen = after.1 - before.1;
        let read = if seen == 0 { 1.0 } else { (after.0 - before.0) as f64 / seen as f64 };
        let mut loss = Loss::default();
        rows.iter().zip(&tokens[compared + 1..]).for_each(|(row, &next)| loss.add(row, next));
        let spec = probe.model.spec();
        let outputs = probe.workspace.attention(spec).chunks(spec.heads * spec.head_dim);
        let attention = outputs.map(<[f32]>::to_vec).collect();
        probe.kv.commit(deep, last);
        probe.pass(deep, last, &tokens[last..], LogitRows::Last)?;
        probe.pass(shallow, 0, &tokens[..1], LogitRows::Last)?;
        Ok((probe, Results { logits: rows, attention, loss, read }))
    }

    /// Bytes of the pages that the text takes.
    pub fn bytes(&self) -> u64 {
        // One is the single token's.
        let pages = self.kv.pages() - self.kv.free_pages() - 1;
        KvPool::bytes(self.model.spec(), pages, self.kv.config()) as u64
    }

    /// Seconds of a pass of one token after the text, and after nothing.
    pub fn sample(&mut self) -> [f64; 2] {
        let (position, token) = self.last;
        [(self.deep, position), (self.shallow, 0)].map(|(seq, start)| {
            let begin = Instant::now();
            for _ in 0..PASSES {
                let span = Span {
                    seq,
                    start,
                    tokens: &[token],
                    attention_mask: AttentionMask::Causal,
                    logits: LogitRows::Last,
                };
                black_box(self.model.forward(
                    self.runtime,
                    &mut self.kv,
                    &[span],
                    &mut self.workspace,
                ));
            }
            begin.elapsed().as_secs_f64() / PASSES as f64
        })
    }

    fn pass(
        &mut self,
        seq: KvSeq,
        start: usize,
        tokens: &[u32],
        logits: LogitRows<'_>,
    ) -> anyhow::Result<Vec<Vec<f32>>> {
        let span = Span { seq, start, tokens, attention_mask: AttentionMask::Causal, logits };
        let logits = self.model.forward(self.runtime, &mut self.kv, &[span], &mut self.workspace);
        let width = self.model.spec().vocab_size;
        Ok(finite(logits)?.values().chunks(width).map(<[f32]>::to_vec).collect())
    }
}

/// A model's first layer, as a model: what a cache changes there is its own doing, because the
/// layer's inputs are what they are.
///
/// # Errors
/// When a shape does not fit.
pub fn first_layer(model: &Model) -> Result<Model, ModelError> {
    let mut weights = model.weights().clone();
    weights.layers.truncate(1);
    weights.mtp = None;
    Model::new(Spec { layers: 1, mtp_layers: 0, ..model.spec().clone() }, weights)
}

/// Mean and least cosine of rows with their counterparts.
///
/// # Errors
/// When there are none.
pub fn cosines(rows: &[Vec<f32>], others: &[Vec<f32>]) -> anyhow::Result<[f64; 2]> {
    let all: Vec<f64> = rows.iter().zip(others).map(|(a, b)| cosine(a, b)).collect();
    let least = all.iter().copied().reduce(f64::min).context("nothing to compare")?;
    Ok([all.iter().sum::<f64>() / all.len() as f64, least])
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_what_they_are() {
        let [mean, least] =
            cosines(&[vec![1.0, 0.0], vec![3.0, 4.0]], &[vec![2.0, 0.0], vec![4.0, 3.0]])
                .expect("rows");
        assert!((least - 0.96).abs() < 1e-12 && (mean - 0.98).abs() < 1e-12);
        assert!(cosines(&[], &[]).is_err());
    }
}
