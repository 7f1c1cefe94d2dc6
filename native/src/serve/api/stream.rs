//! Answers as server-sent events.

use super::generation::Generation;
use crate::serve::error::ApiError;
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

/// Without a token for so long, something else keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How an API shapes what is streamed.
pub trait Events: Send + 'static {
    /// Events are named by their `type`; otherwise they have no names, and `[DONE]` is the last.
    const NAMED: bool;

    /// What keeps the connection open while nothing comes.
    fn idle() -> Event {
        Event::default().comment("")
    }
    /// Before the first token.
    fn begin(&mut self) -> Vec<Value>;
    /// Tokens of the prompt with their log-probabilities, before the first token.
    fn scored(&mut self, _index: usize, _tokens: &[Sampled]) -> Vec<Value> {
        Vec::new()
    }
    /// A token.
    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value>;
    /// The end of an answer, with text that was held back.
    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value>;
    /// After the last answer.
    fn end(&mut self, generation: &Generation) -> Vec<Value>;
    /// The stream ends with an error.
    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error.body()]
    }
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
    pub fn last(&self, generation: &Generation) -> Option<Value> {
        self.include_usage.then(|| {
            let mut chunk = self.around(self.chunk, &[]);
            chunk["usage"] = json!(generation.usage());
            chunk["timings"] = json!(generation.timings());
            chunk
        })
    }
}

/// The response.
pub fn respond<E: Events>(generation: Generation, mut shape: E) -> Response {
    let pending = shape.begin().into_iter().map(event::<E>).collect();
    let state = State { generation, shape, pending, ended: false };
    let events = stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    let idle = KeepAlive::new().interval(KEEP_ALIVE).event(E::idle());
    Sse::new(events).keep_alive(idle).into_response()
}

fn event<E: Events>(value: Value) -> Event {
    let event = Event::default().data(value.to_string());
    match value["type"].as_str() {
        Some(name) if E::NAMED => event.event(name),
        _ => event,
    }
}

struct State<E> {
    generation: Generation,
    shape: E,
    /// What comes next.
    pending: VecDeque<Event>,
    /// Nothing comes after that.
    ended: bool,
}

impl<E: Events> State<E> {
    async fn next(&mut self) -> Option<Event> {
        while self.pending.is_empty() && !self.ended {
            let values = match self.generation.next().await {
                Ok(Some((index, Update::Scored(tokens)))) => self.shape.scored(index, &tokens),
                Ok(Some((_, Update::Embedded(_)))) => unreachable!("vectors are not streamed"),
                Ok(Some((index, Update::Token { sampled, text }))) => {
                    self.shape.token(index, &sampled, &text)
                }
                Ok(Some((index, Update::Finished { reason, text, .. }))) => {
                    self.shape.finish(index, reason, &text)
                }
                Ok(None) => {
                    self.ended = true;
                    self.shape.end(&self.generation)
                }
                Err(error) => {
                    self.ended = true;
                    self.shape.failed(&error)
                }
            };
            self.pending.extend(values.into_iter().map(event::<E>));
            if self.ended && !E::NAMED {
                self.pending.push_back(Event::default().data("[DONE]"));
            }
        }
        self.pending.pop_front()
    }
}
