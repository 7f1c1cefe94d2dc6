//! The chat page at `/`: three files embedded in the program, which load nothing from elsewhere.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// Content security policy: the page may load its own files and talk to its own server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Returns the routes of the page. They need no API key: the files hold no secret, and the page asks
/// for the key itself.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let html = || file("text/html; charset=utf-8", include_str!("page/index.html"));
    let css = || file("text/css; charset=utf-8", include_str!("page/style.css"));
    let js = || file("text/javascript; charset=utf-8", include_str!("page/chat.js"));
    Router::new()
        .route("/", get(html))
        .route("/page/style.css", get(css))
        .route("/page/chat.js", get(js))
}

async fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the program may bring another page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
