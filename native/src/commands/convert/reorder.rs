//! Columns in front of down_proj that are often zero, moved together: a product skips blocks of 16
//! columns only where all of them are zero.

use crate::zeros::{Counter, Counts};
use anyhow::Context;
use std::fs;
use std::path::Path;
use wrinklefree::cache::{KvPool, PAGE};
use wrinklefree::format::Checkpoint;
use wrinklefree::model::{Model, Output, Rows, Runtime, Sight, Span, Workspace};
use wrinklefree::text::Tokenizer;

/// Tokens that are looked at, at most, in windows that know nothing of each other.
const TOKENS: usize = 8192;
const WINDOW: usize = 512;
/// Rows of a pass.
const ROWS: usize = 64;

/// What reordering did: zero blocks among those in front of down_proj, on the same text.
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
    let mut tokens = tokenizer.encode(&text, true).context("cannot encode the text")?;
    anyhow::ensure!(!tokens.is_empty(), "the calibration text {} is empty", path.display());
    tokens.truncate(TOKENS);
    Ok(tokens)
}

/// The same model with the columns of each layer in the order of how often they are zero.
pub fn reorder(
    rt: &Runtime,
    checkpoint: Checkpoint,
    tokens: &[u32],
) -> anyhow::Result<(Checkpoint, Shares)> {
    let before = count(rt, &checkpoint, tokens)?;
    let orders: Vec<Vec<usize>> = before.columns.iter().map(|zeros| order(zeros)).collect();
    let changed = checkpoint.with_ffn_orders(&orders)?;
    let after = count(rt, &changed, tokens)?;
    let share = |counts: &Counts| counts.down.block_share();
    Ok((changed, Shares { before: share(&before), after: share(&after) }))
}

/// Columns by how often they are zero, the most often last; what is alike keeps its order.
fn order(zeros: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..zeros.len()).collect();
    order.sort_by_key(|&column| zeros[column]);
    order
}

fn count(rt: &Runtime, checkpoint: &Checkpoint, tokens: &[u32]) -> anyhow::Result<Counts> {
    let model = Model::new(checkpoint.spec.clone(), checkpoint.weights.clone())?;
    let window = WINDOW.min(model.spec().context_length);
    let mut kv = KvPool::new(model.spec(), window.div_ceil(PAGE))?;
    let mut workspace = Workspace::default();
    let counter = Counter::new(&model, &mut workspace);
    for window in tokens.chunks(window) {
        let seq = kv.open(window.len())?;
        for (chunk, tokens) in window.chunks(ROWS).enumerate() {
            let (sight, logits) = (Sight::Causal, Rows::All);
            let span = Span { seq, start: chunk * ROWS, tokens, sight, logits };
            model.compute(rt, &mut kv, &[span], &mut workspace, Output::Hidden);
        }
        kv.close(seq);
    }
    Ok(counter.counts())
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn columns_that_are_often_zero_come_last() {
        assert_eq!(order(&[3, 0, 9, 3, 1]), [1, 4, 0, 3, 2]);
        assert_eq!(order(&[]), [0; 0]);
    }
}
