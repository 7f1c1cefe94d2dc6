//! One test: a prompt or a generation, timed.

use std::hint::black_box;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use wrinklefree::cache::{
    KvConfig, KvPool, KvSeq, Namespace, NoMemory, PAGE, SaltHash, StatePlace,
};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Phase, Runtime, Span, Workspace};
use wrinklefree_easy::models::engine::MAX_BATCH_TOKENS;

/// A test to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A prompt.
    Prompt,
    /// Tokens one by one.
    Generate,
}

/// A number of tokens after a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Prompt or generation.
    pub kind: Kind,
    /// Number of tokens.
    pub tokens: usize,
    /// Tokens before them, which are not timed.
    pub depth: usize,
    /// Number of the first of them that are computed, if copies of their keys and values stand for the
    /// others.
    pub computed: Option<usize>,
}

impl Test {
    /// Positions in the context at the end.
    pub fn positions(&self) -> usize {
        self.depth.saturating_add(self.tokens)
    }

    /// Rows of a forward pass at most.
    fn rows(&self) -> usize {
        match self.kind {
            Kind::Prompt => MAX_BATCH_TOKENS,
            Kind::Generate => 1,
        }
    }

    /// Forward passes.
    pub fn passes(&self) -> usize {
        self.tokens.div_ceil(self.rows())
    }

    /// Positions that a pass sees at its end, of all passes together.
    pub fn seen(&self) -> usize {
        let end = |pass: usize| self.depth + (pass * self.rows()).min(self.tokens);
        (1..=self.passes()).map(end).sum()
    }

    /// `pp512`, `tg128`, `tg128 @ d2048`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Prompt => "pp",
            Kind::Generate => "tg",
        };
        let name = format!("{kind}{}", self.tokens);
        match (self.depth, self.copied_behind()) {
            (0, _) => name,
            (depth, None) => format!("{name} @ d{depth}"),
            (depth, Some(computed)) => format!("{name} @ d{depth} ({computed} computed)"),
        }
    }

    /// Whole pages of the context that are computed, if copies stand for the others.
    fn copied_behind(&self) -> Option<usize> {
        let pages = |n: usize| n.min(self.depth).next_multiple_of(PAGE);
        self.computed.map(pages).filter(|&computed| computed < self.depth)
    }
}

/// Tokens of a generation that warm up.
const WARM_UP: usize = 4;

/// A test on a model, warmed up.
pub struct Bench<'a> {
    model: &'a Model,
    runtime: &'a Runtime,
    test: Test,
    tokens: Vec<u32>,
    kv: KvPool,
    seq: KvSeq,
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
        let mut kv = KvPool::new(model.spec(), positions.div_ceil(PAGE), kv)?;
        let seq = kv.open(positions).expect("the pool is as large as the test");
        // A fixed walk through the vocabulary: the same work every time.
        let tokens = (0..positions).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
        let workspace = Workspace::default();
        let mut bench = Self { model, runtime, test, tokens, kv, seq, workspace };
        bench.begin();
        let warm_up = match test.kind {
            Kind::Prompt => test.tokens,
            Kind::Generate => test.tokens.min(WARM_UP),
        };
        bench.compute(test.depth..test.depth + warm_up, test.rows());
        Ok(bench)
    }

    /// Computes the positions before the test, or copies what the test allows, if that was not done.
    /// Recurrent states cannot go back: they are kept before the test and continue from there.
    fn begin(&mut self) {
        let (depth, positions) = (self.test.depth, self.test.positions());
        let mut known = self.kv.written(self.seq);
        if self.kv.state_shape().is_some() {
            let namespace = Namespace { salt: SaltHash::new(""), block: 1 };
            self.kv.close(self.seq);
            (self.seq, known) = self.kv.open_shared(&namespace, &self.tokens[..depth]);
            self.kv.grow(self.seq, positions).expect("the pool is as large as the test");
        }
        if known < depth {
            if let Some(computed) = self.test.copied_behind().filter(|&computed| known < computed) {
                self.compute(known..computed, MAX_BATCH_TOKENS);
                self.kv.repeat_pages(self.seq, depth);
                known = self.kv.written(self.seq);
            }
            self.compute(known..depth, MAX_BATCH_TOKENS);
            self.kv.commit(self.seq, depth);
            self.kv.publish(self.seq, &self.tokens[..depth]);
            self.kv.keep_states(self.seq, StatePlace::OnTheWay);
        }
    }

    /// Computes these positions, `rows` a pass, over what stood there; the seconds that takes.
    fn compute(&mut self, positions: Range<usize>, rows: usize) -> f64 {
        let Self { model, runtime, tokens, kv, seq, workspace, .. } = self;
        let begin = Instant::now();
        for start in positions.clone().step_by(rows) {
            let tokens = &tokens[start..positions.end.min(start + rows)];
            let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::Last);
            let span = Span { seq: *seq, start, tokens, attention_mask, logits };
            black_box(model.forward(runtime, kv, &[span], workspace).row(0));
        }
        begin.elapsed().as_secs_f64()
    }

    fn once(&mut self) -> f64 {
        self.begin();
        self.compute(self.test.depth..self.test.positions(), self.test.rows())
    }

    /// Tokens per second of each repetition.
    pub fn samples(&mut self, repetitions: usize) -> Vec<f64> {
        (0..repetitions).map(|_| self.test.tokens as f64 / self.once()).collect()
    }

    /// Returns the tokens per second of the fastest repetition: at least `least` ones, and as many as begin
    /// within `time`. Other processes make a repetition slower, never faster.
    pub fn fastest(&mut self, least: usize, time: Duration) -> f64 {
        let begin = Instant::now();
        let mut samples = self.samples(least);
        while begin.elapsed() < time {
            samples.extend(self.samples(1));
        }
        samples.into_iter().fold(0.0, f64::max)
    }

    /// The seconds that each phase of one more repetition takes.
    pub fn phases(&mut self) -> [f64; Phase::COUNT] {
        self.begin();
        self.workspace.start_profile(seconds);
        self.compute(self.test.depth..self.test.positions(), self.test.rows());
        self.workspace.phase_seconds()
    }
}

/// Seconds since some beginning.
fn seconds() -> f64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_much_of_a_context_is_computed() {
        let named =
            |depth, computed| Test { kind: Kind::Generate, tokens: 8, depth, computed }.name();
        assert_eq!(named(0, Some(64)), "tg8");
        assert_eq!(named(100, None), "tg8 @ d100");
        assert_eq!(named(100, Some(33)), "tg8 @ d100 (64 computed)");
        assert_eq!(named(100, Some(97)), "tg8 @ d100", "a copy is a whole page");
        assert_eq!(named(20, Some(usize::MAX)), "tg8 @ d20");
    }
}
