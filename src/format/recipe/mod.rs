//! Assembles a model from its tensors. This module alone knows which tensors a model has and their
//! shapes. Names, encodings and biases differ between containers; a [`TensorSource`] knows those.

mod names;

pub(super) use names::{LayerRole, TensorNames, TensorRole};

use super::{
    Architecture, AttentionWeights, LayerWeights, Linear, LoadError, Mixer, Spec, Weights,
};
use crate::matrix::Matrix;

/// The tensors of a container.
pub(super) trait TensorSource {
    /// Reads the matrix of a linear layer, with its bias.
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError>;
    /// Reads the token embeddings.
    fn embed(&mut self, rows: usize, cols: usize) -> Result<Matrix, LoadError>;
    /// Reads the weights of a norm.
    fn vector(&mut self, role: TensorRole, len: usize) -> Result<Vec<f32>, LoadError>;
    /// Returns true if the head is a separate matrix, not the embeddings.
    fn has_head(&self) -> bool;
}

/// Reads all tensors of a model.
pub(super) fn assemble(spec: &Spec, source: &mut impl TensorSource) -> Result<Weights, LoadError> {
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let embed = source.embed(vocab, hidden)?;
    let mut layers = Vec::new();
    for layer in 0..spec.layers {
        layers.push(assemble_layer(spec, source, layer)?);
    }
    let final_norm = source.vector(TensorRole::FinalNorm, hidden)?;
    let head = match source.has_head() {
        true => Some(source.linear(TensorRole::Head, vocab, hidden)?),
        false => None,
    };
    Ok(Weights { embed, embed_rotation: None, head, final_norm, layers })
}

fn assemble_layer(
    spec: &Spec,
    source: &mut impl TensorSource,
    layer: usize,
) -> Result<LayerWeights, LoadError> {
    let (hidden, ff) = (spec.hidden_size, spec.intermediate_size);
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let bitnet = spec.architecture == Architecture::BitNet;
    let qwen3 = spec.architecture == Architecture::Qwen3;
    let at = |role| TensorRole::Layer(layer, role);
    let mut norm_if = |present: bool, role, len| match present {
        true => source.vector(at(role), len).map(Some),
        false => Ok(None),
    };
    let q_norm = norm_if(qwen3, LayerRole::QNorm, spec.head_dim)?;
    let k_norm = norm_if(qwen3, LayerRole::KNorm, spec.head_dim)?;
    let sub_norm = norm_if(bitnet, LayerRole::AttnSubNorm, q)?;
    let ffn_sub_norm = norm_if(bitnet, LayerRole::FfnSubNorm, ff)?;
    let mixer_norm = source.vector(at(LayerRole::AttnNorm), hidden)?;
    let attention = AttentionWeights {
        q: source.linear(at(LayerRole::Q), q, hidden)?,
        k: source.linear(at(LayerRole::K), kv, hidden)?,
        v: source.linear(at(LayerRole::V), kv, hidden)?,
        q_norm,
        k_norm,
        sub_norm,
        o: source.linear(at(LayerRole::O), hidden, q)?,
    };
    Ok(LayerWeights {
        mixer_norm,
        mixer: Mixer::Attention(Box::new(attention)),
        ffn_norm: source.vector(at(LayerRole::FfnNorm), hidden)?,
        gate: source.linear(at(LayerRole::Gate), ff, hidden)?,
        up: source.linear(at(LayerRole::Up), ff, hidden)?,
        ffn_sub_norm,
        down: source.linear(at(LayerRole::Down), hidden, ff)?,
    })
}
