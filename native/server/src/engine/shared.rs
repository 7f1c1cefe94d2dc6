//! State that the engines of all models share.

use super::disk_cache::DiskCache;
use super::turns::ComputeTurns;
use crate::operation::metrics::Metrics;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// State that the engines of all models share.
#[derive(Clone)]
pub struct EngineShared {
    /// True during shutdown: new requests are refused.
    pub draining: Arc<AtomicBool>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Passes of the engines.
    pub turns: Arc<ComputeTurns>,
    /// The prompt cache on disk, if there is one.
    pub disk_cache: Option<Arc<DiskCache>>,
}
