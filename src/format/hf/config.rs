//! Reads `config.json` into a [`Spec`].

use super::drafter::is_drafter;
use super::fields::{Config, Experts, MlxQuantization, need, unsupported};
use super::nemotron;
use super::qwen35;
use crate::format::{
    Activation, Architecture, DlmConfig, LoadError, LoadErrorKind as Kind, ScaleFactors, Spec,
    families,
};

/// Ends of the names of classes that classify.
const HEADS: [&str; 5] = [
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "RewardModel",
];

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

impl Config {
    fn family(&self) -> Option<Architecture> {
        Some(match self.model_type.as_deref()? {
            "bitnet" => Architecture::BitNet,
            "llama" if self.one_bit() => Architecture::BitNet,
            "llama" => Architecture::Llama,
            "qwen2" | "Fast_dLLM_Qwen" => Architecture::Qwen2,
            "qwen3" | "sdar" => Architecture::Qwen3,
            "qwen3_5_text" => Architecture::Qwen35,
            "hunyuan_v1_dense" => Architecture::HunyuanDense,
            "minicpm" => Architecture::MiniCpm,
            nemotron::MODEL_TYPE => Architecture::NemotronDiffusion,
            _ => return None,
        })
    }

    /// Returns true for the layout of 1bitLLM's BitNet models: Llama's configuration, and two norms more.
    pub(super) fn one_bit(&self) -> bool {
        self.has_class("BitnetForCausalLM")
    }

    /// Returns true if the files name this class.
    pub(super) fn has_class(&self, class: &str) -> bool {
        self.architectures.iter().flatten().any(|name| name == class)
    }

