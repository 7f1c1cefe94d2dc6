//! Streams outputs as server-sent events or as lines of JSON.

use super::aside::aside;
use super::generation::Generation;
use super::validation::{attach, attach_to_end};
use crate::api::body::StreamUsage;
use crate::error::ApiError;
use axum::body::Body;
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::timeout;
use wf_run_cli::provenance;
use wrinklefree::chat::Snapshot;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{EventKind, FinishReason};

/// Interval after which an idle stream sends a keep-alive. It also finds clients that have gone.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Characters that JSON allows in texts and that end a line for JavaScript or Python.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Separation of the values of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events that are named by their `type`.
    NamedEvents,
    /// Server-sent events without names; `[DONE]` is last.
    EventsUntilDone,
    /// Server-sent events without names; the last value says that it is last.
    Events,
    /// One value per line (NDJSON).
    JsonLines,
}

/// Formats a stream as an API defines it.
pub trait StreamFormatter: Send + 'static {
    /// Separation of the values.
    const FRAMING: Framing;

    /// Returns the keep-alive event.
    fn keep_alive() -> Event {
        Event::default().comment("")
    }
    /// Returns what makes the value that a stream of lines sends instead of a comment while it is idle.
    fn idle(&self) -> Box<dyn Fn() -> Value + Send + Sync> {
        Box::new(|| Value::Null)
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
    /// Returns the events of the whole output so far, which replaces the one before. `end` is the reason of
    /// the output's end after the last of them.
    fn snapshot(&mut self, _: usize, _: Snapshot, _end: Option<FinishReason>) -> Vec<Value> {
        unreachable!("only OpenAI's formats have snapshots")
    }
    /// Returns the events after the last output.
    fn end(&mut self, generation: &Generation) -> Vec<Value>;
    /// Returns true if each value has the token usage so far.
    fn continuous_usage(&self) -> bool {
        false
    }
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
    /// Chunks of a stream that have the token usage.
    pub usage: StreamUsage,
}

impl Envelope {
    fn around(&self, object: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(&self.model),
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
        if self.usage.last {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns the last chunk, with the token usage, if it was requested.
    pub fn last(&self, generation: &Generation) -> Option<Value> {
        self.usage.last.then(|| {
            let mut chunk = self.around(self.chunk, &[]);
            chunk["usage"] = json!(generation.usage());
            chunk["timings"] = json!(generation.timings());
            chunk
        })
    }
}

/// Returns a name of what computes an answer: this version of the program with this model.
fn fingerprint(model: &str) -> String {
    let mut hash = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), provenance::commit(), model).hash(&mut hash);
    format!("fp_{:010x}", hash.finish() >> 24)
}

/// Returns the response that streams `generation`.
pub fn respond<F: StreamFormatter>(generation: Generation, mut formatter: F) -> Response {
    let (begin, idle) = (formatter.begin(), formatter.idle());
    let mut state = StreamState { generation, formatter, pending: VecDeque::new(), ended: false };
    state.push(begin);
    let values = stream::unfold(state, |mut state| async {
        let value = state.next().await?;
        Some((value, state))
    });
    match F::FRAMING {
        Framing::JsonLines => {
            let lines = with_signs(values, idle, KEEP_ALIVE);
            let lines = lines.map(|value| Ok::<_, Infallible>(one_line(&value) + "\n"));
            let json_lines = [(header::CONTENT_TYPE, "application/x-ndjson")];
            (json_lines, Body::from_stream(lines)).into_response()
        }
        Framing::EventsUntilDone => {
            let done = stream::once(async { Event::default().data("[DONE]") });
            sse::<F>(values.map(event::<F>).chain(done))
        }
        Framing::NamedEvents | Framing::Events => sse::<F>(values.map(event::<F>)),
    }
}

/// Adds values that `idle` makes where no other value has come for this time.
fn with_signs(
    values: impl Stream<Item = Value> + Send + 'static,
    idle: Box<dyn Fn() -> Value + Send + Sync>,
    interval: Duration,
) -> impl Stream<Item = Value> + Send {
    stream::unfold((Box::pin(values), idle), move |(mut values, idle)| async move {
        let value = timeout(interval, values.next()).await.unwrap_or_else(|_| Some(idle()))?;
        Some((value, (values, idle)))
    })
}

