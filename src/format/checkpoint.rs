//! A model in memory, independent of its file format.

use super::{DlmConfig, LoadError, Rotation, Spec, TrainingStatement};
use crate::matrix::Matrix;
use crate::ternary::Layout;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The contents of a model file.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Shape and constants.
    pub spec: Spec,
    /// All tensors.
    pub weights: Weights,
    /// Tokenizer and chat template.
    pub text: TextParts,
    /// Special ids and sampling defaults.
    pub generation: GenerationDefaults,
    /// Block-diffusion parameters, when the model has any.
    pub dlm: Option<DlmConfig>,
    /// Kind of training, where the files state it.
    pub training: Option<TrainingStatement>,
    /// Number of subnormal weights that loading has set to zero: products with them are slow.
    pub flushed: usize,
    /// The reason why a block for multi-token prediction that the files have cannot be used, if it was
    /// asked for.
    pub mtp_fault: Option<LoadError>,
    /// Number of tensors of each element type in a GGUF file or a directory; empty for packed files.
    pub stored_types: BTreeMap<&'static str, usize>,
    /// Remarks on the files for users: fields that change nothing here, one sentence each.
    pub notes: Vec<String>,
}

/// All tensors of a model.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Token embeddings, `[vocab_size][hidden_size]`.
    pub embed: Matrix,
    /// Rotation of the embeddings: a row z stands for s ⊙ H(z). A tied head multiplies the same rows
    /// with H(s ⊙ x).
    pub embed_rotation: Option<Arc<Rotation>>,
    /// Output head, `[vocab_size][hidden_size]`; `None` when tied to `embed`.
    pub head: Option<Linear>,
    /// RMSNorm before the head, `[hidden_size]`.
    pub final_norm: Vec<f32>,
    /// The transformer layers, first to last.
    pub layers: Vec<LayerWeights>,
    /// The block that drafts tokens; [`Spec::mtp_layers`] counts it. It is no layer of the model.
    pub mtp: Option<Box<MtpWeights>>,
}

/// Tensors of a block for multi-token prediction (MTP): an attention layer whose input is a token's
/// embedding and the model's hidden state before that token.
#[derive(Clone, Debug)]
pub struct MtpWeights {
    /// RMSNorm of the embedding, `[hidden_size]`.
    pub embed_norm: Vec<f32>,
    /// RMSNorm of the hidden state, `[hidden_size]`.
    pub hidden_norm: Vec<f32>,
    /// Projection of both norms, the embedding's first: `[hidden_size][2 · hidden_size]`.
    pub input: Linear,
    /// The layer; its mixer attends.
    pub layer: LayerWeights,
    /// RMSNorm before the head, `[hidden_size]`; `None` for that of the model.
    pub head_norm: Option<Vec<f32>>,
    /// Token embeddings, `[vocab_size][hidden_size]`; `None` for those of the model.
    pub embed: Option<Matrix>,
    /// Output head, `[vocab_size][hidden_size]`; `None` for that of the model.
    pub head: Option<Linear>,
}

impl MtpWeights {
    /// Its matrices except the embeddings, those together that a product reads side by side.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = Vec<&mut Linear>> {
        let head = self.head.as_mut().map(|head| vec![head]);
        [vec![&mut self.input]].into_iter().chain(self.layer.groups_mut()).chain(head)
    }
}

/// Tensors of one layer.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// RMSNorm before the mixer, `[hidden_size]`.
    pub mixer_norm: Vec<f32>,
    /// The token mixer.
    pub mixer: Mixer,
    /// RMSNorm before the feed-forward block, `[hidden_size]`.
    pub ffn_norm: Vec<f32>,
    /// Gate projection, `[intermediate_size][hidden_size]`.
    pub gate: Linear,
    /// Up projection, `[intermediate_size][hidden_size]`.
    pub up: Linear,
    /// RMSNorm before `down`, `[intermediate_size]` (BitNet).
    pub ffn_sub_norm: Option<Vec<f32>>,
    /// Down projection, `[hidden_size][intermediate_size]`.
    pub down: Linear,
}

/// Tensors of a layer's token mixer.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Box<AttentionWeights>),
    /// Gated DeltaNet.
    Linear(Box<LinearAttentionWeights>),
}

