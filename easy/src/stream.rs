//! The output of a request: chunk by chunk, or complete.

use crate::{Engine, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{EventKind, FinishReason};
use wrinklefree::text::{OutputPart, ReasoningParser};

/// A part of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// Text of the answer that can be shown now; may be empty.
    pub text: String,
    /// Reasoning before the answer that can be shown now; may be empty.
    pub reasoning: String,
    /// The token, with log-probabilities if the request asks for them; `None` in the last chunk.
    pub token: Option<Sampled>,
    /// Set in the last chunk.
    pub finished: Option<Finished>,
}

impl Chunk {
    fn extend(&mut self, parts: Vec<OutputPart>) {
        for part in parts {
            match part {
                OutputPart::Reasoning(text) => self.reasoning += &text,
                OutputPart::Answer(text) => self.text += &text,
            }
        }
    }
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
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The text of the answer.
    pub text: String,
    /// The reasoning before it; empty if there is none.
    pub reasoning: String,
    /// The tokens of both, with log-probabilities if the request asks for them. A token that ended the
    /// text is among them, although it has no text.
    pub tokens: Vec<Sampled>,
    /// The end of the output.
    pub finished: Finished,
}

impl Completion {
    /// Returns the ids of the tokens.
    pub fn token_ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|sampled| sampled.token).collect()
    }
}

/// Cancels a request from any thread. The output then ends with [`FinishReason::Cancelled`].
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// Cancels the request before the next forward pass. Does nothing if it has ended.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The chunks of an output as they are generated. Dropping it cancels the request.
pub struct Stream {
    pub(crate) events: Receiver<EventKind>,
    pub(crate) cancel: CancelHandle,
    pub(crate) prompt_tokens: usize,
    /// Parser of the output; `None` if all of it is the answer.
    pub(crate) reasoning: Option<ReasoningParser>,
    pub(crate) done: bool,
    /// Keeps the engine's thread running.
    pub(crate) _engine: Engine,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Iterator for Stream {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let event = self.events.recv().map_err(|_| Error::Stopped);
            if let Some(chunk) = self.chunk(event) {
                return Some(chunk);
            }
        }
        None
    }
}

impl Stream {
    /// Returns the next chunk, or `None` if there is none within `timeout` (0: at once) or the output
    /// has ended, which [`is_finished`](Self::is_finished) tells apart.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<Chunk, Error>> {
        while !self.done {
            let event = match self.events.recv_timeout(timeout) {
                Ok(event) => Ok(event),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped),
            };
            if let Some(chunk) = self.chunk(event) {
                return Some(chunk);
            }
        }
        None
    }

    /// Returns true if the last chunk or an error was returned.
    pub fn is_finished(&self) -> bool {
        self.done
    }

    /// Returns a handle that cancels the request from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Waits for the end and returns the whole output.
    ///
    /// # Errors
    /// As the chunks.
    pub fn collect_all(self) -> Result<Completion, Error> {
        let (mut text, mut reasoning, mut tokens) = (String::new(), String::new(), Vec::new());
        for chunk in self {
            let chunk = chunk?;
            text += &chunk.text;
            reasoning += &chunk.reasoning;
            tokens.extend(chunk.token);
            if let Some(finished) = chunk.finished {
                return Ok(Completion { text, reasoning, tokens, finished });
            }
        }
        Err(Error::Stopped)
    }

    /// Splits more of the output into reasoning and answer.
    fn split(&mut self, text: String) -> Chunk {
        let Some(parser) = &mut self.reasoning else {
            return Chunk { text, ..Chunk::default() };
        };
        let mut chunk = Chunk::default();
        chunk.extend(parser.push(&text));
        chunk
    }

    /// Turns an event into a chunk, if it has text or a token.
    fn chunk(&mut self, event: Result<EventKind, Error>) -> Option<Result<Chunk, Error>> {
        match event {
            Ok(EventKind::Token { sampled, text }) => {
                Some(Ok(Chunk { token: Some(sampled), ..self.split(text) }))
            }
            Ok(EventKind::Finished { reason, text, passes, cached }) => {
                self.done = true;
                match reason {
                    FinishReason::Constraint => return Some(Err(Error::GrammarTooComplex)),
                    FinishReason::NotFinite => return Some(Err(Error::NotFinite)),
                    _ => {}
                }
                let (prompt_tokens, cached_tokens) = (self.prompt_tokens, cached);
                let finished = Finished { reason, prompt_tokens, cached_tokens, passes };
                let mut chunk = self.split(text);
                let rest = self.reasoning.as_mut().map(ReasoningParser::finish);
                chunk.extend(rest.unwrap_or_default());
                Some(Ok(Chunk { finished: Some(finished), ..chunk }))
            }
            Ok(_) => None,
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }
}
