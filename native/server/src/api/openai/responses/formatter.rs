//! Formats outputs as OpenAI's Responses API does.

use super::scores::Scores;
use crate::access::admission::BodyPermit;
use crate::access::keys::Tenant;
use crate::api::answer::generation::{Generation, RequestOutput};
use crate::api::answer::stream::{Framing, StreamFormatter};
use crate::api::body::Body;
use crate::error::ApiError;
use crate::ids;
use crate::response_store::{ResponseStore, StoredResponse};
use crate::time::unix_now;
use serde_json::{Value, json};
use std::sync::Arc;
use wrinklefree::chat::{
    AnswerParser, OutputBlock, OutputBlocks, OutputDelta, OutputParser, TemplateMessages,
};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Request fields that the response repeats, with their defaults.
fn repeated_fields() -> [(&'static str, Value); 11] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", true.into()),
        ("previous_response_id", Value::Null),
        ("reasoning", Value::Null),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", "auto".into()),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ]
}

/// The store of a complete response, and the conversation that is stored with it.
pub struct Storage {
    /// The store.
    pub store: ResponseStore,
    /// Owner of the response.
    pub tenant: Tenant,
    /// Messages of the conversation, as JSON arrays. Those of the response before are shared with it.
    pub messages: Vec<Arc<str>>,
}

/// Formats the output of one request.
pub struct ResponsesFormatter {
    /// Part of the response's ids.
    unique: String,
    /// The response without output, as JSON text: a tree of its values would take much more memory
    /// while the request waits.
    response: String,
    /// The memory of the fields that the response repeats.
    _permit: Arc<BodyPermit>,
    /// Keeps the complete response.
    storage: Option<Storage>,
    scores: Scores,
    parser: OutputParser,
    blocks: OutputBlocks,
    reason: Option<FinishReason>,
    /// Number of events so far.
    event_count: u64,
}

impl ResponsesFormatter {
    /// Creates the formatter for a request's body and an output that `parser` parses.
    pub fn new(
        scores: Scores,
        body: &Body,
        parser: OutputParser,
        storage: Option<Storage>,
    ) -> Self {
        let unique = ids::unique();
        let mut response = json!({
            "id": format!("resp_{unique}"),
            "object": "response",
            "created_at": unix_now(),
            "status": "in_progress",
            "model": scores.model.name,
            "output": [],
            "error": null,
            "incomplete_details": null,
            "store": storage.is_some(),
            "truncation": "disabled",
            "usage": null,
        });
        let repeated = repeated_fields();
        let mut given = body.fields(&repeated.each_ref().map(|(field, _)| *field));
        for (field, default) in repeated {
            let value = given.remove(field).filter(|value| !value.is_null());
            response[field] = value.unwrap_or(default);
        }
        let blocks = OutputBlocks::default();
        let (response, permit) = (response.to_string(), body.permit.clone());
        Self {
            unique,
            response,
            _permit: permit,
            storage,
            scores,
            parser,
            blocks,
            reason: None,
            event_count: 0,
        }
    }

    /// Returns the response without output.
    fn response(&self) -> Value {
        serde_json::from_str(&self.response).expect("it was written as JSON")
    }

    /// Returns a response with the complete output.
    pub fn whole(mut self, output: &RequestOutput, generation: &Generation) -> Value {
        let (mut rest, mut done) = (output.text.as_str(), 0);
        if self.scores.requested() {
            for (sampled, &end) in output.tokens.iter().zip(&output.ends) {
                let (text, after) = rest.split_at(end - done);
                self.token(0, sampled, text);
                (rest, done) = (after, end);
            }
        }
        for delta in self.parser.push(rest).into_iter().chain(self.parser.finish()) {
            self.blocks.push(&delta);
        }
        self.reason = output.reason.map(|reason| self.parser.end(reason));
        self.complete(generation)
    }

    fn complete(&self, generation: &Generation) -> Value {
        let mut response = self.response();
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
            "output_tokens_details": {"reasoning_tokens": generation.reasoning_tokens},
            "total_tokens": generation.prompt_tokens + generation.tokens,
        });
        response["timings"] = json!(generation.timings());
        self.store(&response);
        self.add_scores(&mut response);
        response
    }

    /// Adds the log-probabilities of all texts. They are many times as long as the texts, so neither events
    /// of items nor stored responses have them.
    fn add_scores(&self, response: &mut Value) {
        if !self.scores.requested() {
            return;
        }
        for (index, block) in self.blocks.0.iter().enumerate() {
            if matches!(block, OutputBlock::Text(_)) {
                response["output"][index]["content"][0]["logprobs"] = self.scores.of_block(index);
            }
        }
    }

    /// Stores the complete response with the conversation that it ends.
    fn store(&self, response: &Value) {
        let Some(Storage { store, tenant, messages }) = &self.storage else { return };
        let mut output = TemplateMessages::default();
        for (index, block) in self.blocks.0.iter().enumerate() {
            match block {
                OutputBlock::Reasoning(text) => output.push_reasoning(text),
                OutputBlock::Text(text) => output.push_text("assistant", text),
                OutputBlock::Call(call) => {
                    // A call that was cut off is no JSON.
                    let cut = |_| Value::from(call.arguments.clone());
                    let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(cut);
                    output.push_call(self.call_id(index), &call.name, arguments);
                }
            }
        }
        let output: Arc<str> = Value::from(output.finish()).to_string().into();
        let messages = messages.iter().cloned().chain([output]).collect();
        let stored = StoredResponse { response: response.to_string().into(), messages };
        store.insert(tenant, response["id"].as_str().unwrap_or_default(), stored);
    }

    fn call_id(&self, index: usize) -> String {
        format!("call_{}_{index}", self.unique)
    }

    fn status(&self) -> &'static str {
        if self.reason == Some(FinishReason::Length) { "incomplete" } else { "completed" }
    }

    fn id(&self, index: usize) -> String {
        let prefix = match self.blocks.0[index] {
            OutputBlock::Reasoning(_) => "rs",
            OutputBlock::Text(_) => "msg",
            OutputBlock::Call(_) => "fc",
        };
        format!("{prefix}_{}_{index}", self.unique)
    }

    /// Returns a block as an item of the output.
    fn item(&self, index: usize, block: &OutputBlock, status: &str) -> Value {
        let id = self.id(index);
        match block {
            OutputBlock::Reasoning(text) => json!({
                "id": id,
                "type": "reasoning",
                "summary": [],
                "content": [reasoning_part(text)],
                "status": status,
            }),
            OutputBlock::Text(text) => json!({
                "id": id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [part(text)],
            }),
            OutputBlock::Call(call) => json!({
                "id": id,
                "type": "function_call",
                "call_id": self.call_id(index),
                "name": call.name,
                "arguments": call.arguments,
                "status": status,
            }),
        }
    }

    /// Returns an event with its sequence number.
    fn event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["type"] = format!("response.{kind}").into();
        fields["sequence_number"] = self.event_count.into();
        self.event_count += 1;
        fields
    }

    /// Returns an event of a block.
    fn block_event(&mut self, kind: &str, index: usize, mut fields: Value) -> Value {
        fields["item_id"] = self.id(index).into();
        fields["output_index"] = index.into();
        self.event(kind, fields)
    }

    fn events(&mut self, deltas: Vec<OutputDelta>) -> Vec<Value> {
        deltas.into_iter().flat_map(|delta| self.delta_events(&delta)).collect()
    }

    fn delta_events(&mut self, delta: &OutputDelta) -> Vec<Value> {
        let mut events = Vec::new();
        let before = self.blocks.0.len();
        if self.blocks.push(delta) {
            events.extend(self.close_block(before, "completed"));
            events.extend(self.open_block(before, delta));
        }
        let index = self.blocks.0.len() - 1;
        if delta.text().is_none() {
            self.scores.skip();
        }
        events.extend(match delta {
            OutputDelta::Reasoning(text) => {
                let fields = json!({"content_index": 0, "delta": text});
                Some(self.block_event("reasoning_text.delta", index, fields))
            }
            OutputDelta::Text(text) => {
                let logprobs = self.scores.give(index);
                let fields = json!({"content_index": 0, "delta": text, "logprobs": logprobs});
                Some(self.block_event("output_text.delta", index, fields))
            }
            OutputDelta::Arguments(text) => {
                let kind = "function_call_arguments.delta";
                Some(self.block_event(kind, index, json!({"delta": text})))
            }
            OutputDelta::CallStart(_) => None,
        });
        events
    }

    /// Returns the events at the start of a block.
    fn open_block(&mut self, index: usize, delta: &OutputDelta) -> Vec<Value> {
        let mut item = match &self.blocks.0[index] {
            OutputBlock::Text(_) => {
                self.item(index, &OutputBlock::Text(String::new()), "in_progress")
            }
            OutputBlock::Reasoning(_) => {
                self.item(index, &OutputBlock::Reasoning(String::new()), "in_progress")
            }
            call => self.item(index, call, "in_progress"),
        };
        let text = matches!(delta, OutputDelta::Text(_));
        if !matches!(delta, OutputDelta::CallStart(_)) {
            item["content"] = json!([]);
        }
        let added = json!({"output_index": index, "item": item});
        let mut events = vec![self.event("output_item.added", added)];
        if text {
            let fields = json!({"content_index": 0, "part": part("")});
            events.push(self.block_event("content_part.added", index, fields));
        }
        events
    }

    /// Returns the events at the end of the last of `blocks` blocks, which may have been cut off.
    fn close_block(&mut self, blocks: usize, status: &str) -> Vec<Value> {
        let Some(index) = blocks.checked_sub(1) else { return Vec::new() };
        let block = self.blocks.0[index].clone();
        let mut events = match &block {
            OutputBlock::Reasoning(text) => {
                let done = json!({"content_index": 0, "text": text});
                vec![self.block_event("reasoning_text.done", index, done)]
            }
            OutputBlock::Text(text) => {
                let logprobs = self.scores.of_block(index);
                let whole = json!({"content_index": 0, "part": part(text)});
                let done = json!({"content_index": 0, "text": text, "logprobs": logprobs});
                vec![
                    self.block_event("output_text.done", index, done),
                    self.block_event("content_part.done", index, whole),
                ]
            }
            // Clients run a call that is done.
            OutputBlock::Call(_) if status == "incomplete" && self.parser.is_in_call() => {
                Vec::new()
            }
            OutputBlock::Call(call) => {
                let done = json!({"name": call.name, "arguments": call.arguments});
                vec![self.block_event("function_call_arguments.done", index, done)]
            }
        };
        let item = self.item(index, &block, status);
        events.push(self.event("output_item.done", json!({"output_index": index, "item": item})));
        events
    }
}

