//! Checks the shapes of weights against the spec.

use crate::format::{
    AttentionWeights, LayerWeights, Linear, LinearAttention, LinearAttentionWeights, Mixer,
    MixerKind, MtpWeights, RopeScaling, Rotation, Spec, Weights,
};
use crate::kernel::DeltaShape;
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
    if !(1..=spec.head_dim / 2).contains(&(spec.rotary_dim() / 2)) || spec.rotary_dim() % 2 == 1 {
        let expected = format!("an even number from 2 to {}", spec.head_dim);
        return Err(error("rotary_dim", expected, spec.rotary_dim().to_string()));
    }
    let divisors: &[&Vec<f32>] = match &spec.rope.scaling {
        Some(RopeScaling::Divisors(d)) => &[d],
        Some(RopeScaling::LongRope(s)) => &[&s.long, &s.short],
        _ => &[],
    };
    if let Some(d) = divisors.iter().find(|d| d.len() != spec.rotary_dim() / 2) {
        let expected = format!("{} divisors", spec.rotary_dim() / 2);
        return Err(error("RoPE scaling", expected, d.len().to_string()));
    }
    if !spec.mixers.is_empty() && spec.mixers.len() != spec.layers {
        let found = spec.mixers.len().to_string();
        return Err(error("mixers", format!("{}, one per layer", spec.layers), found));
    }
    spec.linear_attention.as_ref().map_or(Ok(()), linear_shape)?;
    matrix("embedding", &weights.embed, spec.vocab_size, spec.hidden_size)?;
    rotation("embedding", weights.embed_rotation.as_deref(), spec.hidden_size)?;
    vector("final norm", &weights.final_norm, spec.hidden_size)?;
    if let Some(head) = &weights.head {
        linear("head", head, spec.vocab_size, spec.hidden_size)?;
    }
    if weights.layers.is_empty() || weights.layers.len() != spec.layers {
        let found = weights.layers.len().to_string();
        return Err(error("layers", spec.layers.max(1).to_string(), found));
    }
    weights.layers.iter().enumerate().try_for_each(|(i, l)| layer(spec, i, l))?;
    match (&weights.mtp, spec.mtp_layers) {
        (None, 0) => Ok(()),
        (Some(weights), 1) => mtp(spec, weights),
        (weights, count) => {
            let found = usize::from(weights.is_some()).to_string();
            Err(error("block for multi-token prediction", count.to_string(), found))
        }
    }
}

/// Checks the block that drafts tokens: its layer is the one after all layers.
fn mtp(spec: &Spec, w: &MtpWeights) -> Result<(), ModelError> {
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    linear("mtp input", &w.input, hidden, 2 * hidden)?;
    if w.input.bias.is_some() {
        return Err(error("mtp input", "no bias".into(), "a bias".into()));
    }
    layer(spec, spec.layers, &w.layer)?;
    for (part, norm) in [
        ("mtp embedding norm", Some(&w.embed_norm)),
        ("mtp hidden norm", Some(&w.hidden_norm)),
        ("mtp head norm", w.head_norm.as_ref()),
    ] {
        norm.map_or(Ok(()), |norm| vector(part, norm, hidden))?;
    }
    w.embed.as_ref().map_or(Ok(()), |embed| matrix("mtp embedding", embed, vocab, hidden))?;
    w.head.as_ref().map_or(Ok(()), |head| linear("mtp head", head, vocab, hidden))
}

