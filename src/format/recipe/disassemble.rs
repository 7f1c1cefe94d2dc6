//! Hands out the tensors of a model, for writers of files: the inverse of [`assemble`](super::assemble).

use super::{LayerRole, MtpRole, TensorRole};
use crate::format::{LayerWeights, Linear, Mixer, MtpWeights, Rotation, Weights};
use crate::matrix::Matrix;
use std::sync::Arc;

/// Receives the tensors of a model.
pub(in crate::format) trait TensorSink<'a> {
    type Error;

    /// Takes token embeddings and their rotation.
    fn embed(
        &mut self,
        role: TensorRole,
        matrix: &'a Matrix,
        rotation: Option<&'a Arc<Rotation>>,
    ) -> Result<(), Self::Error>;

    /// Takes the matrix of a linear layer, with its bias and rotation.
    fn linear(&mut self, role: TensorRole, linear: &'a Linear) -> Result<(), Self::Error>;

    /// Takes numbers that are not a linear layer, row-major.
    fn floats(
        &mut self,
        role: TensorRole,
        shape: &[usize],
        values: &'a [f32],
    ) -> Result<(), Self::Error>;
}

/// Hands out all tensors in the order in which a forward pass reads them, those of the drafting block
/// last.
pub(in crate::format) fn disassemble<'a, S: TensorSink<'a>>(
    weights: &'a Weights,
    sink: &mut S,
) -> Result<(), S::Error> {
    sink.embed(TensorRole::Embed, &weights.embed, weights.embed_rotation.as_ref())?;
    for (i, layer) in weights.layers.iter().enumerate() {
        Layer { sink, at: |role| TensorRole::Layer(i, role) }.disassemble(layer)?;
    }
    let norm = &weights.final_norm;
    sink.floats(TensorRole::FinalNorm, &[norm.len()], norm)?;
    if let Some(head) = &weights.head {
        sink.linear(TensorRole::Head, head)?;
    }
    match &weights.mtp {
        Some(block) => mtp(block, weights.layers.len(), sink),
        None => Ok(()),
    }
}

fn mtp<'a, S: TensorSink<'a>>(
    w: &'a MtpWeights,
    block: usize,
    sink: &mut S,
) -> Result<(), S::Error> {
    let at = |role| TensorRole::Mtp(block, role);
    sink.floats(at(MtpRole::EmbedNorm), &[w.embed_norm.len()], &w.embed_norm)?;
    sink.floats(at(MtpRole::HiddenNorm), &[w.hidden_norm.len()], &w.hidden_norm)?;
    sink.linear(at(MtpRole::Input), &w.input)?;
    Layer { sink, at: |role| at(MtpRole::Layer(role)) }.disassemble(&w.layer)?;
    if let Some(norm) = &w.head_norm {
        sink.floats(at(MtpRole::HeadNorm), &[norm.len()], norm)?;
    }
    if let Some(embed) = &w.embed {
        sink.embed(at(MtpRole::Embed), embed, None)?;
    }
    match &w.head {
        Some(head) => sink.linear(at(MtpRole::Head), head),
        None => Ok(()),
    }
}

/// The sink of a layer's tensors, and their roles.
struct Layer<'s, S, R> {
    sink: &'s mut S,
    at: R,
}

impl<'a, S: TensorSink<'a>, R: Fn(LayerRole) -> TensorRole> Layer<'_, S, R> {
    fn linear(&mut self, role: LayerRole, linear: &'a Linear) -> Result<(), S::Error> {
        self.sink.linear((self.at)(role), linear)
    }

    fn floats(
        &mut self,
        role: LayerRole,
        shape: &[usize],
        values: &'a [f32],
    ) -> Result<(), S::Error> {
        self.sink.floats((self.at)(role), shape, values)
    }

    fn vector(&mut self, role: LayerRole, values: &'a [f32]) -> Result<(), S::Error> {
        self.floats(role, &[values.len()], values)
    }

    fn vector_if(&mut self, role: LayerRole, values: &'a Option<Vec<f32>>) -> Result<(), S::Error> {
        values.as_ref().map_or(Ok(()), |values| self.vector(role, values))
    }

    fn disassemble(mut self, w: &'a LayerWeights) -> Result<(), S::Error> {
        self.vector(LayerRole::AttnNorm, &w.mixer_norm)?;
        match &w.mixer {
            Mixer::Attention(w) => {
                self.linear(LayerRole::Q, &w.q)?;
                self.linear(LayerRole::K, &w.k)?;
                self.linear(LayerRole::V, &w.v)?;
                self.vector_if(LayerRole::QNorm, &w.q_norm)?;
                self.vector_if(LayerRole::KNorm, &w.k_norm)?;
                self.vector_if(LayerRole::AttnSubNorm, &w.sub_norm)?;
                self.linear(LayerRole::O, &w.o)?;
                if let Some(adapter) = &w.draft_adapter {
                    self.linear(LayerRole::DraftDown, &adapter.down)?;
                    self.linear(LayerRole::DraftUp, &adapter.up)?;
                }
            }
            Mixer::Linear(w) => {
                self.linear(LayerRole::Qkv, &w.qkv)?;
                self.linear(LayerRole::Z, &w.z)?;
                self.linear(LayerRole::Alpha, &w.alpha)?;
                self.linear(LayerRole::Beta, &w.beta)?;
                let channels = w.qkv.weight.rows();
                let shape = [channels, w.conv.len() / channels];
                self.floats(LayerRole::Conv, &shape, &w.conv)?;
                self.vector(LayerRole::A, &w.a)?;
                self.vector(LayerRole::DtBias, &w.dt_bias)?;
                self.vector(LayerRole::LinearNorm, &w.norm)?;
                self.linear(LayerRole::Out, &w.out)?;
            }
        }
        self.vector(LayerRole::FfnNorm, &w.ffn_norm)?;
        self.linear(LayerRole::Gate, &w.gate)?;
        self.linear(LayerRole::Up, &w.up)?;
        self.vector_if(LayerRole::FfnSubNorm, &w.ffn_sub_norm)?;
        self.linear(LayerRole::Down, &w.down)
    }
}
