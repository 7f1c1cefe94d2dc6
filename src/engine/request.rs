//! What goes into the engine and what comes out.

use crate::decode::{
    DecodeMode, DiffusionError, Drafter, FinishReason, Next, Sampled, SamplingError,
    SamplingParams, Slot,
};

/// Handle of a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub(super) u64);

/// One text to generate.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Token ids that end the generation; they are not part of the output's text.
    pub eos: Vec<u32>,
    /// How it is decoded.
    pub mode: DecodeMode,
    /// What happens when prompt and output fill the context. `None`: the output ends. Otherwise the
    /// first so many tokens stay, the older half of the rest is dropped, and the output goes on behind
    /// what is left, computed anew as if that had been the prompt.
    pub context_shift: Option<usize>,
    /// Say after each pass what it left behind: [`Event::Slots`].
    pub watch: bool,
    /// Only requests with the same salt share what the engine keeps of earlier texts: from how soon
    /// an answer comes nobody else can tell that a text has been here before.
    pub cache_salt: String,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejected {
    /// Nothing to start from.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// Nothing to do.
    #[error("max_tokens is 0: ask for at least one token")]
    NothingAsked,
    /// The prompt does not fit, with at least one token of output.
    #[error(
        "the prompt has {prompt} tokens, but the context holds {context} positions, of which an output \
         needs at least one: shorten the prompt, or ask for a longer context"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions a sequence may have.
        context: usize,
    },
    /// An id outside the vocabulary.
    #[error("token id {id} of the prompt is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Log-probabilities of a prompt that is read in blocks.
    #[error("block diffusion has no log-probabilities of the prompt: another decode mode has them")]
    Unscored,
    /// Context shift in a mode that cannot go on behind a part of its text.
    #[error(
        "context shift goes with the decode modes ar and verify: block diffusion, whose blocks are \
         counted from the beginning of the text, cannot go on behind a part of it"
    )]
    Unshiftable,
    /// Context shift that leaves nothing to drop.
    #[error("context shift keeps {keep} tokens, but the context holds {context}: keep fewer")]
    KeepsAll {
        /// Tokens to keep.
        keep: usize,
        /// Positions a sequence may have.
        context: usize,
    },
    /// Stop strings without a tokenizer.
    #[error("stop strings need a tokenizer, and this model has none")]
    NoTokenizer,
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Prompt lookup by runs of no tokens, or of very many.
    #[error(
        "prompt lookup matches from {least} to {most} tokens: it needs 1 at least, {} at most, and \
         the first number not above the second",
        Drafter::LONGEST_MATCH
    )]
    Matches {
        /// Tokens that must match at least.
        least: usize,
        /// And at most.
        most: usize,
    },
    /// The grammar has no text, or nobody can say what it has.
    #[error("no text can keep to the grammar: {0}")]
    Constraint(String),
    /// A block-diffusion parameter makes no sense.
    #[error(transparent)]
    Diffusion(#[from] DiffusionError),
}

impl Rejected {
    /// A name for the kind of error that never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyPrompt => "empty_prompt",
            Self::NothingAsked => "nothing_asked",
            Self::TooLong { .. } => "context_length_exceeded",
            Self::UnknownToken { .. } => "unknown_token",
            Self::Unscored | Self::Unshiftable | Self::KeepsAll { .. } => "bad_decoding_parameter",
            Self::NoTokenizer => "no_tokenizer",
            Self::Sampling(error) => error.code(),
            Self::Matches { .. } => "bad_decoding_parameter",
            Self::Constraint(_) => "bad_grammar",
            Self::Diffusion(error) => error.code(),
        }
    }
}