/// Returns a value as JSON without any character that some program takes for the end of a line.
fn one_line(value: &Value) -> String {
    let json = value.to_string();
    if !json.contains(LINE_ENDS) {
        return json;
    }
    let escaped = |c: char| {
        if LINE_ENDS.contains(&c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() }
    };
    json.chars().map(escaped).collect()
}

/// Returns the response with server-sent events.
fn sse<F: StreamFormatter>(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).event(F::keep_alive());
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response()
}

fn event<F: StreamFormatter>(value: Value) -> Event {
    let event = Event::default().data(one_line(&value));
    match value["type"].as_str() {
        Some(name) if F::FRAMING == Framing::NamedEvents => event.event(name),
        _ => event,
    }
}

struct StreamState<F> {
    generation: Generation,
    formatter: F,
    /// Values to send next.
    pending: VecDeque<Value>,
    /// True if no more values follow the pending ones.
    ended: bool,
}

impl<F: StreamFormatter> StreamState<F> {
    async fn next(&mut self) -> Option<Value> {
        while self.pending.is_empty() && !self.ended {
            let values = match self.generation.next().await {
                Ok(Some((index, kind))) if !self.generation.snapshots.is_empty() => {
                    aside(|| self.snapshots(index, &kind))
                }
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
                    let mut values = aside(|| self.formatter.finish(index, reason, &text));
                    if let (Some(last), Framing::EventsUntilDone) = (values.last_mut(), F::FRAMING)
                    {
                        attach(last, &self.generation.reports[index..=index]);
                    }
                    values
                }
                Ok(None) => self.end(),
                Err(error) => {
                    self.ended = true;
                    self.formatter.failed(&error)
                }
            };
            self.push(values);
        }
        self.pending.pop_front()
    }

    /// Returns the snapshots that are due after an event. While more events are there, only the end of an
    /// output has one: a client that reads slowly gets the newest alone.
    fn snapshots(&mut self, index: usize, kind: &EventKind) -> Vec<Value> {
        let Self { generation, formatter, .. } = self;
        generation.snapshots[index].push(kind);
        if let &EventKind::Finished { reason, .. } = kind {
            let last = generation.snapshots[index].take().unwrap_or_default();
            let mut values = formatter.snapshot(index, last, Some(reason));
            if let Some(last) = values.last_mut() {
                attach(last, &generation.reports[index..=index]);
            }
            return values;
        }
        if generation.has_next() {
            return Vec::new();
        }
        let due = generation.snapshots.iter_mut().enumerate();
        let due = due.filter_map(|(index, all)| Some((index, all.take()?)));
        due.flat_map(|(index, snapshot)| formatter.snapshot(index, snapshot, None)).collect()
    }

    /// Sends values next, each with the token usage so far if the formatter says so.
    fn push(&mut self, mut values: Vec<Value>) {
        if self.formatter.continuous_usage() && !self.ended {
            let usage = json!(self.generation.usage());
            values.iter_mut().for_each(|value| value["usage"] = usage.clone());
        }
        self.pending.extend(values);
    }

    /// Returns the values after the last output, with the report about it where they end it.
    fn end(&mut self) -> Vec<Value> {
        self.ended = true;
        let mut values = aside(|| self.formatter.end(&self.generation));
        let reports = &self.generation.reports;
        match F::FRAMING {
            Framing::EventsUntilDone => {}
            Framing::NamedEvents => attach_to_end(&mut values, reports[0].as_ref()),
            Framing::Events | Framing::JsonLines => {
                if let Some(last) = values.last_mut() {
                    attach(last, reports);
                }
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_line_for_every_program() {
        let text = "a\u{85}b\u{2028}\u{2029}c\u{1F600}\n";
        let line = one_line(&json!({"x": text}));
        assert_eq!(line, "{\"x\":\"a\\u0085b\\u2028\\u2029c\u{1F600}\\n\"}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON")["x"], text);
    }

    #[tokio::test]
    async fn an_idle_stream_sends_signs() {
        let values = stream::once(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            json!(1)
        });
        let interval = Duration::from_millis(50);
        let signs = with_signs(values, Box::new(|| json!(0)), interval).collect::<Vec<_>>().await;
        assert!(signs.len() > 2, "{signs:?}");
        assert_eq!((&signs[0], signs.last()), (&json!(0), Some(&json!(1))));
    }
}
