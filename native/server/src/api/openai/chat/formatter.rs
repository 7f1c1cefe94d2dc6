//! Formats outputs as OpenAI's chat API does.

use crate::api::answer::generation::{Generation, RequestOutput, reason_name};
use crate::api::answer::logprobs;
use crate::api::answer::stream::{Envelope, Framing, StreamFormatter};
use crate::api::prompt::conversation::OutputRequest;
use crate::engine::served_model::ModelLabel;
use crate::ids;
use serde_json::{Value, json};
use wrinklefree::chat::{OutputDelta, OutputParser, Snapshot, ToolCall};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Formats the outputs of one request.
pub struct ChatFormatter {
    envelope: Envelope,
    outputs: OutputRequest,
    beginning: Beginning,
    /// Parser of each output.
    parser: OutputParser,
    choices: Vec<StreamedChoice>,
    model: ModelLabel,
}

/// Texts before the outputs.
pub struct Beginning {
    /// The text that each output begins with.
    pub echo: String,
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// A stream's first chunk has null for an empty text.
    pub null_first: bool,
}

/// State of an output that is streamed.
struct StreamedChoice {
    parser: OutputParser,
    /// Number of calls so far.
    calls: usize,
}

impl ChatFormatter {
    /// Creates the formatter of outputs that `parser` parses.
    pub fn new(
        envelope: Envelope,
        model: ModelLabel,
        outputs: OutputRequest,
        parser: OutputParser,
        beginning: Beginning,
    ) -> Self {
        let choice = |_| StreamedChoice { parser: parser.clone(), calls: 0 };
        let choices = (0..outputs.count).map(choice).collect();
        Self { envelope, outputs, beginning, parser, choices, model }
    }

    /// Returns a response with all outputs.
    pub fn whole(&self, outputs: &[RequestOutput], generation: &Generation) -> Value {
        let choices = outputs.iter().enumerate().map(|(index, output)| self.choice(index, output));
        let mut body = self.envelope.whole(&choices.collect::<Vec<_>>(), generation);
        if self.outputs.token_ids {
            body["prompt_token_ids"] = json!(self.beginning.prompt);
        }
        if let (Some(n), Some(first)) = (self.outputs.prompt_logprobs, outputs.first()) {
            body["prompt_logprobs"] =
                logprobs::prompt_logprobs(&self.model.tokenizer, &first.scored, n);
        }
        body
    }

    fn choice(&self, index: usize, output: &RequestOutput) -> Value {
        let mut parser = self.parser.clone();
        let blocks = parser.parse(&output.text);
        let text = self.beginning.echo.clone() + &blocks.text();
        let calls = blocks.calls().collect::<Vec<_>>();
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        let reasoning = blocks.reasoning();
        if self.outputs.reasoning && !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = calls.iter().map(|call| tool_call(call)).collect();
        }
        let mut choice = json!({
            "index": index,
            "message": message,
            "logprobs": self.logprobs(&output.tokens),
            "finish_reason": output.reason.map(|reason| finish_reason(parser.end(reason), calls.len())),
        });
        if self.outputs.token_ids {
            choice["token_ids"] = output.tokens.iter().map(|sampled| sampled.token).collect();
        }
        choice
    }

    /// Returns the log-probabilities of tokens, if they were requested.
    fn logprobs(&self, tokens: &[Sampled]) -> Value {
        self.outputs.logprobs.map_or(Value::Null, |_| {
            let content: Vec<Value> = tokens.iter().map(|token| self.logprob(token)).collect();
            json!({"content": content, "refusal": null})
        })
    }

    fn logprob(&self, sampled: &Sampled) -> Value {
        let top = self.outputs.logprobs.unwrap_or(0);
        let mut entry = logprobs::sampled(&self.model.tokenizer, sampled, top);
        if self.outputs.by_id {
            logprobs::name_by_id(&mut entry, sampled);
        }
        entry
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Value, reason: Value) -> Value {
        self.envelope.chunk(json!({
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason,
        }))
    }

    /// Returns the deltas that new text adds to an output.
    fn deltas(&mut self, index: usize, text: &str, ends: bool) -> Vec<Value> {
        let choice = &mut self.choices[index];
        let mut deltas = choice.parser.push(text);
        if ends {
            deltas.extend(choice.parser.finish());
        }
        if !self.outputs.reasoning {
            deltas.retain(|delta| !matches!(delta, OutputDelta::Reasoning(_)));
        }
        deltas.into_iter().map(|delta| choice.delta(delta)).collect()
    }
}

