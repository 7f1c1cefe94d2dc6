//! Shapes of hybrid models: Gated DeltaNet in three of four layers, gated attention in the fourth, and
//! weights in a rotated basis.

use super::{Rng, Synthetic};
use bytes::Bytes;
use half::bf16;
use std::collections::BTreeMap;
use std::sync::Arc;
use wrinklefree::format::{
    Activation, Architecture, AttentionWeights, LayerWeights, Linear, LinearAttention,
    LinearAttentionWeights, Mixer, MixerKind, Rope, Rotation, Spec, ValueOrder, Weights,
};
use wrinklefree::matrix::{FloatMatrix, FloatType, Matrix};

/// Sizes in which these models differ.
pub(super) struct Shape {
    vocab: usize,
    hidden: usize,
    wide: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Number of key heads and of value heads of linear layers.
    linear_heads: (usize, usize),
    linear_dim: usize,
    tied: bool,
    /// Block of the Hadamard transform.
    block: usize,
}

impl Shape {
    /// Returns the shape of a hybrid; `None` for other models.
    pub fn of(model: Synthetic) -> Option<Self> {
        let (hidden, wide, layers, heads, kv_heads, values, tied, block) = match model {
            Synthetic::Bonsai2_2b => (2048, 6144, 24, 8, 2, 16, true, 2048),
            Synthetic::Bonsai2_4b => (2560, 9216, 32, 16, 4, 32, true, 512),
            Synthetic::Bonsai2_9b => (4096, 12_288, 32, 16, 4, 32, false, 4096),
            Synthetic::Bonsai2_27b => (5120, 17_408, 64, 24, 4, 48, false, 1024),
            Synthetic::TinyHybrid => (256, 512, 4, 4, 2, 16, true, 128),
            _ => return None,
        };
        let small = model == Synthetic::TinyHybrid;
        Some(Self {
            vocab: if small { 32_000 } else { 248_320 },
            hidden,
            wide,
            layers,
            heads,
            kv_heads,
            head_dim: if small { 64 } else { 256 },
            linear_heads: (if small { 8 } else { 16 }, values),
            linear_dim: if small { 16 } else { 128 },
            tied,
            block,
        })
    }

    pub fn spec(&self) -> Spec {
        let mixer = |layer: usize| {
            if (layer + 1).is_multiple_of(4) { MixerKind::Attention } else { MixerKind::Linear }
        };
        Spec {
            architecture: Architecture::Qwen35,
            vocab_size: self.vocab,
            hidden_size: self.hidden,
            intermediate_size: self.wide,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            context_length: 262_144,
            norm_eps: 1e-6,
            activation: Activation::Silu,
            rope: Rope { theta: 1e7, scaling: None },
            rotary_dim: Some(self.head_dim / 4),
            attention_gate: true,
            linear_attention: Some(self.linear()),
            mixers: (0..self.layers).map(mixer).collect(),
            factors: None,
            mtp_layers: 0,
        }
    }

    fn linear(&self) -> LinearAttention {
        let (key_heads, value_heads) = self.linear_heads;
        LinearAttention {
            key_heads,
            value_heads,
            key_dim: self.linear_dim,
            value_dim: self.linear_dim,
            conv_kernel: 4,
            value_order: ValueOrder::Tiled,
            output_grouped: true,
        }
    }

    /// Random weights of this shape.
    pub fn weights(&self, rng: &mut Rng) -> Weights {
        let spec = self.spec();
        let mut make = Maker { rng, block: self.block, rotations: BTreeMap::new() };
        let embed = make.rng.ternary(self.vocab, self.hidden, true);
        let embed_rotation = Some(make.rotation(self.hidden));
        let layer = |i| LayerWeights {
            mixer_norm: vec![1.0; self.hidden],
            mixer: match spec.mixer(i) {
                MixerKind::Attention => Mixer::Attention(Box::new(make.attention(&spec))),
                MixerKind::Linear => {
                    Mixer::Linear(Box::new(make.linear(&self.linear(), self.hidden)))
                }
            },
            ffn_norm: vec![1.0; self.hidden],
            gate: make.folded(self.wide, self.hidden),
            up: make.folded(self.wide, self.hidden),
            ffn_sub_norm: None,
            down: make.folded(self.hidden, self.wide),
        };
        let layers = (0..self.layers).map(layer).collect();
        let head = (!self.tied).then(|| make.folded(self.vocab, self.hidden));
        let final_norm = vec![1.0; self.hidden];
        Weights { embed, embed_rotation, head, final_norm, layers, mtp: None }
    }
}

/// Makes matrices in a rotated basis.
struct Maker<'a> {
    rng: &'a mut Rng,
    block: usize,
    /// By width.
    rotations: BTreeMap<usize, Arc<Rotation>>,
}

impl Maker<'_> {
    fn folded(&mut self, rows: usize, cols: usize) -> Linear {
        let rotation = Some(self.rotation(cols));
        Linear { rotation, ..Linear::new(self.rng.ternary(rows, cols, true), None) }
    }

    fn rotation(&mut self, width: usize) -> Arc<Rotation> {
        let Self { rng, block, rotations } = self;
        let rotation = rotations.entry(width).or_insert_with(|| {
            let sign = |_| if rng.next().is_multiple_of(2) { 1.0 } else { -1.0 };
            let signs = Some((0..width).map(sign).collect());
            Arc::new(Rotation { block: *block, signs })
        });
        rotation.clone()
    }

    /// A matrix in bf16 that reads plain inputs.
    fn plain(&mut self, rows: usize, cols: usize) -> Linear {
        let scale = 1.0 / (cols as f32).sqrt();
        let values =
            (0..rows * cols).flat_map(|_| bf16::from_f32(self.float() * scale).to_le_bytes());
        let bytes: Bytes = values.collect::<Vec<u8>>().into();
        let matrix = FloatMatrix::new(rows, cols, FloatType::Bf16, bytes);
        Linear::new(Matrix::Float(matrix.expect("as many bytes as the shape needs")), None)
    }

    /// A number in −1..1.
    fn float(&mut self) -> f32 {
        (self.rng.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn attention(&mut self, spec: &Spec) -> AttentionWeights {
        let (hidden, q) = (spec.hidden_size, spec.heads * spec.head_dim);
        let kv = spec.kv_heads * spec.head_dim;
        AttentionWeights {
            q: self.folded(spec.query_outputs(), hidden),
            k: self.folded(kv, hidden),
            v: self.folded(kv, hidden),
            q_norm: Some(vec![1.0; spec.head_dim]),
            k_norm: Some(vec![1.0; spec.head_dim]),
            sub_norm: None,
            o: self.folded(hidden, q),
            draft_adapter: None,
        }
    }

    fn linear(&mut self, shape: &LinearAttention, hidden: usize) -> LinearAttentionWeights {
        let (heads, values) = (shape.value_heads, shape.value_width());
        LinearAttentionWeights {
            qkv: self.folded(shape.channels(), hidden),
            z: self.folded(values, hidden),
            alpha: self.plain(heads, hidden),
            beta: self.plain(heads, hidden),
            conv: (0..shape.channels() * shape.conv_kernel).map(|_| self.float()).collect(),
            a: (0..heads).map(|_| -0.1 - self.float().abs()).collect(),
            dt_bias: (0..heads).map(|_| self.float()).collect(),
            norm: vec![1.0; shape.value_dim],
            out: self.folded(hidden, values),
        }
    }
}
