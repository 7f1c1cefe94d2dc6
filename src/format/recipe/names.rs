//! The names of a model's tensors in each file format.

use crate::format::Architecture;

/// Role of a tensor in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum LayerRole {
    AttnNorm,
    Q,
    K,
    V,
    QNorm,
    KNorm,
    AttnSubNorm,
    O,
    /// Matrices of the adapter that changes the output projection in drafts.
    DraftDown,
    DraftUp,
    /// Queries, keys and values of linear attention, in one matrix.
    Qkv,
    Z,
    Alpha,
    Beta,
    Conv,
    A,
    DtBias,
    LinearNorm,
    Out,
    FfnNorm,
    Gate,
    Up,
    FfnSubNorm,
    Down,
}

/// Role of a tensor in a block for multi-token prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum MtpRole {
    EmbedNorm,
    HiddenNorm,
    Input,
    Layer(LayerRole),
    HeadNorm,
    Embed,
    Head,
}

/// Role of a tensor in a drafter that no model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum DraftRole {
    /// Projection of the hidden states.
    Input,
    HiddenNorm,
    MarkovPrevious,
    MarkovNext,
    Confidence,
    LogSnr1,
    LogSnr2,
}

/// Role of a tensor in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum TensorRole {
    Embed,
    Head,
    FinalNorm,
    Layer(usize, LayerRole),
    /// Tensor of a drafting block. The number counts layers and drafting blocks together.
    Mtp(usize, MtpRole),
    /// Tensor of a drafter.
    Draft(DraftRole),
}

/// The tensor names of one file format, without `.weight`.
pub(in crate::format) struct TensorNames {
    pub(in crate::format) embed: &'static str,
    pub(in crate::format) head: &'static str,
    pub(in crate::format) final_norm: &'static str,
    /// Prefix of the layer's number.
    layers: &'static str,
    layer_role: fn(LayerRole) -> &'static str,
    /// Prefix of the tensors of a drafting block, and that of its layer. They stand after the prefix of
    /// a layer if they begin with a dot.
    mtp: [&'static str; 2],
    /// Names of a drafting block's own tensors.
    mtp_role: fn(MtpRole) -> &'static str,
    /// Names of a drafter's own tensors.
    draft_role: fn(DraftRole) -> &'static str,
}

impl TensorNames {
    /// Names of Hugging Face `transformers`.
    pub(in crate::format) const HF: Self = Self {
        embed: "model.embed_tokens",
        head: "lm_head",
        final_norm: "model.norm",
        layers: "model.layers",
        layer_role: |role| match role {
            LayerRole::AttnNorm => "input_layernorm",
            LayerRole::Q => "self_attn.q_proj",
            LayerRole::K => "self_attn.k_proj",
            LayerRole::V => "self_attn.v_proj",
            LayerRole::QNorm => "self_attn.q_norm",
            LayerRole::KNorm => "self_attn.k_norm",
            LayerRole::AttnSubNorm => "self_attn.attn_sub_norm",
            LayerRole::O => "self_attn.o_proj",
            LayerRole::DraftDown => "self_attn.o_proj.lora_A",
            LayerRole::DraftUp => "self_attn.o_proj.lora_B",
            LayerRole::Qkv => "linear_attn.in_proj_qkv",
            LayerRole::Z => "linear_attn.in_proj_z",
            LayerRole::Alpha => "linear_attn.in_proj_a",
            LayerRole::Beta => "linear_attn.in_proj_b",
            LayerRole::Conv => "linear_attn.conv1d",
            LayerRole::A => "linear_attn.A_log",
            LayerRole::DtBias => "linear_attn.dt_bias",
            LayerRole::LinearNorm => "linear_attn.norm",
            LayerRole::Out => "linear_attn.out_proj",
            LayerRole::FfnNorm => "post_attention_layernorm",
            LayerRole::Gate => "mlp.gate_proj",
            LayerRole::Up => "mlp.up_proj",
            LayerRole::FfnSubNorm => "mlp.ffn_sub_norm",
            LayerRole::Down => "mlp.down_proj",
        },
        mtp: ["mtp.", "mtp.layers.0."],
        mtp_role: |role| match role {
            MtpRole::EmbedNorm => "pre_fc_norm_embedding",
            MtpRole::HiddenNorm => "pre_fc_norm_hidden",
            MtpRole::Input => "fc",
            MtpRole::HeadNorm => "norm",
            MtpRole::Embed => "embed_tokens",
            MtpRole::Head => "lm_head",
            MtpRole::Layer(role) => (Self::HF.layer_role)(role),
        },
        draft_role: |role| match role {
            DraftRole::Input => "fc",
            DraftRole::HiddenNorm => "hidden_norm",
            DraftRole::MarkovPrevious => "markov_head.markov_w1",
            DraftRole::MarkovNext => "markov_head.markov_w2",
            DraftRole::Confidence => "confidence_head.proj",
            DraftRole::LogSnr1 => "log_snr_embed.fc1",
            DraftRole::LogSnr2 => "log_snr_embed.fc2",
        },
    };

