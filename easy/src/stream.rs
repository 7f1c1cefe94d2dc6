//! The output of a request: chunk by chunk, or complete.

use crate::{Engine, Error};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use wrinklefree::engine::{Event, FinishReason};

/// A part of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// Text that can be shown now; may be empty.
    pub text: String,
    /// Id of the token; `None` in the last chunk.
    pub token: Option<u32>,
    /// Set in the last chunk.
    pub finished: Option<Finished>,
}

/// The end of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Reason of the end.
    pub reason: FinishReason,
    /// Number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// Number of prompt tokens that the prefix cache had.
    pub cached_tokens: usize,
    /// Number of forward passes that the request took part in.
    pub passes: usize,
}

/// A complete output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// Its token ids. A token that ended the text is among them, although it has no text.
    pub tokens: Vec<u32>,
    /// Reason of the end.
    pub finish_reason: FinishReason,
    /// Number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// Number of prompt tokens that the prefix cache had.
    pub cached_tokens: usize,
    /// Number of forward passes that the request took part in.
    pub passes: usize,
}

/// The chunks of an output as they are generated. Dropping it cancels the request.
pub struct Stream {
    pub(crate) events: Receiver<Event>,
    /// Its end tells the worker to cancel the request.
    pub(crate) _alive: Arc<()>,
    pub(crate) prompt_tokens: usize,
    pub(crate) done: bool,
    /// Keeps the engine's thread running.
    pub(crate) _engine: Engine,
}

impl Iterator for Stream {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let Ok(event) = self.events.recv() else {
                self.done = true;
                return Some(Err(Error::Stopped));
            };
            match event {
                Event::Token { sampled, text, .. } => {
                    return Some(Ok(Chunk { text, token: Some(sampled.token), finished: None }));
                }
                Event::Finished { reason, text, passes, cached, .. } => {
                    self.done = true;
                    if reason == FinishReason::Constraint {
                        return Some(Err(Error::GrammarTooComplex));
                    }
                    let finished = Finished {
                        reason,
                        prompt_tokens: self.prompt_tokens,
                        cached_tokens: cached,
                        passes,
                    };
                    return Some(Ok(Chunk { text, token: None, finished: Some(finished) }));
                }
                Event::Scored { .. } | Event::Embedded { .. } | Event::Slots { .. } => {}
            }
        }
        None
    }
}

impl Stream {
    /// Waits for the end and returns the whole output.
    ///
    /// # Errors
    /// As the chunks.
    pub fn collect_all(self) -> Result<Completion, Error> {
        let (mut text, mut tokens) = (String::new(), Vec::new());
        for chunk in self {
            let chunk = chunk?;
            text += &chunk.text;
            tokens.extend(chunk.token);
            if let Some(end) = chunk.finished {
                return Ok(Completion {
                    text,
                    tokens,
                    finish_reason: end.reason,
                    prompt_tokens: end.prompt_tokens,
                    cached_tokens: end.cached_tokens,
                    passes: end.passes,
                });
            }
        }
        Err(Error::Stopped)
    }
}
