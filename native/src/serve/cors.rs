//! Which web pages may ask from a browser.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use std::str::FromStr;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser may remember what it was told.
const REMEMBER: Duration = Duration::from_secs(600);
/// Headers of answers that a page may read.
const SHOWN: [HeaderName; 2] = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];

/// Where a web page comes from, as browsers write it; or `*`, anywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let as_browsers_write = || {
            let uri: Uri = text.parse().ok()?;
            let (scheme, place) = (uri.scheme_str()?, uri.authority()?.as_str());
            let same = text == format!("{scheme}://{place}").to_lowercase();
            (same && !place.contains('@')).then(|| HeaderValue::from_str(text).ok())?
        };
        let any = (text == "*").then(|| HeaderValue::from_static("*"));
        any.or_else(as_browsers_write).map(Self).ok_or_else(|| {
            "expected an origin as browsers send it, in small letters and without a path: \
             https://example.org, http://localhost:8080; or *"
                .into()
        })
    }
}

/// Lets pages from these origins ask; none: no page may.
pub fn allow(router: Router, origins: &[Origin]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let listed = || AllowOrigin::list(origins.iter().map(|origin| origin.0.clone()));
    let any = origins.iter().any(|origin| origin.0 == "*");
    router.layer(
        CorsLayer::new()
            .allow_origin(if any { AllowOrigin::any() } else { listed() })
            .allow_methods([Method::GET, Method::POST])
            // Clients send headers of their own; keys are no cookies, so nothing comes by itself.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(SHOWN)
            .max_age(REMEMBER),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for origin in ["*", "https://example.org", "http://localhost:8080", "http://[::1]:80"] {
            assert!(origin.parse::<Origin>().is_ok(), "{origin}");
        }
        for wrong in [
            "",
            "example.org",
            "https://",
            "https://a.org/",
            "https://a.org/x",
            "https://A.org",
            "https://u@a.org",
            "null",
            "https://a b",
            "https://a.org?x",
        ] {
            let error = wrong.parse::<Origin>().expect_err(wrong);
            assert!(error.contains("https://example.org"), "{error}");
        }
    }
}
