//! Metadata keys that state a model's shape.

use super::keys::{ARCHITECTURE, DRAFTERS};
use super::meta::Metadata;
use super::rope;
use crate::format::index::TensorIndex;
use crate::format::recipe::TensorNames;
use crate::format::{
    Activation, Architecture, LinearAttention, LoadError, LoadErrorKind as Kind, MixerKind,
    ScaleFactors, Spec, ValueOrder, families,
};

/// Every fourth layer attends, where the file does not say otherwise.
const FULL_ATTENTION_INTERVAL: usize = 4;

/// The keys of a file's architecture.
pub(super) struct Keys<'a> {
    pub(super) meta: &'a Metadata<'a>,
    pub(super) arch: &'a str,
}

impl Keys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn size(&self, name: &str) -> Result<Option<usize>, LoadError> {
        self.meta.size(&self.key(name))
    }

    fn need(&self, name: &str) -> Result<usize, LoadError> {
        self.meta.need(&self.key(name), self.size(name)?)
    }

    pub(super) fn error(
        &self,
        kind: Kind,
        want: impl Into<String>,
        found: impl ToString,
    ) -> LoadError {
        LoadError::new(kind, self.meta.file, want, found.to_string())
    }
}

/// Reads the shape and constants of a model, or those of a drafter, whose vocabulary is 0 if it has none. Takes the tensors that belong to them.
pub(super) fn spec(meta: &Metadata<'_>, index: &mut TensorIndex) -> Result<Spec, LoadError> {
    let arch = meta.need(ARCHITECTURE, meta.text(ARCHITECTURE)?)?;
    let drafter = DRAFTERS.contains(&arch);
    let (architecture, activation) =
        if drafter { (Architecture::Qwen3, Activation::Silu) } else { family(meta, arch)? };
    let keys = Keys { meta, arch };
    for name in ["expert_count", "attention.sliding_window"] {
        // A drafter may have windows.
        let known = drafter && name == "attention.sliding_window";
        if let Some(n) = keys.size(name)?.filter(|&n| n > 0 && !known) {
            let want = format!("no `{}`", keys.key(name));
            return Err(keys.error(Kind::UnsupportedFeature, want, n));
        }
    }
    let hidden_size = keys.need("embedding_length")?;
    let heads = keys.need("attention.head_count")?;
    let head_dim = head_dim(&keys, hidden_size, heads)?;
    let embed = format!("{}.weight", TensorNames::GGUF.embed);
    let rows = index.get(&embed).and_then(|t| t.shape.first().copied());
    let vocab_size = match rows {
        Some(rows) => rows,
        None if drafter => keys.size("vocab_size")?.unwrap_or(0),
        None => keys.need("vocab_size")?,
    };
    let eps = keys.key("attention.layer_norm_rms_epsilon");
    let longest = keys.need("context_length")?;
    let hybrid = architecture == Architecture::Qwen35;
    let rotary_dim = rotary_dim(&keys, head_dim, hybrid)?;
    let mut rope = rope::rope(meta, arch, (rotary_dim, longest), index)?;
    if architecture == Architecture::HunyuanDense {
        rope.theta = rope::hunyuan_base(meta, arch, rope.theta, head_dim)?;
    }
    let layers = keys.need("block_count")?;
    let layers = if hybrid { trunk(&keys, layers)? } else { layers };
    Ok(Spec {
        architecture,
        vocab_size,
        hidden_size,
        intermediate_size: keys.need("feed_forward_length")?,
        layers,
        heads,
        kv_heads: keys.size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        context_length: rope.extended_context(longest),
        norm_eps: meta.need(&eps, meta.float(&eps)?)? as f32,
        activation,
        rope,
        rotary_dim: (rotary_dim != head_dim).then_some(rotary_dim),
        attention_gate: hybrid,
        linear_attention: hybrid.then(|| linear_attention(&keys)).transpose()?,
        mixers: if hybrid { mixers(&keys, layers)? } else { Vec::new() },
        factors: match architecture {
            Architecture::MiniCpm => Some(factors(&keys, layers, hidden_size)?),
            _ => None,
        },
        mtp_layers: 0,
    })
}

