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

impl Rope {
    /// Positions of a model whose files say `stated`: they may leave the stretch by YaRN out.
    pub(in crate::format) fn stretched(&self, stated: usize) -> usize {
        match &self.scaling {
            Some(RopeScaling::Yarn(s)) => {
                stated.max((s.factor * s.original_context as f64) as usize)
            }
            _ => stated,
        }
    }
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScaling {
    /// By rule, as `config.json` states it.
    Llama3(Llama3Scaling),
    /// What each frequency is divided by, `[head_dim / 2]`: `rope_freqs.weight` of a GGUF file.
    Divisors(Vec<f32>),
    /// What every position is divided by: position interpolation (arXiv 2306.15595).
    Linear(f64),
    /// [`YarnScaling`].
    Yarn(YarnScaling),
}

/// YaRN (arXiv 2309.00071): low frequencies are interpolated, high ones kept, those between mixed,
/// and attention is sharpened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct YarnScaling {
    /// What interpolated positions are divided by.
    pub factor: f64,
    /// Context length of the unscaled model, in positions.
    pub original_context: usize,
    /// Dimensions that turn more often than this within the original context are kept.
    pub beta_fast: f64,
    /// Dimensions that turn less often than this within it are interpolated.
    pub beta_slow: f64,
    /// Multiplies cosines and sines: scores of attention grow by its square.
    pub attention_factor: f64,
    /// Whether the dimensions where mixing begins and ends are rounded outwards to whole ones.
    pub truncate: bool,
}

impl YarnScaling {
    /// With the paper's constants.
    #[must_use]
    pub fn new(factor: f64, original_context: usize) -> Self {
        let (beta_fast, beta_slow, truncate) = (32.0, 1.0, true);
        let attention_factor = Self::attention(factor, 1.0);
        Self { factor, original_context, beta_fast, beta_slow, attention_factor, truncate }
    }

    /// What the paper multiplies cosines and sines by, its coefficient of 0.1 times `scale`
    /// (`get_mscale` in `transformers`).
    #[must_use]
    pub fn attention(factor: f64, scale: f64) -> f64 {
        if factor > 1.0 { 0.1 * scale * libm::log(factor) + 1.0 } else { 1.0 }
    }
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
    /// Positions the model was trained for, or that its RoPE scaling stretches them to.
    pub context_length: usize,
    /// ε of every RMSNorm.
    pub norm_eps: f32,
    /// Gate function.
    pub activation: Activation,
    /// Positions.
    pub rope: Rope,
}

impl Spec {
    /// Positions the model was trained for before its RoPE was scaled, as far as the files say.
    #[must_use]
    pub fn original_context(&self) -> usize {
        match &self.rope.scaling {
            Some(RopeScaling::Llama3(s)) => s.original_context,
            Some(RopeScaling::Yarn(s)) => s.original_context,
            Some(RopeScaling::Divisors(_) | RopeScaling::Linear(_)) | None => self.context_length,
        }
    }
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
