//! Cost of a row of a forward pass on this machine.

use std::time::Instant;
use wrinklefree::cache::KvConfig;
use wrinklefree::model::{Model, Runtime};

/// Measures the cost that one more row adds to a pass, as a share of a pass of one row. Takes a few
/// passes.
pub fn measure(model: &Model, runtime: &Runtime, kv: KvConfig) -> anyhow::Result<f32> {
    let begin = Instant::now();
    Ok(model.row_cost(runtime, kv, || begin.elapsed().as_secs_f64())?)
}
