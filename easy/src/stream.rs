//! The output of a request: chunk by chunk, or complete.

use crate::{Engine, Error, ToolCall, random_seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use wrinklefree::chat::{CallPiece, OutputPiece, OutputPieces, Snapshot, Snapshots};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{EventKind, FinishReason};

/// A part of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// Text of the answer that can be shown now; may be empty.
    pub text: String,
    /// Reasoning before the answer that can be shown now; may be empty.
    pub reasoning: String,
    /// Parts of the calls of tools; mostly none.
    pub tool_calls: Vec<ToolCallChunk>,
    /// The whole output so far, which replaces the snapshot before it; with
    /// [`GenerateOptions::diffusing`](crate::GenerateOptions::diffusing), in chunks that have nothing else.
    /// The last one comes just before the last chunk, and equals the output.
    pub snapshot: Option<Snapshot>,
    /// The token, with log-probabilities if the request asks for them; `None` in the last chunk.
    pub token: Option<Sampled>,
    /// Set in the last chunk.
    pub finished: Option<Finished>,
}

/// A part of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallChunk {
    /// Number of the call in the output, from 0.
    pub index: usize,
    /// Id of the call, in its first part.
    pub id: Option<String>,
    /// Name of the function, in the first part.
    pub name: Option<String>,
    /// More of the arguments, which are JSON.
    pub arguments: String,
}

impl From<CallPiece> for ToolCallChunk {
    fn from(CallPiece { index, name, arguments }: CallPiece) -> Self {
        let id = name.is_some().then(|| format!("call_{:016x}", random_seed()));
        Self { index, id, name, arguments }
    }
}

impl ToolCallChunk {
    /// Adds this part to the calls of an output, of which it is the next one.
    pub fn add_to(self, calls: &mut Vec<ToolCall>) {
        let Self { id, name, arguments, .. } = self;
        match (name, calls.last_mut()) {
            (None, Some(call)) => call.arguments += &arguments,
            (name, _) => {
                let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
                calls.push(ToolCall { id, name, arguments });
            }
        }
    }
}

impl From<OutputPiece> for Chunk {
    fn from(OutputPiece { text, reasoning, calls }: OutputPiece) -> Self {
        let tool_calls = calls.into_iter().map(ToolCallChunk::from).collect();
        Self { text, reasoning, tool_calls, ..Self::default() }
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
    /// The calls of tools.
    pub tool_calls: Vec<ToolCall>,
    /// The tokens of all, with log-probabilities if the request asks for them. A token that ended the
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

/// Collects the chunks of an output.
///
/// ```
/// use wrinklefree_easy::{Chunk, PartialOutput};
///
/// let mut output = PartialOutput::default();
/// assert_eq!(output.push(Chunk { text: "Hello".into(), ..Chunk::default() }), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct PartialOutput {
    text: String,
    reasoning: String,
    tool_calls: Vec<ToolCall>,
    tokens: Vec<Sampled>,
}

impl PartialOutput {
    /// Adds the next chunk. Returns the complete output after the last one.
    pub fn push(&mut self, chunk: Chunk) -> Option<Completion> {
        self.text += &chunk.text;
        self.reasoning += &chunk.reasoning;
        chunk.tool_calls.into_iter().for_each(|call| call.add_to(&mut self.tool_calls));
        self.tokens.extend(chunk.token);
        let finished = chunk.finished?;
        let Self { text, reasoning, tool_calls, tokens } = std::mem::take(self);
        Some(Completion { text, reasoning, tool_calls, tokens, finished })
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
    /// Splits the output into answer, reasoning and calls.
    pub(crate) pieces: OutputPieces,
    /// Makes snapshots, if the request asks for them.
    pub(crate) snapshots: Option<Snapshots>,
    /// The last chunk, after the last snapshot.
    pub(crate) last: Option<Chunk>,
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
            if let Some(last) = self.take_last() {
                return Some(Ok(last));
            }
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
            if let Some(last) = self.take_last() {
                return Some(Ok(last));
            }
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

    /// Checks that the request asks for no snapshots, which only the caller of a stream can show.
    ///
    /// # Errors
    /// [`Error::Diffusing`]
    pub fn require_no_snapshots(&self) -> Result<(), Error> {
        if self.snapshots.is_some() { Err(Error::Diffusing) } else { Ok(()) }
    }

    /// Returns a handle that cancels the request from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Waits for the end and returns the whole output.
    ///
    /// # Errors
    /// As the chunks, or if the request asks for snapshots.
    pub fn collect_all(self) -> Result<Completion, Error> {
        self.require_no_snapshots()?;
        let mut output = PartialOutput::default();
        for chunk in self {
            if let Some(complete) = output.push(chunk?) {
                return Ok(complete);
            }
        }
        Err(Error::Stopped)
    }

    /// Returns the last chunk after the last snapshot.
    fn take_last(&mut self) -> Option<Chunk> {
        let last = self.last.take()?;
        self.done = true;
        Some(last)
    }

    /// Turns an event into a chunk, if it has text, a token or a snapshot.
    fn chunk(&mut self, event: Result<EventKind, Error>) -> Option<Result<Chunk, Error>> {
        if let (Some(snapshots), Ok(event)) = (&mut self.snapshots, &event) {
            snapshots.push(event);
        }
        match event {
            Ok(EventKind::Token { sampled, text }) => {
                Some(Ok(Chunk { token: Some(sampled), ..self.pieces.push(&text).into() }))
            }
            Ok(EventKind::Finished { reason, text, passes, cached, .. }) => {
                let failed = match reason {
                    FinishReason::Constraint => Some(Error::GrammarTooComplex),
                    FinishReason::NotFinite => Some(Error::NotFinite),
                    _ => None,
                };
                if let Some(error) = failed {
                    self.done = true;
                    return Some(Err(error));
                }
                let piece = self.pieces.finish(&text);
                let (reason, prompt_tokens) = (self.pieces.end(reason), self.prompt_tokens);
                let finished = Finished { reason, prompt_tokens, cached_tokens: cached, passes };
                let last = Chunk { finished: Some(finished), ..piece.into() };
                let snapshot = self.take_snapshot();
                self.done = snapshot.is_none();
                if self.done {
                    return Some(Ok(last));
                }
                self.last = Some(last);
                snapshot
            }
            Ok(EventKind::Slots(_)) => self.take_snapshot(),
            Ok(_) => None,
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }

    fn take_snapshot(&mut self) -> Option<Result<Chunk, Error>> {
        let snapshot = Some(self.snapshots.as_mut()?.take()?);
        Some(Ok(Chunk { snapshot, ..Chunk::default() }))
    }
}
