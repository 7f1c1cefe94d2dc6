//! A client of `wf-run serve`, for the commands that ask a server.

use super::exit::usage;
use anyhow::Context;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Options that name a server.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Address of the server
    ///
    /// [default: 127.0.0.1, at the port of WF_PORT or 30000; with HTTPS if WF_TLS_CERT is set]
    url: Option<String>,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value = "3")]
    timeout: u64,
    /// Trust the certificates of this file (PEM)
    ///
    /// Certificates that sign the server's, or the server's own, instead of the usual authorities.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Trust any certificate
    ///
    /// The connection is encrypted, but the server may be another one.
    #[arg(short = 'k', long, conflicts_with = "cacert")]
    insecure: bool,
}

/// A client of one server.
pub struct ServerClient {
    agent: Agent,
    url: String,
}

impl ServerArgs {
    /// Returns the client.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn client(&self) -> anyhow::Result<ServerClient> {
        let time = Duration::from_secs(self.timeout);
        let tls = TlsConfig::builder().disable_verification(self.insecure);
        let tls = match self.roots()? {
            Some(roots) => tls.root_certs(roots),
            None => tls,
        };
        // The server is meant and no proxy between.
        let config = Agent::config_builder().timeout_global(Some(time)).proxy(None);
        let agent = config.tls_config(tls.build()).build().into();
        let url = self.url.clone().unwrap_or_else(local);
        Ok(ServerClient { agent, url: url.trim_end_matches('/').into() })
    }

    /// Reads the certificates to trust.
    fn roots(&self) -> anyhow::Result<Option<RootCerts>> {
        let Some(path) = &self.cacert else { return Ok(None) };
        let name = path.display();
        let pem = fs::read(path).map_err(|e| usage(format!("cannot read {name}: {e}")))?;
        let items = parse_pem(&pem).filter_map(Result::ok);
        let certificates: Vec<_> = items
            .filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            })
            .collect();
        match certificates.is_empty() {
            true => Err(usage(format!("{name} has no certificate: expected PEM blocks with some"))),
            false => Ok(Some(RootCerts::Specific(Arc::new(certificates)))),
        }
    }
}

/// Returns the address of a server on this machine.
fn local() -> String {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let scheme = if set("WF_TLS_CERT").is_some() { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{}", set("WF_PORT").unwrap_or("30000".into()).display())
}

impl ServerClient {
    /// Sends GET with this API key, and returns the body of a response with status 200.
    ///
    /// # Errors
    /// If there is no such response. The error names the address.
    pub fn get(&self, path: &str, key: Option<&str>) -> anyhow::Result<String> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.call().with_context(|| format!("{url} is not well"))?;
        Ok(answer.body_mut().read_to_string()?)
    }
}
