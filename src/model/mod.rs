//! The model: weights and the one forward pass.

use crate::cache::{KvPool, SeqId};
use crate::format::{Spec, Weights};
use crate::kernel::Kernels;
use crate::par::Team;

/// What a forward pass runs on.
pub struct Runtime {
    /// The kernels.
    pub kernels: Kernels,
    /// The threads.
    pub team: Team,
}

/// What a row sees: the row at position p attends to the keys `0..end(p)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Itself and everything before it.
    Causal,
    /// Everything before this position.
    UpTo(usize),
    /// Its own block of this many positions and everything before it.
    Blocks(usize),
}

/// Which rows of a span get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// None.
    None,
    /// The last row.
    Last,
    /// Every row.
    All,
}

/// Consecutive tokens of one sequence in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Position of the first token.
    pub start: usize,
    /// The tokens.
    pub tokens: &'a [u32],
    /// What each row sees.
    pub sight: Sight,
    /// Rows whose logits are wanted.
    pub logits: Rows,
    /// Whether the keys and values become part of the sequence.
    pub keep: bool,
}

/// Buffers of a forward pass, reused from pass to pass.
#[derive(Default)]
pub struct Workspace {}

/// Logits of the rows that were asked for, in batch order.
pub struct Logits<'w> {
    values: &'w [f32],
    vocab: usize,
}

impl<'w> Logits<'w> {
    /// Rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.vocab
    }
    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// Logits of one row, `[vocab_size]`.
    pub fn row(&self, i: usize) -> &'w [f32] {
        &self.values[i * self.vocab..(i + 1) * self.vocab]
    }
}

/// Shape and weights.
pub struct Model {
    spec: Spec,
    weights: Weights,
}

/// The weights do not fit the spec.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub String);

impl Model {
    /// Checks every shape and takes the weights.
    ///
    /// # Errors
    /// When a tensor's shape is not what the spec asks for.
    pub fn new(spec: Spec, weights: Weights) -> Result<Self, ModelError> {
        Ok(Self { spec, weights })
    }
    /// The shape.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
    /// The tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
    /// Bytes of weights that decoding one token reads.
    pub fn bytes_per_token(&self) -> usize {
        todo!()
    }
    /// Parameters, embeddings included, tied heads once.
    pub fn parameters(&self) -> usize {
        todo!()
    }
    /// One pass over a batch.
    pub fn forward<'w>(
        &self,
        _rt: &Runtime,
        _kv: &mut KvPool,
        _batch: &[Span<'_>],
        _ws: &'w mut Workspace,
    ) -> Logits<'w> {
        todo!()
    }
}
