//! State shared by all request handlers.

use super::access::admission::Admission;
use super::access::client::Client;
use super::access::keys::{ApiKeys, SharedKeys};
use super::engine::disk_cache::DiskCache;
use super::engine::served_model::ServedModel;
use super::error::ApiError;
use super::operation::metrics::Metrics;
use super::registry::ModelRegistry;
use super::response_store::ResponseStore;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wf_run_cli::config::TrustedProxy;

/// State of the server.
pub struct ServerState {
    /// The models.
    pub models: Arc<ModelRegistry>,
    /// True during shutdown: new requests are refused.
    pub draining: Arc<AtomicBool>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Accepted API keys, and the largest number that one had so far.
    pub keys: SharedKeys,
    /// Proxies that name their clients.
    pub proxies: Vec<TrustedProxy>,
    /// Limits of a request.
    pub limits: RequestLimits,
    /// Responses that later requests can go on from.
    pub responses: ResponseStore,
    /// Budgets of all requests.
    pub admission: Admission,
    /// True if clients may change the local store.
    pub manage_models: bool,
    /// Permit of the download that runs.
    pub pulls: Arc<Semaphore>,
    /// Permits of downloads that their clients have left, until they notice.
    pub left_pulls: Arc<Semaphore>,
    /// Folder of saved slots; `None` if none are saved.
    pub slot_save_path: Option<PathBuf>,
    /// The prompt cache on disk, if there is one.
    pub disk_cache: Option<Arc<DiskCache>>,
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
    /// Returns the accepted API keys.
    pub fn keys(&self) -> ApiKeys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Replaces the accepted API keys.
    pub fn replace_keys(&self, new: &ApiKeys) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let (keys, last_number) = &mut *keys;
        keys.replace(new, last_number);
    }

    /// Returns the model that a request names, and waits until it is loaded. Every endpoint that runs a
    /// model finds it here.
    ///
    /// # Errors
    /// 503 during shutdown, and those of [`ModelRegistry::find`].
    pub async fn model(
        &self,
        name: Option<&str>,
        client: Client,
        deadline: Instant,
    ) -> Result<Arc<ServedModel>, ApiError> {
        self.serves()?;
        self.models.find(name, client, deadline).await
    }

    /// Returns a model that is in memory, to describe it.
    ///
    /// # Errors
    /// 503 during shutdown, and those of [`ModelRegistry::loaded`].
    pub fn loaded(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        self.serves()?;
        self.models.loaded(name)
    }

    /// Checks that the server is not shutting down.
    ///
    /// # Errors
    /// 503 during shutdown.
    pub fn serves(&self) -> Result<(), ApiError> {
        if self.draining.load(Ordering::Relaxed) {
            Err(ApiError::unavailable("the server is shutting down"))
        } else {
            Ok(())
        }
    }
}
