//! Decoders: state machines that request rows of a forward pass and consume their logits.
//!
//! A decoder knows neither a model nor a cache. So sequences of all modes run in one batch, can be
//! cancelled between any two passes, and can be replayed from a script. [`DecodeMode`] lists the modes,
//! [`Decoder`] is the interface between them and the engine, and [`Sampler`] turns logits into tokens.

mod ar;
mod diffusion;
mod draft;
mod draft_length;
mod pass_costs;
mod prompt;
mod sample;
mod verify;

pub use ar::Autoregressive;
pub use diffusion::{BlockDiffusion, Commit, DiffusionError, DiffusionParams, Inside, Unmask};
pub(crate) use draft::argmax;
pub use draft::{AssumedDrafts, DraftCounts, DraftNet, DraftNetKind, Drafter};
pub use pass_costs::PassCosts;
pub use prompt::{Pooling, PromptDecoder};
pub use sample::{
    Certainty, ClosingTokens, Constraint, Dry, History, Infill, MarkerTexts, Mirostat,
    MirostatVersion, Next, Prediction, ReasoningConstraint, ReasoningTokens, Sampled, Sampler,
    SamplingError, SamplingParams, TokenTexts,
};
pub use verify::Verify;

use crate::batch_types::{AttentionMask, LogitRows, Logits, Output};
use std::time::Duration;

/// The rows that a decoder requests for the next pass: consecutive tokens of its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRequest<'a> {
    /// Position of the first token.
    pub start: usize,
    /// The tokens, one for each row.
    pub tokens: &'a [u32],
    /// Positions that each row attends to.
    pub attention_mask: AttentionMask,
    /// Rows whose logits are needed.
    pub logits: LogitRows<'a>,
}

/// The result of a pass for one sequence: see [`Decoder::accept`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// The next tokens of the prompt with their log-probabilities, if the request asks for them. The
    /// first token of a prompt has none and is left out.
    pub scored: Vec<Sampled>,
    /// The embedding of the prompt, if the request asks for one and it is complete.
    pub embedding: Option<Vec<f32>>,
    /// The logits of the token after the prompt, if the request asks for them and they are complete.
    pub logits: Option<Vec<f32>>,
    /// Tokens that became final, in order.
    pub tokens: Vec<Sampled>,
    /// Number of positions whose keys and values are final, as they are now.
    pub committed: usize,
    /// The reason why the text ended, if it did.
    pub finished: Option<FinishReason>,
}

/// The reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text token, or the grammar allows nothing more.
    Stop,
    /// A stop string; the number is its index in the request's list.
    StopString(usize),
    /// `max_tokens` is reached, or the context is full.
    Length,
    /// The caller cancelled the sequence.
    Cancelled,
    /// The grammar became too complex to go on.
    Constraint,
    /// The model computed a number that is NaN or infinite: [`NOT_FINITE`].
    NotFinite,
}

/// Explanation of [`FinishReason::NotFinite`].
pub const NOT_FINITE: &str = "the model computed a number that is not finite (NaN or infinity): its \
                              weights are damaged, or too large for this text";

/// The decoding algorithm of a sequence.
///
/// ```
/// use wrinklefree::decode::{DecodeMode, Drafter, PassCosts, SamplingParams};
///
/// // Prompt lookup: draft what followed the last 1 to 3 tokens when they occurred before.
/// let drafter = Drafter::Ngram { length: 8, matches: (1, 3) };
/// let mode = DecodeMode::Verify { drafter, row_cost: None };
/// assert_eq!(mode.positions(100), 100);
///
/// let (sampling, costs) = (SamplingParams::default(), PassCosts::default());
/// let mut decoder = mode.decoder(vec![1, 2, 3], 16, vec![0], sampling, costs);
/// let request = decoder.next_rows(512).expect("the prompt has not been read");
/// assert_eq!((request.start, request.tokens), (0, &[1, 2, 3][..]));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DecodeMode {
    /// One token per pass.
    #[default]
    Autoregressive,
    /// Lossless speculative decoding: the same output in fewer passes. See [`Verify`].
    Verify {
        /// Source of the drafts.
        drafter: Drafter,
        /// Cost of one more row in a pass, relative to a pass of one row. `None` takes the engine's
        /// value; with 0 drafts are always as long as possible.
        row_cost: Option<f32>,
    },
    /// Blocks of tokens, denoised in any order. See [`BlockDiffusion`].
    Diffusion(DiffusionParams),
    /// Computes an embedding instead of generating text. See [`PromptDecoder`].
    Embed(Pooling),
    /// Computes the logits of the token after the prompt instead of generating text, for programs that
    /// sample themselves. The prefix cache makes the next call with a longer prompt cheap.
    Logits,
}