impl Request {
    /// Whether the request can run.
    pub(super) fn check(
        &mut self,
        vocab: usize,
        context: usize,
        rows: usize,
        tokenizer: bool,
    ) -> Result<(), Rejected> {
        match self.mode {
            DecodeMode::Diffusion(ref params) => params.check(vocab, rows)?,
            _ if self.tokens.is_empty() => return Err(Rejected::EmptyPrompt),
            DecodeMode::Verify { drafter: Drafter::Denoise { mask, .. }, .. }
                if mask as usize >= vocab =>
            {
                return Err(DiffusionError::Mask { mask, vocab }.into());
            }
            DecodeMode::Verify {
                drafter: Drafter::Ngram { matches: (least, most), .. }, ..
            } if !Drafter::can_match((least, most)) => {
                return Err(Rejected::Matches { least, most });
            }
            DecodeMode::Autoregressive | DecodeMode::Verify { .. } | DecodeMode::Embed(_) => {}
        }
        let embeds = matches!(self.mode, DecodeMode::Embed(_));
        if self.sampling.score_prompt && matches!(self.mode, DecodeMode::Diffusion(_)) {
            return Err(Rejected::Unscored);
        }
        if self.context_shift.is_some() && !self.mode.restarts() {
            return Err(Rejected::Unshiftable);
        }
        let fills = self.tokens.len().saturating_add(self.max_tokens) > context;
        if let Some(keep) = self.context_shift.filter(|&keep| fills && keep >= context) {
            return Err(Rejected::KeepsAll { keep, context });
        }
        if self.max_tokens == 0 && !self.sampling.score_prompt && !embeds {
            return Err(Rejected::NothingAsked);
        }
        if self.tokens.len() + usize::from(!embeds) > context {
            return Err(Rejected::TooLong { prompt: self.tokens.len(), context });
        }
        if let Some(&id) = self.tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(Rejected::UnknownToken { id, vocab });
        }
        if !self.stop.is_empty() && !tokenizer {
            return Err(Rejected::NoTokenizer);
        }
        match self.sampling.constraint.as_mut().map(|c| c.next()) {
            None | Some(Next::Tokens(_)) => Ok(self.sampling.validate(vocab)?),
            Some(Next::End) => Err(Rejected::Constraint("it allows nothing".into())),
            Some(Next::Unknown(why)) => Err(Rejected::Constraint(why)),
        }
    }
}

/// What happened to a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Tokens of the prompt with their log-probabilities, where these are asked for: all but the
    /// first, in order, over several events.
    Scored {
        /// The sequence.
        seq: SeqId,
        /// The tokens.
        tokens: Vec<Sampled>,
    },
    /// The prompt's vector, of length 1; nothing but the end follows.
    Embedded {
        /// The sequence.
        seq: SeqId,
        /// `[hidden_size]`.
        vector: Vec<f32>,
    },
    /// A token is final. `text` is what can be shown now (maybe nothing yet).
    Token {
        /// The sequence.
        seq: SeqId,
        /// The token and its log-probabilities.
        sampled: Sampled,
        /// New text.
        text: String,
    },
    /// What a pass left behind, for people to watch; follows the tokens that it made final.
    Slots {
        /// The sequence.
        seq: SeqId,
        /// The block or the draft: see [`Decoder::slots`](crate::decode::Decoder::slots).
        slots: Vec<Slot>,
    },
    /// The sequence ended; `text` is what was still held back.
    Finished {
        /// The sequence.
        seq: SeqId,
        /// Why.
        reason: FinishReason,
        /// Remaining text.
        text: String,
        /// Forward passes that it took part in.
        passes: usize,
        /// Tokens of the prompt whose keys and values were there already.
        cached: usize,
    },
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sequences that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// KV pages that hold nothing.
    pub free: usize,
    /// KV pages that hold texts which may come again; they are free for whoever needs them.
    pub idle: usize,
    /// All KV pages.
    pub pages: usize,
    /// How often a sequence had to give its pages back and wait, so far.
    pub preempted: u64,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One forward pass ran.
    Ran {
        /// Rows of prompts.
        prefill_rows: usize,
        /// Rows of decoding.
        decode_rows: usize,
    },
    /// Nothing to do.
    Idle,
}
