//! Reads `config.json` into a [`Spec`].

use super::qwen35;
use crate::format::{
    Activation, Architecture, DlmConfig, Llama3Scaling, LoadError, LoadErrorKind as Kind, Rope,
    RopeScaling, Spec, TrainingStatement, YarnScaling,
};
use serde::Deserialize;

/// The relevant fields of `config.json`.
#[derive(Deserialize)]
pub(super) struct Config {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
    /// 1 in 1bitLLM's BitNet models, which are trained with ternary weights.
    weight_bits: Option<u32>,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    original_max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_scaling: Option<RopeConfig>,
    rope_parameters: Option<RopeConfig>,
    tie_word_embeddings: Option<bool>,
    /// `tie_word_embeddings` of the configuration around a text model's.
    #[serde(skip)]
    tied_around: Option<bool>,
    pub(super) attention_bias: Option<bool>,
    pub(super) mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<u64>,
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
    text_config: Option<Box<Config>>,
    quantization_config: Option<QuantConfig>,
    pub(super) bos_token_id: Option<TokenIds>,
    pub(super) eos_token_id: Option<TokenIds>,
    bd_size: Option<usize>,
    block_size: Option<usize>,
    mask_token_id: Option<u32>,
    logit_shift: Option<u8>,
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

#[derive(Deserialize)]
struct RopeConfig {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
}

#[derive(Deserialize)]
struct QuantConfig {
    quant_method: Option<String>,
    linear_class: Option<String>,
    modules_to_not_convert: Option<Vec<String>>,
    use_rms_norm: Option<bool>,
}

/// Ternary quantization of the directory's linear layers.
pub(super) struct Quantization {
    /// True for W = t · scale, false for W = t / scale.
    pub(super) multiply: bool,
    excluded: Vec<String>,
}

impl Quantization {
    /// Returns true if a module is quantized. An exclusion names a module, its last part or a group
    /// of modules.
    pub(super) fn covers(&self, module: &str) -> bool {
        let module = format!(".{module}.");
        !self.excluded.iter().any(|e| module.contains(&format!(".{e}.")))
    }
}

pub(super) fn unsupported(
    file: &str,
    want: impl Into<String>,
    found: impl Into<String>,
) -> LoadError {
    LoadError::new(Kind::UnsupportedFeature, file, want, found)
}

pub(super) fn need<T>(file: &str, field: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| LoadError::new(Kind::Missing, file, format!("`{field}`"), "no such field"))
}

impl Config {
    fn family(&self) -> Option<Architecture> {
        Some(match self.model_type.as_deref()? {
            "bitnet" => Architecture::BitNet,
            "llama" if self.one_bit() => Architecture::BitNet,
            "llama" => Architecture::Llama,
            "qwen2" | "Fast_dLLM_Qwen" => Architecture::Qwen2,
            "qwen3" | "sdar" => Architecture::Qwen3,
            "qwen3_5_text" => Architecture::Qwen35,
            _ => return None,
        })
    }

    /// Returns true for the layout of 1bitLLM's BitNet models: Llama's configuration, and two norms more.
    pub(super) fn one_bit(&self) -> bool {
        self.architectures.iter().flatten().any(|name| name == "BitnetForCausalLM")
    }

    /// Returns true for Qwen3.5.
    pub(super) fn hybrid(&self) -> bool {
        self.family() == Some(Architecture::Qwen35)
    }

    /// Returns true for Qwen2, which always has biases on q, k and v.
    pub(super) fn qwen2(&self) -> bool {
        self.family() == Some(Architecture::Qwen2)
    }

    /// The configuration of the text model. Fields that it leaves out are those around it.
    pub(super) fn text_model(self, file: &str) -> Result<Self, LoadError> {
        if self.model_type.as_deref() != Some("qwen3_5") {
            return Ok(self);
        }
        let model_type = Some("qwen3_5_text".into());
        // Some tools write a text model's fields under the name of the whole.
        if self.text_config.is_none() && self.hidden_size.is_some() {
            return Ok(Self { model_type, ..self });
        }
        let mut text = *need(file, "text_config", self.text_config)?;
        text.tied_around = self.tie_word_embeddings;
        text.model_type = text.model_type.or(model_type);
        text.quantization_config = text.quantization_config.or(self.quantization_config);
        text.bos_token_id = text.bos_token_id.or(self.bos_token_id);
        text.eos_token_id = text.eos_token_id.or(self.eos_token_id);
        Ok(text)
    }

    /// Returns true if the head is a separate matrix; `stored` is true if the files have one.
    pub(super) fn has_head(&self, stored: bool) -> bool {
        match (self.tied_around, self.tie_word_embeddings) {
            (Some(true), _) | (None, Some(true)) => false,
            (_, Some(false)) => true,
            _ => stored,
        }
    }