/// Returns a text as a part of the reasoning.
fn reasoning_part(text: &str) -> Value {
    json!({"type": "reasoning_text", "text": text})
}

/// Returns a text as a part of a message, without log-probabilities.
fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

impl StreamFormatter for ResponsesFormatter {
    const FRAMING: Framing = Framing::NamedEvents;

    fn begin(&mut self) -> Vec<Value> {
        let response = json!({"response": self.response()});
        ["created", "in_progress"].map(|kind| self.event(kind, response.clone())).into()
    }

    fn token(&mut self, _: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        self.scores.push(sampled);
        let deltas = self.parser.push(text);
        if deltas.is_empty() && self.parser.held_len() == 0 && !text.is_empty() {
            self.scores.skip();
        }
        self.events(deltas)
    }

    fn finish(&mut self, _: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let mut deltas = self.parser.push(text);
        deltas.extend(self.parser.finish());
        let mut events = self.events(deltas);
        self.reason = Some(self.parser.end(reason));
        events.extend(self.close_block(self.blocks.0.len(), self.status()));
        events
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        let response = self.complete(generation);
        vec![self.event(self.status(), json!({"response": response}))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        let mut response = self.response();
        response["status"] = "failed".into();
        response["error"] = json!({"code": error.code, "message": error.message});
        vec![self.event("failed", json!({"response": response}))]
    }
}
