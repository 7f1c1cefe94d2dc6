//! Decoders: state machines that ask for rows and take logits. They know no model and no cache, so
//! they can be batched, cancelled between any two passes, and replayed from a script.

mod ar;
mod diffusion;
mod draft;
mod pool;
mod reach;
mod sample;
mod verify;

pub use ar::Autoregressive;
pub use diffusion::{BlockDiffusion, Commit, DiffusionError, DiffusionParams, Inside, Unmask};
pub use draft::Drafter;
pub use pool::{Pool, Pooling};
pub use sample::{
    Certainty, Choice, Constraint, History, Next, Sampled, Sampler, SamplingError, SamplingParams,
};
pub use verify::Verify;

use crate::batch_types::{AttentionMask, LogitRows, Logits, Output};

/// Rows that a decoder wants computed: consecutive tokens of its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Position of the first token.
    pub start: usize,
    /// The tokens.
    pub tokens: &'a [u32],
    /// What each row sees.
    pub attention_mask: AttentionMask,
    /// Rows whose logits are wanted.
    pub logits: LogitRows<'a>,
}

/// What a decoder did with its logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The prompt's next tokens with their log-probabilities, where these are asked for. The first
    /// token of a prompt has none and is left out.
    pub scored: Vec<Sampled>,
    /// The vector of the prompt, where that is what was asked for.
    pub pooled: Option<Vec<f32>>,
    /// Tokens that became final, in order.
    pub tokens: Vec<Sampled>,
    /// Positions whose keys and values, as they are now, are part of the sequence.
    pub committed: usize,
    /// Why the text ended, if it did.
    pub finished: Option<FinishReason>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text token, or the grammar has nothing to add.
    Stop,
    /// The stop string with this place in the request's list.
    StopString(usize),
    /// `max_tokens` or the context is full.
    Length,
    /// The caller cancelled it.
    Cancelled,
    /// The grammar that it must keep to became too complex to go on.
    Constraint,
}

/// How a sequence is decoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DecodeMode {
    /// One token after the other.
    #[default]
    Autoregressive,
    /// The same output in fewer passes: [`Verify`].
    Verify {
        /// Where drafts come from.
        drafter: Drafter,
        /// What one more row adds to a pass, as a share of a pass of one row; `None`: what the
        /// engine says. 0 drafts always.
        row_cost: Option<f32>,
    },
    /// [`BlockDiffusion`].
    Diffusion(DiffusionParams),
    /// Not at all: [`Pool`].
    Embed(Pooling),
}

impl DecodeMode {
    /// Positions that a text of `length` tokens takes in the cache: blocks are denoised whole.
    pub fn positions(&self, length: usize) -> usize {
        match self {
            Self::Autoregressive | Self::Verify { .. } | Self::Embed(_) => length,
            Self::Diffusion(p) => length.next_multiple_of(p.block),
        }
    }

    /// Positions of clean text that see each other: their keys and values depend on it.
    pub fn clean_block(&self) -> usize {
        match self {
            Self::Diffusion(p) if !p.clean_causal => p.block,
            _ => 1,
        }
    }

    /// Whether a text can go on from a part of it ([`Decoder::restart`]). Block diffusion cannot: its
    /// blocks are counted from the beginning, so behind a shorter beginning they are other blocks.
    pub fn restarts(&self) -> bool {
        matches!(self, Self::Autoregressive | Self::Verify { .. })
    }

    /// Rows of the largest pass that cannot be cut.
    pub fn rows(&self) -> usize {
        match self {
            Self::Autoregressive | Self::Verify { .. } | Self::Embed(_) => 1,
            Self::Diffusion(p) => p.rows(),
        }
    }

    /// The decoder of one sequence. `row_cost` as for [`Verify::new`], where the mode does not say.
    ///
    /// # Panics
    /// When `max_tokens` is 0 and the prompt is not scored, or the prompt is empty outside block diffusion.
    pub fn decoder(
        self,
        prompt: Vec<u32>,
        max_tokens: usize,
        eos: Vec<u32>,
        sampling: SamplingParams,
        row_cost: f32,
    ) -> Box<dyn Decoder + Send> {
        match self {
            Self::Autoregressive => {
                Box::new(Autoregressive::new(prompt, max_tokens, eos, sampling))
            }
            Self::Verify { drafter, row_cost: own } => {
                let ar = Autoregressive::new(prompt, max_tokens, eos, sampling);
                Box::new(Verify::new(ar, drafter, own.unwrap_or(row_cost)))
            }
            Self::Diffusion(params) => {
                Box::new(BlockDiffusion::new(params, prompt, max_tokens, eos, sampling))
            }
            Self::Embed(pooling) => Box::new(Pool::new(prompt, pooling)),
        }
    }
}

/// What a decoder does with the rows of passes.
pub trait Decoder {
    /// The rows that come next, at most `budget` (≥ 1) of them; `None` when finished, or when what
    /// comes next can only be computed as a whole and has more.
    fn ask(&self, budget: usize) -> Option<Ask<'_>>;

    /// Takes the logits of the rows that `ask(budget)` named, or their hidden states.
    fn take(&mut self, budget: usize, logits: Logits<'_>) -> Progress;

    /// What it wants of these rows, always the same.
    fn output(&self) -> Output {
        Output::Logits
    }

    /// Whether known text is still being read: the prompt, or all of it after [`resume`](Self::resume).
    fn prefilling(&self) -> bool;

    /// The clean text, prompt first. All committed positions are in it.
    fn tokens(&self) -> &[u32];

    /// Positions of the text whose logits are not wanted any more: they need not be computed if their
    /// keys and values are there.
    fn skippable(&self) -> usize;

    /// Starts again with a cache of which the first `cached` positions, at most
    /// [`skippable`](Self::skippable) ones, are filled. The output goes on as if nothing had happened.
    fn resume(&mut self, cached: usize);

    /// Goes on behind `text`, which nothing of is in the cache, by at most `max_tokens`, as if it had
    /// been the prompt. What was output counts on: for penalties, for a grammar, and for the numbers of
    /// the places that random numbers belong to. Only where [`DecodeMode::restarts`].
    fn restart(&mut self, _text: Vec<u32>, _max_tokens: usize) {
        unreachable!("a mode without restarts")
    }

    /// What the last pass left behind, for people to watch: the block or the draft, with the tokens
    /// that it settled. Empty while the prompt is read.
    fn slots(&self) -> Vec<Slot>;
}

/// A slot of a block or of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    /// Its token is settled; how sure the pass was that chose it, where a mode measures that.
    Final(u32, Option<f32>),
    /// What stands there for now; how sure the last pass was.
    Provisional(u32, Option<f32>),
    /// Nobody knows yet.
    Masked,
}
