//! Configuration and tensors of Qwen3.5, which are their own in many ways.

use super::fields::{Config, need, unsupported};
use crate::format::recipe::{LayerRole, TensorRole};
use crate::format::{LinearAttention, LoadError, LoadErrorKind as Kind, MixerKind, ValueOrder};

/// Part of a head that RoPE turns, where the configuration does not say.
pub(super) const PARTIAL_ROTARY: f64 = 0.25;
/// Width of a head, where the configuration does not say.
pub(super) const HEAD_DIM: usize = 256;
/// Every fourth layer attends, where the configuration does not say otherwise.
const FULL_ATTENTION_INTERVAL: usize = 4;

impl Config {
    /// Shape of the linear-attention layers.
    pub(super) fn linear_attention(&self, file: &str) -> Result<LinearAttention, LoadError> {
        if self.attn_output_gate == Some(false) {
            return Err(unsupported(file, "`attn_output_gate` true", "false"));
        }
        Ok(LinearAttention {
            key_heads: need(file, "linear_num_key_heads", self.linear_num_key_heads)?,
            value_heads: need(file, "linear_num_value_heads", self.linear_num_value_heads)?,
            key_dim: need(file, "linear_key_head_dim", self.linear_key_head_dim)?,
            value_dim: need(file, "linear_value_head_dim", self.linear_value_head_dim)?,
            conv_kernel: need(file, "linear_conv_kernel_dim", self.linear_conv_kernel_dim)?,
            value_order: ValueOrder::Grouped,
            output_grouped: false,
        })
    }

    /// Mixer of each layer. The list of layers wins over the interval.
    pub(super) fn mixers(&self, file: &str, layers: usize) -> Result<Vec<MixerKind>, LoadError> {
        if let Some(types) = &self.layer_types {
            return types.iter().map(|name| mixer(file, name)).collect();
        }
        let every = self.full_attention_interval.unwrap_or(FULL_ATTENTION_INTERVAL);
        if every == 0 {
            return Err(LoadError::new(Kind::Value, file, "`full_attention_interval` from 1", "0"));
        }
        Ok(MixerKind::at_interval(layers, every))
    }

    /// Refuses blocks for multi-token prediction of another form than the one that is supported.
    pub(super) fn check_mtp(&self, file: &str) -> Result<(), LoadError> {
        match self.mtp_num_hidden_layers {
            Some(n) if n != 1 => Err(unsupported(file, "`mtp_num_hidden_layers` 1", n.to_string())),
            _ => Ok(()),
        }
    }
}

fn mixer(file: &str, name: &str) -> Result<MixerKind, LoadError> {
    match name {
        "full_attention" => Ok(MixerKind::Attention),
        "linear_attention" => Ok(MixerKind::Linear),
        other => {
            let want = "`layer_types` of full_attention and linear_attention";
            Err(unsupported(file, want, format!("`{other}`")))
        }
    }
}

/// Returns true for tensors that text generation does not need: drafting layers and image encoder.
pub(super) fn ignored(name: &str) -> bool {
    drafts(name) || name.starts_with("model.visual.")
}

/// Returns true for tensors of drafting layers (multi-token prediction).
pub(super) fn drafts(name: &str) -> bool {
    name.starts_with("mtp.")
}

/// Shape in which a directory stores numbers that a checkpoint holds in `shape`.
pub(super) fn stored_shape(role: TensorRole, shape: &[usize]) -> Vec<usize> {
    match (role, shape) {
        (TensorRole::Layer(_, LayerRole::Conv), &[channels, taps]) => vec![channels, 1, taps],
        _ => shape.to_vec(),
    }
}

/// Converts a stored number to that of a checkpoint. It is formed in f32, whatever the file's type: f16
/// would cost some 10⁻³ of the logits.
pub(super) fn from_stored(role: TensorRole) -> fn(&mut f32) {
    match role {
        TensorRole::Layer(_, LayerRole::A) => |log| *log = -libm::expf(*log),
        TensorRole::Layer(_, LayerRole::Conv | LayerRole::DtBias | LayerRole::LinearNorm) => |_| {},
        // All other norms are stored as their distance from 1.
        _ => |norm| *norm += 1.0,
    }
}

/// Converts a number of a checkpoint to that which is stored: the inverse of [`from_stored`].
pub(super) fn to_stored(role: TensorRole) -> fn(&mut f32) {
    match role {
        TensorRole::Layer(_, LayerRole::A) => |factor| *factor = libm::logf(-*factor),
        TensorRole::Layer(_, LayerRole::Conv | LayerRole::DtBias | LayerRole::LinearNorm) => |_| {},
        _ => |norm| *norm -= 1.0,
    }
}
