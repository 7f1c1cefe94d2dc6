//! Requests of web pages: a page may use this server if it is its own page or its origin is listed.
//!
//! Any page that a user visits can send requests to a server on the user's machine. Browsers say which
//! page a request comes from, in `Origin` and `Sec-Fetch-Site`; pages cannot change these headers.
//! Programs send neither.

use crate::error::ApiError;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use wf_run_cli::config::Origin;

/// Says where a request comes from, relative to the server: `same-origin`, `same-site`, `cross-site`,
/// or `none` for a user's own navigation.
const FETCH_SITE: &str = "sec-fetch-site";
/// Says what a request is for; `navigate` opens a page.
const FETCH_MODE: &str = "sec-fetch-mode";
/// Pages that other sites may link to.
const PAGES: [&str; 3] = ["/", "/docs", "/demo/"];

/// Refuses requests of pages from origins other than the server's own and `origins`.
pub fn restrict(router: Router, origins: Vec<Origin>) -> Router {
    let origins: Arc<[Origin]> = origins.into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let origins = origins.clone();
        async move {
            match refusal(&request, &origins) {
                None => next.run(request).await,
                Some(response) => response,
            }
        }
    }))
}

fn refusal(request: &Request, origins: &[Origin]) -> Option<Response> {
    let headers = request.headers();
    if !headers.contains_key(header::ORIGIN) && !headers.contains_key(FETCH_SITE) {
        return None;
    }
    if let Some(page) = foreign_page(request, origins) {
        let message = format!(
            "requests of web pages from {page} are not allowed: to allow them, start the server with \
             --cors-origin and this origin"
        );
        return Some(
            ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", message).into_response(),
        );
    }
    let has_body = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if has_body && !is_json(headers) {
        // Browsers let any page send text and forms; JSON only after the server agrees.
        let message = "a web page must send `content-type: application/json`";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Some(ApiError::new(status, "unsupported_media_type", message).into_response());
    }
    None
}

/// Returns the origin of a request's page, unless it is allowed.
fn foreign_page(request: &Request, origins: &[Origin]) -> Option<String> {
    if origins.iter().any(Origin::is_any) {
        return None;
    }
    let headers = request.headers();
    let sites = || headers.get_all(FETCH_SITE).iter();
    let own_site = sites().all(|site| site == "same-origin" || site == "none");
    let mut listed = true;
    for origin in headers.get_all(header::ORIGIN) {
        let known = origins.iter().any(|listed| listed.header() == origin);
        listed &= known;
        let own = own_site && origin.to_str().is_ok_and(|origin| is_own(origin, headers));
        if !known && !own {
            return Some(format!("{:?}", origin.to_str().unwrap_or("?")));
        }
    }
    let linked = || {
        let navigates = headers.get(FETCH_MODE).is_some_and(|mode| mode == "navigate");
        navigates && request.method() == Method::GET && PAGES.contains(&request.uri().path())
    };
    let listed = listed && headers.contains_key(header::ORIGIN);
    (!own_site && !listed && !linked()).then(|| "another site".into())
}

/// Returns true if a page of this origin came from the host that the request is for. The scheme may
/// differ: a proxy may have ended TLS.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let Some((scheme, origin)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let without = |host: &str| host.strip_suffix(default_port).unwrap_or(host).to_lowercase();
    host.is_some_and(|host| without(host) == without(origin))
}

/// Returns true if the content type is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    const JSON: (&str, &str) = ("content-type", "application/json");

    fn status(method: &str, path: &str, headers: &[(&str, &str)], origins: &[&str]) -> u16 {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", "localhost:30000");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let origins: Vec<Origin> = origins.iter().map(|o| o.parse().expect("an origin")).collect();
        let request = request.body(Body::empty()).expect("a request");
        refusal(&request, &origins).map_or(200, |refused| refused.status().as_u16())
    }

    #[test]
    fn foreign_pages_are_refused() {
        let post = |headers: &[(&str, &str)]| status("POST", "/v1/chat/completions", headers, &[]);
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost:3000",
            "http://localhost",
            "http://localhost:30000.evil.example",
            "app://localhost:30000",
        ] {
            assert_eq!(post(&[("origin", origin), JSON]), 403, "{origin}");
        }
        for site in ["cross-site", "same-site", "unknown"] {
            assert_eq!(post(&[("sec-fetch-site", site), JSON]), 403, "{site}");
            let own = ("origin", "http://localhost:30000");
            assert_eq!(post(&[own, ("sec-fetch-site", site), JSON]), 403, "{site}");
        }
        let two = [("origin", "http://localhost:30000"), ("origin", "https://evil.example"), JSON];
        assert_eq!(post(&two), 403);
        let cross = ("sec-fetch-site", "cross-site");
        assert_eq!(status("GET", "/v1/models", &[cross, ("sec-fetch-mode", "navigate")], &[]), 403);
        assert_eq!(status("GET", "/", &[cross, ("sec-fetch-mode", "no-cors")], &[]), 403);
        assert_eq!(
            status("GET", "/", &[cross, ("sec-fetch-mode", "navigate")], &[]),
            200,
            "a link"
        );
    }

    #[test]
    fn own_and_listed_pages_send_json() {
        let post = |headers: &[(&str, &str)], origins: &[&str]| {
            status("POST", "/v1/chat/completions", headers, origins)
        };
        let (own, site) = (("origin", "http://localhost:30000"), ("sec-fetch-site", "same-origin"));
        assert_eq!(post(&[own, site, JSON], &[]), 200);
        assert_eq!(post(&[("origin", "https://localhost:30000"), JSON], &[]), 200, "behind TLS");
        let page = ("origin", "https://app.example.org");
        let cross = ("sec-fetch-site", "cross-site");
        assert_eq!(post(&[page, cross, JSON], &["https://app.example.org"]), 200);
        assert_eq!(post(&[page, cross, JSON], &["*"]), 200);
        assert_eq!(post(&[page, cross, JSON], &["https://other.example.org"]), 403);
        let form = "application/x-www-form-urlencoded";
        for kind in ["text/plain", form, "multipart/form-data", "text/plain; application/json"] {
            assert_eq!(post(&[own, ("content-type", kind)], &[]), 415, "{kind}");
            assert_eq!(post(&[site, ("content-type", kind)], &[]), 415, "{kind}");
            assert_eq!(post(&[("content-type", kind)], &[]), 200, "a program: {kind}");
        }
        assert_eq!(post(&[own], &[]), 415, "no content type");
        assert_eq!(post(&[own, ("content-type", "Application/JSON; charset=utf-8")], &[]), 200);
        assert_eq!(status("GET", "/v1/models", &[own, site], &[]), 200);
    }
}
