//! State shared by all request handlers.

use super::admission::Admission;
use super::auth::ApiKeys;
use super::client::TrustedProxy;
use super::error::ApiError;
use super::metrics::Metrics;
use super::served_model::ServedModel;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// State of the server.
pub struct ServerState {
    /// The model; empty while it is loading.
    pub model: OnceLock<Arc<ServedModel>>,
    /// True during shutdown: new requests are refused.
    pub draining: AtomicBool,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Accepted API keys.
    pub keys: ApiKeys,
    /// Proxies that name their clients.
    pub proxies: Vec<TrustedProxy>,
    /// Limits of a request.
    pub limits: RequestLimits,
    /// Budgets of all requests.
    pub admission: Admission,
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum size of the body in bytes.
    pub body: usize,
    /// Maximum time until the response is complete.
    pub time: Duration,
}

impl ServerState {
    /// Returns the model.
    ///
    /// # Errors
    /// 503 while the model is loading and during shutdown.
    pub fn model(&self) -> Result<Arc<ServedModel>, ApiError> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(ApiError::unavailable("the server is shutting down"));
        }
        let loading = || ApiError::unavailable("the model is loading");
        self.model.get().cloned().ok_or_else(loading)
    }
}

/// Returns the Unix time in seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
