//! Requests to the engine, and the events that it reports.

use crate::decode::{
    AssumedDrafts, DecodeMode, DiffusionError, DraftCounts, Drafter, FinishReason, Next, Sampled,
    SamplingError, SamplingParams, Slot,
};
use crate::text::StopScope;

/// Handle of a submitted request; unique within its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub(super) u64);

/// A text to generate, or an embedding to compute.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Token ids of the prompt.
    pub tokens: Vec<u32>,
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Sampling parameters.
    pub sampling: SamplingParams,
    /// Stop strings: texts that end the output and are not part of it.
    pub stop: Vec<String>,
    /// Parts of the output in which stop strings act; `None` for all of it.
    pub stop_scope: Option<Box<dyn StopScope>>,
    /// Token ids that end the output; they are not part of its text.
    pub eos: Vec<u32>,
    /// Decoding algorithm.
    pub mode: DecodeMode,
    /// Number of first tokens to keep when prompt and output have filled the context. The older half of
    /// the other tokens is dropped, and the output continues after the rest, which is computed again as
    /// if it were the prompt. `None` ends the output instead.
    pub context_shift: Option<usize>,
    /// Number of first tokens of the prompt that later prompts probably begin with: a chat without the
    /// generation prompt, which templates replace in the next turn. For a model with recurrent states
    /// ([`crate::cache::StateShape`]) the prefix cache keeps them there. `None` is the whole prompt.
    pub stable_prefix: Option<usize>,
    /// Ends of messages after which other prompts go on. A model's recurrent states there, on whole pages,
    /// stay in the prefix cache as long as the conversation lives.
    pub message_ends: MessageEnds,
    /// Reports the state of the decoder after each pass, for display: [`EventKind::Slots`].
    pub watch: bool,
    /// Isolates the prefix cache: only requests with the same salt share cached prefixes. So other tenants
    /// cannot detect cached prompts by timing.
    pub cache_salt: String,
    /// For measurements: replaces the tokens that a net drafts.
    pub assumed_drafts: Option<AssumedDrafts>,
}

/// Numbers of first tokens of a prompt that end with certain messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageEnds {
    /// The end of the system text and tools.
    pub system: Option<usize>,
    /// The end of the last question.
    pub question: Option<usize>,
}

/// Error: a request was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// The prompt is empty.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// `max_tokens` is 0.
    #[error("max_tokens is 0: ask for at least one token")]
    ZeroMaxTokens,
    /// The prompt leaves no room in the context for a token of output.
    #[error(
        "the prompt has {prompt} tokens, but the context holds {context} positions, and the output \
         needs at least one: shorten the prompt, or configure a longer context"
    )]
    PromptTooLong {
        /// Number of tokens in the prompt.
        prompt: usize,
        /// Maximum number of positions in a sequence.
        context: usize,
    },
    /// A token id of the prompt is outside the vocabulary.
    #[error("token id {id} of the prompt is outside the vocabulary of {vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Block diffusion cannot score the prompt.
    #[error(
        "block diffusion has no log-probabilities of the prompt: use the decode mode ar or verify"
    )]
    NoPromptScores,
    /// The decode mode does not support context shift.
    #[error(
        "context shift works with the decode modes ar and verify: block diffusion cannot continue \
         from a part of its text"
    )]
    NoContextShift,
    /// The context shift leaves no tokens to drop.
    #[error(
        "context shift keeps {keep} tokens, but the context holds {context}: keep fewer tokens"
    )]
    KeepsAll {
        /// Number of tokens to keep.
        keep: usize,
        /// Maximum number of positions in a sequence.
        context: usize,
    },
    /// Stop strings need a tokenizer.
    #[error("stop strings need a tokenizer, and this model has none")]
    NoTokenizer,
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The number of tokens that prompt lookup must match is out of range.
    #[error(
        "prompt lookup cannot match {least} to {most} tokens: give numbers from 1 to {}, the smaller \
         one first",
        Drafter::LONGEST_MATCH
    )]
    NgramMatches {
        /// Minimum number of tokens that must match.
        least: usize,
        /// Maximum number of tokens that must match.
        most: usize,
    },
    /// The grammar allows no first token, or is too complex.
    #[error("no output can follow the grammar: {0}")]
    Constraint(String),
    /// The decode mode needs attention to later positions.
    #[error(
        "{0} needs attention to later positions, and this model has layers with linear attention: use \
         the decode mode ar, or verify with the draft ngram"
    )]
    LinearAttention(&'static str),
    /// The model has no block for multi-token prediction.
    #[error(
        "the model has no block for multi-token prediction, or it was loaded without it: use another draft"
    )]
    NoMtp,
    /// The model has no drafter.
    #[error("the model was loaded without a drafter (`draft_model`): use another draft")]
    NoDrafter,
    /// A block-diffusion parameter is invalid.
    #[error(transparent)]
    Diffusion(#[from] DiffusionError),
}

