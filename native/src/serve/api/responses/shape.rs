//! How answers look in OpenAI's responses API.

use crate::serve::api::generation::{Answer, Generation};
use crate::serve::api::stream::Events;
use crate::serve::api::tools::{Block, Blocks, Parser, Piece};
use crate::serve::api::unique;
use crate::serve::error::ApiError;
use crate::serve::state::now;
use serde_json::{Value, json};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Fields of a request that its answer repeats, and what they are where it does not say.
fn repeated() -> [(&'static str, Value); 9] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", true.into()),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", "auto".into()),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ]
}

/// The shape of the answer to one request.
pub struct Shape {
    /// Part of its ids.
    unique: String,
    /// The answer of which nothing is known yet.
    response: Value,
    parser: Parser,
    blocks: Blocks,
    reason: Option<FinishReason>,
    /// Events so far.
    events: u64,
}

impl Shape {
    /// For the answer to a body that may hold calls.
    pub fn new(model: String, body: &Value, calls: bool) -> Self {
        let unique = unique();
        let mut response = json!({
            "id": format!("resp-{unique}"),
            "object": "response",
            "created_at": now(),
            "status": "in_progress",
            "model": model,
            "output": [],
            "error": null,
            "incomplete_details": null,
            "previous_response_id": null,
            "store": false,
            "truncation": "disabled",
            "usage": null,
        });
        for (field, default) in repeated() {
            let said = body.get(field).filter(|value| !value.is_null());
            response[field] = said.cloned().unwrap_or(default);
        }
        let (parser, blocks) = (Parser::new(calls), Blocks::default());
        Self { unique, response, parser, blocks, reason: None, events: 0 }
    }

    /// The whole answer.
    pub fn whole(mut self, answer: &Answer, calls: bool, generation: &Generation) -> Value {
        self.blocks = Blocks::read(&answer.text, calls);
        self.reason = answer.reason;
        self.ended(generation)
    }

    fn ended(&self, generation: &Generation) -> Value {
        let mut response = self.response.clone();
        let last = self.blocks.0.len().saturating_sub(1);
        let status = |index| if index == last { self.status() } else { "completed" };
        let blocks = self.blocks.0.iter().enumerate();
        response["output"] = blocks.map(|(i, block)| self.item(i, block, status(i))).collect();
        response["status"] = self.status().into();
        if self.reason == Some(FinishReason::Length) {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["usage"] = json!({
            "input_tokens": generation.prompt_tokens,
            "input_tokens_details":
                {"cached_tokens": generation.cached, "cache_write_tokens": 0},
            "output_tokens": generation.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": generation.prompt_tokens + generation.tokens,
        });
        response["timings"] = json!(generation.timings());
        response
    }

    fn status(&self) -> &'static str {
        if self.reason == Some(FinishReason::Length) { "incomplete" } else { "completed" }
    }

    fn id(&self, index: usize) -> String {
        let prefix = match self.blocks.0[index] {
            Block::Text(_) => "msg",
            Block::Call(_) => "fc",
        };
        format!("{prefix}-{}-{index}", self.unique)
    }

    /// A block as an item of the output.
    fn item(&self, index: usize, block: &Block, status: &str) -> Value {
        let id = self.id(index);
        match block {
            Block::Text(text) => json!({
                "id": id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [part(text)],
            }),
            Block::Call(call) => json!({
                "id": id,
                "type": "function_call",
                "call_id": format!("call-{}-{index}", self.unique),
                "name": call.name,
                "arguments": call.arguments,
                "status": status,
            }),
        }
    }

    /// An event with its number.
    fn event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["type"] = format!("response.{kind}").into();
        fields["sequence_number"] = self.events.into();
        self.events += 1;
        fields
    }

    /// An event of a block.
    fn of_block(&mut self, kind: &str, index: usize, mut fields: Value) -> Value {
        fields["item_id"] = self.id(index).into();
        fields["output_index"] = index.into();
        self.event(kind, fields)
    }

    fn pieces(&mut self, pieces: Vec<Piece>) -> Vec<Value> {
        pieces.into_iter().flat_map(|piece| self.piece(&piece)).collect()
    }

    fn piece(&mut self, piece: &Piece) -> Vec<Value> {
        let mut events = Vec::new();
        let before = self.blocks.0.len();
        if self.blocks.push(piece) {
            events.extend(self.close(before, "completed"));
            events.extend(self.open(before, piece));
        }
        let index = self.blocks.0.len() - 1;
        events.extend(match piece {
            Piece::Text(text) => {
                let fields = json!({"content_index": 0, "delta": text, "logprobs": []});
                Some(self.of_block("output_text.delta", index, fields))
            }
            Piece::Arguments(text) => {
                let kind = "function_call_arguments.delta";
                Some(self.of_block(kind, index, json!({"delta": text})))
            }
            Piece::Call(_) => None,
        });
        events
    }

    /// A block begins.
    fn open(&mut self, index: usize, piece: &Piece) -> Vec<Value> {
        let mut item = match &self.blocks.0[index] {
            Block::Text(_) => self.item(index, &Block::Text(String::new()), "in_progress"),
            call => self.item(index, call, "in_progress"),
        };
        let text = matches!(piece, Piece::Text(_));
        if text {
            item["content"] = json!([]);
        }
        let added = json!({"output_index": index, "item": item});
        let mut events = vec![self.event("output_item.added", added)];
        if text {
            let fields = json!({"content_index": 0, "part": part("")});
            events.push(self.of_block("content_part.added", index, fields));
        }
        events
    }

    /// The last of so many blocks is complete, or as complete as it gets.
    fn close(&mut self, blocks: usize, status: &str) -> Vec<Value> {
        let Some(index) = blocks.checked_sub(1) else { return Vec::new() };
        let block = self.blocks.0[index].clone();
        let mut events = match &block {
            Block::Text(text) => {
                let done = json!({"content_index": 0, "text": text, "logprobs": []});
                let whole = json!({"content_index": 0, "part": part(text)});
                vec![
                    self.of_block("output_text.done", index, done),
                    self.of_block("content_part.done", index, whole),
                ]
            }
            Block::Call(call) => {
                let done = json!({"name": call.name, "arguments": call.arguments});
                vec![self.of_block("function_call_arguments.done", index, done)]
            }
        };
        let item = self.item(index, &block, status);
        events.push(self.event("output_item.done", json!({"output_index": index, "item": item})));
        events
    }
}

/// A text as a part of a message.
fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

impl Events for Shape {
    const NAMED: bool = true;

    fn begin(&mut self) -> Vec<Value> {
        let response = json!({"response": self.response});
        ["created", "in_progress"].map(|kind| self.event(kind, response.clone())).into()
    }

    fn token(&mut self, _: usize, _: &Sampled, text: &str) -> Vec<Value> {
        let pieces = self.parser.push(text);
        self.pieces(pieces)
    }

    fn finish(&mut self, _: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let mut pieces = self.parser.push(text);
        pieces.extend(self.parser.finish());
        let mut events = self.pieces(pieces);
        self.reason = Some(reason);
        events.extend(self.close(self.blocks.0.len(), self.status()));
        events
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        let response = self.ended(generation);
        vec![self.event(self.status(), json!({"response": response}))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        let mut response = self.response.clone();
        response["status"] = "failed".into();
        response["error"] = json!({"code": error.code, "message": error.message});
        vec![self.event("failed", json!({"response": response}))]
    }
}
