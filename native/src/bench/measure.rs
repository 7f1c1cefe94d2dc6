//! One test: a prompt or a generation, timed.

use crate::session::ROWS;
use std::hint::black_box;
use std::time::Instant;
use wrinklefree::cache::{KvConfig, KvPool, NoMemory, PAGE};
use wrinklefree::model::{Model, Rows, Runtime, Sight, Span, Workspace};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A prompt of so many tokens.
    Prompt(usize),
    /// So many tokens one by one, from an empty context.
    Generate(usize),
}

impl Test {
    /// Tokens, and positions in the context.
    pub fn positions(&self) -> usize {
        match *self {
            Self::Prompt(n) | Self::Generate(n) => n,
        }
    }

    /// `pp512`, `tg128`.
    pub fn name(&self) -> String {
        match self {
            Self::Prompt(n) => format!("pp{n}"),
            Self::Generate(n) => format!("tg{n}"),
        }
    }
}

/// Tokens per second of each repetition, after one warm-up.
///
/// # Errors
/// When there is no memory for the KV cache.
pub fn run(
    model: &Model,
    runtime: &Runtime,
    kv: KvConfig,
    test: Test,
    repetitions: usize,
) -> Result<Vec<f64>, NoMemory> {
    let (positions, vocab) = (test.positions(), model.spec().vocab_size);
    let mut kv = KvPool::new(model.spec(), positions.div_ceil(PAGE), kv)?;
    // A fixed walk through the vocabulary: what the tokens are does not change the work.
    let tokens: Vec<u32> = (0..positions).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
    let mut workspace = Workspace::default();
    let mut once = |tokens: &[u32]| {
        let seq = kv.open(tokens.len()).expect("the pool is as large as the test");
        let rows = if matches!(test, Test::Prompt(_)) { ROWS } else { 1 };
        let begin = Instant::now();
        for (chunk, tokens) in tokens.chunks(rows).enumerate() {
            let (sight, logits) = (Sight::Causal, Rows::Last);
            let start = chunk * rows;
            let span = Span { seq, start, tokens, sight, logits };
            black_box(model.forward(runtime, &mut kv, &[span], &mut workspace).row(0));
        }
        let seconds = begin.elapsed().as_secs_f64();
        kv.close(seq);
        tokens.len() as f64 / seconds
    };
    let warm_up = match test {
        Test::Prompt(n) => n,
        Test::Generate(n) => n.min(4),
    };
    once(&tokens[..warm_up]);
    Ok((0..repetitions).map(|_| once(&tokens)).collect())
}
