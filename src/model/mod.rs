//! A model: its weights, and the forward pass.
//!
//! [`Model::new`] checks the weights of a [`Checkpoint`](crate::format::Checkpoint).
//! [`Model::forward`] runs any mix of prompts, decoding rows and drafts in one pass and returns their
//! logits. Keys and values go to a [`KvPool`](crate::cache::KvPool). A [`Runtime`] has the kernels and
//! threads; a [`Workspace`] has the buffers.
//!
//! ```
//! use wrinklefree::batch_types::{AttentionMask, LogitRows};
//! use wrinklefree::cache::{KvConfig, KvPool};
//! use wrinklefree::format::{File, load};
//! use wrinklefree::kernel::Kernels;
//! use wrinklefree::model::{Model, Runtime, Span, Workspace};
//! use wrinklefree::par::ThreadPool;
//!
//! let bytes: &'static [u8] = include_bytes!("../../models/default.wf.safetensors");
//! let checkpoint = load(vec![File { name: "default.wf.safetensors".into(), bytes: bytes.into() }])?;
//! let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1)? };
//! let model = Model::new(checkpoint.spec, checkpoint.weights)?.with_supported_layout(&runtime);
//!
//! let tokens = [1, 2, 3];
//! let mut kv = KvPool::new(model.spec(), 1, KvConfig::EXACT)?;
//! let seq = kv.open(tokens.len())?;
//! let span = Span {
//!     seq,
//!     start: 0,
//!     tokens: &tokens,
//!     attention_mask: AttentionMask::Causal,
//!     logits: LogitRows::Last,
//! };
//! let mut workspace = Workspace::default();
//! let logits = model.forward(&runtime, &mut kv, &[span], &mut workspace);
//! assert_eq!((logits.len(), logits.row(0).len()), (1, model.spec().vocab_size));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod batch;
mod check;
mod draft;
mod drafter;
mod forward;
mod heads;
mod heads_in_parts;
mod heads_window;
mod inputs;
mod layout;
mod linear_attention;
mod mtp;
mod pass_costs;
mod profile;
mod rope;
mod screen;
mod sparsity;
mod workspace;

pub use crate::batch_types::{AttentionMask, LogitRows, Logits, Output};
pub use batch::Span;
pub use check::ModelError;
pub use draft::{Draft, DraftJob};
pub use mtp::MtpRows;
pub use pass_costs::PassCostsError;
pub use profile::Phase;
pub use sparsity::{Sparsity, SparsityError, SparsityRule, SparsityTarget};
pub use workspace::Workspace;

use crate::format::{
    Activations, LayerWeights, Linear, LinearAttention, Mixer, RopeScaling, Spec, Weights,
};
use crate::kernel::Kernels;
use crate::matrix::Matrix;
use crate::par::ThreadPool;
use rope::Frequencies;
use std::sync::OnceLock;

/// The kernels and threads that run forward passes.
pub struct Runtime {
    /// Kernels of one instruction set.
    pub kernels: Kernels,
    /// Pool of the threads that share the work of a pass.
    pub thread_pool: ThreadPool,
}

/// Work of a phase of a pass for one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseWork {
    /// Number of multiply-adds of a weight and an activation.
    pub products: usize,
    /// Bytes of weights and recurrent states that are read.
    pub bytes: usize,
}

/// A model that can run: shape, weights and derived tables.
pub struct Model {
    spec: Spec,
    weights: Weights,
    /// The output head; a copy of the embeddings' handle when tied.
    head: Linear,
    /// True for two-pass logits.
    screened: bool,
    frequencies: Frequencies,
    /// Number of positions that a text may have.
    context: usize,
    /// Weights of each layer's convolution as the kernel reads them; empty without linear attention.
    conv: Vec<Vec<f32>>,
    work: [PhaseWork; Phase::COUNT],
    /// Number of positions that a row of each layer sees up to its own; empty if no layer has such a window.
    windows: Vec<Option<usize>>,
    /// The drafter, if one was added.
    drafter: Option<Box<drafter::Drafter>>,
    /// Measured costs of a draft and of each of its tokens ([`Self::pass_costs`]).
    draft_costs: OnceLock<(f32, f32)>,
    /// Activation sparsity of the ternary layers; off by default.
    pub sparsity: Sparsity,
}

impl Model {
    /// Checks every shape and takes the weights in their current layout. An engine converts a layout
    /// that the kernels do not read; without one, call [`Self::with_supported_layout`].
    ///
    /// # Errors
    /// When a tensor's shape does not match the spec; the error names the tensor.
    pub fn new(spec: Spec, weights: Weights) -> Result<Self, ModelError> {
        check::check(&spec, &weights)?;
        let tied = || Linear {
            weight: weights.embed.clone(),
            bias: None,
            activations: Activations::Int16,
            rotation: weights.embed_rotation.clone(),
        };
        let head = weights.head.clone().unwrap_or_else(tied);
        let frequencies = Frequencies::new(spec.rotary_dim(), &spec.rope, spec.context_length);
        let conv = weights.layers.iter().map(|l| arranged_conv(&spec, l)).collect();
        let (screened, sparsity) = (false, Sparsity::default());
        let (work, context) = (work(&spec, &weights, &head, screened), spec.context_length);
        Ok(Self {
            spec,
            weights,
            head,
            screened,
            frequencies,
            context,
            conv,
            work,
            windows: Vec::new(),
            drafter: None,
            draft_costs: OnceLock::new(),
            sparsity,
        })
    }

