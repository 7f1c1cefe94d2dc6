//! The chat page: three files inside the program, which ask for nothing from anywhere else.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// What the browser lets the page do: be itself and talk to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The page and its parts. No key opens them: they hold no secret, and the page asks for the key.
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
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the program has another page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
