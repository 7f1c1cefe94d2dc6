//! TLS for HTTPS connections.

use super::http2;
use anyhow::Context;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;
use wf_run_cli::exit::usage;

/// Time limit for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts TLS connections. Clones share their certificate.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<TlsAcceptor>>);

impl Tls {
    /// Reads a certificate chain, the server's own certificate first, and its private key. Both files
    /// are PEM.
    ///
    /// # Errors
    /// If a file cannot be used or the two do not match. The error names the files.
    pub fn read(certificates: &Path, key: &Path) -> anyhow::Result<Self> {
        let names = (certificates.display(), key.display());
        let chain = CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
        let chain: Vec<_> = chain.map_err(|e| pem_error(e, "certificate", certificates))?;
        if chain.is_empty() {
            return Err(pem_error(pem::Error::NoItemsFound, "certificate", certificates));
        }
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|e| pem_error(e, "private key", key))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_no_client_auth()
            .with_single_cert(chain, private);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(_) => usage(format!(
                "the private key {} does not match the certificate {}",
                names.1, names.0
            )),
            e => usage(format!(
                "cannot use the certificate {} with the key {}: {e}",
                names.0, names.1
            )),
        })?;
        config.alpn_protocols = vec![http2::ALPN.to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(RwLock::new(TlsAcceptor::from(Arc::new(config))))))
    }

    /// Uses the certificate of `other` for new connections.
    pub fn replace(&self, other: &Self) {
        let acceptor = other.acceptor();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Performs the handshake with a client within `limit`, or within 10 s if that is less.
    ///
    /// # Errors
    /// If it fails or takes too long.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        limit: Duration,
    ) -> io::Result<TlsStream<S>> {
        timeout(limit.min(HANDSHAKE_TIMEOUT), self.acceptor().accept(stream)).await?
    }
}

/// Describes why a PEM file cannot be used.
fn pem_error(error: pem::Error, what: &str, path: &Path) -> anyhow::Error {
    let name = path.display();
    usage(match error {
        pem::Error::Io(e) => format!("cannot read the {what} {name}: {e}"),
        pem::Error::NoItemsFound => format!("{name} has no {what}: expected a PEM block with one"),
        e => format!("{name} is not a PEM file with a {what}: {e}"),
    })
}