impl DecodeMode {
    /// Returns the number of cache positions for a text of `length` tokens: block diffusion takes whole
    /// blocks, unless they begin where the prompt ends.
    pub fn positions(&self, length: usize) -> usize {
        match self {
            Self::Autoregressive | Self::Verify { .. } | Self::Embed(_) | Self::Logits => length,
            Self::Diffusion(p) if p.from_prompt => length,
            Self::Diffusion(p) => length.next_multiple_of(p.block),
        }
    }

    /// Returns true if the prompt is read and nothing is generated.
    pub fn reads_only(&self) -> bool {
        matches!(self, Self::Embed(_) | Self::Logits)
    }

    /// Returns the number of positions in a block of finished tokens that all attend to each other; 1
    /// with causal attention. Keys and values depend on it.
    pub fn clean_block(&self) -> usize {
        match self {
            Self::Diffusion(p) if !p.clean_causal => p.block,
            _ => 1,
        }
    }

    /// Returns true if decoding can continue from a part of the text ([`Decoder::restart`]). Block
    /// diffusion cannot: a shorter beginning moves the borders of all blocks.
    pub fn restarts(&self) -> bool {
        matches!(self, Self::Autoregressive | Self::Verify { .. })
    }

    /// Returns the net that drafts from hidden states of the model, if one does.
    pub fn draft_net(&self) -> Option<DraftNet> {
        match self {
            Self::Verify { drafter: Drafter::Net { net, .. }, .. } => Some(*net),
            _ => None,
        }
    }

    /// Takes the measured costs of a net that drafts.
    pub(crate) fn measured(&mut self, known: DraftNet) {
        if let Self::Verify { drafter: Drafter::Net { net, .. }, .. } = self
            && known.measured
        {
            *net = known;
        }
    }

    /// Returns the confidence below which drafts of a net end; 0 if none do.
    pub fn draft_threshold(&self) -> f32 {
        match self {
            Self::Verify { drafter: Drafter::Net { threshold, .. }, .. } => *threshold,
            _ => 0.0,
        }
    }

    /// Returns the number of rows of the largest pass that cannot be split.
    pub fn rows(&self) -> usize {
        match self {
            Self::Autoregressive | Self::Verify { .. } | Self::Embed(_) | Self::Logits => 1,
            Self::Diffusion(p) => p.rows(),
        }
    }

    /// Makes the decoder of one sequence. `costs` are used where the mode has no cost of a row of its own;
    /// see [`Verify::new`].
    ///
    /// # Panics
    /// If `max_tokens` is 0 and the prompt is not scored, or if the prompt is empty outside block
    /// diffusion.
    pub fn decoder(
        self,
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        sampling: SamplingParams,
        costs: PassCosts,
    ) -> Box<dyn Decoder + Send> {
        match self {
            Self::Autoregressive => {
                Box::new(Autoregressive::new(prompt, max_tokens, eos, sampling))
            }
            Self::Verify { drafter, row_cost: own } => {
                let ar = Autoregressive::new(prompt, max_tokens, eos, sampling);
                let costs = own.map_or(costs, PassCosts::uniform);
                Box::new(Verify::new(ar, drafter, costs))
            }
            Self::Diffusion(params) => {
                Box::new(BlockDiffusion::new(params, prompt, max_tokens, eos, sampling))
            }
            Self::Embed(pooling) => Box::new(PromptDecoder::embedding(prompt, pooling)),
            Self::Logits => Box::new(PromptDecoder::logits(prompt)),
        }
    }
}

/// Decodes one sequence: requests rows of a pass, and consumes their logits.
///
/// A pass is [`next_rows`](Self::next_rows), then [`accept`](Self::accept) with the logits of exactly
/// these rows, then [`guide`](Self::guide) while [`guide_due`](Self::guide_due). Between these calls the
/// engine may call [`resume`](Self::resume), or drop the decoder; between passes also
/// [`restart`](Self::restart).
pub trait Decoder {
    /// Fixes the rows of the next pass, at most `budget` (≥ 1) of them, until [`accept`](Self::accept).
    /// `None` if the text has ended, or if the next pass cannot be split and needs more rows.
    fn next_rows(&mut self, budget: usize) -> Option<RowRequest<'_>>;