impl SubmitError {
    /// Returns a stable identifier of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyPrompt => "empty_prompt",
            Self::ZeroMaxTokens => "nothing_asked",
            Self::PromptTooLong { .. } => "context_length_exceeded",
            Self::UnknownToken { .. } => "unknown_token",
            Self::NoPromptScores | Self::NoContextShift | Self::KeepsAll { .. } => {
                "bad_decoding_parameter"
            }
            Self::NoTokenizer => "no_tokenizer",
            Self::Sampling(error) => error.code(),
            Self::NgramMatches { .. }
            | Self::LinearAttention(_)
            | Self::NoMtp
            | Self::NoDrafter => "bad_decoding_parameter",
            Self::Constraint(_) => "bad_grammar",
            Self::Diffusion(error) => error.code(),
        }
    }
}

impl Request {
    /// Returns true if the output comes about slot by slot: the slots of [`EventKind::Slots`] are places of
    /// the output, and not of a draft.
    #[must_use]
    pub fn denoises(&self) -> bool {
        matches!(self.mode, DecodeMode::Diffusion(_))
    }

    /// Checks that no row attends to later positions.
    pub(super) fn check_causal(&self) -> Result<(), SubmitError> {
        match self.mode {
            DecodeMode::Diffusion(_) => Err(SubmitError::LinearAttention("block diffusion")),
            DecodeMode::Verify { drafter: Drafter::Denoise { .. }, .. } => {
                Err(SubmitError::LinearAttention("a denoising draft"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the request can run, with a `context` of this many positions and passes of this many
    /// rows.
    pub(super) fn check(
        &mut self,
        vocab: usize,
        context: usize,
        rows: usize,
        tokenizer: bool,
    ) -> Result<(), SubmitError> {
        match self.mode {
            DecodeMode::Diffusion(ref params) => {
                params.check(vocab, rows)?;
                params.check_texts(&self.tokens)?;
                params.check_hole(self.tokens.len(), self.max_tokens, vocab)?;
            }
            _ if self.tokens.is_empty() => return Err(SubmitError::EmptyPrompt),
            DecodeMode::Verify { drafter: Drafter::Denoise { mask, .. }, .. }
                if mask as usize >= vocab =>
            {
                return Err(DiffusionError::Mask { mask, vocab }.into());
            }
            DecodeMode::Verify {
                drafter: Drafter::Ngram { matches: (least, most), .. }, ..
            } if !Drafter::can_match((least, most)) => {
                return Err(SubmitError::NgramMatches { least, most });
            }
            _ => {}
        }
        let reads_only = self.mode.reads_only();
        if self.sampling.score_prompt && matches!(self.mode, DecodeMode::Diffusion(_)) {
            return Err(SubmitError::NoPromptScores);
        }
        if self.context_shift.is_some() && !self.mode.restarts() {
            return Err(SubmitError::NoContextShift);
        }
        let fills = self.tokens.len().saturating_add(self.max_tokens) > context;
        if let Some(keep) = self.context_shift.filter(|&keep| fills && keep >= context) {
            return Err(SubmitError::KeepsAll { keep, context });
        }
        if self.max_tokens == 0 && !self.sampling.score_prompt && !reads_only {
            return Err(SubmitError::ZeroMaxTokens);
        }
        if self.tokens.len() + usize::from(!reads_only) > context {
            return Err(SubmitError::PromptTooLong { prompt: self.tokens.len(), context });
        }
        if let Some(&id) = self.tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(SubmitError::UnknownToken { id, vocab });
        }
        if !self.stop.is_empty() && !tokenizer {
            return Err(SubmitError::NoTokenizer);
        }
        match self.sampling.constraint.as_mut().map(|c| c.next()) {
            None | Some(Next::Tokens(_) | Next::Except(_)) => Ok(self.sampling.validate(vocab)?),
            Some(Next::End) => Err(SubmitError::Constraint("it allows no token".into())),
            Some(Next::Unknown(why)) => Err(SubmitError::Constraint(why)),
        }
    }
}

/// A report about a sequence. Events of one sequence come in order; the last one is `Finished`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The sequence.
    pub seq: SeqId,
    /// Content of the report.
    pub kind: EventKind,
}

/// Content of an [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// Tokens of the prompt with their log-probabilities, if the request asks for them: all but the first
    /// token, in order, over several events.
    Scored(Vec<Sampled>),
    /// The embedding of the prompt, `[hidden_size]`, a vector of length 1. Only `Finished` follows.
    Embedded(Vec<f32>),
    /// The logits of the token after the prompt, `[vocab_size]`. Only `Finished` follows.
    Logits(Vec<f32>),
    /// A token is final.
    Token {
        /// The token and its log-probabilities.
        sampled: Sampled,
        /// Text that can be shown now; may be empty.
        text: String,
    },
    /// State of the decoder after a pass, for display: the block or the draft; see
    /// [`Decoder::slots`](crate::decode::Decoder::slots). Follows the tokens that the pass made final.
    Slots(Vec<Slot>),
    /// The sequence ended.
    Finished {
        /// The reason.
        reason: FinishReason,
        /// Text that was held back until now; may be empty.
        text: String,
        /// Number of forward passes that it took part in.
        passes: usize,
        /// Number of prompt tokens that the prefix cache had.
        cached: usize,
        /// Drafts that its passes verified.
        drafts: DraftCounts,
    },
}

/// Number of sequences in an engine, and its use of KV pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Number of running sequences.
    pub running: usize,
    /// Number of waiting sequences.
    pub waiting: usize,
    /// Number of KV pages that hold nothing.
    pub free_pages: usize,
    /// Number of KV pages with cached prefixes that no sequence uses. They are evicted when needed.
    pub idle_pages: usize,
    /// Number of all KV pages.
    pub kv_pages: usize,
    /// Number of preemptions so far: a sequence gave its pages back and waited.
    pub preempted: u64,
    /// Number of recurrent states that the prefix cache keeps, for models with linear attention.
    pub snapshots: usize,
    /// Maximum number of recurrent states that it keeps.
    pub snapshot_limit: usize,
    /// Number of recurrent states so far that it dropped for others that are worth more.
    pub dropped_snapshots: u64,
    /// Bytes of recurrent states in use: of running sequences, and of the prefix cache.
    pub state_bytes: usize,
    /// Drafts so far by a net that reads hidden states.
    pub drafts: DraftCounts,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One forward pass ran.
    Ran {
        /// Number of rows of known text: prompts, and texts of preempted sequences.
        prefill_rows: usize,
        /// Number of rows of decoding.
        decode_rows: usize,
    },
    /// `max_tokens` is 0.
    Idle,
}
