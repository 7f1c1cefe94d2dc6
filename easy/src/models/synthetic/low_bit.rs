//! Models of one to four bits a weight: their shapes, and the types of their matrices.

use super::{Codes, Rng, Synthetic};
use wrinklefree::format::{
    Activation, Architecture, AttentionWeights, LayerWeights, Linear, Mixer, Rope, RopeScaling,
    ScaleFactors, Spec, Weights, YarnScaling,
};

/// A dense model whose matrices have scales of groups.
pub struct Shape {
    spec: Spec,
    /// Codes of the matrices; `None` for values of four bits.
    codes: Option<Codes>,
    /// Columns that share a scale of codes.
    group: usize,
    tables: Tables,
}

/// Storage of the embeddings and the head.
enum Tables {
    /// As the other matrices.
    Alike,
    /// Six bits, one matrix for both.
    SixBitsTied,
    /// 16-bit floats, which four bits become, and a head of six bits.
    FloatsAndSixBits,
}

impl Shape {
    /// The shape of a model of this kind; `None` for others. Vocabularies are rounded up to whole panels.
    pub fn of(shape: Synthetic) -> Option<Self> {
        let spec = Spec {
            architecture: Architecture::Qwen3,
            vocab_size: 151_680,
            hidden_size: 4096,
            intermediate_size: 12_288,
            layers: 36,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            context_length: 65_536,
            norm_eps: 1e-6,
            activation: Activation::Silu,
            rope: Rope {
                theta: 1e6,
                scaling: Some(RopeScaling::Yarn(YarnScaling::new(4.0, 16_384))),
            },
            rotary_dim: None,
            attention_gate: false,
            linear_attention: None,
            mixers: Vec::new(),
            factors: None,
            mtp_layers: 0,
        };
        let rope = |theta| Rope { theta, scaling: None };
        Some(match shape {
            Synthetic::Bonsai1_8b => {
                Self { spec, codes: Some(Codes::Signs), group: 128, tables: Tables::Alike }
            }
            Synthetic::HyMt2_1_8b => {
                let spec = Spec {
                    architecture: Architecture::HunyuanDense,
                    vocab_size: 120_832,
                    hidden_size: 2048,
                    intermediate_size: 6144,
                    layers: 32,
                    heads: 16,
                    kv_heads: 4,
                    context_length: 262_144,
                    norm_eps: 1e-5,
                    rope: rope(11_158_840.0),
                    ..spec
                };
                Self { spec, codes: Some(Codes::Ternary), group: 256, tables: Tables::SixBitsTied }
            }
            Synthetic::BitCpm8b => {
                let spec = Spec {
                    architecture: Architecture::MiniCpm,
                    vocab_size: 73_456,
                    intermediate_size: 16_384,
                    layers: 32,
                    kv_heads: 2,
                    context_length: 32_768,
                    rope: rope(1e4),
                    factors: Some(ScaleFactors {
                        embedding: 12.0,
                        residual: 0.2475,
                        logit_divisor: 16.0,
                    }),
                    ..spec
                };
                Self {
                    spec,
                    codes: Some(Codes::Ternary),
                    group: 256,
                    tables: Tables::FloatsAndSixBits,
                }
            }
            Synthetic::Nemotron3b => {
                let (spec, tables) = (nemotron(spec), Tables::FloatsAndSixBits);
                Self { spec, codes: None, group: 32, tables }
            }
            _ => return None,
        })
    }

    /// The shape.
    pub fn spec(&self) -> Spec {
        self.spec.clone()
    }

    /// Weights of the shape.
    pub fn weights(&self, rng: &mut Rng) -> Weights {
        let (vocab, hidden) = (self.spec.vocab_size, self.spec.hidden_size);
        let (embed, head) = match self.tables {
            Tables::Alike => {
                let embed = self.linear(vocab, hidden, rng).weight;
                (embed, Some(self.linear(vocab, hidden, rng)))
            }
            Tables::SixBitsTied => (rng.six_bits(vocab, hidden), None),
            Tables::FloatsAndSixBits => {
                let head = Linear::new(rng.six_bits(vocab, hidden), None);
                (rng.halves(vocab, hidden), Some(head))
            }
        };
        let layers = (0..self.spec.layers).map(|_| self.layer(rng)).collect();
        let final_norm = vec![1.0; hidden];
        Weights { embed, embed_rotation: None, head, final_norm, layers, mtp: None }
    }

    fn linear(&self, rows: usize, cols: usize, rng: &mut Rng) -> Linear {
        let weight = match self.codes {
            Some(codes) => rng.grouped(rows, cols, self.group, codes),
            None => rng.four_bits(rows, cols),
        };
        Linear::new(weight, None)
    }

    fn layer(&self, rng: &mut Rng) -> LayerWeights {
        let spec = &self.spec;
        let (hidden, wide) = (spec.hidden_size, spec.intermediate_size);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let plain = [Architecture::MiniCpm, Architecture::NemotronDiffusion];
        let head_norm = (!plain.contains(&spec.architecture)).then(|| vec![1.0; spec.head_dim]);
        LayerWeights {
            mixer_norm: vec![1.0; hidden],
            mixer: Mixer::Attention(Box::new(AttentionWeights {
                q: self.linear(q, hidden, rng),
                k: self.linear(kv, hidden, rng),
                v: self.linear(kv, hidden, rng),
                q_norm: head_norm.clone(),
                k_norm: head_norm,
                sub_norm: None,
                o: self.linear(hidden, q, rng),
                draft_adapter: None,
            })),
            ffn_norm: vec![1.0; hidden],
            gate: self.linear(wide, hidden, rng),
            up: self.linear(wide, hidden, rng),
            ffn_sub_norm: None,
            down: self.linear(hidden, wide, rng),
        }
    }
}

/// Nemotron-Labs-Diffusion 3B; `spec` has what it shares with Qwen3 8B.
fn nemotron(spec: Spec) -> Spec {
    let yarn = YarnScaling::new(16.0, 16_384);
    let yarn = YarnScaling { attention_factor: 1.0, query_beta: 0.1, ..yarn };
    Spec {
        architecture: Architecture::NemotronDiffusion,
        vocab_size: 131_072,
        hidden_size: 3072,
        intermediate_size: 9216,
        layers: 26,
        context_length: 262_144,
        norm_eps: 1e-5,
        rope: Rope { theta: 1e6, scaling: Some(RopeScaling::Yarn(yarn)) },
        ..spec
    }
}
