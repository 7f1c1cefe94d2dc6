//! Runs one request on an engine and measures it.

use super::exit::Exit;
use super::signals;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Instant;
use wrinklefree::chat::{OutputParser, OutputPiece, OutputPieces, ToolCall};
use wrinklefree::decode::{Sampled, Slot};
use wrinklefree::engine::{Engine, EventKind, FinishReason, Request, Step};

/// The answer to a request.
pub struct Answer {
    /// The text, without the reasoning.
    pub text: String,
    /// The reasoning before it; empty if there is none.
    pub reasoning: String,
    /// The calls of tools after it.
    pub calls: Vec<ToolCall>,
    /// Its tokens.
    pub tokens: Vec<Sampled>,
    /// Reason of its end.
    pub reason: FinishReason,
    /// Times and counts.
    pub timings: Timings,
}

impl Answer {
    /// Returns what was answered as JSON. Arguments of a call that were cut are a text.
    pub fn json(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("text".into(), json!(self.text));
        let reasoning = (!self.reasoning.is_empty()).then_some(&self.reasoning);
        fields.insert("reasoning".into(), json!(reasoning));
        let calls: Vec<Value> = self.calls_as_json().collect();
        fields.insert("tool_calls".into(), json!((!calls.is_empty()).then_some(calls)));
        let tokens: Vec<u32> = self.tokens.iter().map(|t| t.token).collect();
        fields.insert("tokens".into(), json!(tokens));
        let reason = match self.reason {
            FinishReason::Stop if !self.calls.is_empty() => "tool_calls",
            reason => reason_name(reason),
        };
        fields.insert("finish_reason".into(), json!(reason));
        fields.insert("timings".into(), json!(self.timings));
        fields
    }

    /// Returns each call as JSON. Arguments that were cut are a text.
    pub fn calls_as_json(&self) -> impl Iterator<Item = Value> {
        self.calls.iter().map(|ToolCall { name, arguments }| {
            let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
            json!({"name": name, "arguments": arguments})
        })
    }
}

/// Times and counts of a request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timings {
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that came from the prefix cache.
    pub cached_tokens: usize,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// Tokens that were drafted.
    #[serde(skip_serializing_if = "is_zero")]
    pub drafted_tokens: u64,
    /// Drafted tokens that were right.
    #[serde(skip_serializing_if = "is_zero")]
    pub accepted_tokens: u64,
    /// Forward passes, including those over the prompt.
    pub forward_passes: usize,
    /// Passes over the prompt.
    pub prefill_passes: usize,
    /// Tokens that these passes read: fewer than the prompt if its last block is denoised.
    pub prefill_tokens: usize,
    /// Seconds of the passes over the prompt; the last one also gives the first tokens.
    pub prefill_seconds: f64,
    /// Seconds of all later passes.
    pub decode_seconds: f64,
    /// Prompt tokens per second.
    pub prefill_tokens_per_second: f64,
    /// Tokens per second after the first ones.
    pub decode_tokens_per_second: f64,
    /// Tokens per forward pass.
    pub tokens_per_pass: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Timings {
    /// Computes the rates.
    fn finish(&mut self, first: usize) {
        let per = |n: usize, of: f64| if of > 0.0 { n as f64 / of } else { 0.0 };
        self.prefill_tokens_per_second = per(self.prefill_tokens, self.prefill_seconds);
        self.decode_tokens_per_second = per(self.generated_tokens - first, self.decode_seconds);
        self.tokens_per_pass = per(self.generated_tokens, self.forward_passes as f64);
    }
}

impl Timings {
    /// Returns a line such as `prompt 11 tokens, 17102.0 tok/s · generated 110 tokens, 8485.5
    /// tok/s`.
    pub fn summary(&self) -> String {
        // A prompt shorter than a block is decoded together with the block's other slots.
        let prefill = if self.prefill_seconds > 0.0 {
            format!(", {:.1} tok/s", self.prefill_tokens_per_second)
        } else {
            String::new()
        };
        let cached = match self.cached_tokens {
            0 => String::new(),
            n => format!(" ({n} known)"),
        };
        // Only interesting if passes give more than one token.
        let per_pass = if self.tokens_per_pass > 1.01 {
            format!(", {:.2} a pass", self.tokens_per_pass)
        } else {
            String::new()
        };
        format!(
            "prompt {} tokens{cached}{prefill} · generated {} tokens, {:.1} tok/s{per_pass}",
            self.prompt_tokens, self.generated_tokens, self.decode_tokens_per_second
        )
    }
}