    /// Returns true for Nemotron-Labs-Diffusion.
    pub(super) fn nemotron(&self) -> bool {
        self.family() == Some(Architecture::NemotronDiffusion)
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
        self.refuse_heads(file)?;
        self.refuse_predecessor(file)?;
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

    /// The configuration of a drafter's layers, which are those of Qwen3 whatever it was trained for, and
    /// their windows.
    pub(super) fn drafter(mut self, file: &str) -> Result<(Self, Vec<Option<usize>>), LoadError> {
        match self.model_type.as_deref() {
            None | Some("qwen3" | "dflash" | "dspark") => {
                let windows = self.take_windows(file)?;
                Ok((Self { model_type: Some("qwen3".into()), ..self }, windows))
            }
            Some(other) => {
                let want = "`model_type` of a drafter to be qwen3, dflash or dspark";
                Err(unsupported(file, want, format!("`{other}`")))
            }
        }
    }

    /// Takes the windows of a drafter's layers: those of the type `sliding_attention` have one.
    fn take_windows(&mut self, file: &str) -> Result<Vec<Option<usize>>, LoadError> {
        const SLIDING: &str = "sliding_attention";
        let Some(types) = self.layer_types.as_mut() else { return Ok(Vec::new()) };
        if !types.iter().any(|layer| layer == SLIDING) {
            return Ok(Vec::new());
        }
        let window = need(file, "sliding_window", self.sliding_window.take())?;
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        let layers = need(file, "num_hidden_layers", self.num_hidden_layers)?;
        if types.len() != layers {
            let want = format!("`layer_types` for each of {layers} layers");
            return Err(LoadError::new(Kind::Value, file, want, types.len().to_string()));
        }
        let windows = types.iter().map(|layer| (layer == SLIDING).then_some(window)).collect();
        types.retain(|layer| layer != SLIDING);
        Ok(windows)
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
            let error = LoadError::new(
                Kind::UnsupportedArchitecture,
                file,
                "`model_type` to be bitnet, llama, qwen2 (or Fast_dLLM_Qwen), qwen3 (or sdar), \
                 qwen3_5 (or qwen3_5_text), hunyuan_v1_dense, minicpm or nemotron_labs_diffusion",
                self.model_type.as_ref().map_or("none".into(), |t| format!("`{t}`")),
            );
            match self.model_type.as_deref().and_then(families::advice) {
                Some(advice) => error.advice(advice),
                None => error,
            }
        })?;
        self.refuse_variants(file)?;
        let hidden_size = need(file, "hidden_size", self.hidden_size)?;
        let heads = need(file, "num_attention_heads", self.num_attention_heads)?;
        let hybrid = architecture == Architecture::Qwen35;
        let hunyuan = architecture == Architecture::HunyuanDense;
        let head_dim = match self.head_dim.or(self.attention_head_dim.filter(|_| hunyuan)) {
            Some(n) => n,
            None if hybrid => qwen35::HEAD_DIM,
            None => hidden_size.checked_div(heads).unwrap_or(0),
        };
        let rope = self.rope(file, hunyuan.then_some(head_dim))?;
        let rotary_dim = self.rotary_dim(file, head_dim, hybrid)?;
        let layers = need(file, "num_hidden_layers", self.num_hidden_layers)?;
        let longest = need(file, "max_position_embeddings", self.max_position_embeddings)?;
        let spec = Spec {
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
            factors: match architecture {
                Architecture::MiniCpm => Some(self.factors(file, layers, hidden_size)?),
                _ => None,
            },
            mtp_layers: 0,
        };
        if self.nemotron() {
            self.check_nemotron(file, &spec)?;
        }
        Ok(spec)
    }

    /// Refuses models whose head gives labels instead of tokens: their hidden states were trained for it
    /// alone, and are no embeddings either.
    fn refuse_heads(&self, file: &str) -> Result<(), LoadError> {
        if let Some(class) = self.architectures.iter().flatten().find(|name| is_drafter(name)) {
            let want = "a model that generates text (`…ForCausalLM`) in `architectures`";
            let found = format!("`{class}`, a drafter");
            return Err(LoadError::new(Kind::UnsupportedArchitecture, file, want, found)
                .advice(families::DRAFTER));
        }
        let labels = |class: &&String| HEADS.iter().any(|head| class.ends_with(head));
        match self.architectures.iter().flatten().find(labels) {
            None => Ok(()),
            Some(class) => {
                let want = "a model that generates text (`…ForCausalLM`) in `architectures`";
                let found = format!("`{class}`, which classifies");
                Err(LoadError::new(Kind::UnsupportedArchitecture, file, want, found))
            }
        }
    }

    /// Reads MiniCPM's factors.
    fn factors(
        &self,
        file: &str,
        layers: usize,
        hidden_size: usize,
    ) -> Result<ScaleFactors, LoadError> {
        let depth = need(file, "scale_depth", self.scale_depth)?;
        let base = need(file, "dim_model_base", self.dim_model_base)?;
        Ok(ScaleFactors {
            embedding: need(file, "scale_emb", self.scale_emb)? as f32,
            residual: (depth / (layers as f64).sqrt()) as f32,
            logit_divisor: (hidden_size as f64 / base) as f32,
        })
    }

    /// Returns true if q and k have norms in a family where a configuration can switch them off.
    pub(super) fn has_head_norms(&self) -> bool {
        self.family() == Some(Architecture::HunyuanDense) && self.use_qk_norm.unwrap_or(true)
    }

    /// Remarks for users on fields that change nothing here.
    pub(super) fn notes(&self) -> Vec<String> {
        let sparse = self.sparse_config.as_ref().map(|_| {
            "`sparse_config` is ignored: attention is dense at every length, as in training".into()
        });
        sparse.into_iter().chain(self.nemotron_note()).collect()
    }

    fn refuse_variants(&self, file: &str) -> Result<(), LoadError> {
        if let Some(MlxQuantization { bits }) = &self.quantization {
            let found = format!("`quantization` of MLX in {} bits", bits.unwrap_or_default());
            return Err(unsupported(
                file,
                "weights in safetensors that are not packed by MLX",
                found,
            )
            .advice("use the GGUF file of the same model"));
        }
        let hunyuan = self.family() == Some(Architecture::HunyuanDense);
        let most = if hunyuan { 1 } else { 0 };
        let experts = self.num_experts.as_ref().map_or(0, Experts::most);
        if (hunyuan || self.family() == Some(Architecture::MiniCpm)) && experts > most {
            let found = format!("`num_experts` {experts}");
            return Err(unsupported(file, "a dense model", found)
                .advice("mixture of experts is not supported"));
        }
        if hunyuan && self.use_cla == Some(true) {
            return Err(unsupported(file, "`use_cla` false", "true")
                .advice("layers that share keys and values are not supported"));
        }
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
        if self.nemotron() {
            return self.nemotron_dlm();
        }
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
            blocks_from_prompt: false,
            threshold_inclusive: false,
        })
    }
}
