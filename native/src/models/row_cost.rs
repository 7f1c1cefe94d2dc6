//! What a row of a pass costs on this machine.

use std::time::Instant;
use wrinklefree::cache::KvConfig;
use wrinklefree::model::{Model, Runtime};

/// What one more row adds to a pass with such a cache, as a share of a pass of one row. Takes a few
/// passes.
pub fn measure(model: &Model, runtime: &Runtime, kv: KvConfig) -> anyhow::Result<f32> {
    let begin = Instant::now();
    Ok(model.row_cost(runtime, kv, || begin.elapsed().as_secs_f64())?)
}
