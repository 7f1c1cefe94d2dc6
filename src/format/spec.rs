//! What a model is, apart from its weights.

use serde::{Deserialize, Serialize};

/// Model families that the forward pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// BitNet b1.58 (2B-4T): ReLU², norms before `o_proj` and `down_proj`.
    BitNet,
    /// Llama and its 1.58-bit fine-tunes (Falcon-E, Falcon3, Llama3-8B-1.58).
    Llama,
    /// Qwen2: biases on q, k and v. Fast-dLLM v2 is this.
    Qwen2,
    /// Qwen3: RMSNorm on each head's q and k. SDAR is this.
    Qwen3,
}

/// Gate function of the feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// max(x, 0)².
    Relu2,
}

/// Rotary position embedding, NeoX order (first half pairs with second half).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Base θ of the frequencies θ^(−2i/head_dim).
    pub theta: f64,
    /// How the frequencies are changed, when the model asks for it.
    pub scaling: Option<RopeScaling>,
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScaling {
    /// By rule, as `config.json` states it.
    Llama3(Llama3Scaling),
    /// What each frequency is divided by, `[head_dim / 2]`: `rope_freqs.weight` of a GGUF file.
    Divisors(Vec<f32>),
}

/// `rope_scaling` of type `llama3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// Divides the low frequencies.
    pub factor: f64,
    /// Wavelengths longer than original / this are divided by `factor`.
    pub low_freq_factor: f64,
    /// Wavelengths shorter than original / this are kept.
    pub high_freq_factor: f64,
    /// Context length of the unscaled model, in positions.
    pub original_context: usize,
}

/// Shape and constants of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Model family.
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// ε of every RMSNorm.
    pub norm_eps: f32,
    /// Gate function.
    pub activation: Activation,
    /// Positions.
    pub rope: Rope,
}

/// How a block-diffusion model was trained (`dlm_config.json`, or fields of `config.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DlmConfig {
    /// Positions in a block (`bd_size`).
    pub bd_size: usize,
    /// Id of the MASK token.
    pub mask_token_id: Option<u32>,
    /// The model also has a trained autoregressive path.
    #[serde(default)]
    pub ar_path: bool,
    /// `causal` or `block`: what clean (committed) tokens see inside their own block.
    #[serde(default = "block")]
    pub clean_attention: String,
    /// 1: the logits at i − 1 predict token i. 0: the logits at i do.
    #[serde(default = "one")]
    pub logit_shift: u8,
}

fn block() -> String {
    "block".into()
}

fn one() -> u8 {
    1
}
