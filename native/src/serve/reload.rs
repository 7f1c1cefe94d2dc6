//! Reloads API keys and certificates on SIGHUP.

use super::auth::ApiKeys;
use super::state::ServerState;
use super::tls::Tls;
use crate::cli::signals;

/// Keys and certificate, which can be replaced while the server runs.
pub struct Access {
    /// Accepted API keys.
    pub keys: ApiKeys,
    /// Certificate for HTTPS; `None` for plain HTTP.
    pub tls: Option<Tls>,
}

/// Reads [`Access`] again from the files that the configuration names.
pub type AccessReader = Box<dyn Fn() -> anyhow::Result<Access> + Send>;

/// Reloads at each SIGHUP, which must not end the server. Never returns.
pub async fn reload_on_hangup(read: AccessReader, server: &ServerState, tls: Option<Tls>) {
    signals::on_hangup(|| reload(&read, server, tls.as_ref())).await;
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
