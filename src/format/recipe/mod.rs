//! Assembles a model from its tensors. This module alone knows which tensors a model has and their
//! shapes. Names, encodings and biases differ between containers; a [`TensorSource`] knows those.

mod disassemble;
mod drafter;
mod names;

pub(super) use disassemble::{TensorSink, disassemble};
pub(super) use drafter::assemble_drafter;
pub(super) use names::{DraftRole, LayerRole, MtpRole, TensorNames, TensorRole};

use super::{
    Architecture, AttentionWeights, LayerWeights, Linear, LinearAttention, LinearAttentionWeights,
    LoadError, LowRank, Mixer, MixerKind, MtpWeights, Rotation, Spec, Weights,
};
use crate::matrix::Matrix;
use std::sync::Arc;

/// The tensors of a container.
pub(super) trait TensorSource {
    /// Reads the matrix of a linear layer, with its bias and rotation.
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError>;
    /// Reads the token embeddings and their rotation.
    fn embed(
        &mut self,
        rows: usize,
        cols: usize,
    ) -> Result<(Matrix, Option<Arc<Rotation>>), LoadError>;
    /// Reads numbers that are not a linear layer, in the form that a checkpoint holds: the weights of a
    /// norm, a convolution `[channels][taps]`, factors of decays.
    fn floats(&mut self, role: TensorRole, shape: &[usize]) -> Result<Vec<f32>, LoadError>;
    /// Returns true if the head is a separate matrix, not the embeddings.
    fn has_head(&self) -> bool;
    /// Returns the shape of the tensor with the weights of this role, if there is one.
    fn shape(&self, role: TensorRole) -> Option<&[usize]>;
    /// Returns true if there is a tensor with the weights of this role.
    fn has(&self, role: TensorRole) -> bool {
        self.shape(role).is_some()
    }
    /// Returns the rank of the adapter that changes drafts; `None` without one.
    fn draft_rank(&self) -> Option<usize> {
        None
    }
}

/// Reads all tensors of a model.
pub(super) fn assemble(spec: &Spec, source: &mut impl TensorSource) -> Result<Weights, LoadError> {
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let (embed, embed_rotation) = source.embed(vocab, hidden)?;
    let mut layers = Vec::new();
    let head_norms = match spec.architecture {
        Architecture::Qwen3 | Architecture::Qwen35 => true,
        // Some files have none (`use_qk_norm` false): then no layer has.
        Architecture::HunyuanDense => source.has(TensorRole::Layer(0, LayerRole::QNorm)),
        _ => false,
    };
    // BitNet always has sub-norms. In other families one of the first layer says that all have them.
    let sub_norms = spec.architecture == Architecture::BitNet
        || [LayerRole::AttnSubNorm, LayerRole::FfnSubNorm]
            .into_iter()
            .any(|role| source.has(TensorRole::Layer(0, role)));
    for layer in 0..spec.layers {
        let (mixer, role) = (spec.mixer(layer), &|role| TensorRole::Layer(layer, role));
        let source = &mut *source;
        layers.push(Layer { spec, source, mixer, head_norms, sub_norms, role }.assemble()?);
    }
    let final_norm = source.floats(TensorRole::FinalNorm, &[hidden])?;
    let head = if source.has_head() {
        Some(source.linear(TensorRole::Head, vocab, hidden)?)
    } else {
        None
    };
    Ok(Weights { embed, embed_rotation, head, final_norm, layers, mtp: None })
}

/// Reads the block for multi-token prediction after the layers.
pub(super) fn assemble_mtp(
    spec: &Spec,
    source: &mut impl TensorSource,
) -> Result<MtpWeights, LoadError> {
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let at = |role| TensorRole::Mtp(spec.layers, role);
    let norm = |source: &mut _, role| TensorSource::floats(source, at(role), &[hidden]);
    let matrix = |source: &mut _, role| TensorSource::linear(source, at(role), vocab, hidden);
    let embed_norm = norm(source, MtpRole::EmbedNorm)?;
    let hidden_norm = norm(source, MtpRole::HiddenNorm)?;
    let input = source.linear(at(MtpRole::Input), hidden, 2 * hidden)?;
    let role = &|role| at(MtpRole::Layer(role));
    let (mixer, head_norms, sub_norms) = (MixerKind::Attention, true, false);
    let layer = Layer { spec, source: &mut *source, mixer, head_norms, sub_norms, role };
    let layer = layer.assemble()?;
    let own = |source: &_, role| TensorSource::has(source, at(role));
    let head_norm =
        if own(source, MtpRole::HeadNorm) { Some(norm(source, MtpRole::HeadNorm)?) } else { None };
    let embed = if own(source, MtpRole::Embed) {
        Some(matrix(source, MtpRole::Embed)?.weight)
    } else {
        None
    };
    let head = if own(source, MtpRole::Head) { Some(matrix(source, MtpRole::Head)?) } else { None };
    Ok(MtpWeights { embed_norm, hidden_norm, input, layer, head_norm, embed, head })
}