    /// Names in a directory of a drafter, without the prefix `model.` that some have.
    pub(in crate::format) const HF_DRAFTER: Self =
        Self { embed: "embed_tokens", final_norm: "norm", layers: "layers", ..Self::HF };

    /// Names in a directory of a text model inside a model of several modalities.
    pub(in crate::format) const HF_WRAPPED: Self = Self {
        embed: "model.language_model.embed_tokens",
        final_norm: "model.language_model.norm",
        layers: "model.language_model.layers",
        ..Self::HF
    };

    /// Names in a directory of 1bitLLM's BitNet models.
    pub(in crate::format) const HF_ONE_BIT: Self = Self {
        layer_role: |role| match role {
            LayerRole::AttnSubNorm => "self_attn.inner_attn_ln",
            LayerRole::FfnSubNorm => "mlp.ffn_layernorm",
            role => (Self::HF.layer_role)(role),
        },
        ..Self::HF
    };

    /// Names in a directory of Hunyuan's dense models.
    pub(in crate::format) const HF_HUNYUAN: Self = Self {
        layer_role: |role| match role {
            LayerRole::QNorm => "self_attn.query_layernorm",
            LayerRole::KNorm => "self_attn.key_layernorm",
            role => (Self::HF.layer_role)(role),
        },
        ..Self::HF
    };

    /// Names in a directory of Nemotron-Labs-Diffusion.
    pub(in crate::format) const HF_NEMOTRON_DIFFUSION: Self = Self {
        embed: "encoder.embed_tokens",
        head: "diffusion_head",
        final_norm: "encoder.norm",
        layers: "encoder.layers",
        ..Self::HF
    };

    /// Names in the directories of a family, as this runtime writes them.
    pub(in crate::format) fn hf(architecture: Architecture) -> &'static Self {
        match architecture {
            Architecture::HunyuanDense => &Self::HF_HUNYUAN,
            Architecture::NemotronDiffusion => &Self::HF_NEMOTRON_DIFFUSION,
            _ => &Self::HF,
        }
    }

    /// Names of GGUF files.
    pub(in crate::format) const GGUF: Self = Self {
        embed: "token_embd",
        head: "output",
        final_norm: "output_norm",
        layers: "blk",
        layer_role: |role| match role {
            LayerRole::AttnNorm => "attn_norm",
            LayerRole::Q => "attn_q",
            LayerRole::K => "attn_k",
            LayerRole::V => "attn_v",
            LayerRole::QNorm => "attn_q_norm",
            LayerRole::KNorm => "attn_k_norm",
            LayerRole::AttnSubNorm => "attn_sub_norm",
            LayerRole::O => "attn_output",
            LayerRole::DraftDown => "attn_output.lora_a",
            LayerRole::DraftUp => "attn_output.lora_b",
            LayerRole::Qkv => "attn_qkv",
            LayerRole::Z => "attn_gate",
            LayerRole::Alpha => "ssm_alpha",
            LayerRole::Beta => "ssm_beta",
            LayerRole::Conv => "ssm_conv1d",
            LayerRole::A => "ssm_a",
            LayerRole::DtBias => "ssm_dt.bias",
            LayerRole::LinearNorm => "ssm_norm",
            LayerRole::Out => "ssm_out",
            LayerRole::FfnNorm => "ffn_norm",
            LayerRole::Gate => "ffn_gate",
            LayerRole::Up => "ffn_up",
            LayerRole::FfnSubNorm => "ffn_sub_norm",
            LayerRole::Down => "ffn_down",
        },
        mtp: [".nextn.", "."],
        mtp_role: |role| match role {
            MtpRole::EmbedNorm => "enorm",
            MtpRole::HiddenNorm => "hnorm",
            MtpRole::Input => "eh_proj",
            MtpRole::HeadNorm => "shared_head_norm",
            MtpRole::Embed => "embed_tokens",
            MtpRole::Head => "shared_head_head",
            MtpRole::Layer(role) => (Self::GGUF.layer_role)(role),
        },
        draft_role: |role| match role {
            DraftRole::Input => "fc",
            DraftRole::HiddenNorm => "enc.output_norm",
            DraftRole::MarkovPrevious => "markov_w1",
            DraftRole::MarkovNext => "markov_w2",
            DraftRole::Confidence => "conf_proj",
            DraftRole::LogSnr1 => "log_snr_fc1",
            DraftRole::LogSnr2 => "log_snr_fc2",
        },
    };

