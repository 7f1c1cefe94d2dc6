//! Columns in front of down_proj that are often zero at the same time, moved together: a product
//! skips blocks of 16 columns only where all of them are zero.

use anyhow::Context;
use serde::Serialize;
use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use wf_run_laboratory::activation_stats::{Counter, Counts};
use wf_run_laboratory::finite;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::format::Checkpoint;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Output, Runtime, Span, Workspace};
use wrinklefree::ternary::BLOCK_COLS;
use wrinklefree::text::Tokenizer;

/// Largest number of tokens to read, in independent windows.
const TOKENS: usize = 4096;
const WINDOW: usize = 512;
/// Rows of a pass.
const ROWS: usize = 64;

/// Shares of zero blocks before down_proj on the same text, before and after reordering.
#[derive(Serialize)]
pub struct Shares {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

/// The tokens of a calibration text.
pub fn tokens(path: &Path, tokenizer: Option<&Tokenizer>) -> anyhow::Result<Vec<u32>> {
    let tokenizer = tokenizer.context("--reorder-ffn needs a model with a tokenizer")?;
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the calibration text {}", path.display()))?;
    anyhow::ensure!(!text.is_empty(), "the calibration text {} is empty", path.display());
    let mut tokens = tokenizer.encode(&text, true).context("cannot encode the text")?;
    tokens.truncate(TOKENS);
    Ok(tokens)
}

/// The same model with columns together that are often zero at the same time, in every layer.
pub fn reorder(
    rt: &Runtime,
    checkpoint: Checkpoint,
    tokens: &[u32],
) -> anyhow::Result<(Checkpoint, Shares)> {
    let before = count(rt, &checkpoint, tokens)?;
    let orders: Vec<Vec<usize>> = before.layers.iter().map(|layer| order(&layer.zero)).collect();
    let changed = checkpoint.with_ffn_orders(&orders)?;
    let after = count(rt, &changed, tokens)?;
    let share = |counts: &Counts| counts.down.block_share();
    Ok((changed, Shares { before: share(&before), after: share(&after) }))
}

/// Columns block by block, where `zero` says when each was zero. A block begins with the column that
/// is zero most often and takes those that keep it zero as a whole most often; where several do, the
/// one that is zero most rarely, which other blocks miss least. So the first blocks can be skipped
/// most often, and those that are skipped stand together.
fn order(zero: &[Vec<u64>]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..zero.len()).collect();
    let mut order = Vec::with_capacity(zero.len());
    let words = zero.first().map_or(0, Vec::len);
    let ones = |bits: &Vec<u64>| bits.iter().map(|word| word.count_ones()).sum::<u32>();
    let alone: Vec<u32> = zero.iter().map(ones).collect();
    let mut together = vec![u64::MAX; words];
    while !left.is_empty() {
        if order.len() % BLOCK_COLS == 0 {
            together.fill(u64::MAX);
        }
        let joint = |column: usize| -> u32 {
            together.iter().zip(&zero[column]).map(|(a, b)| (a & b).count_ones()).sum()
        };
        let worth = |&i: &usize| (joint(left[i]), Reverse(alone[left[i]]));
        // The first of those that are equally good.
        let best = (0..left.len()).rev().max_by_key(worth).expect("some are left");
        let column = left.remove(best);
        together.iter_mut().zip(&zero[column]).for_each(|(a, b)| *a &= b);
        order.push(column);
    }
    order
}

fn count(rt: &Runtime, checkpoint: &Checkpoint, tokens: &[u32]) -> anyhow::Result<Counts> {
    let model =
        Model::new(checkpoint.spec.clone(), checkpoint.weights.clone())?.with_supported_layout(rt);
    let window = WINDOW.min(model.spec().context_length);
    let mut kv = KvPool::new(model.spec(), window.div_ceil(PAGE), KvConfig::EXACT)?;
    let mut workspace = Workspace::default();
    let counter = Counter::of_columns(&model, &mut workspace);
    for window in tokens.chunks(window) {
        let seq = kv.open(window.len())?;
        for (chunk, tokens) in window.chunks(ROWS).enumerate() {
            let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
            let span = Span { seq, start: chunk * ROWS, tokens, attention_mask, logits };
            finite(model.compute(rt, &mut kv, &[span], &mut workspace, Output::Hidden))?;
        }
        kv.close(seq);
    }
    Ok(counter.counts())
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn columns_that_are_zero_at_the_same_time_stand_together() {
        // Even columns are zero in the first rows, odd ones in the last; column 5 never is.
        let zero = |column: usize| match column {
            5 => vec![0, 0],
            odd if odd % 2 == 1 => vec![0, 0xff],
            _ => vec![0x1ff, 0],
        };
        let order = order(&(0..34).map(zero).collect::<Vec<_>>());
        assert_eq!(order[..16], (0..16).map(|i| 2 * i).collect::<Vec<_>>());
        assert_eq!(order[16], 32, "a block begins with what is zero most often");
        assert_eq!(order[17], 5, "and what is never zero goes where nothing is lost");
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..34));
        assert_eq!(super::order(&[]), [0; 0]);
    }
}
