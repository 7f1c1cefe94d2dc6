//! Random hybrid models: linear attention in most layers, gated attention with partial RoPE in others.
#![allow(dead_code, reason = "every test uses its own part")]

use crate::common::{Noise, int8, odd, ternary};
use half::f16;
use std::sync::Arc;
use wrinklefree::format::{
    Activation, Architecture, AttentionWeights, LayerWeights, Linear, LinearAttention,
    LinearAttentionWeights, Mixer, MixerKind, MtpWeights, Rotation, Spec, ValueOrder, Weights,
};
use wrinklefree::matrix::{FloatMatrix, FloatType, GroupScales, Matrix, Scales, TernaryMatrix};

use MixerKind::{Attention, Linear as Recurrent};

/// Shapes that no vector divides, without rotation. The last layer attends.
pub fn plain() -> Spec {
    Spec {
        architecture: Architecture::Qwen35,
        activation: Activation::Silu,
        layers: 4,
        context_length: 512,
        rotary_dim: Some(6),
        attention_gate: true,
        linear_attention: Some(LinearAttention {
            key_heads: 2,
            value_heads: 6,
            key_dim: 12,
            value_dim: 20,
            conv_kernel: 4,
            value_order: ValueOrder::Grouped,
            output_grouped: false,
        }),
        mixers: vec![Recurrent, Recurrent, Attention, Attention],
        ..odd()
    }
}

/// Shapes that blocks of 32 divide, with value heads in both orders. The last layer is linear.
pub fn rotated() -> Spec {
    Spec {
        hidden_size: 96,
        intermediate_size: 160,
        heads: 4,
        head_dim: 16,
        rotary_dim: Some(8),
        linear_attention: Some(LinearAttention {
            key_heads: 3,
            value_heads: 6,
            key_dim: 16,
            value_dim: 16,
            conv_kernel: 4,
            value_order: ValueOrder::Tiled,
            output_grouped: true,
        }),
        mixers: vec![Recurrent, Attention, Recurrent],
        layers: 3,
        ..plain()
    }
}

/// As [`rotated`], with outputs that are tiled as everything else, without rotation.
pub fn tiled() -> Spec {
    let mut spec = rotated();
    spec.linear_attention.as_mut().unwrap().output_grouped = false;
    spec
}

/// Kind of the matrices.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// f32, for comparisons with exact arithmetic.
    Exact,
    /// Ternary with a scale per 32 columns, and what such models have next to it.
    Ternary,
}

/// A random f32 matrix whose outputs have about the size of its inputs.
pub fn exact(rows: usize, cols: usize, noise: &mut Noise) -> Linear {
    let scale = 1.5 / (cols as f32).sqrt();
    let values = (0..rows * cols).flat_map(|_| (noise.float() * scale).to_le_bytes());
    let bytes: Vec<u8> = values.collect();
    let matrix = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into()).unwrap();
    Linear::new(Matrix::Float(matrix), None)
}

/// Weights of a random norm.
pub fn norm(len: usize, noise: &mut Noise) -> Vec<f32> {
    (0..len).map(|_| 1.0 + noise.float() / 2.0).collect()
}

fn grouped(rows: usize, cols: usize, noise: &mut Noise) -> Linear {
    let size = 1.5 / (cols as f32).sqrt();
    let scales = GroupScales::from_rows(rows, cols, 32, |_, s| {
        s.fill_with(|| f16::from_f32(size * (1.0 + noise.float().abs())));
    });
    let plain = ternary(rows, cols, noise);
    let scales = Scales::Groups(scales.unwrap());
    let weight = TernaryMatrix::from_panels(rows, cols, plain.codes().clone(), scales).unwrap();
    Linear::new(Matrix::Ternary(weight), None)
}

/// Makes the matrices of a model.
struct Maker {
    kind: Kind,
    /// Block size and signs of rotated inputs, if there are any.
    rotated: bool,
    noise: Noise,
}

impl Maker {
    fn plain(&mut self, rows: usize, cols: usize) -> Linear {
        match self.kind {
            Kind::Exact => exact(rows, cols, &mut self.noise),
            Kind::Ternary => grouped(rows, cols, &mut self.noise),
        }
    }

    /// A matrix in the rotated basis, if the model has one.
    fn folded(&mut self, rows: usize, cols: usize) -> Linear {
        let rotation = self.rotation(cols);
        Linear { rotation, ..self.plain(rows, cols) }
    }