    /// Allows texts of so many positions, which decides the list of factors of a model with
    /// [LongRoPE](crate::format::LongRopeScaling); a new model allows [`Spec::context_length`]. Call it once,
    /// before the model runs: keys and values of one list are wrong with the other.
    ///
    /// All texts have the same list, so a row does not depend on the length that its text gets.
    #[must_use]
    pub fn with_context(mut self, positions: usize) -> Self {
        let spec = &self.spec;
        self.frequencies = Frequencies::new(spec.rotary_dim(), &spec.rope, positions);
        self.context = positions;
        self
    }

    /// Returns true if the model takes the long list of LongRoPE, false if it takes the short one; `None`
    /// if it has no LongRoPE.
    pub fn has_long_rope(&self) -> Option<bool> {
        match &self.spec.rope.scaling {
            Some(RopeScaling::LongRope(lists)) => Some(lists.is_long(self.context)),
            _ => None,
        }
    }

    /// Returns true if the model computes two-pass logits ([`Self::with_screened_head`]).
    pub fn is_screened(&self) -> bool {
        self.screened
    }

    /// The model's shape and constants.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The model's tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Bytes of weights and recurrent states that decoding one token reads: all layers and the head.
    /// With a screened head, some tokens read more.
    pub fn bytes_per_token(&self) -> usize {
        self.work.iter().map(|work| work.bytes).sum()
    }

    /// Work of decoding one token in each phase, in the order of [`Phase::ALL`]. Attention over pages
    /// is not included, because it grows with the context.
    pub fn work(&self) -> [PhaseWork; Phase::COUNT] {
        self.work
    }

    /// Number of weights of all matrices, including the embeddings; a tied head counts once.
    pub fn parameters(&self) -> usize {
        let size = |m: &Matrix| m.rows() * m.cols();
        let head = self.weights.head.as_ref().map_or(0, |h| size(&h.weight));
        self.matrices().map(size).sum::<usize>() + size(&self.weights.embed) + head
    }

    /// Width of the product of the query, key and value projections.
    fn qkv_width(spec: &Spec) -> usize {
        spec.query_outputs() + 2 * spec.kv_heads * spec.head_dim
    }

    /// The matrices of all layers.
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.weights.layers.iter().flat_map(LayerWeights::linears).map(|linear| &linear.weight)
    }
}

/// The weights of a layer's convolution as the kernel reads them.
fn arranged_conv(spec: &Spec, layer: &LayerWeights) -> Vec<f32> {
    match (&layer.mixer, &spec.linear_attention) {
        (Mixer::Linear(w), Some(shape)) => linear_attention::arrange_conv(shape, &w.conv),
        _ => Vec::new(),
    }
}

/// See [`Model::work`].
fn work(
    spec: &Spec,
    weights: &Weights,
    head: &Linear,
    screened: bool,
) -> [PhaseWork; Phase::COUNT] {
    let mut work = [PhaseWork::default(); Phase::COUNT];
    let mut add = |phase: Phase, matrix: &Matrix, bytes: usize| {
        let work = &mut work[phase as usize];
        work.products += matrix.rows() * matrix.cols();
        work.bytes += bytes;
    };
    for l in &weights.layers {
        let [inputs @ .., output] = &l.mixer.linears()[..] else { continue };
        let mixer = inputs.iter().map(|&linear| (Phase::Qkv, linear));
        let ffn = [(Phase::GateUp, &l.gate), (Phase::GateUp, &l.up), (Phase::Down, &l.down)];
        for (phase, linear) in mixer.chain([(Phase::Output, *output)]).chain(ffn) {
            add(phase, &linear.weight, linear.weight.bytes());
        }
    }
    let head_bytes = match &head.weight {
        Matrix::Split(w) if screened => screen::bytes(w),
        w => w.bytes(),
    };
    add(Phase::Head, &head.weight, head_bytes);
    // A key and a query meet each state.
    let floats = |l: &LinearAttention| l.value_heads * l.key_dim * l.value_dim;
    let linear = weights.layers.iter().filter(|l| matches!(l.mixer, Mixer::Linear(_))).count();
    let floats = spec.linear_attention.as_ref().map_or(0, floats) * linear;
    work[Phase::States as usize] =
        PhaseWork { products: 2 * floats, bytes: floats * size_of::<f32>() };
    work
}
