//! Formats outputs as Anthropic's API does.

use super::error;
use crate::api::answer::generation::{Generation, RequestOutput};
use crate::api::answer::stream::{Framing, StreamFormatter};
use crate::error::ApiError;
use crate::ids;
use axum::response::sse::Event;
use serde_json::{Value, json};
use wrinklefree::chat::{OutputBlock, OutputBlocks, OutputDelta, OutputParser};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Formats the output of one request.
pub struct MessageFormatter {
    /// Part of the response's ids.
    unique: String,
    model: String,
    stops: Vec<String>,
    prompt_tokens: usize,
    parser: OutputParser,
    blocks: OutputBlocks,
    reason: Option<FinishReason>,
}

impl MessageFormatter {
    /// Creates the formatter of an output that `parser` parses; one of `stops` may end it.
    pub fn new(
        model: String,
        stops: Vec<String>,
        parser: OutputParser,
        prompt_tokens: usize,
    ) -> Self {
        let (blocks, reason) = (OutputBlocks::default(), None);
        Self { unique: ids::unique(), model, stops, prompt_tokens, parser, blocks, reason }
    }

    /// Returns a response with the complete output.
    pub fn whole(mut self, output: &RequestOutput, generation: &Generation) -> Value {
        self.blocks = self.parser.parse(&output.text);
        self.reason = output.reason.map(|reason| self.parser.end(reason));
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

    /// Returns an empty message.
    fn message(&self) -> Value {
        json!({
            "id": format!("msg_{}", self.unique),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage_of(self.prompt_tokens, 0, 0),
        })
    }

    /// Returns a complete block, or `None` for a call that was cut off: its input is not valid JSON.
    fn block(&self, index: usize, block: &OutputBlock) -> Option<Value> {
        let mut value = self.empty_block(index, block);
        match block {
            OutputBlock::Reasoning(text) => {
                value["thinking"] = text.as_str().into();
                value["signature"] = self.signature(index).into();
            }
            OutputBlock::Text(text) => value["text"] = text.as_str().into(),
            OutputBlock::Call(call) => {
                value["input"] = serde_json::from_str(&call.arguments).ok()?
            }
        }
        Some(value)
    }

    /// Returns the signature of a block of thinking. Clients send it back and want it not to be empty;
    /// this server does not check it.
    fn signature(&self, index: usize) -> String {
        format!("{}_{index}", self.unique)
    }

    /// Returns a block without its content.
    fn empty_block(&self, index: usize, block: &OutputBlock) -> Value {
        match block {
            OutputBlock::Reasoning(_) => {
                json!({"type": "thinking", "thinking": "", "signature": ""})
            }
            OutputBlock::Text(_) => json!({"type": "text", "text": ""}),
            OutputBlock::Call(call) => {
                let id = format!("toolu_{}_{index}", self.unique);
                json!({"type": "tool_use", "id": id, "name": call.name, "input": {}})
            }
        }
    }

    /// Returns the reason why the message ended.
    fn end_of_message(&self) -> Value {
        let (reason, stop) = match self.reason {
            Some(FinishReason::Length) => ("max_tokens", None),
            Some(FinishReason::StopString(index)) => ("stop_sequence", self.stops.get(index)),
            _ if self.blocks.calls().next().is_some() => ("tool_use", None),
            _ => ("end_turn", None),
        };
        json!({"stop_reason": reason, "stop_sequence": stop})
    }

    fn events(&mut self, deltas: Vec<OutputDelta>) -> Vec<Value> {
        deltas.into_iter().flat_map(|delta| self.delta_events(&delta)).collect()
    }

    fn delta_events(&mut self, delta: &OutputDelta) -> Vec<Value> {
        let mut events = Vec::new();
        let before = self.blocks.0.len();
        if self.blocks.push(delta) {
            events.extend(self.block_stop(before));
            let block = self.empty_block(before, &self.blocks.0[before]);
            events.push(
                json!({"type": "content_block_start", "index": before, "content_block": block}),
            );
        }
        let delta = match delta {
            OutputDelta::Reasoning(text) => json!({"type": "thinking_delta", "thinking": text}),
            OutputDelta::Text(text) => json!({"type": "text_delta", "text": text}),
            OutputDelta::Arguments(text) => {
                json!({"type": "input_json_delta", "partial_json": text})
            }
            OutputDelta::CallStart(_) => return events,
        };
        let index = self.blocks.0.len() - 1;
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events
    }

    /// Returns the events at the end of the last of `blocks` blocks.
    fn block_stop(&self, blocks: usize) -> Vec<Value> {
        let Some(index) = blocks.checked_sub(1) else { return Vec::new() };
        let mut events = Vec::new();
        if matches!(self.blocks.0[index], OutputBlock::Reasoning(_)) {
            let delta = json!({"type": "signature_delta", "signature": self.signature(index)});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    }
}

fn usage(generation: &Generation) -> Value {
    usage_of(generation.prompt_tokens, generation.cached, generation.tokens)
}

/// Returns the token usage. Anthropic's API counts cached prompt tokens separately.
fn usage_of(prompt: usize, cached: usize, output: usize) -> Value {
    json!({
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    })
}

impl StreamFormatter for MessageFormatter {
    const FRAMING: Framing = Framing::NamedEvents;

    fn keep_alive() -> Event {
        Event::default().event("ping").data(json!({"type": "ping"}).to_string())
    }

    fn begin(&mut self) -> Vec<Value> {
        vec![json!({"type": "message_start", "message": self.message()})]
    }

    fn token(&mut self, _: usize, _: &Sampled, text: &str) -> Vec<Value> {
        let deltas = self.parser.push(text);
        self.events(deltas)
    }

    fn finish(&mut self, _: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let mut deltas = self.parser.push(text);
        deltas.extend(self.parser.finish());
        let mut events = self.events(deltas);
        events.extend(self.block_stop(self.blocks.0.len()));
        self.reason = Some(self.parser.end(reason));
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
