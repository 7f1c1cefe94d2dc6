//! The model: weights and the one forward pass.

mod batch;
mod check;
mod forward;
mod heads;
mod inputs;
mod layout;
mod profile;
mod rope;
mod row_cost;
mod screen;
mod sparsity;
mod workspace;

pub use crate::batch_types::{AttentionMask, LogitRows, Logits, Output};
pub use batch::Span;
pub use check::ModelError;
pub use profile::Phase;
pub use row_cost::RowCostError;
pub use sparsity::{Place, Rule, Sparsity, SparsityError};
pub use workspace::Workspace;

use crate::format::{Activations, LayerWeights, Linear, Spec, Weights};
use crate::kernel::Kernels;
use crate::matrix::Matrix;
use crate::par::ThreadPool;
use rope::Frequencies;

/// What a forward pass runs on.
pub struct Runtime {
    /// The kernels.
    pub kernels: Kernels,
    /// The threads.
    pub thread_pool: ThreadPool,
}

/// What a phase of a pass has to do for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Products of a weight and an activation.
    pub products: usize,
    /// Bytes of weights.
    pub bytes: usize,
}

/// Shape and weights.
pub struct Model {
    spec: Spec,
    weights: Weights,
    /// The output head; the embedding again when tied.
    head: Linear,
    /// Whether only the logits of promising tokens are exact.
    screened: bool,
    frequencies: Frequencies,
    work: [Work; Phase::COUNT],
    /// Which inputs of its ternary layers take part.
    pub sparsity: Sparsity,
}

impl Model {
    /// Checks every shape and takes the weights as they stand. Who runs it without an engine calls
    /// [`Self::readable`] first.
    ///
    /// # Errors
    /// When a tensor's shape is not what the spec asks for; the error names it.
    pub fn new(spec: Spec, weights: Weights) -> Result<Self, ModelError> {
        check::check(&spec, &weights)?;
        let tied = || Linear {
            weight: weights.embed.clone(),
            bias: None,
            activations: Activations::Int16,
        };
        let head = weights.head.clone().unwrap_or_else(tied);
        let frequencies = Frequencies::new(spec.head_dim, &spec.rope);
        let (screened, sparsity) = (false, Sparsity::default());
        let work = work(&weights, &head, screened);
        Ok(Self { spec, weights, head, screened, frequencies, work, sparsity })
    }

    /// Whether only the logits of promising tokens are exact.
    pub fn is_screened(&self) -> bool {
        self.screened
    }

    /// Shape and constants.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Bytes of weights that decoding one token reads: all layers and the head; at least, where that
    /// is screened.
    pub fn bytes_per_token(&self) -> usize {
        self.work.iter().map(|work| work.bytes).sum()
    }

    /// Products of a weight and an activation that decoding one token takes in each phase, and the
    /// bytes of weights that it reads. Attention has none of its own: its share grows with the
    /// context.
    pub fn work(&self) -> [Work; Phase::COUNT] {
        self.work
    }

    /// Weights of all matrices, embeddings included, a tied head once.
    pub fn parameters(&self) -> usize {
        let size = |m: &Matrix| m.rows() * m.cols();
        let head = self.weights.head.as_ref().map_or(0, |h| size(&h.weight));
        self.matrices().map(size).sum::<usize>() + size(&self.weights.embed) + head
    }

    /// The matrices of all layers.
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.weights.layers.iter().flat_map(LayerWeights::linears).map(|linear| &linear.weight)
    }
}

/// See [`Model::work`].
fn work(weights: &Weights, head: &Linear, screened: bool) -> [Work; Phase::COUNT] {
    let mut work = [Work::default(); Phase::COUNT];
    let mut add = |phase: Phase, matrix: &Matrix, bytes: usize| {
        let work = &mut work[phase as usize];
        work.products += matrix.rows() * matrix.cols();
        work.bytes += bytes;
    };
    for l in &weights.layers {
        let all = [(Phase::Qkv, &l.q), (Phase::Qkv, &l.k), (Phase::Qkv, &l.v)];
        let rest = [(Phase::Output, &l.o), (Phase::GateUp, &l.gate), (Phase::GateUp, &l.up)];
        for (phase, linear) in all.into_iter().chain(rest).chain([(Phase::Down, &l.down)]) {
            add(phase, &linear.weight, linear.weight.bytes());
        }
    }
    let of_head = match &head.weight {
        Matrix::Split(w) if screened => screen::bytes(w),
        w => w.bytes(),
    };
    add(Phase::Head, &head.weight, of_head);
    work
}