/// Returns the name of a reason in output.
pub fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Constraint => "constraint",
        FinishReason::NotFinite => "model_error",
    }
}

/// Receives an answer while it is generated.
pub trait Watcher {
    /// Receives text as it is generated.
    fn text(&mut self, text: &str) -> anyhow::Result<()>;

    /// Receives reasoning as it is generated.
    fn reasoning(&mut self, _text: &str) -> anyhow::Result<()> {
        Ok(())
    }

    /// Called once, after the last text.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Receives the slots after each forward pass, if the request asks for them.
    fn slots(&mut self, _engine: &Engine, _slots: Vec<Slot>) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&str) -> anyhow::Result<()>> Watcher for F {
    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self(text)
    }
}

/// The output of a request so far, in parts.
struct Output<W> {
    pieces: OutputPieces,
    watcher: W,
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
}

impl<W: Watcher> Output<W> {
    fn push(&mut self, text: &str) -> anyhow::Result<()> {
        let piece = self.pieces.push(text);
        self.piece(piece)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let piece = self.pieces.finish("");
        self.piece(piece)?;
        self.watcher.finish()
    }

    fn piece(&mut self, piece: OutputPiece) -> anyhow::Result<()> {
        let OutputPiece { text, reasoning, calls } = piece;
        if !reasoning.is_empty() {
            self.reasoning += &reasoning;
            self.watcher.reasoning(&reasoning)?;
        }
        if !text.is_empty() {
            self.text += &text;
            self.watcher.text(&text)?;
        }
        calls.into_iter().for_each(|call| call.add_to(&mut self.calls));
        Ok(())
    }
}

/// Runs a request to its end. `parser` splits the output. Ctrl-C cancels it.
///
/// # Errors
/// If the request is invalid, the watcher fails, or the model computes a number that is not finite.
pub fn run(
    engine: &mut Engine,
    request: Request,
    parser: OutputParser,
    watcher: impl Watcher,
) -> anyhow::Result<Answer> {
    let mut timings = Timings { prompt_tokens: request.tokens.len(), ..Timings::default() };
    let seq = engine.submit(request)?;
    let (text, reasoning, calls) = (String::new(), String::new(), Vec::new());
    let pieces = OutputPieces::new(parser);
    let mut output = Output { pieces, watcher, text, reasoning, calls };
    let mut tokens = Vec::new();
    // Tokens that the passes over the prompt gave.
    let mut first = 0;
    let reason = 'run: loop {
        if signals::requested() {
            engine.cancel(seq);
        }
        let start = Instant::now();
        let step = engine.step();
        let seconds = start.elapsed().as_secs_f64();
        let prefilling = matches!(step, Step::Ran { prefill_rows: 1.., .. });
        match step {
            Step::Ran { prefill_rows, .. } if prefilling => {
                timings.prefill_passes += 1;
                timings.prefill_tokens += prefill_rows;
                timings.prefill_seconds += seconds;
            }
            Step::Ran { .. } => timings.decode_seconds += seconds,
            Step::Idle => {}
        }
        timings.forward_passes += usize::from(step != Step::Idle);
        let mut ended = None;
        while let Some(event) = engine.poll() {
            let watched = match event.kind {
                EventKind::Token { sampled, text: new } => {
                    tokens.push(sampled);
                    first += usize::from(prefilling);
                    output.push(&new)
                }
                EventKind::Slots(slots) => output.watcher.slots(engine, slots),
                EventKind::Scored(_) | EventKind::Embedded(_) | EventKind::Logits(_) => {
                    unreachable!("the request asks for text only")
                }
                EventKind::Finished { reason, text: new, cached, drafts, .. } => {
                    ended = Some(reason);
                    timings.cached_tokens = cached;
                    (timings.drafted_tokens, timings.accepted_tokens) =
                        (drafts.drafted, drafts.accepted);
                    output.push(&new)
                }
            };
            if let Err(error) = watched {
                engine.cancel(seq);
                return Err(error);
            }
        }
        match (ended, step) {
            (Some(reason), _) => break 'run reason,
            (None, Step::Idle) => break 'run FinishReason::Cancelled,
            (None, Step::Ran { .. }) => {}
        }
    };
    output.finish()?;
    if reason == FinishReason::NotFinite {
        return Err(Exit::NotFinite.into());
    }
    timings.generated_tokens = tokens.len();
    timings.finish(first);
    let Output { pieces, text, reasoning, calls, .. } = output;
    Ok(Answer { text, reasoning, calls, tokens, reason: pieces.end(reason), timings })
}