fn layer(spec: &Spec, i: usize, l: &LayerWeights) -> Result<(), ModelError> {
    let name = |part: &str| format!("layer {i} {part}");
    let (hidden, ffn) = (spec.hidden_size, spec.intermediate_size);
    match (&l.mixer, spec.mixer(i), &spec.linear_attention) {
        (Mixer::Attention(w), MixerKind::Attention, _) => attention(spec, i, w)?,
        (Mixer::Linear(w), MixerKind::Linear, Some(shape)) => linear_attention(spec, shape, i, w)?,
        (mixer, kind, _) => {
            let found = if mixer.attention().is_some() { "attention" } else { "linear attention" };
            return Err(error(&name("mixer"), format!("{kind:?}"), found.into()));
        }
    }
    let mixer = l.mixer.linears();
    one_rotation(&name("mixer inputs"), &mixer[..mixer.len() - 1])?;
    one_rotation(&name("gate and up"), &[&l.gate, &l.up])?;
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
    if let Some(adapter) = &w.draft_adapter {
        let rank = adapter.up.weight.cols();
        linear(&name("draft adapter, first matrix"), &adapter.down, rank, q)?;
        linear(&name("draft adapter, second matrix"), &adapter.up, hidden, rank)?;
    }
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

/// Checks the shape of the linear-attention layers.
fn linear_shape(shape: &LinearAttention) -> Result<(), ModelError> {
    let LinearAttention { key_heads, value_heads, key_dim, value_dim, conv_kernel, .. } = *shape;
    let positive = [key_heads, value_heads, key_dim, value_dim, conv_kernel].iter().all(|n| *n > 0);
    if positive && value_heads.is_multiple_of(key_heads) && conv_kernel <= DeltaShape::MAX_TAPS {
        return Ok(());
    }
    let expected = format!(
        "value heads divisible by key heads, and a convolution of 1 to {} taps",
        DeltaShape::MAX_TAPS
    );
    let found = format!("{key_heads} × {key_dim}, {value_heads} × {value_dim}, {conv_kernel} taps");
    Err(error("linear attention", expected, found))
}

fn linear_attention(
    spec: &Spec,
    shape: &LinearAttention,
    i: usize,
    w: &LinearAttentionWeights,
) -> Result<(), ModelError> {
    let name = |part: &str| format!("layer {i} {part}");
    let (hidden, values, heads) = (spec.hidden_size, shape.value_width(), shape.value_heads);
    for (part, weights, outputs) in [
        ("qkv", &w.qkv, shape.channels()),
        ("z", &w.z, values),
        ("alpha", &w.alpha, heads),
        ("beta", &w.beta, heads),
    ] {
        linear(&name(part), weights, outputs, hidden)?;
        if weights.bias.is_some() {
            return Err(error(&name(part), "no bias".into(), "a bias".into()));
        }
    }
    linear(&name("out"), &w.out, hidden, values)?;
    for (part, vector_of, len) in [
        ("convolution", &w.conv, shape.channels() * shape.conv_kernel),
        ("A", &w.a, heads),
        ("dt bias", &w.dt_bias, heads),
        ("linear norm", &w.norm, shape.value_dim),
    ] {
        vector(&name(part), vector_of, len)?;
    }
    Ok(())
}

/// Checks that the matrices of one input that read it rotated have equal rotations.
fn one_rotation(name: &str, linears: &[&Linear]) -> Result<(), ModelError> {
    let mut rotations = linears.iter().filter_map(|l| l.rotation.as_ref());
    let first = rotations.next();
    if rotations.all(|other| Some(other) == first) {
        Ok(())
    } else {
        Err(error(name, "one rotation".into(), "several".into()))
    }
}

fn rotation(name: &str, rotation: Option<&Rotation>, width: usize) -> Result<(), ModelError> {
    match rotation {
        Some(r) if !r.fits(width) => {
            let signs = r.signs.as_ref().map_or("none".into(), |s| s.len().to_string());
            let expected = format!("rotated blocks and signs for {width} inputs");
            Err(error(name, expected, format!("blocks of {}, {signs} signs", r.block)))
        }
        _ => Ok(()),
    }
}

pub(super) fn linear(
    name: &str,
    l: &Linear,
    outputs: usize,
    inputs: usize,
) -> Result<(), ModelError> {
    matrix(name, &l.weight, outputs, inputs)?;
    rotation(name, l.rotation.as_deref(), inputs)?;
    l.bias.as_ref().map_or(Ok(()), |b| vector(&format!("{name} bias"), b, outputs))
}

pub(super) fn matrix(name: &str, m: &Matrix, rows: usize, cols: usize) -> Result<(), ModelError> {
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

pub(super) fn vector(name: &str, v: &[f32], len: usize) -> Result<(), ModelError> {
    if v.len() == len {
        Ok(())
    } else {
        Err(error(name, format!("{len} elements"), v.len().to_string()))
    }
}

pub(super) fn error(tensor: &str, expected: String, found: String) -> ModelError {
    ModelError { tensor: tensor.into(), expected, found }
}
