//! What a row of a pass costs here: the number that decides how long drafts pay.

use std::hint::black_box;
use std::time::Instant;
use wrinklefree::cache::{KvPool, PAGE};
use wrinklefree::model::{Model, Rows, Runtime, Sight, Span, Workspace};

/// Rows of the larger of the two passes that are compared.
const MANY: usize = 9;
/// The best of so many passes counts.
const PASSES: usize = 4;

/// What one more row adds to a pass, as a share of a pass of one row. Takes a few passes.
pub fn measure(model: &Model, runtime: &Runtime) -> anyhow::Result<f32> {
    let mut kv = KvPool::new(model.spec(), MANY.div_ceil(PAGE))?;
    let seq = kv.open(MANY)?;
    let mut workspace = Workspace::default();
    let mut best = |rows: usize| {
        let tokens = vec![0; rows];
        let mut pass = || {
            let begin = Instant::now();
            let (sight, logits) = (Sight::Causal, Rows::All);
            let span = Span { seq, start: 0, tokens: &tokens, sight, logits };
            black_box(model.forward(runtime, &mut kv, &[span], &mut workspace).row(0));
            begin.elapsed().as_secs_f32()
        };
        (0..PASSES).map(|_| pass()).fold(f32::INFINITY, f32::min)
    };
    let (one, many) = (best(1), best(MANY));
    Ok(((many / one - 1.0) / (MANY - 1) as f32).max(0.0))
}