    /// The model's shape and constants.
    pub(super) fn spec(&self, file: &str) -> Result<Spec, LoadError> {
        let architecture = self.family().ok_or_else(|| {
            LoadError::new(
                Kind::UnsupportedArchitecture,
                file,
                "`model_type` to be bitnet, llama, qwen2 (or Fast_dLLM_Qwen), qwen3 (or sdar) \
                 or qwen3_5 (or qwen3_5_text)",
                self.model_type.as_ref().map_or("none".into(), |t| format!("`{t}`")),
            )
        })?;
        self.refuse_variants(file)?;
        let hidden_size = need(file, "hidden_size", self.hidden_size)?;
        let heads = need(file, "num_attention_heads", self.num_attention_heads)?;
        let hybrid = architecture == Architecture::Qwen35;
        let head_dim = match self.head_dim {
            Some(n) => n,
            None if hybrid => qwen35::HEAD_DIM,
            None => hidden_size.checked_div(heads).unwrap_or(0),
        };
        let rope = self.rope(file)?;
        let rotary_dim = self.rotary_dim(file, head_dim, hybrid)?;
        let layers = need(file, "num_hidden_layers", self.num_hidden_layers)?;
        let longest = need(file, "max_position_embeddings", self.max_position_embeddings)?;
        Ok(Spec {
            architecture,
            vocab_size: need(file, "vocab_size", self.vocab_size)?,
            hidden_size,
            intermediate_size: need(file, "intermediate_size", self.intermediate_size)?,
            layers,
            heads,
            kv_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dim,
            context_length: rope.extended_context(longest),
            norm_eps: need(file, "rms_norm_eps", self.rms_norm_eps)? as f32,
            activation: self.activation(file)?,
            rope,
            rotary_dim: (rotary_dim != head_dim).then_some(rotary_dim),
            attention_gate: hybrid,
            linear_attention: hybrid.then(|| self.linear_attention(file)).transpose()?,
            mixers: if hybrid { self.mixers(file, layers)? } else { Vec::new() },
            mtp_layers: 0,
        })
    }

    fn refuse_variants(&self, file: &str) -> Result<(), LoadError> {
        // Qwen files have a window and a switch for it, which is off by default.
        let qwen = matches!(self.family(), Some(Architecture::Qwen2 | Architecture::Qwen3));
        let used = self.use_sliding_window.unwrap_or(!qwen);
        if let Some(window) = self.sliding_window.filter(|_| used) {
            return Err(unsupported(
                file,
                "full attention",
                format!("a sliding window of {window}"),
            ));
        }
        let other = self.layer_types.iter().flatten().find(|t| *t != "full_attention");
        if let Some(other) = other.filter(|_| !self.hybrid()) {
            return Err(unsupported(file, "full attention in every layer", format!("`{other}`")));
        }
        Ok(())
    }

    fn activation(&self, file: &str) -> Result<Activation, LoadError> {
        match need(file, "hidden_act", self.hidden_act.as_deref())? {
            "silu" | "swish" => Ok(Activation::Silu),
            "relu2" => Ok(Activation::Relu2),
            other => Err(unsupported(file, "`hidden_act` silu or relu2", format!("`{other}`"))),
        }
    }

    /// A number of `rope_parameters` or, in older files, `rope_scaling`.
    fn rope_number(&self, field: fn(&RopeConfig) -> Option<f64>) -> Option<f64> {
        let both = [&self.rope_parameters, &self.rope_scaling];
        both.into_iter().find_map(|r| r.as_ref().and_then(field))
    }

    /// Number of columns of a head that RoPE turns.
    fn rotary_dim(&self, file: &str, head_dim: usize, hybrid: bool) -> Result<usize, LoadError> {
        let given = self.rope_number(|r| r.partial_rotary_factor).or(self.partial_rotary_factor);
        match given.unwrap_or(if hybrid { qwen35::PARTIAL_ROTARY } else { 1.0 }) {
            1.0 => Ok(head_dim),
            part if hybrid && part > 0.0 && part < 1.0 => Ok((head_dim as f64 * part) as usize),
            part => {
                let want =
                    if hybrid { "RoPE over a part of heads" } else { "RoPE over whole heads" };
                Err(unsupported(file, want, format!("over {part} of them")))
            }
        }
    }

