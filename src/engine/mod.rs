//! The engine: submit, step, poll, cancel. No thread, clock, file or socket inside.

/// Handle of a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(u64);

use crate::decode::{Sampled, SamplingParams};
use crate::model::{Model, Runtime};
use crate::text::Tokenizer;

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
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Nothing to start from.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Prompt and output do not fit.
    #[error("the prompt has {prompt} tokens, the context holds {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions a sequence may have.
        context: usize,
    },
    /// An id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text token or a stop string.
    Stop,
    /// `max_tokens` or the context is full.
    Length,
    /// The caller cancelled it.
    Cancelled,
}

/// What happened to a sequence.
#[derive(Clone, Debug)]
pub enum Event {
    /// A token is final. `text` is what can be shown now (maybe nothing yet).
    Token {
        /// The sequence.
        seq: SeqId,
        /// The token and its log-probabilities.
        sampled: Sampled,
        /// New text.
        text: String,
    },
    /// The sequence ended; `text` is what was still held back.
    Finished {
        /// The sequence.
        seq: SeqId,
        /// Why.
        reason: FinishReason,
        /// Remaining text.
        text: String,
    },
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

/// Sizes of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Positions a sequence may have.
    pub context: usize,
    /// KV pages of all sequences together.
    pub pages: usize,
    /// Rows of one forward pass at most.
    pub rows: usize,
}

/// Runs requests on one model.
pub struct Engine {}

impl Engine {
    /// An engine; `tokenizer` is needed for text and stop strings, ids work without.
    pub fn new(
        _model: Model,
        _tokenizer: Option<Tokenizer>,
        _runtime: Runtime,
        _config: EngineConfig,
    ) -> Self {
        todo!()
    }
    /// The model.
    pub fn model(&self) -> &Model {
        todo!()
    }
    /// The tokenizer.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        todo!()
    }
    /// Queues a request.
    ///
    /// # Errors
    /// When the request can never run.
    pub fn submit(&mut self, _request: Request) -> Result<SeqId, Rejected> {
        todo!()
    }
    /// Runs one forward pass over whatever is due.
    pub fn step(&mut self) -> Step {
        todo!()
    }
    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        todo!()
    }
    /// Ends a sequence early; its pages are free at once.
    pub fn cancel(&mut self, _seq: SeqId) {
        todo!()
    }
}