    /// Names in PrismML's first GGUF files of drafters.
    pub(in crate::format) const GGUF_DSPARK: Self = Self {
        draft_role: |role| match role {
            DraftRole::Input => "dspark.fc",
            DraftRole::HiddenNorm => "dspark.hidden_norm",
            DraftRole::MarkovPrevious => "dspark.markov_head_a",
            DraftRole::MarkovNext => "dspark.markov_head_b",
            DraftRole::Confidence => "dspark.confidence_head",
            DraftRole::LogSnr1 => "dspark.log_snr_fc1",
            DraftRole::LogSnr2 => "dspark.log_snr_fc2",
        },
        ..Self::GGUF
    };

    /// Names of GGUF files of the architecture `qwen35`.
    pub(in crate::format) const GGUF_QWEN35: Self = Self {
        layer_role: |role| match role {
            LayerRole::FfnNorm => "post_attention_norm",
            role => (Self::GGUF.layer_role)(role),
        },
        mtp_role: |role| match role {
            MtpRole::Layer(role) => (Self::GGUF_QWEN35.layer_role)(role),
            role => (Self::GGUF.mtp_role)(role),
        },
        ..Self::GGUF
    };

    /// Names in the GGUF files of a family.
    pub(in crate::format) fn gguf(architecture: Architecture) -> &'static Self {
        match architecture {
            Architecture::Qwen35 => &Self::GGUF_QWEN35,
            _ => &Self::GGUF,
        }
    }

    /// Names of packed files: the fields of [`crate::format::LayerWeights`].
    pub(in crate::format) const PACKED: Self = Self {
        embed: "embed",
        head: "head",
        final_norm: "final_norm",
        layers: "layers",
        layer_role: |role| match role {
            LayerRole::AttnNorm => "attn_norm",
            LayerRole::Q => "q",
            LayerRole::K => "k",
            LayerRole::V => "v",
            LayerRole::QNorm => "q_norm",
            LayerRole::KNorm => "k_norm",
            LayerRole::AttnSubNorm => "attn_sub_norm",
            LayerRole::O => "o",
            LayerRole::DraftDown => "draft_down",
            LayerRole::DraftUp => "draft_up",
            LayerRole::Qkv => "qkv",
            LayerRole::Z => "z",
            LayerRole::Alpha => "alpha",
            LayerRole::Beta => "beta",
            LayerRole::Conv => "conv",
            LayerRole::A => "a",
            LayerRole::DtBias => "dt_bias",
            LayerRole::LinearNorm => "linear_norm",
            LayerRole::Out => "out",
            LayerRole::FfnNorm => "ffn_norm",
            LayerRole::Gate => "gate",
            LayerRole::Up => "up",
            LayerRole::FfnSubNorm => "ffn_sub_norm",
            LayerRole::Down => "down",
        },
        mtp: ["mtp.", "mtp.layer."],
        mtp_role: |role| match role {
            MtpRole::EmbedNorm => "embed_norm",
            MtpRole::HiddenNorm => "hidden_norm",
            MtpRole::Input => "input",
            MtpRole::HeadNorm => "head_norm",
            MtpRole::Embed => "embed",
            MtpRole::Head => "head",
            MtpRole::Layer(role) => (Self::PACKED.layer_role)(role),
        },
        draft_role: Self::HF.draft_role,
    };

    /// The full name of the tensor with a role's weights, in files that distinguish weights and biases.
    pub(in crate::format) fn weight(&self, role: TensorRole) -> String {
        let name = self.name(role);
        match role {
            TensorRole::Layer(_, LayerRole::A | LayerRole::DtBias) => name,
            _ => name + ".weight",
        }
    }

    /// The name of the tensor with a role.
    pub(in crate::format) fn name(&self, role: TensorRole) -> String {
        match role {
            TensorRole::Embed => self.embed.into(),
            TensorRole::Head => self.head.into(),
            TensorRole::FinalNorm => self.final_norm.into(),
            TensorRole::Draft(role) => (self.draft_role)(role).into(),
            TensorRole::Layer(i, role) => {
                format!("{}.{i}.{}", self.layers, (self.layer_role)(role))
            }
            TensorRole::Mtp(i, role) => {
                let prefix = self.mtp[usize::from(matches!(role, MtpRole::Layer(_)))];
                let name = (self.mtp_role)(role);
                if prefix.starts_with('.') {
                    format!("{}.{i}{prefix}{name}", self.layers)
                } else {
                    format!("{prefix}{name}")
                }
            }
        }
    }
}
