//! One test: a prompt or a generation, timed.

use crate::session::ROWS;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;
use wrinklefree::cache::{KvConfig, KvPool, NoMemory, PAGE};
use wrinklefree::model::{Model, Phase, Rows, Runtime, Sight, Span, Workspace};

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

    /// Forward passes.
    pub fn passes(&self) -> usize {
        match *self {
            Self::Prompt(n) => n.div_ceil(ROWS),
            Self::Generate(n) => n,
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

/// A test on a model, warmed up.
pub struct Bench<'a> {
    model: &'a Model,
    runtime: &'a Runtime,
    test: Test,
    tokens: Vec<u32>,
    kv: KvPool,
    workspace: Workspace,
}

impl<'a> Bench<'a> {
    /// Prepares a test.
    ///
    /// # Errors
    /// When there is no memory for the KV cache.
    pub fn new(
        model: &'a Model,
        runtime: &'a Runtime,
        kv: KvConfig,
        test: Test,
    ) -> Result<Self, NoMemory> {
        let (positions, vocab) = (test.positions(), model.spec().vocab_size);
        let kv = KvPool::new(model.spec(), positions.div_ceil(PAGE), kv)?;
        // A fixed walk through the vocabulary: what the tokens are does not change the work.
        let tokens = (0..positions).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
        let mut bench = Self { model, runtime, test, tokens, kv, workspace: Workspace::default() };
        bench.once(match test {
            Test::Prompt(n) => n,
            Test::Generate(n) => n.min(4),
        });
        Ok(bench)
    }

    /// The first `count` tokens; the seconds they take.
    fn once(&mut self, count: usize) -> f64 {
        let Self { model, runtime, test, tokens, kv, workspace } = self;
        let seq = kv.open(count).expect("the pool is as large as the test");
        let rows = if matches!(test, Test::Prompt(_)) { ROWS } else { 1 };
        let begin = Instant::now();
        for (chunk, tokens) in tokens[..count].chunks(rows).enumerate() {
            let (sight, logits) = (Sight::Causal, Rows::Last);
            let start = chunk * rows;
            let span = Span { seq, start, tokens, sight, logits };
            black_box(model.forward(runtime, kv, &[span], workspace).row(0));
        }
        let seconds = begin.elapsed().as_secs_f64();
        kv.close(seq);
        seconds
    }

    /// Tokens per second of each repetition.
    pub fn samples(&mut self, repetitions: usize) -> Vec<f64> {
        let count = self.tokens.len();
        (0..repetitions).map(|_| count as f64 / self.once(count)).collect()
    }

    /// The seconds that each phase of one more repetition takes.
    pub fn phases(&mut self) -> [f64; Phase::COUNT] {
        self.workspace.profile(seconds);
        self.once(self.tokens.len());
        self.workspace.phases()
    }
}

/// Seconds since some beginning.
fn seconds() -> f64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed().as_secs_f64()
}
