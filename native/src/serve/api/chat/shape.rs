//! How answers look in OpenAI's chat API.

use crate::serve::api::generation::{Answer, Generation, reason_name};
use crate::serve::api::stream::{Envelope, Events};
use crate::serve::api::tools::{Blocks, Call, Parser, Piece};
use crate::serve::api::{id, logprob};
use crate::serve::state::Ready;
use serde_json::{Value, json};
use std::sync::Arc;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// The shape of the answers to one request.
pub struct Shape {
    envelope: Envelope,
    logprobs: bool,
    /// Answers may hold calls.
    calls: bool,
    choices: Vec<Choice>,
    ready: Arc<Ready>,
}

/// An answer that is streamed.
struct Choice {
    parser: Parser,
    calls: usize,
}

impl Shape {
    /// For `n` answers.
    pub fn new(
        envelope: Envelope,
        ready: Arc<Ready>,
        n: usize,
        (logprobs, calls): (bool, bool),
    ) -> Self {
        let choice = |_| Choice { parser: Parser::new(calls), calls: 0 };
        let choices = (0..n).map(choice).collect();
        Self { envelope, logprobs, calls, choices, ready }
    }

    /// All answers together.
    pub fn whole(&self, answers: &[Answer], generation: &Generation) -> Value {
        let choices = answers.iter().enumerate().map(|(index, answer)| self.choice(index, answer));
        self.envelope.whole(&choices.collect::<Vec<_>>(), generation)
    }

    fn choice(&self, index: usize, answer: &Answer) -> Value {
        let blocks = Blocks::read(&answer.text, self.calls);
        let (text, calls) = (blocks.text(), blocks.calls().collect::<Vec<_>>());
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if !calls.is_empty() {
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = calls.iter().map(|call| tool_call(call)).collect();
        }
        let logprobs: Vec<Value> = answer.tokens.iter().map(|t| self.logprob(t)).collect();
        json!({
            "index": index,
            "message": message,
            "logprobs": self.logprobs.then(|| json!({"content": logprobs, "refusal": null})),
            "finish_reason": answer.reason.map(|reason| finish_reason(reason, calls.len())),
        })
    }

    fn logprob(&self, sampled: &Sampled) -> Value {
        let tokenizer = &self.ready.tokenizer;
        let mut entry = logprob(tokenizer, sampled.token, sampled.logprob.unwrap_or(0.0));
        let top = sampled.top.iter().map(|&(token, p)| logprob(tokenizer, token, p));
        entry["top_logprobs"] = top.collect();
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

    /// What new text adds to an answer.
    fn deltas(&mut self, index: usize, text: &str, ends: bool) -> Vec<Value> {
        let choice = &mut self.choices[index];
        let mut pieces = choice.parser.push(text);
        if ends {
            pieces.extend(choice.parser.finish());
        }
        pieces.into_iter().map(|piece| choice.delta(piece)).collect()
    }
}

impl Choice {
    fn delta(&mut self, piece: Piece) -> Value {
        match piece {
            Piece::Text(text) => json!({"content": text}),
            Piece::Call(name) => {
                let mut call = tool_call(&Call { name, arguments: String::new() });
                call["index"] = self.calls.into();
                self.calls += 1;
                json!({"tool_calls": [call]})
            }
            Piece::Arguments(text) => {
                let function = json!({"arguments": text});
                json!({"tool_calls": [{"index": self.calls - 1, "function": function}]})
            }
        }
    }
}

fn tool_call(Call { name, arguments }: &Call) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": id("call"), "type": "function", "function": function})
}

fn finish_reason(reason: FinishReason, calls: usize) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) if calls > 0 => "tool_calls",
        reason => reason_name(reason),
    }
}

impl Events for Shape {
    const NAMED: bool = false;

    fn begin(&mut self) -> Vec<Value> {
        let delta = || json!({"role": "assistant", "content": ""});
        let chunk = |index| self.chunk(index, delta(), Value::Null, Value::Null);
        (0..self.choices.len()).map(chunk).collect()
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        let mut deltas = self.deltas(index, text, false);
        let mut logprobs = Value::Null;
        if self.logprobs {
            logprobs = json!({"content": [self.logprob(sampled)], "refusal": null});
            if deltas.is_empty() {
                deltas.push(json!({"content": ""}));
            }
        }
        let chunk = |delta| self.chunk(index, delta, logprobs.take(), Value::Null);
        deltas.into_iter().map(chunk).collect()
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let deltas = self.deltas(index, text, true);
        let mut chunks: Vec<Value> = deltas
            .into_iter()
            .map(|delta| self.chunk(index, delta, Value::Null, Value::Null))
            .collect();
        let reason = finish_reason(reason, self.choices[index].calls);
        chunks.push(self.chunk(index, json!({}), Value::Null, reason.into()));
        chunks
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        self.envelope.last(generation).into_iter().collect()
    }
}
