//! Which names a server without keys answers to.
//!
//! A web page may let its own name point to 127.0.0.1 (DNS rebinding). To a browser our answers are then
//! that page's own; but the browser tells the name.

use super::error::ApiError;
use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// Lets requests pass that are for this machine, or for one of these names.
pub fn check(router: Router, names: Vec<String>) -> Router {
    let names: Arc<[String]> = names.into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let names = names.clone();
        async move {
            match foreign(&request, &names) {
                None => next.run(request).await,
                Some(name) => refused(&name),
            }
        }
    }))
}

/// The name that a request is for, if it is none of ours. Who says no name is no browser.
fn foreign(request: &Request, names: &[String]) -> Option<String> {
    let said = request.headers().get_all(header::HOST).iter().map(|value| value.to_str());
    let hosts = said.map(|host| name(host.unwrap_or("?")).to_lowercase());
    hosts
        .into_iter()
        .find(|host| !local(host) && !names.iter().any(|n| n.eq_ignore_ascii_case(host)))
}

/// A host without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn local(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|a| a.is_loopback())
}

fn refused(name: &str) -> Response {
    let message = format!(
        "this server has no API key and answers requests for localhost only, not for `{name}`: start \
         it with --allowed-host {name}, or with --api-key-file"
    );
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn names() {
        let names = ["models.example.org".to_string()];
        let foreign = |hosts: &[&str]| {
            let mut request = Request::builder();
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            foreign(&request.body(Body::empty()).expect("a request"), &names)
        };
        for ours in ["localhost", "LocalHost:30000", "wf.localhost:1", "127.0.0.1", "127.1.2.3:80"]
        {
            assert_eq!(foreign(&[ours]), None, "{ours}");
        }
        for ours in ["[::1]", "[::1]:30000", "models.example.org:443", "Models.Example.org"] {
            assert_eq!(foreign(&[ours]), None, "{ours}");
        }
        assert_eq!(foreign(&[]), None);
        for other in ["evil.example.org", "localhost.evil.org", "192.168.0.1", "x", "", "[::2]:1"] {
            assert!(foreign(&[other]).is_some(), "{other}");
        }
        assert!(foreign(&["localhost", "evil.org"]).is_some());
    }
}
