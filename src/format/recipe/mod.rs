//! The one recipe from tensors to a model. What differs between containers (names, encodings,
//! biases) is a [`Source`]; which tensors a model has and their shapes is said here only.

mod names;

pub(super) use names::{Names, Place, Role};

use super::{Architecture, LayerWeights, Linear, LoadError, Spec, Weights};
use crate::matrix::Matrix;

/// Where tensors come from.
pub(super) trait Source {
    /// The matrix of a linear layer, with its bias.
    fn linear(&mut self, place: Place, rows: usize, cols: usize) -> Result<Linear, LoadError>;
    /// The token embeddings.
    fn embed(&mut self, rows: usize, cols: usize) -> Result<Matrix, LoadError>;
    /// A norm.
    fn vector(&mut self, place: Place, len: usize) -> Result<Vec<f32>, LoadError>;
    /// Is the head a matrix of its own?
    fn has_head(&self) -> bool;
}

/// Collects all tensors of a model.
pub(super) fn assemble(spec: &Spec, source: &mut impl Source) -> Result<Weights, LoadError> {
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let embed = source.embed(vocab, hidden)?;
    let mut layers = Vec::new();
    for layer in 0..spec.layers {
        layers.push(assemble_layer(spec, source, layer)?);
    }
    let final_norm = source.vector(Place::FinalNorm, hidden)?;
    let head = match source.has_head() {
        true => Some(source.linear(Place::Head, vocab, hidden)?),
        false => None,
    };
    Ok(Weights { embed, head, final_norm, layers })
}

fn assemble_layer(
    spec: &Spec,
    source: &mut impl Source,
    layer: usize,
) -> Result<LayerWeights, LoadError> {
    let (hidden, ff) = (spec.hidden_size, spec.intermediate_size);
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let bitnet = spec.architecture == Architecture::BitNet;
    let qwen3 = spec.architecture == Architecture::Qwen3;
    let at = |role| Place::Layer(layer, role);
    let mut norm_if = |present: bool, role, len| match present {
        true => source.vector(at(role), len).map(Some),
        false => Ok(None),
    };
    let q_norm = norm_if(qwen3, Role::QNorm, spec.head_dim)?;
    let k_norm = norm_if(qwen3, Role::KNorm, spec.head_dim)?;
    let attn_sub_norm = norm_if(bitnet, Role::AttnSubNorm, q)?;
    let ffn_sub_norm = norm_if(bitnet, Role::FfnSubNorm, ff)?;
    Ok(LayerWeights {
        attn_norm: source.vector(at(Role::AttnNorm), hidden)?,
        q: source.linear(at(Role::Q), q, hidden)?,
        k: source.linear(at(Role::K), kv, hidden)?,
        v: source.linear(at(Role::V), kv, hidden)?,
        q_norm,
        k_norm,
        attn_sub_norm,
        o: source.linear(at(Role::O), hidden, q)?,
        ffn_norm: source.vector(at(Role::FfnNorm), hidden)?,
        gate: source.linear(at(Role::Gate), ff, hidden)?,
        up: source.linear(at(Role::Up), ff, hidden)?,
        ffn_sub_norm,
        down: source.linear(at(Role::Down), hidden, ff)?,
    })
}
