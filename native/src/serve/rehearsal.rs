//! What the engine does before anybody may ask.

use crate::cli::{progress, session};
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::{Engine, Request};
use wrinklefree::settings::describe;
use wrinklefree::text::Tokenizer;

/// What is continued.
const PROMPT: &str = "Once upon a time";
/// Tokens that make an engine warm.
const WARM: usize = 16;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal {
    /// A few tokens in every mode that requests get without a word: one row a pass, and many.
    pub warmup: bool,
    /// Measure the speed.
    pub benchmark: Option<Benchmark>,
}

/// How speed is measured.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// Answers.
    pub iterations: usize,
    /// Tokens of each.
    pub max_tokens: usize,
}

impl Rehearsal {
    /// Generates as it says, until `ends` says that it is in vain.
    pub fn run(
        self,
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        mode: &DecodeMode,
        ends: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let prompt = tokenizer.encode(PROMPT, true)?;
        let request = |mode: &DecodeMode, max_tokens| Request {
            tokens: prompt.clone(),
            max_tokens,
            mode: mode.clone(),
            // No tokens end it: it must be as long as it was meant to be.
            ..Request::default()
        };
        if self.warmup {
            let mut modes = vec![DecodeMode::Autoregressive, mode.clone()];
            modes.dedup();
            for mode in modes {
                session::run(engine, request(&mode, WARM), |_: &str| Ok(()))?;
            }
            tracing::info!("warm");
        }
        let Some(Benchmark { iterations, max_tokens }) = self.benchmark else { return Ok(()) };
        let bar = progress::bar(iterations);
        for iteration in 1..=iterations {
            if ends() {
                break;
            }
            let answer = session::run(engine, request(mode, max_tokens), |_: &str| Ok(()))?;
            bar.suspend(|| {
                tracing::info!(
                    iteration,
                    mode = describe(mode),
                    tokens = answer.timings.generated_tokens,
                    tokens_per_second = answer.timings.decode_tokens_per_second,
                    "benchmark"
                );
            });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}