impl StreamedChoice {
    fn delta(&mut self, delta: OutputDelta) -> Value {
        match delta {
            OutputDelta::Reasoning(text) => json!({"reasoning_content": text}),
            OutputDelta::Text(text) => json!({"content": text}),
            OutputDelta::CallStart(name) => {
                let mut call = tool_call(&ToolCall { name, arguments: String::new() });
                call["index"] = self.calls.into();
                self.calls += 1;
                json!({"tool_calls": [call]})
            }
            OutputDelta::Arguments(text) => {
                let function = json!({"arguments": text});
                json!({"tool_calls": [{"index": self.calls - 1, "function": function}]})
            }
        }
    }
}

fn tool_call(ToolCall { name, arguments }: &ToolCall) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": format!("call_{}", ids::unique()), "type": "function", "function": function})
}

fn finish_reason(reason: FinishReason, calls: usize) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) if calls > 0 => "tool_calls",
        reason => reason_name(reason),
    }
}

impl StreamFormatter for ChatFormatter {
    const FRAMING: Framing = Framing::EventsUntilDone;

    fn begin(&mut self) -> Vec<Value> {
        let Beginning { echo, null_first, .. } = &self.beginning;
        let content = Some(echo).filter(|echo| !(*null_first && echo.is_empty()));
        let delta = || json!({"role": "assistant", "content": content});
        let chunk = |index| self.chunk(index, delta(), Value::Null, Value::Null);
        let mut chunks: Vec<Value> = (0..self.choices.len()).map(chunk).collect();
        if let (true, Some(first)) = (self.outputs.token_ids, chunks.first_mut()) {
            first["prompt_token_ids"] = json!(self.beginning.prompt);
        }
        chunks
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        let mut deltas = self.deltas(index, text, false);
        let mut logprobs = self.logprobs(std::slice::from_ref(sampled));
        let token_ids = self.outputs.token_ids;
        if deltas.is_empty() && (token_ids || !logprobs.is_null()) {
            deltas.push(json!({"content": ""}));
        }
        let chunk = |delta| self.chunk(index, delta, logprobs.take(), Value::Null);
        let mut chunks: Vec<Value> = deltas.into_iter().map(chunk).collect();
        if let (true, Some(first)) = (token_ids, chunks.first_mut()) {
            first["choices"][0]["token_ids"] = json!([sampled.token]);
        }
        chunks
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let deltas = self.deltas(index, text, true);
        let mut chunks: Vec<Value> = deltas
            .into_iter()
            .map(|delta| self.chunk(index, delta, Value::Null, Value::Null))
            .collect();
        let choice = &self.choices[index];
        let reason = finish_reason(choice.parser.end(reason), choice.calls);
        chunks.push(self.chunk(index, json!({}), Value::Null, reason.into()));
        chunks
    }

    fn snapshot(
        &mut self,
        index: usize,
        Snapshot { text, reasoning }: Snapshot,
        end: Option<FinishReason>,
    ) -> Vec<Value> {
        let mut delta = json!({"content": self.beginning.echo.clone() + &text});
        if self.outputs.reasoning && !reasoning.is_empty() {
            delta["reasoning_content"] = reasoning.into();
        }
        let chunk = |delta, reason| self.chunk(index, delta, Value::Null, reason);
        let mut chunks = vec![chunk(delta, Value::Null)];
        chunks.extend(end.map(|reason| chunk(json!({}), reason_name(reason).into())));
        chunks
    }

    fn continuous_usage(&self) -> bool {
        self.envelope.usage.each
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        self.envelope.last(generation).into_iter().collect()
    }
}
