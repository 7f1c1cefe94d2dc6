//! The fields of `config.json`.

use crate::format::{LoadError, LoadErrorKind as Kind, TrainingStatement};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The relevant fields of `config.json`.
#[derive(Deserialize)]
pub(super) struct Config {
    pub(super) model_type: Option<String>,
    pub(super) architectures: Option<Vec<String>>,
    /// 1 in 1bitLLM's BitNet models, which are trained with ternary weights.
    pub(super) weight_bits: Option<u32>,
    pub(super) vocab_size: Option<usize>,
    pub(super) hidden_size: Option<usize>,
    pub(super) intermediate_size: Option<usize>,
    pub(super) num_hidden_layers: Option<usize>,
    pub(super) num_attention_heads: Option<usize>,
    pub(super) num_key_value_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
    /// `head_dim` in Hunyuan's older files.
    pub(super) attention_head_dim: Option<usize>,
    /// False in Hunyuan's models without norms of q and k.
    pub(super) use_qk_norm: Option<bool>,
    /// True for attention layers that share keys and values (Hunyuan).
    pub(super) use_cla: Option<bool>,
    pub(super) num_experts: Option<Experts>,
    pub(super) scale_emb: Option<f64>,
    pub(super) scale_depth: Option<f64>,
    pub(super) dim_model_base: Option<f64>,
    /// MiniCPM4's sparse attention of long texts.
    pub(super) sparse_config: Option<IgnoredAny>,
    /// Quantization of MLX.
    pub(super) quantization: Option<MlxQuantization>,
    pub(super) max_position_embeddings: Option<usize>,
    pub(super) original_max_position_embeddings: Option<usize>,
    pub(super) rms_norm_eps: Option<f64>,
    pub(super) hidden_act: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) rope_scaling: Option<RopeConfig>,
    pub(super) rope_parameters: Option<RopeConfig>,
    pub(super) tie_word_embeddings: Option<bool>,
    /// `tie_word_embeddings` of the configuration around a text model's.
    #[serde(skip)]
    pub(super) tied_around: Option<bool>,
    pub(super) attention_bias: Option<bool>,
    pub(super) mlp_bias: Option<bool>,
    pub(super) use_sliding_window: Option<bool>,
    pub(super) sliding_window: Option<u64>,
    pub(super) layer_types: Option<Vec<String>>,
    pub(super) full_attention_interval: Option<usize>,
    pub(super) linear_conv_kernel_dim: Option<usize>,
    pub(super) linear_key_head_dim: Option<usize>,
    pub(super) linear_value_head_dim: Option<usize>,
    pub(super) linear_num_key_heads: Option<usize>,
    pub(super) linear_num_value_heads: Option<usize>,
    pub(super) attn_output_gate: Option<bool>,
    pub(super) mtp_num_hidden_layers: Option<usize>,
    /// The text model inside a model of several modalities.
    pub(super) text_config: Option<Box<Config>>,
    pub(super) quantization_config: Option<QuantConfig>,
    pub(super) bos_token_id: Option<TokenIds>,
    pub(super) eos_token_id: Option<TokenIds>,
    pub(super) bd_size: Option<usize>,
    pub(super) block_size: Option<usize>,
    pub(super) mask_token_id: Option<u32>,
    /// Kind of training of Nemotron-Labs-Diffusion.
    pub(super) dlm_paradigm: Option<String>,
    pub(super) logit_shift: Option<u8>,
    #[serde(rename = "wrinklefree_training")]
    pub(super) training: Option<TrainingStatement>,
}

/// One id or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum TokenIds {
    One(u32),
    Many(Vec<u32>),
}

impl TokenIds {
    pub(super) fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// Number of experts, for all layers or for each.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Experts {
    All(u64),
    Each(Vec<u64>),
}

impl Experts {
    pub(super) fn most(&self) -> u64 {
        match self {
            Self::All(count) => *count,
            Self::Each(counts) => counts.iter().copied().max().unwrap_or(0),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct MlxQuantization {
    pub(super) bits: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct QuantConfig {
    pub(super) quant_method: Option<String>,
    pub(super) linear_class: Option<String>,
    pub(super) modules_to_not_convert: Option<Vec<String>>,
    pub(super) use_rms_norm: Option<bool>,
}

/// `rope_parameters` or, in older files, `rope_scaling`.
#[derive(Deserialize)]
pub(super) struct RopeConfig {
    pub(super) rope_type: Option<String>,
    #[serde(rename = "type")]
    pub(super) old_type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) factor: Option<f64>,
    /// Exponent's base of Hunyuan's scaling of θ.
    pub(super) alpha: Option<f64>,
    pub(super) low_freq_factor: Option<f64>,
    pub(super) high_freq_factor: Option<f64>,
    pub(super) original_max_position_embeddings: Option<usize>,
    pub(super) beta_fast: Option<f64>,
    pub(super) beta_slow: Option<f64>,
    pub(super) attention_factor: Option<f64>,
    pub(super) mscale: Option<f64>,
    pub(super) mscale_all_dim: Option<f64>,
    /// Growth of queries with their position (Ministral 3).
    pub(super) llama_4_scaling_beta: Option<f64>,
    pub(super) truncate: Option<bool>,
    pub(super) long_factor: Option<Vec<f32>>,
    pub(super) short_factor: Option<Vec<f32>>,
    pub(super) long_mscale: Option<f64>,
    pub(super) short_mscale: Option<f64>,
}

/// Returns the error of a field that asks for something that is not supported.
pub(super) fn unsupported(
    file: &str,
    want: impl Into<String>,
    found: impl Into<String>,
) -> LoadError {
    LoadError::new(Kind::UnsupportedFeature, file, want, found)
}

/// Returns the value of a field that must be there.
pub(super) fn need<T>(file: &str, field: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| LoadError::new(Kind::Missing, file, format!("`{field}`"), "no such field"))
}
