//! Decoders: state machines that ask for rows and take logits. They know no model, cache or
//! kernel, so they can be batched, cancelled between any two passes, and replayed from a script.

mod ar;
mod sample;

pub use ar::Autoregressive;
pub use sample::{Choice, Sampled, Sampler, SamplingError, SamplingParams};

use crate::rows::{Logits, Rows, Sight};

/// Rows that a decoder wants computed: consecutive tokens of its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
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

/// What a decoder did with its logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Tokens that became final, in order.
    pub tokens: Vec<Sampled>,
    /// Why the text ended, if it did.
    pub finished: Option<FinishReason>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text token or a stop string.
    Stop,
    /// `max_tokens` or the context is full.
    Length,
    /// The caller cancelled it.
    Cancelled,
}

/// Decodes one sequence.
pub trait Decoder {
    /// The rows that come next, at most `budget` (≥ 1) of them; `None` when finished.
    fn ask(&self, budget: usize) -> Option<Ask<'_>>;

    /// Takes the logits of the rows that `ask(budget)` named.
    fn take(&mut self, budget: usize, logits: Logits<'_>) -> Progress;

    /// Whether the prompt is still being read.
    fn prefilling(&self) -> bool;
}
