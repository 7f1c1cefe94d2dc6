//! The log line at the end of a generation, which names the request that it belongs to.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A request as the middleware sees it.
#[derive(Debug)]
pub struct RequestRecord {
    /// Id in logs and in the response.
    pub id: String,
    /// Name or number of the API key.
    key: OnceLock<String>,
    /// Time of its arrival.
    pub arrived: Instant,
}

tokio::task_local! {
    static RECORD: Arc<RequestRecord>;
}

impl RequestRecord {
    /// Makes the record of a request that has just arrived.
    pub fn new(id: &str) -> Arc<Self> {
        Arc::new(Self { id: id.into(), key: OnceLock::new(), arrived: Instant::now() })
    }

    /// Runs the handler of the request.
    pub async fn scope<F: Future>(self: Arc<Self>, handler: F) -> F::Output {
        RECORD.scope(self, handler).await
    }

    /// Returns the record of the request whose handler runs.
    pub fn current() -> Option<Arc<Self>> {
        RECORD.try_with(Arc::clone).ok()
    }

    /// Sets the API key of the request whose handler runs.
    pub fn set_key(name: &str) {
        if let Some(record) = Self::current() {
            let _ = record.key.set(name.into());
        }
    }

    /// Returns the name or number of the API key, if there are keys.
    pub fn key(&self) -> Option<&str> {
        self.key.get().map(String::as_str)
    }
}