    /// One rotation per width.
    fn rotation(&self, width: usize) -> Option<Arc<Rotation>> {
        let mut noise = Noise(width as u64 + 1);
        let sign = |_| if noise.bits().is_multiple_of(2) { 1.0 } else { -1.0 };
        let signs = Some((0..width).map(sign).collect());
        self.rotated.then(|| Arc::new(Rotation { block: 32, signs }))
    }

    fn norm(&mut self, len: usize) -> Vec<f32> {
        norm(len, &mut self.noise)
    }

    fn layer(&mut self, spec: &Spec, mixer: MixerKind) -> LayerWeights {
        let (d, f) = (spec.hidden_size, spec.intermediate_size);
        LayerWeights {
            mixer_norm: self.norm(d),
            mixer: match mixer {
                Attention => Mixer::Attention(Box::new(self.attention(spec))),
                Recurrent => {
                    let shape = spec.linear_attention.as_ref().unwrap();
                    Mixer::Linear(Box::new(self.linear(shape, d)))
                }
            },
            ffn_norm: self.norm(d),
            gate: self.folded(f, d),
            up: self.folded(f, d),
            ffn_sub_norm: None,
            down: self.folded(d, f),
        }
    }

    fn attention(&mut self, spec: &Spec) -> AttentionWeights {
        let (d, q) = (spec.hidden_size, spec.heads * spec.head_dim);
        let kv = spec.kv_heads * spec.head_dim;
        AttentionWeights {
            q: self.folded(spec.query_outputs(), d),
            k: self.folded(kv, d),
            v: self.folded(kv, d),
            q_norm: Some(self.norm(spec.head_dim)),
            k_norm: Some(self.norm(spec.head_dim)),
            sub_norm: None,
            o: self.folded(d, q),
            draft_adapter: None,
        }
    }

    fn linear(&mut self, shape: &LinearAttention, d: usize) -> LinearAttentionWeights {
        let (heads, values) = (shape.value_heads, shape.value_width());
        LinearAttentionWeights {
            qkv: self.folded(shape.channels(), d),
            z: self.folded(values, d),
            alpha: exact(heads, d, &mut self.noise),
            beta: exact(heads, d, &mut self.noise),
            conv: (0..shape.channels() * shape.conv_kernel).map(|_| self.noise.float()).collect(),
            // Some heads forget at once, others hardly.
            a: (0..heads).map(|head| -0.5f32.powi(2 * head as i32 - 1)).collect(),
            dt_bias: (0..heads).map(|_| self.noise.float()).collect(),
            norm: self.norm(shape.value_dim),
            out: self.folded(d, values),
        }
    }
}

/// Adds a block for multi-token prediction, with its own norm, embeddings and head or with those of the
/// model.
pub fn with_mtp(spec: Spec, weights: Weights, kind: Kind, own: bool) -> (Spec, Weights) {
    let mut make = Maker { kind, rotated: false, noise: Noise(77) };
    let (d, vocab) = (spec.hidden_size, spec.vocab_size);
    let mtp = MtpWeights {
        embed_norm: make.norm(d),
        hidden_norm: make.norm(d),
        input: make.plain(d, 2 * d),
        layer: make.layer(&spec, Attention),
        head_norm: own.then(|| make.norm(d)),
        embed: own.then(|| exact(vocab, d, &mut make.noise).weight),
        head: own.then(|| make.plain(vocab, d)),
    };
    (Spec { mtp_layers: 1, ..spec }, Weights { mtp: Some(Box::new(mtp)), ..weights })
}

/// Random weights. Rotated ones have a tied head, others have their own.
pub fn weights(spec: &Spec, kind: Kind, rotated: bool, seed: u64) -> Weights {
    let mut make = Maker { kind, rotated, noise: Noise(seed) };
    let d = spec.hidden_size;
    let layers = (0..spec.layers).map(|i| make.layer(spec, spec.mixer(i))).collect();
    let embed = match kind {
        Kind::Exact => make.plain(spec.vocab_size, d).weight,
        Kind::Ternary => Matrix::Int8(int8(spec.vocab_size, d, &mut make.noise)),
    };
    let embed_rotation = make.rotation(d);
    let head = (!rotated).then(|| make.plain(spec.vocab_size, d));
    Weights { embed, embed_rotation, head, final_norm: make.norm(d), layers, mtp: None }
}
