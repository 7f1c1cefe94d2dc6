//! Reloads API keys and certificates on SIGHUP.

use super::auth::ApiKeys;
use super::state::ServerState;
use super::tls::Tls;

/// Keys and certificate, which can be replaced while the server runs.
pub struct Access {
    /// Accepted API keys.
    pub keys: ApiKeys,
    /// Certificate for HTTPS; `None` for plain HTTP.
    pub tls: Option<Tls>,
}

/// Reads [`Access`] again from the files that the configuration names.
pub type AccessReader = Box<dyn Fn() -> anyhow::Result<Access> + Send>;

/// Waits for SIGHUP, which must not end the server, and reloads each time. Never returns.
#[cfg(unix)]
pub async fn reload_on_hangup(read: AccessReader, server: &ServerState, tls: Option<Tls>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        tracing::warn!("cannot handle SIGHUP: it ends the server");
        return std::future::pending().await;
    };
    while hangups.recv().await.is_some() {
        reload(&read, server, tls.as_ref());
    }
    std::future::pending().await
}

/// Never returns: only Unix has SIGHUP.
#[cfg(not(unix))]
pub async fn reload_on_hangup(read: AccessReader, server: &ServerState, tls: Option<Tls>) {
    let _ = (read, server, tls, reload);
    std::future::pending().await
}

/// Replaces keys and certificate, or keeps both if a file cannot be used.
fn reload(read: &AccessReader, server: &ServerState, tls: Option<&Tls>) {
    match read() {
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
