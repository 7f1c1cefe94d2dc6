//! Answers as server-sent events.

use super::generation::Generation;
use crate::serve::worker::Update;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Without a token for so long, a comment keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How an API shapes its chunks.
pub trait Chunks: Send + 'static {
    /// Before the first token.
    fn first(&self, index: usize) -> Option<Value>;
    /// A token; nothing when it shows nothing.
    fn token(&self, index: usize, sampled: &Sampled, text: &str) -> Option<Value>;
    /// The end of an answer, with text that was held back.
    fn finish(&self, index: usize, reason: FinishReason, text: &str) -> Value;
    /// What stands around the chunks.
    fn envelope(&self) -> &Envelope;
}

/// What stands around choices in both APIs.
pub struct Envelope {
    /// Names the answer.
    pub id: String,
    /// `object` of a whole answer.
    pub whole: &'static str,
    /// `object` of a chunk.
    pub chunk: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// A stream ends with the usage.
    pub include_usage: bool,
}

impl Envelope {
    fn around(&self, object: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    /// A whole answer.
    pub fn whole(&self, choices: &[Value], generation: &Generation) -> Value {
        let mut body = self.around(self.whole, choices);
        body["usage"] = json!(generation.usage());
        body["timings"] = json!(generation.timings());
        body
    }

    /// A chunk of one choice.
    pub fn chunk(&self, choice: Value) -> Value {
        let mut chunk = self.around(self.chunk, &[choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// The chunk after the last answer, if it was asked for.
    fn last(&self, generation: &Generation) -> Option<Value> {
        self.include_usage.then(|| {
            let mut chunk = self.around(self.chunk, &[]);
            chunk["usage"] = json!(generation.usage());
            chunk["timings"] = json!(generation.timings());
            chunk
        })
    }
}

/// The response.
pub fn respond(generation: Generation, chunks: impl Chunks) -> Response {
    let first = (0..generation.count).filter_map(|index| chunks.first(index)).collect();
    let state = State { generation, chunks, pending: first, ended: false };
    let events = stream::unfold(state, |mut state| async {
        let text = state.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(text)), state))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct State<C> {
    generation: Generation,
    chunks: C,
    /// What comes next.
    pending: VecDeque<Value>,
    /// Only `[DONE]` is left, or nothing.
    ended: bool,
}

impl<C: Chunks> State<C> {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                return Some(match chunk {
                    // The one event that is no JSON.
                    Value::Null => "[DONE]".into(),
                    chunk => chunk.to_string(),
                });
            }
            if self.ended {
                return None;
            }
            match self.generation.next().await {
                Ok(Some((index, Update::Token { sampled, text }))) => {
                    self.pending.extend(self.chunks.token(index, &sampled, &text));
                }
                Ok(Some((index, Update::Finished { reason, text, .. }))) => {
                    self.pending.push_back(self.chunks.finish(index, reason, &text));
                }
                Ok(None) => {
                    self.pending.extend(self.chunks.envelope().last(&self.generation));
                    self.end();
                }
                Err(error) => {
                    self.pending.push_back(error.body());
                    self.end();
                }
            }
        }
    }

    fn end(&mut self) {
        self.pending.push_back(Value::Null);
        self.ended = true;
    }
}
