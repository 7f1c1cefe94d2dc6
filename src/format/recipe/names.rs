//! What each file format calls the tensors of a model.

/// A tensor's part in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum Role {
    AttnNorm,
    Q,
    K,
    V,
    QNorm,
    KNorm,
    AttnSubNorm,
    O,
    FfnNorm,
    Gate,
    Up,
    FfnSubNorm,
    Down,
}

/// A tensor's part in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum Place {
    Embed,
    Head,
    FinalNorm,
    Layer(usize, Role),
}

/// The names of one file format, without `.weight`.
pub(in crate::format) struct Names {
    pub(in crate::format) embed: &'static str,
    pub(in crate::format) head: &'static str,
    pub(in crate::format) final_norm: &'static str,
    /// In front of the layer's number.
    layers: &'static str,
    role: fn(Role) -> &'static str,
}

impl Names {
    /// Hugging Face `transformers`.
    pub(in crate::format) const HF: Self = Self {
        embed: "model.embed_tokens",
        head: "lm_head",
        final_norm: "model.norm",
        layers: "model.layers",
        role: |role| match role {
            Role::AttnNorm => "input_layernorm",
            Role::Q => "self_attn.q_proj",
            Role::K => "self_attn.k_proj",
            Role::V => "self_attn.v_proj",
            Role::QNorm => "self_attn.q_norm",
            Role::KNorm => "self_attn.k_norm",
            Role::AttnSubNorm => "self_attn.attn_sub_norm",
            Role::O => "self_attn.o_proj",
            Role::FfnNorm => "post_attention_layernorm",
            Role::Gate => "mlp.gate_proj",
            Role::Up => "mlp.up_proj",
            Role::FfnSubNorm => "mlp.ffn_sub_norm",
            Role::Down => "mlp.down_proj",
        },
    };

    /// GGUF.
    pub(in crate::format) const GGUF: Self = Self {
        embed: "token_embd",
        head: "output",
        final_norm: "output_norm",
        layers: "blk",
        role: |role| match role {
            Role::AttnNorm => "attn_norm",
            Role::Q => "attn_q",
            Role::K => "attn_k",
            Role::V => "attn_v",
            Role::QNorm => "attn_q_norm",
            Role::KNorm => "attn_k_norm",
            Role::AttnSubNorm => "attn_sub_norm",
            Role::O => "attn_output",
            Role::FfnNorm => "ffn_norm",
            Role::Gate => "ffn_gate",
            Role::Up => "ffn_up",
            Role::FfnSubNorm => "ffn_sub_norm",
            Role::Down => "ffn_down",
        },
    };

    /// Our packed file: the names of [`crate::format::LayerWeights`].
    pub(in crate::format) const PACKED: Self = Self {
        embed: "embed",
        head: "head",
        final_norm: "final_norm",
        layers: "layers",
        role: |role| match role {
            Role::AttnNorm => "attn_norm",
            Role::Q => "q",
            Role::K => "k",
            Role::V => "v",
            Role::QNorm => "q_norm",
            Role::KNorm => "k_norm",
            Role::AttnSubNorm => "attn_sub_norm",
            Role::O => "o",
            Role::FfnNorm => "ffn_norm",
            Role::Gate => "gate",
            Role::Up => "up",
            Role::FfnSubNorm => "ffn_sub_norm",
            Role::Down => "down",
        },
    };

    /// The name of a tensor.
    pub(in crate::format) fn of(&self, place: Place) -> String {
        match place {
            Place::Embed => self.embed.into(),
            Place::Head => self.head.into(),
            Place::FinalNorm => self.final_norm.into(),
            Place::Layer(i, role) => format!("{}.{i}.{}", self.layers, (self.role)(role)),
        }
    }
}
