//! Drives the engine for one request and takes the times.

use crate::interrupt;
use serde::Serialize;
use std::time::{Duration, Instant};
use wrinklefree::cache::PAGE;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{Engine, EngineConfig, Event, FinishReason, Request, Step};

/// Rows of one forward pass at most: enough to reuse each weight, few enough to stop quickly.
const ROWS: usize = 256;

/// Sizes of an engine for one sequence of `context` positions.
pub fn config(context: usize) -> EngineConfig {
    EngineConfig { context, pages: context.div_ceil(PAGE), rows: ROWS.min(context) }
}

/// What came out.
pub struct Answer {
    /// The text.
    pub text: String,
    /// The tokens behind it.
    pub tokens: Vec<Sampled>,
    /// Why it ended.
    pub reason: FinishReason,
    /// How long it took.
    pub timings: Timings,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Passes over the prompt; the last of them also gives the first token.
    pub prefill_seconds: f64,
    /// Every later pass.
    pub decode_seconds: f64,
    /// Prompt tokens per second.
    pub prefill_tokens_per_second: f64,
    /// Tokens after the first, per second.
    pub decode_tokens_per_second: f64,
}

impl Timings {
    fn new(prompt: usize, generated: usize, prefill: Duration, decode: Duration) -> Self {
        let per_second = |n: usize, t: Duration| match t.as_secs_f64() {
            s if s > 0.0 => n as f64 / s,
            _ => 0.0,
        };
        Self {
            prompt_tokens: prompt,
            generated_tokens: generated,
            prefill_seconds: prefill.as_secs_f64(),
            decode_seconds: decode.as_secs_f64(),
            prefill_tokens_per_second: per_second(prompt, prefill),
            decode_tokens_per_second: per_second(generated.saturating_sub(1), decode),
        }
    }
}

/// The name of a reason in output.
pub fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
    }
}

/// Runs a request to its end; `show` gets the text as it comes. Ctrl-C ends it early.
pub fn run(
    engine: &mut Engine,
    request: Request,
    mut show: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Answer> {
    let prompt = request.tokens.len();
    let seq = engine.submit(request)?;
    let (mut text, mut tokens) = (String::new(), Vec::new());
    let (mut prefill, mut decode) = (Duration::ZERO, Duration::ZERO);
    let reason = 'run: loop {
        if interrupt::pressed() {
            engine.cancel(seq);
        }
        let start = Instant::now();
        let step = engine.step();
        match step {
            Step::Ran { prefill_rows: 1.., .. } => prefill += start.elapsed(),
            Step::Ran { .. } => decode += start.elapsed(),
            Step::Idle => {}
        }
        let mut ended = None;
        while let Some(event) = engine.poll() {
            let new = match event {
                Event::Token { sampled, text, .. } => {
                    tokens.push(sampled);
                    text
                }
                Event::Finished { reason, text, .. } => {
                    ended = Some(reason);
                    text
                }
            };
            text += &new;
            if let Err(error) = show(&new) {
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
    let timings = Timings::new(prompt, tokens.len(), prefill, decode);
    Ok(Answer { text, tokens, reason, timings })
}