/// Tensors of softmax attention.
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    /// Query projection, `[heads · head_dim][hidden_size]`. With a gate
    /// ([`Spec::attention_gate`]) it has twice the rows.
    pub q: Linear,
    /// Key projection, `[kv_heads · head_dim][hidden_size]`.
    pub k: Linear,
    /// Value projection, `[kv_heads · head_dim][hidden_size]`.
    pub v: Linear,
    /// RMSNorm of each query head, `[head_dim]` (Qwen3).
    pub q_norm: Option<Vec<f32>>,
    /// RMSNorm of each key head, `[head_dim]` (Qwen3).
    pub k_norm: Option<Vec<f32>>,
    /// RMSNorm before `o`, `[heads · head_dim]` (BitNet).
    pub sub_norm: Option<Vec<f32>>,
    /// Output projection, `[hidden_size][heads · head_dim]`.
    pub o: Linear,
    /// Change of `o` in rows of drafts ([`AttentionMask::Draft`](crate::batch_types::AttentionMask::Draft)).
    pub draft_adapter: Option<Box<LowRank>>,
}

/// A low-rank change of a linear layer: its output gains `up` · `down` · input.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `[rank][inputs]`.
    pub down: Linear,
    /// `[outputs][rank]`, with the scale of the change.
    pub up: Linear,
}

/// Tensors of Gated DeltaNet; the shape is [`Spec::linear_attention`].
#[derive(Clone, Debug)]
pub struct LinearAttentionWeights {
    /// Projection of queries, keys and values, `[channels][hidden_size]`.
    pub qkv: Linear,
    /// Projection of the output gates, `[value_heads · value_dim][hidden_size]`.
    pub z: Linear,
    /// Projection of the decays, `[value_heads][hidden_size]`.
    pub alpha: Linear,
    /// Projection of the update rates, `[value_heads][hidden_size]`.
    pub beta: Linear,
    /// Weights of the causal convolution, `[channels][conv_kernel]`; the last tap meets the present.
    pub conv: Vec<f32>,
    /// Factors of the decays, −exp(A_log), `[value_heads]`.
    pub a: Vec<f32>,
    /// Biases of the decays, `[value_heads]`.
    pub dt_bias: Vec<f32>,
    /// RMSNorm of each head's output, `[value_dim]`.
    pub norm: Vec<f32>,
    /// Output projection, `[hidden_size][value_heads · value_dim]`.
    pub out: Linear,
}

impl Mixer {
    /// Its matrices, in the order in which a forward pass reads them.
    pub fn linears(&self) -> Vec<&Linear> {
        match self {
            Self::Attention(w) => vec![&w.q, &w.k, &w.v, &w.o],
            Self::Linear(w) => vec![&w.qkv, &w.z, &w.alpha, &w.beta, &w.out],
        }
    }

    /// The tensors of softmax attention, if it is that.
    pub fn attention(&self) -> Option<&AttentionWeights> {
        match self {
            Self::Attention(w) => Some(w),
            Self::Linear(_) => None,
        }
    }

    /// As [`Self::attention`], to change.
    pub fn attention_mut(&mut self) -> Option<&mut AttentionWeights> {
        match self {
            Self::Attention(w) => Some(w),
            Self::Linear(_) => None,
        }
    }

    /// Its last matrix, which writes to the residual stream.
    pub fn output(&self) -> &Linear {
        match self {
            Self::Attention(w) => &w.o,
            Self::Linear(w) => &w.out,
        }
    }
}

impl LayerWeights {
    /// All matrices, in the order in which a forward pass reads them.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        self.mixer.linears().into_iter().chain([&self.gate, &self.up, &self.down])
    }

    /// The same, those together that a product reads side by side.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = Vec<&mut Linear>> {
        let Self { mixer, gate, up, down, .. } = self;
        let (inputs, output) = match mixer {
            Mixer::Attention(w) => {
                let AttentionWeights { q, k, v, o, .. } = &mut **w;
                (vec![q, k, v], vec![o])
            }
            Mixer::Linear(w) => {
                let LinearAttentionWeights { qkv, z, alpha, beta, out, .. } = &mut **w;
                (vec![qkv, z, alpha, beta], vec![out])
            }
        };
        [inputs, output, vec![gate, up], vec![down]].into_iter()
    }
}

impl Weights {
    /// Converts the ternary matrices of all layers to a layout, except those that do not fit it. The other
    /// matrices are never tight: they take one bit if the layers do, otherwise two.
    pub fn set_layout(&mut self, layout: Layout) {
        self.set_first_layout(&[layout]);
    }