    fn rope(&self, file: &str) -> Result<Rope, LoadError> {
        let mut scaling = None;
        for r in [&self.rope_parameters, &self.rope_scaling].into_iter().flatten() {
            match r.rope_type.as_deref().or(r.old_type.as_deref()) {
                None | Some("default") => {}
                Some("llama3") => scaling = Some(RopeScaling::Llama3(r.llama3(file)?)),
                Some("linear") => {
                    scaling = Some(RopeScaling::Linear(need(file, "factor", r.factor)?));
                }
                Some("yarn") => scaling = Some(RopeScaling::Yarn(self.yarn(file, r)?)),
                Some(other) => {
                    let want = "RoPE scaling `default`, `linear`, `llama3` or `yarn`";
                    return Err(unsupported(file, want, format!("`{other}`")));
                }
            }
        }
        // The default of `transformers`, which configurations leave out.
        let theta = self.rope_number(|r| r.rope_theta).or(self.rope_theta).unwrap_or(10_000.0);
        Ok(Rope { theta, scaling })
    }

    /// Reads YaRN as `transformers` does: missing values follow from the lengths and the paper.
    fn yarn(&self, file: &str, r: &RopeConfig) -> Result<YarnScaling, LoadError> {
        let longest = need(file, "max_position_embeddings", self.max_position_embeddings)?;
        let original = self.original_max_position_embeddings;
        let original = original.or(r.original_max_position_embeddings).unwrap_or(longest);
        let factor = r.factor.unwrap_or(longest as f64 / original as f64);
        let paper = YarnScaling::new(factor, original);
        let given = |x: Option<f64>| x.filter(|&x| x != 0.0);
        let attention = |scale| YarnScaling::attention_scale(factor, scale);
        let inferred = match (given(r.mscale), given(r.mscale_all_dim)) {
            (Some(own), Some(all)) => attention(own) / attention(all),
            _ => paper.attention_factor,
        };
        Ok(YarnScaling {
            beta_fast: given(r.beta_fast).unwrap_or(paper.beta_fast),
            beta_slow: given(r.beta_slow).unwrap_or(paper.beta_slow),
            attention_factor: r.attention_factor.unwrap_or(inferred),
            truncate: r.truncate.unwrap_or(paper.truncate),
            ..paper
        })
    }

    /// Quantization of the linear layers; `None` for a float model.
    pub(super) fn quantization(&self, file: &str) -> Result<Option<Quantization>, LoadError> {
        let Some(q) = &self.quantization_config else {
            // BitNet's weights are ternary in training, whether or not a file says so.
            let ternary =
                self.family() == Some(Architecture::BitNet) || self.weight_bits == Some(1);
            return Ok(ternary.then(|| Quantization { multiply: true, excluded: Vec::new() }));
        };
        match q.quant_method.as_deref() {
            Some("bitnet") => {}
            other => {
                let found = other.map_or("none".into(), |m| format!("`{m}`"));
                return Err(unsupported(file, "`quant_method` bitnet", found)
                    .advice("use the original weights instead"));
            }
        }
        if q.use_rms_norm == Some(true) {
            return Err(unsupported(file, "`use_rms_norm` false", "true")
                .advice("a norm in front of every linear layer is not supported"));
        }
        let multiply = match q.linear_class.as_deref() {
            Some("autobitlinear") => true,
            None | Some("bitlinear") => false,
            Some(other) => {
                let want = "`linear_class` autobitlinear or bitlinear";
                return Err(unsupported(file, want, format!("`{other}`")));
            }
        };
        let excluded = q.modules_to_not_convert.clone().unwrap_or_default();
        Ok(Some(Quantization { multiply, excluded }))
    }

    /// Block-diffusion fields of a model without `dlm_config.json`. A `block_size` means blocks only
    /// next to the mask's id, except in SDAR: elsewhere it may be a context length.
    pub(super) fn dlm(&self) -> Option<DlmConfig> {
        let sdar = self.model_type.as_deref() == Some("sdar");
        let means_blocks = sdar || self.mask_token_id.is_some();
        let bd_size = self.bd_size.or(self.block_size.filter(|_| means_blocks))?;
        Some(DlmConfig {
            bd_size,
            mask_token_id: self.mask_token_id,
            ar_path: false,
            clean_attention: "block".into(),
            // Models trained from autoregressive ones keep their shift, as Fast-dLLM v2 does.
            logit_shift: self.logit_shift.unwrap_or(u8::from(!sdar)),
            logit_shift_assumed: self.logit_shift.is_none() && self.bd_size.is_none() && !sdar,
        })
    }
}

impl RopeConfig {
    fn llama3(&self, file: &str) -> Result<Llama3Scaling, LoadError> {
        Ok(Llama3Scaling {
            factor: need(file, "factor", self.factor)?,
            low_freq_factor: need(file, "low_freq_factor", self.low_freq_factor)?,
            high_freq_factor: need(file, "high_freq_factor", self.high_freq_factor)?,
            original_context: need(
                file,
                "original_max_position_embeddings",
                self.original_max_position_embeddings,
            )?,
        })
    }
}
