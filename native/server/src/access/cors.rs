//! CORS: the web pages that may use the server from a browser.

use axum::Router;
use axum::http::{HeaderName, Method, header};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use wf_run_cli::config::Origin;

/// Time for which browsers may cache a preflight response.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Response headers that pages may read.
const EXPOSED: [HeaderName; 2] = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];

/// Allows pages from `origins` to send requests. With an empty list no page may.
pub fn allow(router: Router, origins: &[Origin]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let listed = || AllowOrigin::list(origins.iter().map(|origin| origin.header().clone()));
    let any = origins.iter().any(|origin| origin.is_any());
    router.layer(
        CorsLayer::new()
            .allow_origin(if any { AllowOrigin::any() } else { listed() })
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            // Clients send various headers. Keys are not cookies: browsers never add them.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(EXPOSED)
            .max_age(MAX_AGE),
    )
}
