//! Buffers of a forward pass, reused from pass to pass.

use super::batch::Batch;
use super::inputs::Inputs;
use super::profile::{Phase, Profile};
use super::screen::Screen;
use crate::format::{Linear, Spec};
use crate::kernel::Quantized;
use crate::mem::AlignedVec;

/// Buffers of a forward pass; they grow to the largest batch they have seen.
#[derive(Default)]
pub struct Workspace {
    /// What the pass is about.
    pub(super) batch: Batch,
    /// Cosines and sines of each row's position, `[rows][head_dim / 2]`.
    pub(super) cos: AlignedVec<f32>,
    pub(super) sin: AlignedVec<f32>,
    /// The residual stream, `[rows][hidden_size]`.
    pub(super) x: AlignedVec<f32>,
    /// What the last product adds to it, `[rows][hidden_size]`.
    pub(super) y: AlignedVec<f32>,
    /// Where rows are gathered.
    pub(super) spare: AlignedVec<f32>,
    /// Inputs of the next products.
    pub(super) inputs: Inputs,
    /// Queries, keys and values before norm and RoPE, `[rows][(heads + 2 · kv_heads) · head_dim]`.
    pub(super) qkv: AlignedVec<f32>,
    /// Attention outputs, `[rows][heads · head_dim]`.
    pub(super) mixed: AlignedVec<f32>,
    /// Gate and up, `[rows][2 · intermediate_size]`.
    pub(super) gate_up: AlignedVec<f32>,
    /// `[wanted][vocab_size]`.
    pub(super) logits: AlignedVec<f32>,
    /// Which of them are exact, where the head is screened.
    pub(super) screen: Screen,
    /// Who measures where the time goes.
    pub(super) profile: Profile,
}

impl Workspace {
    /// What attention gave in the last layer of the last pass to the rows that got logits, before the
    /// sub-norm and the output projection: `[wanted][heads · head_dim]`.
    pub fn attention(&self, spec: &Spec) -> &[f32] {
        &self.mixed[..self.batch.rows.len() * spec.heads * spec.head_dim]
    }

    /// Measures from now on how long the phases of passes take; `now` tells the time in seconds, from
    /// any beginning.
    pub fn profile(&mut self, now: fn() -> f64) {
        self.profile = Profile::new(now);
    }

    /// The seconds that each phase, in the order of [`Phase::ALL`], took since
    /// [`profile`](Self::profile); zeros without it.
    pub fn phases(&self) -> [f64; Phase::COUNT] {
        self.profile.seconds
    }

    /// Lets `watch` see the quantized rows of every group of matrices, with the matrices that are
    /// to read them, in all passes to come.
    pub fn watch(&mut self, watch: impl FnMut(&[&Linear], &Quantized<'_>) + Send + Sync + 'static) {
        self.inputs.watch = Some(Box::new(watch));
    }
}