/// A layer and where its tensors come from.
struct Layer<'a, S> {
    spec: &'a Spec,
    source: &'a mut S,
    mixer: MixerKind,
    /// True if q and k have norms.
    head_norms: bool,
    /// True if a norm stands before the output and the down projection.
    sub_norms: bool,
    /// The role in the model of a tensor of the layer.
    role: &'a dyn Fn(LayerRole) -> TensorRole,
}

impl<S: TensorSource> Layer<'_, S> {
    fn linear(&mut self, role: LayerRole, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        self.source.linear((self.role)(role), rows, cols)
    }

    fn floats(&mut self, role: LayerRole, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.source.floats((self.role)(role), shape)
    }

    fn norm_if(
        &mut self,
        present: bool,
        role: LayerRole,
        len: usize,
    ) -> Result<Option<Vec<f32>>, LoadError> {
        present.then(|| self.floats(role, &[len])).transpose()
    }

    fn assemble(mut self) -> Result<LayerWeights, LoadError> {
        let spec = self.spec;
        let (hidden, ff) = (spec.hidden_size, spec.intermediate_size);
        let sub_norms = self.sub_norms;
        Ok(LayerWeights {
            mixer_norm: self.floats(LayerRole::AttnNorm, &[hidden])?,
            mixer: match (self.mixer, &spec.linear_attention) {
                (MixerKind::Linear, Some(shape)) => {
                    Mixer::Linear(Box::new(self.linear_attention(shape)?))
                }
                _ => Mixer::Attention(Box::new(self.attention()?)),
            },
            ffn_norm: self.floats(LayerRole::FfnNorm, &[hidden])?,
            gate: self.linear(LayerRole::Gate, ff, hidden)?,
            up: self.linear(LayerRole::Up, ff, hidden)?,
            ffn_sub_norm: self.norm_if(sub_norms, LayerRole::FfnSubNorm, ff)?,
            down: self.linear(LayerRole::Down, hidden, ff)?,
        })
    }

    fn attention(&mut self) -> Result<AttentionWeights, LoadError> {
        let spec = self.spec;
        let (hidden, head) = (spec.hidden_size, spec.head_dim);
        let (q, kv) = (spec.heads * head, spec.kv_heads * head);
        let (head_norms, sub_norms) = (self.head_norms, self.sub_norms);
        Ok(AttentionWeights {
            q: self.linear(LayerRole::Q, spec.query_outputs(), hidden)?,
            k: self.linear(LayerRole::K, kv, hidden)?,
            v: self.linear(LayerRole::V, kv, hidden)?,
            q_norm: self.norm_if(head_norms, LayerRole::QNorm, head)?,
            k_norm: self.norm_if(head_norms, LayerRole::KNorm, head)?,
            sub_norm: self.norm_if(sub_norms, LayerRole::AttnSubNorm, q)?,
            o: self.linear(LayerRole::O, hidden, q)?,
            draft_adapter: match self.source.draft_rank() {
                Some(rank) => Some(Box::new(LowRank {
                    down: self.linear(LayerRole::DraftDown, rank, q)?,
                    up: self.linear(LayerRole::DraftUp, hidden, rank)?,
                })),
                None => None,
            },
        })
    }

    fn linear_attention(
        &mut self,
        shape: &LinearAttention,
    ) -> Result<LinearAttentionWeights, LoadError> {
        let hidden = self.spec.hidden_size;
        let (channels, heads, width) = (shape.channels(), shape.value_heads, shape.value_width());
        Ok(LinearAttentionWeights {
            qkv: self.linear(LayerRole::Qkv, channels, hidden)?,
            z: self.linear(LayerRole::Z, width, hidden)?,
            alpha: self.linear(LayerRole::Alpha, heads, hidden)?,
            beta: self.linear(LayerRole::Beta, heads, hidden)?,
            conv: self.floats(LayerRole::Conv, &[channels, shape.conv_kernel])?,
            a: self.floats(LayerRole::A, &[heads])?,
            dt_bias: self.floats(LayerRole::DtBias, &[heads])?,
            norm: self.floats(LayerRole::LinearNorm, &[shape.value_dim])?,
            out: self.linear(LayerRole::Out, hidden, width)?,
        })
    }
}