    /// As [`Self::set_layout`], with the first of several layouts that a matrix fits.
    pub fn set_first_layout(&mut self, layouts: &[Layout]) {
        fn set(matrix: &mut Matrix, layouts: &[Layout]) {
            let Matrix::Ternary(w) = matrix else { return };
            for &layout in layouts {
                if w.layout() == layout {
                    return;
                }
                if let Some(other) = w.in_layout(layout) {
                    *w = other;
                    return;
                }
            }
        }
        self.linears_mut().for_each(|linear| set(&mut linear.weight, layouts));
        let wide: &[Layout] = if layouts.contains(&Layout::OneBit) {
            &[Layout::OneBit, Layout::TwoBit]
        } else {
            &[Layout::TwoBit]
        };
        let drafting = self.mtp.iter_mut().flat_map(|mtp| mtp.groups_mut()).flatten();
        for linear in self.head.iter_mut().chain(drafting) {
            set(&mut linear.weight, wide);
        }
        set(&mut self.embed, wide);
    }

    /// The matrices of all layers, without the block that drafts tokens.
    pub fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.layers.iter_mut().flat_map(LayerWeights::groups_mut).flatten()
    }
}

/// A matrix, its bias and the activations it expects.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[outputs][inputs]`.
    pub weight: Matrix,
    /// `[outputs]`.
    pub bias: Option<Vec<f32>>,
    /// Quantization of its inputs. Float matrices take f32 and ignore this.
    pub activations: Activations,
    /// Rotation of its inputs, if its weights are in a rotated basis. Matrices with the same input and
    /// an equal rotation share the transformed rows.
    pub rotation: Option<Arc<Rotation>>,
}

/// Quantization of the inputs of ternary and int8 matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activations {
    /// 8 bits per token, as BitNet b1.58 models are trained.
    Int8,
    /// 15 bits in two int8 planes, for models trained with full-precision activations.
    Int16,
    /// 8 bits with a scale per token and group of columns, for models trained with full-precision
    /// activations ([`Model::with_int8_activations`](crate::model::Model::with_int8_activations)).
    /// Files do not ask for it. The weights have groups of a power of two columns, at most
    /// [`Linear::MOST_GROUP_COLUMNS`].
    #[serde(skip)]
    Int8Groups,
}

/// Tokenizer and chat template as the files hold them.
#[derive(Clone, Debug, Default)]
pub struct TextParts {
    /// The tokenizer; `None` when the files have none. Such a model works on token ids only.
    pub vocabulary: Option<Vocabulary>,
    /// Jinja source of the chat template.
    pub chat_template: Option<String>,
    /// Jinja source of the chat template for conversations with tools, if it is another one
    /// (`tool_use`).
    pub tool_template: Option<String>,
    /// Texts of special tokens by their template names: `bos_token`, `eos_token`, `unk_token`,
    /// `pad_token`.
    pub special: BTreeMap<String, String>,
}

/// The vocabulary of a tokenizer, as its file holds it.
#[derive(Clone, Debug)]
pub enum Vocabulary {
    /// The text of a `tokenizer.json`.
    Json(Bytes),
    /// The vocabulary of a GGUF file.
    Gguf(Box<GgufVocab>),
}

/// `tokenizer.ggml.*` of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
    pub model: String,
    /// `tokenizer.ggml.pre`: name of the pre-tokenizer of a byte-level BPE (`llama-bpe`, `qwen2`…).
    pub pre: Option<String>,
    /// Token texts by id.
    pub tokens: Vec<String>,
    /// Token scores by id (SentencePiece).
    pub scores: Vec<f32>,
    /// Token types by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub types: Vec<i32>,
    /// BPE merges, `"left right"`, best first.
    pub merges: Vec<String>,
    /// Id of the begin-of-text token.
    pub bos: Option<u32>,
    /// Id of the end-of-text token.
    pub eos: Option<u32>,
    /// Id of the token for unknown text.
    pub unk: Option<u32>,
    /// True if `bos` is put in front of a text.
    pub add_bos: Option<bool>,
    /// True if a space is put in front of a text (SentencePiece).
    pub add_space_prefix: Option<bool>,
}

/// Special ids and the authors' sampling parameters (`generation_config.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationDefaults {
    /// Id of the begin-of-text token.
    pub bos: Option<u32>,
    /// Ids that end a text, as the files state. [`end_tokens`](crate::text::end_tokens) adds those that
    /// are known by name.
    pub eos: Vec<u32>,
    /// Recommended softmax temperature.
    pub temperature: Option<f32>,
    /// Recommended probability mass of nucleus sampling.
    pub top_p: Option<f32>,
    /// Recommended number of candidates.
    pub top_k: Option<usize>,
    /// Recommended repetition penalty.
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// Adds an id that ends a text.
    pub(super) fn add_eos(&mut self, id: u32) {
        if !self.eos.contains(&id) {
            self.eos.push(id);
        }
    }
}
