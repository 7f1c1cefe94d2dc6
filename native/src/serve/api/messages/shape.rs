//! How answers look in Anthropic's API.

use super::error;
use crate::serve::api::generation::{Answer, Generation};
use crate::serve::api::stream::Events;
use crate::serve::api::tools::{Block, Blocks, Parser, Piece};
use crate::serve::api::unique;
use crate::serve::error::ApiError;
use axum::response::sse::Event;
use serde_json::{Value, json};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// The shape of the answer to one request.
pub struct Shape {
    /// Part of its ids.
    unique: String,
    model: String,
    stops: Vec<String>,
    prompt_tokens: usize,
    parser: Parser,
    blocks: Blocks,
    reason: Option<FinishReason>,
}

impl Shape {
    /// For an answer that one of `stops` may end and that may hold calls.
    pub fn new(model: String, stops: Vec<String>, calls: bool, prompt_tokens: usize) -> Self {
        let (parser, blocks, reason) = (Parser::new(calls), Blocks::default(), None);
        Self { unique: unique(), model, stops, prompt_tokens, parser, blocks, reason }
    }

    /// The whole answer.
    pub fn whole(mut self, answer: &Answer, calls: bool, generation: &Generation) -> Value {
        self.blocks = Blocks::read(&answer.text, calls);
        self.reason = answer.reason;
        let blocks = self.blocks.0.iter().enumerate();
        let content: Vec<Value> = blocks.filter_map(|(i, block)| self.block(i, block)).collect();
        let (mut message, end) = (self.message(), self.end_of_message());
        message["content"] = content.into();
        for field in ["stop_reason", "stop_sequence"] {
            message[field] = end[field].clone();
        }
        message["usage"] = usage(generation);
        message["timings"] = json!(generation.timings());
        message
    }

    /// A message of which nothing is known yet.
    fn message(&self) -> Value {
        json!({
            "id": format!("msg-{}", self.unique),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": tokens(self.prompt_tokens, 0, 0),
        })
    }

    /// A whole block. A call that was cut off is none: its input would be another.
    fn block(&self, index: usize, block: &Block) -> Option<Value> {
        let mut value = self.begun(index, block);
        match block {
            Block::Text(text) => value["text"] = text.as_str().into(),
            Block::Call(call) => value["input"] = serde_json::from_str(&call.arguments).ok()?,
        }
        Some(value)
    }

    /// A block that begins.
    fn begun(&self, index: usize, block: &Block) -> Value {
        match block {
            Block::Text(_) => json!({"type": "text", "text": ""}),
            Block::Call(call) => {
                let id = format!("toolu-{}-{index}", self.unique);
                json!({"type": "tool_use", "id": id, "name": call.name, "input": {}})
            }
        }
    }

    /// Why it ended.
    fn end_of_message(&self) -> Value {
        let (reason, stop) = match self.reason {
            Some(FinishReason::Length) => ("max_tokens", None),
            Some(FinishReason::StopString(index)) => ("stop_sequence", self.stops.get(index)),
            _ if self.blocks.calls().next().is_some() => ("tool_use", None),
            _ => ("end_turn", None),
        };
        json!({"stop_reason": reason, "stop_sequence": stop})
    }

    fn events(&mut self, pieces: Vec<Piece>) -> Vec<Value> {
        pieces.into_iter().flat_map(|piece| self.piece(&piece)).collect()
    }

    fn piece(&mut self, piece: &Piece) -> Vec<Value> {
        let mut events = Vec::new();
        let before = self.blocks.0.len();
        if self.blocks.push(piece) {
            events.extend(stopped(before));
            let block = self.begun(before, &self.blocks.0[before]);
            events.push(
                json!({"type": "content_block_start", "index": before, "content_block": block}),
            );
        }
        let delta = match piece {
            Piece::Text(text) => json!({"type": "text_delta", "text": text}),
            Piece::Arguments(text) => json!({"type": "input_json_delta", "partial_json": text}),
            Piece::Call(_) => return events,
        };
        let index = self.blocks.0.len() - 1;
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events
    }
}

/// The last of so many blocks is complete.
fn stopped(blocks: usize) -> Option<Value> {
    let index = blocks.checked_sub(1)?;
    Some(json!({"type": "content_block_stop", "index": index}))
}

fn usage(generation: &Generation) -> Value {
    tokens(generation.prompt_tokens, generation.cached, generation.tokens)
}

/// Tokens that had been computed before are counted apart.
fn tokens(prompt: usize, cached: usize, output: usize) -> Value {
    json!({
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    })
}

impl Events for Shape {
    const NAMED: bool = true;

    fn idle() -> Event {
        Event::default().event("ping").data(json!({"type": "ping"}).to_string())
    }

    fn begin(&mut self) -> Vec<Value> {
        vec![json!({"type": "message_start", "message": self.message()})]
    }

    fn token(&mut self, _: usize, _: &Sampled, text: &str) -> Vec<Value> {
        let pieces = self.parser.push(text);
        self.events(pieces)
    }

    fn finish(&mut self, _: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let mut pieces = self.parser.push(text);
        pieces.extend(self.parser.finish());
        let mut events = self.events(pieces);
        events.extend(stopped(self.blocks.0.len()));
        self.reason = Some(reason);
        events
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        let (delta, usage) = (self.end_of_message(), usage(generation));
        vec![
            json!({"type": "message_delta", "delta": delta, "usage": usage}),
            json!({"type": "message_stop"}),
        ]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error::body(error)]
    }
}
