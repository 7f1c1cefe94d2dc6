//! Shape and constants of a model, without its weights.

use super::{LinearAttention, MixerKind};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

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
    /// Qwen3.5: Gated DeltaNet in most layers, gated attention with partial rotary in the others.
    /// Ternary-Bonsai-2 is this.
    Qwen35,
    /// Hunyuan's dense models: RMSNorm on each head's q and k after the rotary embedding. Hy-MT2 is this.
    #[serde(rename = "hunyuan-dense")]
    HunyuanDense,
    /// MiniCPM and MiniCPM4: Llama with three factors ([`ScaleFactors`]). BitCPM is this.
    MiniCpm,
    /// Nemotron-Labs-Diffusion: Llama whose queries grow with their position
    /// ([`YarnScaling::query_beta`]), trained for both directions inside a block.
    #[serde(rename = "nemotron-labs-diffusion")]
    NemotronDiffusion,
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
    /// Base θ of the frequencies θ^(−2i/[`rotary_dim`](Spec::rotary_dim)).
    pub theta: f64,
    /// Rescaling of the frequencies, if the model has one.
    pub scaling: Option<RopeScaling>,
}

impl Rope {
    /// Returns the base that Hunyuan's `alpha` makes of θ, for heads of `head_dim` columns:
    /// θ · α^(d / (d − 2)). `None` if α is not a positive number or heads have only two columns.
    pub(in crate::format) fn alpha_base(theta: f64, alpha: f64, head_dim: usize) -> Option<f64> {
        let width = head_dim as f64;
        let usable = alpha.is_finite() && alpha > 0.0 && head_dim > 2;
        usable.then(|| theta * libm::pow(alpha, width / (width - 2.0)))
    }

    /// Factor of the queries at a position, after the rotary embedding.
    #[must_use]
    pub fn query_factor(&self, position: usize) -> f32 {
        match &self.scaling {
            Some(RopeScaling::Yarn(s)) if s.query_beta != 0.0 => {
                let periods = (position / s.original_context) as f64;
                (1.0 + s.query_beta * libm::log1p(periods)) as f32
            }
            _ => 1.0,
        }
    }

    /// Context length of a model whose files state `stated` positions. Some files state the length
    /// before YaRN extends it.
    pub(in crate::format) fn extended_context(&self, stated: usize) -> usize {
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
    /// Llama 3's rule, with the parameters of `config.json`.
    Llama3(Llama3Scaling),
    /// A divisor for each frequency, `[rotary_dim / 2]`: `rope_freqs.weight` of a GGUF file.
    Divisors(Vec<f32>),
    /// A divisor for every position: position interpolation (arXiv 2306.15595).
    Linear(f64),
    /// YaRN.
    Yarn(YarnScaling),
    /// LongRoPE.
    LongRope(LongRopeScaling),
}

/// LongRoPE (arXiv 2402.13753) divides frequencies by one of two lists, which the allowed number of
/// positions decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongRopeScaling {
    /// Divisors of the frequencies for more positions than `original_context`, `[rotary_dim / 2]`.
    pub long: Vec<f32>,
    /// Divisors of the frequencies for fewer positions, `[rotary_dim / 2]`.
    pub short: Vec<f32>,
    /// Context length of the unscaled model, in positions.
    pub original_context: usize,
    /// Factor of cosines and sines, with both lists.
    pub attention_factor: f64,
}

impl LongRopeScaling {
    /// The paper's factor of cosines and sines for a model of `longest` positions.
    #[must_use]
    pub fn attention_scale(longest: usize, original: usize) -> f64 {
        let (longest, original) = (longest as f64, original as f64);
        if longest <= original || original <= 1.0 {
            return 1.0;
        }
        (1.0 + libm::log(longest / original) / libm::log(original)).sqrt()
    }

    /// Returns true if a model that may have `context` positions takes the long list.
    #[must_use]
    pub fn is_long(&self, context: usize) -> bool {
        context > self.original_context
    }

    /// The divisors of a model that may have `context` positions.
    #[must_use]
    pub fn divisors(&self, context: usize) -> &[f32] {
        if self.is_long(context) { &self.long } else { &self.short }
    }
}

/// Factors of MiniCPM's forward pass, which carry hyperparameters over from a narrower model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleFactors {
    /// Factor of token embeddings.
    pub embedding: f32,
    /// Factor of the output of each attention and feed-forward block before it is added.
    pub residual: f32,
    /// Divisor of the logits.
    pub logit_divisor: f32,
}

/// YaRN (arXiv 2309.00071) interpolates low frequencies, keeps high ones, mixes those between, and
/// sharpens attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct YarnScaling {
    /// Divisor of interpolated positions.
    pub factor: f64,
    /// Context length of the unscaled model, in positions.
    pub original_context: usize,
    /// Dimensions that turn more often than this within the original context are kept.
    pub beta_fast: f64,
    /// Dimensions that turn less often than this within it are interpolated.
    pub beta_slow: f64,
    /// Factor of cosines and sines; attention scores grow by its square.
    pub attention_factor: f64,
    /// True if the first and last mixed dimension are rounded outwards to whole numbers.
    pub truncate: bool,
    /// β of the factor 1 + β · ln(1 + ⌊position / `original_context`⌋) of queries; 0 leaves them as they
    /// are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub query_beta: f64,
}

impl YarnScaling {
    /// The scaling with the paper's constants.
    #[must_use]
    pub fn new(factor: f64, original_context: usize) -> Self {
        let (beta_fast, beta_slow, truncate) = (32.0, 1.0, true);
        let attention_factor = Self::attention_scale(factor, 1.0);
        Self {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            attention_factor,
            truncate,
            query_beta: 0.0,
        }
    }

