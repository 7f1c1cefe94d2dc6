//! HTTPS.

use crate::cli::exit::usage;
use anyhow::Context;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The server's side of TLS connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads certificates, the server's own first, and its private key; both PEM.
    ///
    /// # Errors
    /// Names the file that is wrong, or both if they do not fit.
    pub fn read(certificates: &Path, key: &Path) -> anyhow::Result<Self> {
        let names = (certificates.display(), key.display());
        let chain = CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
        let chain: Vec<_> = chain.map_err(|e| wrong(e, "certificate", certificates))?;
        if chain.is_empty() {
            return Err(wrong(pem::Error::NoItemsFound, "certificate", certificates));
        }
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(e, "private key", key))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_no_client_auth()
            .with_single_cert(chain, private);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(_) => usage(format!(
                "the private key {} is not that of the certificate {}",
                names.1, names.0
            )),
            e => usage(format!(
                "cannot use the certificate {} with the key {}: {e}",
                names.0, names.1
            )),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// When that fails or takes too long.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        timeout(HANDSHAKE, self.0.accept(stream)).await?
    }
}

/// What is wrong with a file that should hold a PEM block.
fn wrong(error: pem::Error, what: &str, path: &Path) -> anyhow::Error {
    let name = path.display();
    usage(match error {
        pem::Error::Io(e) => format!("cannot read the {what} {name}: {e}"),
        pem::Error::NoItemsFound => format!("{name} has no {what}: expected a PEM block of one"),
        e => format!("{name} is no PEM file with a {what}: {e}"),
    })
}
