//! Streams outputs as server-sent events.

use super::generation::Generation;
use super::validation::{attach, attach_to_end};
use crate::serve::error::ApiError;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{EventKind, FinishReason};

/// Interval after which an idle stream sends a keep-alive. It also finds clients that have gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Formats a stream as an API defines it.
pub trait StreamFormatter: Send + 'static {
    /// True if events are named by their `type`. Otherwise they have no names and `[DONE]` is last.
    const NAMED_EVENTS: bool;

    /// Returns the keep-alive event.
    fn keep_alive() -> Event {
        Event::default().comment("")
    }
    /// Returns the events before the first token.
    fn begin(&mut self) -> Vec<Value>;
    /// Returns the events of prompt tokens with their log-probabilities. They precede the first
    /// generated token.
    fn scored(&mut self, _index: usize, _tokens: &[Sampled]) -> Vec<Value> {
        Vec::new()
    }
    /// Returns the events of a generated token.
    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value>;
    /// Returns the events at the end of an output; `text` was held back until now.
    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value>;
    /// Returns the events after the last output.
    fn end(&mut self, generation: &Generation) -> Vec<Value>;
    /// Returns the events of an error that ends the stream.
    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error.body()]
    }
}

/// The fields around the choices of OpenAI's chat and text completions.
pub struct Envelope {
    /// Id of the response.
    pub id: String,
    /// The `object` field of a complete response.
    pub whole: &'static str,
    /// The `object` field of a chunk.
    pub chunk: &'static str,
    /// Unix time in seconds.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// True if a stream ends with the token usage.
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

    /// Returns a complete response.
    pub fn whole(&self, choices: &[Value], generation: &Generation) -> Value {
        let mut body = self.around(self.whole, choices);
        body["usage"] = json!(generation.usage());
        body["timings"] = json!(generation.timings());
        body
    }

    /// Returns a chunk with one choice.
    pub fn chunk(&self, choice: Value) -> Value {
        let mut chunk = self.around(self.chunk, &[choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns the last chunk, with the token usage, if it was requested.
    pub fn last(&self, generation: &Generation) -> Option<Value> {
        self.include_usage.then(|| {
            let mut chunk = self.around(self.chunk, &[]);
            chunk["usage"] = json!(generation.usage());
            chunk["timings"] = json!(generation.timings());
            chunk
        })
    }
}

/// Returns the response that streams `generation`.
pub fn respond<F: StreamFormatter>(generation: Generation, mut formatter: F) -> Response {
    let pending = formatter.begin().into_iter().map(event::<F>).collect();
    let state = StreamState { generation, formatter, pending, ended: false };
    let events = stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).event(F::keep_alive());
    Sse::new(events).keep_alive(keep_alive).into_response()
}

fn event<F: StreamFormatter>(value: Value) -> Event {
    let event = Event::default().data(value.to_string());
    match value["type"].as_str() {
        Some(name) if F::NAMED_EVENTS => event.event(name),
        _ => event,
    }
}

struct StreamState<F> {
    generation: Generation,
    formatter: F,
    /// Events to send next.
    pending: VecDeque<Event>,
    /// True if no more events follow the pending ones.
    ended: bool,
}

impl<F: StreamFormatter> StreamState<F> {
    async fn next(&mut self) -> Option<Event> {
        while self.pending.is_empty() && !self.ended {
            let values = match self.generation.next().await {
                Ok(Some((index, EventKind::Scored(tokens)))) => {
                    self.formatter.scored(index, &tokens)
                }
                Ok(Some((
                    _,
                    EventKind::Embedded(_) | EventKind::Logits(_) | EventKind::Slots(_),
                ))) => unreachable!("only texts are streamed"),
                Ok(Some((index, EventKind::Token { sampled, text }))) => {
                    self.formatter.token(index, &sampled, &text)
                }
                Ok(Some((index, EventKind::Finished { reason, text, .. }))) => {
                    let mut events = self.formatter.finish(index, reason, &text);
                    if let (Some(last), false) = (events.last_mut(), F::NAMED_EVENTS) {
                        attach(last, &self.generation.reports[index..=index]);
                    }
                    events
                }
                Ok(None) => {
                    self.ended = true;
                    let mut events = self.formatter.end(&self.generation);
                    if F::NAMED_EVENTS {
                        attach_to_end(&mut events, self.generation.reports[0].as_ref());
                    }
                    events
                }
                Err(error) => {
                    self.ended = true;
                    self.formatter.failed(&error)
                }
            };
            self.pending.extend(values.into_iter().map(event::<F>));
            if self.ended && !F::NAMED_EVENTS {
                self.pending.push_back(Event::default().data("[DONE]"));
            }
        }
        self.pending.pop_front()
    }
}