fn family(meta: &Metadata<'_>, arch: &str) -> Result<(Architecture, Activation), LoadError> {
    Ok(match arch {
        "bitnet" => (Architecture::BitNet, Activation::Silu),
        "bitnet-b1.58" | "bitnet-25" => (Architecture::BitNet, Activation::Relu2),
        "llama" => (Architecture::Llama, Activation::Silu),
        "qwen2" => (Architecture::Qwen2, Activation::Silu),
        "qwen3" => (Architecture::Qwen3, Activation::Silu),
        "qwen35" => (Architecture::Qwen35, Activation::Silu),
        "hunyuan-dense" => (Architecture::HunyuanDense, Activation::Silu),
        "minicpm" => (Architecture::MiniCpm, Activation::Silu),
        other => {
            let want = format!(
                "`{ARCHITECTURE}` to be bitnet, bitnet-b1.58, bitnet-25, llama, qwen2, qwen3, qwen35, \
                 hunyuan-dense or minicpm"
            );
            let found = format!("`{other}`");
            let error = LoadError::new(Kind::UnsupportedArchitecture, meta.file, want, found);
            return Err(match families::advice(other) {
                Some(advice) => error.advice(advice),
                None => error,
            });
        }
    })
}

/// Reads MiniCPM's factors. Files of old converters leave them out; those of all models of that time are
/// taken then, the divisor of the logits as in training (llama.cpp multiplies by it).
fn factors(keys: &Keys<'_>, layers: usize, hidden_size: usize) -> Result<ScaleFactors, LoadError> {
    let number = |name: &str, usual: f64| -> Result<f32, LoadError> {
        Ok(keys.meta.float(&keys.key(name))?.unwrap_or(usual) as f32)
    };
    Ok(ScaleFactors {
        embedding: number("embedding_scale", 12.0)?,
        residual: number("residual_scale", 1.4 / (layers as f64).sqrt())?,
        logit_divisor: number("logit_scale", hidden_size as f64 / 256.0)?,
    })
}

fn head_dim(keys: &Keys<'_>, hidden_size: usize, heads: usize) -> Result<usize, LoadError> {
    let head_dim = match keys.size("attention.key_length")? {
        Some(n) => n,
        None => hidden_size.checked_div(heads).unwrap_or(0),
    };
    match keys.size("attention.value_length")? {
        Some(n) if n != head_dim => {
            let want = format!("value heads of {head_dim} columns, like the key heads");
            Err(keys.error(Kind::UnsupportedFeature, want, n))
        }
        _ => Ok(head_dim),
    }
}

/// Number of columns of a head that RoPE turns.
fn rotary_dim(keys: &Keys<'_>, head_dim: usize, partial: bool) -> Result<usize, LoadError> {
    match keys.size("rope.dimension_count")? {
        Some(n) if n != head_dim && !partial => {
            let want = format!("RoPE over all {head_dim} columns of a head");
            Err(keys.error(Kind::UnsupportedFeature, want, format!("over {n}")))
        }
        n => Ok(n.unwrap_or(head_dim)),
    }
}

/// Number of a hybrid model's layers: its blocks without those that draft tokens.
fn trunk(keys: &Keys<'_>, blocks: usize) -> Result<usize, LoadError> {
    let name = "nextn_predict_layers";
    let drafting = keys.size(name)?.unwrap_or(0);
    blocks.checked_sub(drafting).filter(|&n| n > 0).ok_or_else(|| {
        let want = format!("`{}` below the {blocks} blocks", keys.key(name));
        keys.error(Kind::Value, want, drafting)
    })
}

fn linear_attention(keys: &Keys<'_>) -> Result<LinearAttention, LoadError> {
    let value_heads = keys.need("ssm.time_step_rank")?;
    let inner = keys.need("ssm.inner_size")?;
    let value_dim = inner.checked_div(value_heads).filter(|n| n * value_heads == inner);
    Ok(LinearAttention {
        key_heads: keys.need("ssm.group_count")?,
        value_heads,
        key_dim: keys.need("ssm.state_size")?,
        value_dim: value_dim.ok_or_else(|| {
            let want = format!("`{}` in {value_heads} equal heads", keys.key("ssm.inner_size"));
            keys.error(Kind::Value, want, inner)
        })?,
        conv_kernel: keys.need("ssm.conv_kernel")?,
        value_order: ValueOrder::Tiled,
        output_grouped: false,
    })
}

/// Mixer of each layer. The list of the file wins over the interval.
fn mixers(keys: &Keys<'_>, layers: usize) -> Result<Vec<MixerKind>, LoadError> {
    let list = keys.key("attention.recurrent_layers");
    if let Some(linear) = keys.meta.bools(&list)? {
        if linear.len() < layers {
            let want = format!("`{list}` for {layers} layers");
            return Err(keys.error(Kind::Value, want, linear.len()));
        }
        let kind = |&linear| if linear { MixerKind::Linear } else { MixerKind::Attention };
        return Ok(linear[..layers].iter().map(kind).collect());
    }
    let name = "full_attention_interval";
    match keys.size(name)?.unwrap_or(FULL_ATTENTION_INTERVAL) {
        0 => Err(keys.error(Kind::Value, format!("`{}` from 1", keys.key(name)), 0)),
        every => Ok(MixerKind::at_interval(layers, every)),
    }
}
