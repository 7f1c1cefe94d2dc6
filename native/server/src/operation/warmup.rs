//! Runs the engine before the server accepts requests: warm-up and a speed measurement.

use wf_run_cli::{progress, session};
use wrinklefree::chat::OutputParser;
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::{Engine, Request};
use wrinklefree::settings::describe;
use wrinklefree::text::Tokenizer;

/// Prompt of these requests.
const PROMPT: &str = "Once upon a time";
/// Number of tokens generated per decode mode to warm up.
const WARMUP_TOKENS: usize = 16;

/// Work to do before the server is ready.
#[derive(Clone, Copy, Debug)]
pub struct Warmup {
    /// Generate a few tokens autoregressively and in the default decode mode, so that passes of one
    /// row and of many have run.
    pub enabled: bool,
    /// Measure decoding speed.
    pub benchmark: Option<Benchmark>,
}

/// Size of the speed measurement.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// Number of generations.
    pub iterations: usize,
    /// Number of tokens per generation.
    pub max_tokens: usize,
}

impl Warmup {
    /// Runs everything that is asked for; stops between generations once `cancelled` returns true.
    pub fn run(
        self,
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        mode: &DecodeMode,
        cancelled: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let prompt = tokenizer.encode(PROMPT, true)?;
        // Without `eos` no token ends a generation early.
        let request = |mode: &DecodeMode, max_tokens| Request {
            tokens: prompt.clone(),
            max_tokens,
            mode: mode.clone(),
            ..Request::default()
        };
        if self.enabled {
            let mut modes = vec![DecodeMode::Autoregressive, mode.clone()];
            modes.dedup();
            for mode in modes {
                session::run(
                    engine,
                    request(&mode, WARMUP_TOKENS),
                    OutputParser::default(),
                    |_: &str| Ok(()),
                )?;
            }
            tracing::info!("warmed up");
        }
        let Some(Benchmark { iterations, max_tokens }) = self.benchmark else { return Ok(()) };
        let bar = progress::bar(iterations);
        for iteration in 1..=iterations {
            if cancelled() {
                break;
            }
            let answer = session::run(
                engine,
                request(mode, max_tokens),
                OutputParser::default(),
                |_: &str| Ok(()),
            )?;
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
