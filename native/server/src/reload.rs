//! Reloads API keys and certificates on SIGHUP.

use super::access::keys::ApiKeys;
use super::state::ServerState;
use super::transport::tls::Tls;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use wf_run_cli::signals;

/// Keys and certificate, which can be replaced while the server runs.
pub struct Access {
    /// Accepted API keys.
    pub keys: ApiKeys,
    /// Certificate for HTTPS; `None` for plain HTTP.
    pub tls: Option<Tls>,
}

/// Reads [`Access`] again from the files that the configuration names.
pub type AccessReader = Arc<dyn Fn() -> anyhow::Result<Access> + Send + Sync>;

/// Reloads at each SIGHUP, which must not end the server. Never returns.
pub async fn reload_on_hangup(read: AccessReader, server: &ServerState, tls: Option<Tls>) {
    signals::on_hangup(async || reload(read.clone(), server, tls.as_ref()).await).await;
}

/// Replaces keys and certificate, or keeps both if a file cannot be used.
async fn reload(read: AccessReader, server: &ServerState, tls: Option<&Tls>) {
    // A pipe or a slow disk must not keep the server from accepting connections.
    let access = spawn_blocking(move || read()).await;
    match access.unwrap_or_else(|panic| Err(panic.into())) {
        Ok(new) => {
            if let (Some(tls), Some(new)) = (tls, &new.tls) {
                tls.replace(new);
            }
            server.replace_keys(&new.keys);
            let (keys, certificate) = (new.keys.count(), tls.is_some());
            tracing::info!(keys, certificate, "reloaded API keys and certificate");
        }
        Err(error) => {
            tracing::error!("SIGHUP: kept the old API keys and certificate: {error:#}");
        }
    }
}