    /// The paper's factor of cosines and sines, with its coefficient of 0.1 multiplied by `scale`
    /// (`get_mscale` in `transformers`).
    #[must_use]
    pub fn attention_scale(factor: f64, scale: f64) -> f64 {
        if factor > 1.0 { 0.1 * scale * libm::log(factor) + 1.0 } else { 1.0 }
    }
}

/// `rope_scaling` of type `llama3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Frequencies whose wavelength is above `original_context / low_freq_factor` are divided by
    /// `factor`.
    pub low_freq_factor: f64,
    /// Frequencies whose wavelength is below `original_context / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length of the unscaled model, in positions.
    pub original_context: usize,
}

impl Llama3Scaling {
    /// Divisor of each frequency of a rotary embedding with base `theta` over `rotary` dimensions.
    pub(super) fn divisors(&self, theta: f64, rotary: usize) -> Vec<f32> {
        let original = self.original_context as f64;
        let divisor = |i: usize| {
            let wavelength = TAU * libm::pow(theta, 2.0 * i as f64 / rotary as f64);
            if wavelength < original / self.high_freq_factor {
                1.0
            } else if wavelength > original / self.low_freq_factor {
                self.factor
            } else {
                let smooth = (original / wavelength - self.low_freq_factor)
                    / (self.high_freq_factor - self.low_freq_factor);
                1.0 / ((1.0 - smooth) / self.factor + smooth)
            }
        };
        (0..rotary / 2).map(|i| divisor(i) as f32).collect()
    }
}

/// Shape and constants of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Model family.
    pub architecture: Architecture,
    /// Number of tokens: rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of transformer layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Number of positions that the model was trained for, or that its RoPE scaling extends it to.
    pub context_length: usize,
    /// ε of every RMSNorm.
    pub norm_eps: f32,
    /// Gate function of the feed-forward blocks.
    pub activation: Activation,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Number of first values of a head that the rotary embedding turns; even. `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<usize>,
    /// True if attention outputs are multiplied by σ(gate). The query projection has the gates' rows
    /// too: of each head `head_dim` query rows, then `head_dim` gate rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attention_gate: bool,
    /// Shape of the linear-attention layers, if the model has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_attention: Option<LinearAttention>,
    /// Mixer of each layer; empty if all layers attend. See [`Self::mixer`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixers: Vec<MixerKind>,
    /// Factors of embeddings, blocks and logits, if the model has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<ScaleFactors>,
    /// Number of blocks for multi-token prediction that were loaded with the model: 0 or 1. A block drafts
    /// tokens ([`MtpWeights`](super::MtpWeights)) and has keys and values as a layer that attends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtp_layers: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

fn is_none(factor: &f64) -> bool {
    *factor == 0.0
}

impl Spec {
    /// Number of first values of a head that the rotary embedding turns.
    #[must_use]
    pub fn rotary_dim(&self) -> usize {
        self.rotary_dim.unwrap_or(self.head_dim)
    }

    /// Mixer of a layer.
    #[must_use]
    pub fn mixer(&self, layer: usize) -> MixerKind {
        self.mixers.get(layer).copied().unwrap_or(MixerKind::Attention)
    }

    /// Returns true if the norms of q and k come after the rotary embedding, not before it.
    #[must_use]
    pub fn norms_after_rope(&self) -> bool {
        self.architecture == Architecture::HunyuanDense
    }

    /// Number of outputs of the query projection: queries, and gates if there are any.
    #[must_use]
    pub fn query_outputs(&self) -> usize {
        self.heads * self.head_dim * if self.attention_gate { 2 } else { 1 }
    }

    /// Number of positions that the model was trained for before its RoPE was scaled, where the files
    /// state it; otherwise [`Self::context_length`].
    #[must_use]
    pub fn original_context(&self) -> usize {
        match &self.rope.scaling {
            Some(RopeScaling::Llama3(s)) => s.original_context,
            Some(RopeScaling::Yarn(s)) => s.original_context,
            Some(RopeScaling::LongRope(s)) => s.original_context,
            Some(RopeScaling::Divisors(_) | RopeScaling::Linear(_)) | None => self.context_length,
        }
    }
}

/// Training parameters of a block-diffusion model (`dlm_config.json`, or fields of `config.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DlmConfig {
    /// Number of positions in a block.
    pub bd_size: usize,
    /// Id of the MASK token.
    pub mask_token_id: Option<u32>,
    /// True if the model also has a trained autoregressive path.
    #[serde(default)]
    pub ar_path: bool,
    /// Attention mask of clean (committed) tokens inside their own block: `causal` or `block`.
    #[serde(default = "block")]
    pub clean_attention: String,
    /// Position whose logits predict token i: i − 1 (with 1) or i (with 0).
    #[serde(default = "one")]
    pub logit_shift: u8,
    /// True if the files do not state [`Self::logit_shift`], and its family's was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logit_shift_assumed: bool,
    /// True if blocks begin where the prompt ends, and the last committed row predicts a block's first
    /// token; false if they begin at multiples of [`Self::bd_size`]. Needs causal clean tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocks_from_prompt: bool,
    /// True if a slot whose probability equals the threshold is accepted; false if it must be above it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub threshold_inclusive: bool,
}

/// Training that the files of a model state (`wrinklefree_training` of `config.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingStatement {
    /// Names of the stages, first to last.
    pub stages: Vec<String>,
    /// Activation sparsity of the training, in the words of the setting `activation_sparsity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_sparsity: Option<String>,
    /// True if weights are ternary in the Haar-wavelet basis, so that the files hold dense ones.
    #[serde(default)]
    pub haar: bool,
}

fn block() -> String {
    "block".into()
}

fn one() -> u8 {
    1
}
