//! Formats outputs as Ollama's API does.

use super::error;
use crate::api::answer::generation::{Generation, RequestOutput};
use crate::api::answer::logprobs;
use crate::api::answer::stream::{Framing, StreamFormatter};
use crate::engine::served_model::ModelLabel;
use crate::error::ApiError;
use crate::ids;
use crate::time::rfc3339_now;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use wrinklefree::chat::{OutputBlock, OutputBlocks, OutputDelta, OutputParser, ToolCall};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// The endpoint that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `/api/chat`: the output is a message.
    Chat,
    /// `/api/generate`: the output is a text.
    Generate,
}

/// Formats the output of one request.
pub struct OllamaFormatter {
    model: ModelLabel,
    shape: Shape,
    parser: OutputParser,
    /// Number of alternatives per token, or `None` for no log-probabilities.
    logprobs: Option<usize>,
    /// Time at which the request arrived.
    started: Instant,
    blocks: OutputBlocks,
    /// Number of calls that were sent.
    sent: usize,
    reason: Option<FinishReason>,
}

/// Content of a response or of a part of it.
#[derive(Default)]
struct Part<'a> {
    text: &'a str,
    thinking: &'a str,
    calls: Vec<Value>,
}

/// Returns the part of a stream that adds nothing: a sign of life.
pub fn empty_part(model: &str, shape: Shape) -> Value {
    Part::default().value(model, shape)
}

impl Part<'_> {
    fn value(self, model: &str, shape: Shape) -> Value {
        let Self { text, thinking, calls } = self;
        let mut value = json!({"model": model, "created_at": rfc3339_now()});
        let content = match shape {
            Shape::Chat => {
                value["message"] = json!({"role": "assistant", "content": text});
                &mut value["message"]
            }
            Shape::Generate => {
                value["response"] = text.into();
                &mut value
            }
        };
        if !thinking.is_empty() {
            content["thinking"] = thinking.into();
        }
        if !calls.is_empty() {
            content["tool_calls"] = calls.into();
        }
        value["done"] = false.into();
        value
    }
}

/// Returns the response to a request without a prompt: the model is loaded or unloaded.
pub fn loaded(model: &ModelLabel, shape: Shape, unloads: bool) -> Value {
    let mut value = Part::default().value(&model.name, shape);
    value["done"] = true.into();
    value["done_reason"] = if unloads { "unload" } else { "load" }.into();
    value
}

impl OllamaFormatter {
    /// Creates the formatter of an output that `parser` parses.
    pub fn new(
        model: ModelLabel,
        shape: Shape,
        parser: OutputParser,
        logprobs: Option<usize>,
        started: Instant,
    ) -> Self {
        let (blocks, sent, reason) = (OutputBlocks::default(), 0, None);
        Self { model, shape, parser, logprobs, started, blocks, sent, reason }
    }

    /// Returns a response with the complete output.
    pub fn whole(mut self, output: &RequestOutput, generation: &Generation) -> Value {
        self.blocks = self.parser.parse(&output.text);
        self.reason = output.reason.map(|reason| self.parser.end(reason));
        let calls = self.complete_calls(true);
        let (text, thinking) = (self.blocks.text(), self.blocks.reasoning());
        let mut value = self.part(Part { text: &text, thinking: &thinking, calls });
        if let Some(n) = self.logprobs {
            let tokenizer = &self.model.tokenizer;
            let tokens = output.tokens.iter().map(|token| logprobs::sampled(tokenizer, token, n));
            value["logprobs"] = tokens.collect();
        }
        self.finished(value, generation)
    }

    fn part(&self, part: Part) -> Value {
        part.value(&self.model.name, self.shape)
    }

    /// Adds the fields of a response's end.
    fn finished(&self, mut value: Value, generation: &Generation) -> Value {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let reason = if self.reason == Some(FinishReason::Length) { "length" } else { "stop" };
        value["done"] = true.into();
        value["done_reason"] = reason.into();
        value["total_duration"] = nanoseconds(self.started.elapsed()).into();
        value["load_duration"] = 0.into();
        value["prompt_eval_count"] = generation.prompt_tokens.into();
        value["prompt_eval_duration"] = nanoseconds(generation.times.first_token).into();
        value["eval_count"] = generation.tokens.into();
        value["eval_duration"] = nanoseconds(generation.times.decode).into();
        value
    }

    /// Returns the calls that are complete and were not sent. Arguments are an object here, so a call is
    /// sent when something follows it. A call that was cut off is dropped.
    fn complete_calls(&mut self, ended: bool) -> Vec<Value> {
        let open = !ended && matches!(self.blocks.0.last(), Some(OutputBlock::Call(_)));
        let complete = self.blocks.calls().count() - usize::from(open);
        let first = std::mem::replace(&mut self.sent, complete);
        let calls = self.blocks.calls().enumerate().take(complete).skip(first);
        calls.filter_map(|(index, call)| tool_call(index, call)).collect()
    }

    /// Returns the parts that an increment of the output makes.
    fn delta(&mut self, delta: OutputDelta) -> Vec<Value> {
        self.blocks.push(&delta);
        let calls = self.complete_calls(false);
        let calls = (!calls.is_empty()).then(|| Part { calls, ..Part::default() });
        let content = match &delta {
            OutputDelta::Text(text) => Some(Part { text, ..Part::default() }),
            OutputDelta::Reasoning(thinking) => Some(Part { thinking, ..Part::default() }),
            OutputDelta::CallStart(_) | OutputDelta::Arguments(_) => None,
        };
        calls.into_iter().chain(content).map(|part| self.part(part)).collect()
    }

    fn parts(&mut self, deltas: Vec<OutputDelta>) -> Vec<Value> {
        deltas.into_iter().flat_map(|delta| self.delta(delta)).collect()
    }
}

/// Returns a call; `None` if its arguments were cut off.
fn tool_call(index: usize, ToolCall { name, arguments }: &ToolCall) -> Option<Value> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    let function = json!({"index": index, "name": name, "arguments": arguments});
    Some(json!({"id": ids::new("call"), "function": function}))
}

impl StreamFormatter for OllamaFormatter {
    const FRAMING: Framing = Framing::JsonLines;

    fn idle(&self) -> Box<dyn Fn() -> Value + Send + Sync> {
        let (model, shape) = (self.model.clone(), self.shape);
        Box::new(move || empty_part(&model.name, shape))
    }

    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn token(&mut self, _: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        let deltas = self.parser.push(text);
        let mut parts = self.parts(deltas);
        if let Some(n) = self.logprobs {
            if parts.is_empty() {
                parts.push(self.part(Part::default()));
            }
            parts[0]["logprobs"] = json!([logprobs::sampled(&self.model.tokenizer, sampled, n)]);
        }
        parts
    }

    fn finish(&mut self, _: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let mut deltas = self.parser.push(text);
        deltas.extend(self.parser.finish());
        let mut parts = self.parts(deltas);
        let calls = self.complete_calls(true);
        if !calls.is_empty() {
            parts.push(self.part(Part { calls, ..Part::default() }));
        }
        self.reason = Some(self.parser.end(reason));
        parts
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        vec![self.finished(self.part(Part::default()), generation)]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error::body(error)]
    }
}