    /// Consumes the logits, or hidden states, of the rows that [`next_rows`](Self::next_rows) fixed.
    fn accept(&mut self, logits: Logits<'_>) -> StepOutcome;

    /// Returns true if the grammar must decide which tokens may follow before the decoder can go on.
    fn guide_due(&self) -> bool {
        false
    }

    /// Computes which tokens the grammar allows next, and goes on with the logits that the last pass
    /// left. `None` if that takes longer than is left of `budget`, which the time is taken from. The
    /// outcome does not depend on how many calls it is spread over.
    fn guide(&mut self, _budget: &mut Duration) -> Option<StepOutcome> {
        unreachable!("the mode has no grammar")
    }

    /// Returns the end of the positions that the next pass may write with an unlimited budget. The engine
    /// makes pages for them before it asks for rows.
    fn next_end(&self) -> usize {
        self.tokens().len()
    }

    /// Returns the number of tokens that a net is to draft before the next pass; 0 if none.
    fn draft_due(&self) -> usize {
        0
    }

    /// Returns a sampler that draws drafted tokens as the text's own tokens are drawn, with the random numbers
    /// of their places; `None` where these are the most likely ones.
    fn draft_sampler(&self) -> Option<Sampler> {
        None
    }

    /// Takes the draft that was due: any number of tokens up to [`draft_due`](Self::draft_due).
    fn take_draft(&mut self, _draft: &[u32]) {}

    /// Returns the number of drafts so far.
    fn draft_counts(&self) -> DraftCounts {
        DraftCounts::default()
    }

    /// Goes on without the draft that was due, because none can be made now.
    fn skip_draft(&mut self) {}

    /// Returns the kind of output that it consumes; never changes.
    fn output(&self) -> Output {
        Output::Logits
    }

    /// Returns true while the next rows are known text: the prompt, or all text after
    /// [`resume`](Self::resume).
    fn prefilling(&self) -> bool;

    /// Learns how many sequences share its passes. They share the fixed cost of a pass, so a row costs more
    /// of each one's part. The output does not depend on it.
    fn share_pass(&mut self, _sequences: usize) {}

    /// Returns the final text, prompt first. It covers all committed positions.
    fn tokens(&self) -> &[u32];

    /// Returns the number of positions that need not be computed if their keys and values are cached:
    /// their logits are not needed any more.
    fn skippable(&self) -> usize;

    /// Starts again with a cache that holds the first `cached` positions, at most
    /// [`skippable`](Self::skippable) ones. The output continues as if nothing had happened.
    fn resume(&mut self, cached: usize);

    /// Continues after `text` by at most `max_tokens`, as if `text` had been the prompt; nothing of it is
    /// cached. Penalties, the grammar and the positions of random numbers still count all earlier output.
    /// Only for modes with [`DecodeMode::restarts`].
    fn restart(&mut self, _text: Vec<u32>, _max_tokens: usize) {
        unreachable!("the mode does not support a restart")
    }

    /// Returns the state after the last pass, for display: the block or the draft, with the tokens that
    /// the pass made final. Empty while the prompt is read, or output is decoded again after a
    /// [`resume`](Self::resume).
    fn slots(&self) -> Vec<Slot>;
}

/// Rows of logits that a decoder keeps until the grammar has decided about earlier tokens.
#[derive(Default)]
struct HeldLogits {
    values: Vec<f32>,
    width: usize,
}

impl HeldLogits {
    /// Copies the logits; `width` is the size of a row.
    fn new(logits: Logits<'_>) -> Self {
        let width = logits.values().len() / logits.len().max(1);
        Self { values: logits.values().to_vec(), width }
    }

    fn view(&self) -> Logits<'_> {
        Logits::new(&self.values, self.width.max(1))
    }
}

/// A slot of a block or of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    /// A final token, and its certainty where the mode measures it.
    Final(u32, Option<f32>),
    /// The token that the last pass would have chosen, and its certainty where the mode measures it.
    Provisional(u32, Option<f32>),
    /// No token yet.
    Masked,
}
