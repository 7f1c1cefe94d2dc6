//! Checks the shapes of weights against the spec.

use crate::format::{AttentionWeights, LayerWeights, Linear, Mixer, RopeScaling, Spec, Weights};
use crate::matrix::Matrix;

/// The shape of a tensor does not match the spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tensor}: expected {expected}, found {found}")]
pub struct ModelError {
    /// Role of the tensor.
    pub tensor: String,
    /// Shape that the spec requires.
    pub expected: String,
    /// Shape of the tensor.
    pub found: String,
}

/// Largest number of inputs: with twice as many, int8 products (2¹⁴ each) overflow an i32 sum.
const MAX_INPUTS: usize = 1 << 16;

/// Checks every tensor's shape against the spec.
pub(super) fn check(spec: &Spec, weights: &Weights) -> Result<(), ModelError> {
    if spec.heads == 0 || spec.kv_heads == 0 || !spec.heads.is_multiple_of(spec.kv_heads) {
        let found = format!("{} heads, {} KV heads", spec.heads, spec.kv_heads);
        return Err(error("attention", "heads divisible by KV heads".into(), found));
    }
    if spec.head_dim == 0 || !spec.head_dim.is_multiple_of(2) {
        return Err(error("head_dim", "an even number".into(), spec.head_dim.to_string()));
    }
    if let Some(RopeScaling::Divisors(d)) = &spec.rope.scaling
        && d.len() != spec.head_dim / 2
    {
        let expected = format!("{} divisors", spec.head_dim / 2);
        return Err(error("RoPE scaling", expected, d.len().to_string()));
    }
    matrix("embedding", &weights.embed, spec.vocab_size, spec.hidden_size)?;
    vector("final norm", &weights.final_norm, spec.hidden_size)?;
    if let Some(head) = &weights.head {
        linear("head", head, spec.vocab_size, spec.hidden_size)?;
    }
    if weights.layers.is_empty() || weights.layers.len() != spec.layers {
        let found = weights.layers.len().to_string();
        return Err(error("layers", spec.layers.max(1).to_string(), found));
    }
    weights.layers.iter().enumerate().try_for_each(|(i, l)| layer(spec, i, l))
}

fn layer(spec: &Spec, i: usize, l: &LayerWeights) -> Result<(), ModelError> {
    let name = |part: &str| format!("layer {i} {part}");
    let (hidden, ffn) = (spec.hidden_size, spec.intermediate_size);
    match &l.mixer {
        Mixer::Attention(w) => attention(spec, i, w)?,
        Mixer::Linear(_) => {
            return Err(error(&name("mixer"), "attention".into(), "linear attention".into()));
        }
    }
    for (part, weights, outputs, inputs) in
        [("gate", &l.gate, ffn, hidden), ("up", &l.up, ffn, hidden), ("down", &l.down, hidden, ffn)]
    {
        linear(&name(part), weights, outputs, inputs)?;
    }
    for (part, norm, len) in [
        ("mixer norm", Some(&l.mixer_norm), hidden),
        ("feed-forward norm", Some(&l.ffn_norm), hidden),
        ("feed-forward sub-norm", l.ffn_sub_norm.as_ref(), ffn),
    ] {
        if let Some(norm) = norm {
            vector(&name(part), norm, len)?;
        }
    }
    Ok(())
}

fn attention(spec: &Spec, i: usize, w: &AttentionWeights) -> Result<(), ModelError> {
    let name = |part: &str| format!("layer {i} {part}");
    let hidden = spec.hidden_size;
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    linear(&name("q"), &w.q, spec.query_outputs(), hidden)?;
    linear(&name("k"), &w.k, kv, hidden)?;
    linear(&name("v"), &w.v, kv, hidden)?;
    linear(&name("o"), &w.o, hidden, q)?;
    for (part, norm, len) in [
        ("q norm", &w.q_norm, spec.head_dim),
        ("k norm", &w.k_norm, spec.head_dim),
        ("attention sub-norm", &w.sub_norm, q),
    ] {
        if let Some(norm) = norm {
            vector(&name(part), norm, len)?;
        }
    }
    Ok(())
}

fn linear(name: &str, l: &Linear, outputs: usize, inputs: usize) -> Result<(), ModelError> {
    matrix(name, &l.weight, outputs, inputs)?;
    l.bias.as_ref().map_or(Ok(()), |b| vector(&format!("{name} bias"), b, outputs))
}

fn matrix(name: &str, m: &Matrix, rows: usize, cols: usize) -> Result<(), ModelError> {
    if (m.rows(), m.cols()) != (rows, cols) {
        let found = format!("{} × {}", m.rows(), m.cols());
        return Err(error(name, format!("{rows} × {cols}"), found));
    }
    if rows == 0 || cols == 0 || cols > MAX_INPUTS {
        let expected = format!("outputs and inputs from 1, at most {MAX_INPUTS} inputs");
        return Err(error(name, expected, format!("{rows} × {cols}")));
    }
    Ok(())
}

fn vector(name: &str, v: &[f32], len: usize) -> Result<(), ModelError> {
    match v.len() == len {
        true => Ok(()),
        false => Err(error(name, format!("{len} elements"), v.len().to_string())),
    }
}

fn error(tensor: &str, expected: String, found: String) -> ModelError {
    ModelError { tensor: tensor.into(), expected, found }
}
