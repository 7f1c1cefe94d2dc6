//! Protection against DNS rebinding: a server without keys answers to known host names only.
//!
//! A web page may point its own domain to 127.0.0.1. A browser then treats our responses as that
//! page's own, but its requests name the page's domain in the `Host` header.

use crate::error::ApiError;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Refuses HTTP/1.1 requests that do not name exactly one host (RFC 9112, section 3.2), and hosts that
/// are not one with or without a port.
pub fn require(router: Router) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        let values = request.headers().get_all(header::HOST);
        let (hosts, invalid) =
            (values.iter().count(), values.iter().any(|host| host_of(host).is_none()));
        let least = usize::from(request.version() >= Version::HTTP_11);
        if (least..=1).contains(&hosts) && !invalid {
            return next.run(request).await;
        }
        let message = if invalid {
            "the `Host` header is not the name or address of a host, with or without a port".into()
        } else {
            format!("the request has {hosts} `Host` headers: HTTP/1.1 needs one")
        };
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_host", message).into_response()
    }))
}

/// Refuses requests for hosts other than this machine and `names`.
pub fn restrict(router: Router, names: Vec<String>) -> Router {
    let names: Arc<[String]> = names.into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let names = names.clone();
        async move {
            match foreign_host(&request, &names) {
                None => next.run(request).await,
                Some(name) => refused(&name),
            }
        }
    }))
}

/// Returns the host that a request is for, unless it is allowed. A request without `Host` comes
/// from no browser and is allowed.
fn foreign_host(request: &Request, names: &[String]) -> Option<String> {
    let headers = request.headers().get_all(header::HOST).iter().map(host_of);
    // HTTP/2 names the host there.
    let authority = request.uri().authority().map(|authority| host(authority.as_str()));
    let mut hosts = headers.chain(authority).map(|host| host.unwrap_or("?").to_lowercase());
    hosts.find(|host| !is_local(host) && !names.iter().any(|n| n.eq_ignore_ascii_case(host)))
}

/// Returns the host of a header's value.
fn host_of(value: &HeaderValue) -> Option<&str> {
    host(value.to_str().ok()?)
}

/// Returns the host of a text that is a name or an address with or without a port; `None` for other texts.
fn host(text: &str) -> Option<&str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        (address, port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        (Some(host).filter(|host| !host.is_empty() && host.chars().all(allowed))?, port)
    };
    // A port may be empty (RFC 3986, section 3.2.3).
    let digits = port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?;
    (digits.len() <= 5 && digits.chars().all(|c| c.is_ascii_digit())).then_some(host)
}

fn is_local(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|a| a.is_loopback())
}

fn refused(name: &str) -> Response {
    let message = format!(
        "the host `{name}` is not allowed: without an API key this server answers to localhost only; \
         start it with --allowed-host {name} or --api-key-file"
    );
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn hosts_are_compared_without_port_and_case() {
        let names = ["models.example.org".to_string()];
        let foreign_host = |hosts: &[&str]| {
            let mut request = Request::builder();
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            super::foreign_host(&request.body(Body::empty()).expect("a request"), &names)
        };
        for ours in ["localhost", "LocalHost:30000", "wf.localhost:1", "127.0.0.1", "127.1.2.3:80"]
        {
            assert_eq!(foreign_host(&[ours]), None, "{ours}");
        }
        for ours in ["[::1]", "[::1]:30000", "models.example.org:443", "Models.Example.org"] {
            assert_eq!(foreign_host(&[ours]), None, "{ours}");
        }
        assert_eq!(foreign_host(&[]), None);
        for other in ["evil.example.org", "localhost.evil.org", "192.168.0.1", "x", "", "[::2]:1"] {
            assert!(foreign_host(&[other]).is_some(), "{other}");
        }
        assert!(foreign_host(&["localhost", "evil.org"]).is_some());
        for wrong in [
            "[::1]evil.org",
            "[::1]:80x",
            "localhost:80:evil.org",
            "localhost:x",
            "localhost@evil.org",
            "user@localhost",
            "localhost/evil",
            "[localhost]",
            "localhost:123456",
        ] {
            assert_eq!(host(wrong), None, "{wrong}");
            assert!(foreign_host(&[wrong]).is_some(), "{wrong}");
        }
        assert_eq!(host("localhost:"), Some("localhost"));
    }
}
