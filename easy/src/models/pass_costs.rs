//! Costs of forward passes on this machine.

use std::time::Instant;
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::PassCosts;
use wrinklefree::model::{Model, Runtime};

/// Measures the costs of passes by their number of rows. Takes a few passes.
pub fn measure(model: &Model, runtime: &Runtime, kv: KvConfig) -> anyhow::Result<PassCosts> {
    let begin = Instant::now();
    Ok(model.pass_costs(runtime, kv, || begin.elapsed().as_secs_f64())?)
}
