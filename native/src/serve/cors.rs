//! Which web pages may ask from a browser.

use crate::config::Origin;
use axum::Router;
use axum::http::{HeaderName, Method, header};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser may remember what it was told.
const REMEMBER: Duration = Duration::from_secs(600);
/// Headers of answers that a page may read.
const SHOWN: [HeaderName; 2] = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];

/// Lets pages from these origins ask; none: no page may.
pub fn allow(router: Router, origins: &[Origin]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let listed = || AllowOrigin::list(origins.iter().map(|origin| origin.header().clone()));
    let any = origins.iter().any(|origin| origin.is_any());
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
