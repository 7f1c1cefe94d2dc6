//! Buffers of a forward pass, reused from pass to pass.

use super::Model;
use super::batch::Batch;
use super::inputs::Inputs;
use super::profile::{Phase, Profile};
use super::screen::HeadScreen;
use crate::format::{Linear, LinearAttention, Spec};
use crate::kernel::Quantized;
use crate::mem::AlignedVec;

/// Buffers of a forward pass. They grow to the largest batch so far and are reused by later passes.
#[derive(Default)]
pub struct Workspace {
    /// Rows of the current pass.
    pub(super) batch: Batch,
    /// Cosines and sines of each row's position, `[rows][rotary_dim / 2]`.
    pub(super) cos: AlignedVec<f32>,
    pub(super) sin: AlignedVec<f32>,
    /// The residual stream, `[rows][hidden_size]`.
    pub(super) x: AlignedVec<f32>,
    /// Output of the last product, to be added to `x`: `[rows][hidden_size]`.
    pub(super) y: AlignedVec<f32>,
    /// Spare buffer for gathering rows.
    pub(super) spare: AlignedVec<f32>,
    /// Inputs of the next products.
    pub(super) inputs: Inputs,
    /// Projections of the mixer's inputs. In attention layers queries, keys and values before norm and
    /// RoPE, `[rows][query_outputs + 2 · kv_heads · head_dim]`.
    pub(super) qkv: AlignedVec<f32>,
    /// Attention outputs, `[rows][heads · head_dim]`; of linear attention
    /// `[key_heads][rows][values of the key head]`.
    pub(super) attn_out: AlignedVec<f32>,
    /// Attention to parts of the keys, `[parts][rows][kv_heads]` of
    /// [`Attention::part_width`](crate::kernel::Attention::part_width).
    pub(super) attn_parts: AlignedVec<f32>,
    /// Bounds of the groups of rows in `attn_parts`.
    pub(super) part_bounds: Vec<usize>,
    /// Gate and up, `[rows][2 · intermediate_size]`.
    pub(super) gate_up: AlignedVec<f32>,
    /// Logits, `[wanted][vocab_size]`.
    pub(super) logits: AlignedVec<f32>,
    /// Final hidden states of the rows that the last layer computed, `[wanted][hidden_size]`, where a pass
    /// keeps them.
    pub(super) hidden: AlignedVec<f32>,
    /// Hidden states after the layers that a drafter names, `[wanted][taps · hidden_size]`, where a pass
    /// keeps them.
    pub(super) tapped: AlignedVec<f32>,
    /// Buffers of two-pass logits.
    pub(super) screen: HeadScreen,
    /// Time spent in each phase.
    pub(super) profile: Profile,
}

impl Workspace {
    /// Returns about how many bytes the buffers take after passes of `rows` rows, all with logits;
    /// saturates.
    pub fn bytes(spec: &Spec, rows: usize) -> usize {
        let (hidden, ffn) = (spec.hidden_size, spec.intermediate_size);
        let of_linear =
            |of: fn(&LinearAttention) -> usize| spec.linear_attention.as_ref().map_or(0, of);
        let q = (spec.heads * spec.head_dim).max(of_linear(LinearAttention::value_width));
        let qkv = Model::qkv_width(spec).max(of_linear(LinearAttention::projected_width));
        let widest = hidden.max(ffn).max(q);
        // Hybrids may have inputs in two bases.
        let bases = if spec.linear_attention.is_some() { 2 } else { 1 };
        // `x`, `y`, `spare`, `qkv`, `attn_out`, `gate_up`, the angles and the inputs.
        let floats = 2 * hidden + 2 * qkv + q + 2 * ffn + spec.rotary_dim() + bases * widest;
        // With a block that drafts, its wider inputs and the hidden states.
        let floats = floats + if spec.mtp_layers > 0 { 3 * hidden } else { 0 };
        // The inputs as int8 and in two planes.
        let bytes = floats * size_of::<f32>() + bases * 3 * widest;
        rows.saturating_mul(bytes.saturating_add(spec.vocab_size * size_of::<f32>()))
    }

    /// Attention output of the last layer in the last pass, before the sub-norm and the output
    /// projection, for the rows that got logits: `[wanted][heads · head_dim]`.
    pub fn attention(&self, spec: &Spec) -> &[f32] {
        &self.attn_out[..self.batch.rows.len() * spec.heads * spec.head_dim]
    }

    /// Starts to measure the time of each phase. `now` returns the time in seconds, from any origin.
    pub fn start_profile(&mut self, now: fn() -> f64) {
        self.profile = Profile::new(now);
    }

    /// Seconds spent in each phase, in the order of [`Phase::ALL`], since
    /// [`start_profile`](Self::start_profile); zeros without it.
    pub fn phase_seconds(&self) -> [f64; Phase::COUNT] {
        self.profile.seconds
    }

    /// Calls `observer` in all later passes with each group of matrices and the quantized rows that
    /// the group reads.
    pub fn observe_inputs(
        &mut self,
        observer: impl FnMut(&[&Linear], &Quantized<'_>) + Send + Sync + 'static,
    ) {
        self.inputs.observer = Some(Box::new(observer));
    }
}
