//! What a row of a pass costs on this machine.

use std::time::Instant;
use wrinklefree::model::{Model, Runtime};

/// What one more row adds to a pass, as a share of a pass of one row. Takes a few passes.
pub fn measure(model: &Model, runtime: &Runtime) -> anyhow::Result<f32> {
    let begin = Instant::now();
    Ok(model.row_cost(runtime, || begin.elapsed().as_secs_f64())?)
}
