//! A client of `wf-run serve`, for the commands that ask a server.

use super::exit::usage;
use anyhow::anyhow;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error};

/// Options that name a server. `host`, `port` and `tls_cert` are keys of the configuration too, so the
/// settings of a server lead to it.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Address: host:port or a URL [default: as set]
    ///
    /// Without it, `host` and `port` of the settings say where the server is, with HTTPS if `tls_cert` is
    /// set.
    #[arg(conflicts_with_all = ["host", "port"])]
    url: Option<String>,
    /// Host that the server listens on
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port that the server listens on
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Certificate of the server, whose existence means HTTPS
    #[arg(long, hide = true)]
    tls_cert: Option<PathBuf>,
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
    // The key `insecure` of the configuration means another thing.
    #[arg(id = "any_certificate", short = 'k', long = "insecure", conflicts_with = "cacert")]
    any_certificate: bool,
}

/// Port of a server whose settings name none.
pub(crate) const PORT: u16 = 30000;

/// A client of one server.
pub struct ServerClient {
    agent: Agent,
    url: String,
    /// Command that starts a server there.
    start: String,
    /// Seconds to wait for an answer.
    timeout: u64,
}

impl ServerArgs {
    /// Returns the client.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn client(&self) -> anyhow::Result<ServerClient> {
        let time = Duration::from_secs(self.timeout);
        let tls = TlsConfig::builder().disable_verification(self.any_certificate);
        let tls = match self.roots()? {
            Some(roots) => tls.root_certs(roots),
            None => tls,
        };
        // The server is meant and no proxy between.
        let config = Agent::config_builder().timeout_global(Some(time)).proxy(None);
        let agent = config.tls_config(tls.build()).build().into();
        let url = self.address().trim_end_matches('/').to_owned();
        let start = if self.port == PORT || self.url.is_some() {
            "wf-run serve".into()
        } else {
            format!("wf-run serve --port {}", self.port)
        };
        Ok(ServerClient { agent, url, start, timeout: self.timeout })
    }

    /// Returns the address as a URL.
    fn address(&self) -> String {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        match &self.url {
            Some(url) if url.contains("://") => url.clone(),
            Some(place) => format!("{scheme}://{place}"),
            None => format!("{scheme}://{}:{}", reachable(&self.host), self.port),
        }
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
        if certificates.is_empty() {
            Err(usage(format!("{name} has no certificate: expected PEM blocks with some")))
        } else {
            Ok(Some(RootCerts::Specific(Arc::new(certificates))))
        }
    }
}

/// Returns the host of a URL that reaches a server which listens on `host`.
fn reachable(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if address.is_unspecified() => "127.0.0.1".into(),
        Ok(IpAddr::V6(address)) if address.is_unspecified() => "[::1]".into(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.into(),
    }
}

impl ServerClient {
    /// Sends GET with this API key, and returns the body of a response with status 200.
    ///
    /// # Errors
    /// If there is no such response. The error says what is at the address and what to do.
    pub fn get(&self, path: &str, key: Option<&str>) -> anyhow::Result<String> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let body = request.call().and_then(|mut answer| answer.body_mut().read_to_string());
        body.map_err(|error| self.explained(&url, error))
    }

    /// Describes why a request failed.
    fn explained(&self, url: &str, error: Error) -> anyhow::Error {
        let Self { url: server, start, timeout, .. } = self;
        match error {
            Error::StatusCode(401 | 403) => {
                anyhow!("{url} refused the API key: give one that the server accepts")
            }
            Error::StatusCode(503) => {
                anyhow!("{url} answered 503: the server is starting, ending or overloaded")
            }
            Error::StatusCode(404) => {
                anyhow!(
                    "{url} answered 404: the server there is not `wf-run serve`; check the address"
                )
            }
            Error::StatusCode(status) => anyhow!("{url} answered {status}"),
            Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                anyhow!("no server listens at {server}; start one with `{start}`")
            }
            Error::Timeout(_) => {
                anyhow!("{server} has not answered within {timeout} s: --timeout waits longer")
            }
            Error::HostNotFound => anyhow!("cannot find the host of {server}: check its name"),
            Error::BadUri(_) | Error::Http(_) => usage(format!(
                "{server} is not an address of a server: expected one as in 127.0.0.1:30000 or \
                 http://127.0.0.1:30000"
            )),
            error => anyhow::Error::new(error).context(format!("cannot ask {url}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        server: ServerArgs,
    }

    #[test]
    fn addresses_are_completed() {
        let address = |args: &[&str]| {
            let args = Only::try_parse_from([&["x"], args].concat());
            args.map(|only| only.server.address()).map_err(|error| error.to_string())
        };
        for (args, want) in [
            (&[][..], "http://127.0.0.1:30000"),
            (&["localhost:30000"], "http://localhost:30000"),
            (&["https://example.org:8443"], "https://example.org:8443"),
            (&["--port", "8080"], "http://127.0.0.1:8080"),
            (&["--host", "0.0.0.0"], "http://127.0.0.1:30000"),
            (&["--host", "::", "--port", "1"], "http://[::1]:1"),
            (&["--host", "fe80::1"], "http://[fe80::1]:30000"),
            (&["--host", "localhost", "--tls-cert", "x.pem"], "https://localhost:30000"),
            (&["10.0.0.1:1", "--tls-cert", "x.pem"], "https://10.0.0.1:1"),
        ] {
            assert_eq!(address(args).as_deref(), Ok(want), "{args:?}");
        }
        let both = address(&["localhost:1", "--port", "2"]).expect_err("two ports");
        assert!(both.contains("cannot be used with"), "{both}");
    }
}
