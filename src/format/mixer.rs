//! Shapes of a layer's token mixer.

use serde::{Deserialize, Serialize};

/// Kind of a layer's token mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MixerKind {
    /// Softmax attention over keys and values in the cache.
    Attention,
    /// Gated DeltaNet: linear attention over a recurrent state.
    Linear,
}

/// Most layers that a model may have.
pub(super) const MOST_LAYERS: usize = 1 << 12;

impl MixerKind {
    /// Mixers of `layers` layers of which every `every`-th attends; `every` is at least 1. More layers than
    /// a model may have get none, because [`Spec`](super::Spec) is refused later.
    pub(super) fn at_interval(layers: usize, every: usize) -> Vec<Self> {
        let kind = |n: usize| if n.is_multiple_of(every) { Self::Attention } else { Self::Linear };
        (1..=layers.min(MOST_LAYERS)).map(kind).collect()
    }
}

/// Shape of the linear-attention layers (Gated DeltaNet, arXiv 2412.06464).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinearAttention {
    /// Number of query and key heads.
    pub key_heads: usize,
    /// Number of value heads; a multiple of `key_heads`. Each has a state.
    pub value_heads: usize,
    /// Width of a query or key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Number of taps of the causal convolution.
    pub conv_kernel: usize,
    /// Order of the value heads.
    pub value_order: ValueOrder,
    /// True if the columns of a rotated output projection have the value heads in grouped order, whatever
    /// `value_order` is: `prism.hadamard.gdn_v_grouped`.
    #[serde(default)]
    pub output_grouped: bool,
}

/// Order of the value heads, of which `rep` share a key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueOrder {
    /// Value head j reads key head j / rep: Hugging Face.
    Grouped,
    /// Value head j reads key head j mod `key_heads`: GGUF.
    Tiled,
}

impl LinearAttention {
    /// Number of value heads that share a key head.
    #[must_use]
    pub fn values_per_key(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Width of all value heads.
    #[must_use]
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Width of all query or key heads.
    #[must_use]
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Number of channels of the convolution: queries, keys and values.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Returns true if the output projection, which is `rotated` or not, reads the value heads in grouped
    /// order.
    pub(crate) fn output_is_grouped(&self, rotated: bool) -> bool {
        self.value_order == ValueOrder::Grouped || (self.output_grouped && rotated)
    }

    /// Index of the `n`-th value head of a key head.
    #[must_use]
    pub fn value_head(&self, key_head: usize, n: usize) -> usize {
        match self.value_order {
            ValueOrder::Grouped => key_head * self.values_per_key() + n,
            ValueOrder::Tiled => n * self.key_heads + key_head,
        }
    }
}
