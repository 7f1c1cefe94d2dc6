//! The chat page at `/` and the reference at `/docs`: files embedded in the program, which load nothing
//! from elsewhere.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// Content security policy: the page may load its own files and talk to its own server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Type of the pages.
const HTML: &str = "text/html; charset=utf-8";
/// Type of their styles.
const CSS: &str = "text/css; charset=utf-8";
/// Type of their scripts.
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Files of the pages: path, type and text.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/theme.css", CSS, include_str!("page/theme.css")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/chat.js", SCRIPT, include_str!("page/chat.js")),
    ("/page/api.js", SCRIPT, include_str!("page/api.js")),
    ("/page/conversations.js", SCRIPT, include_str!("page/conversations.js")),
    ("/page/files.js", SCRIPT, include_str!("page/files.js")),
    ("/page/markdown.js", SCRIPT, include_str!("page/markdown.js")),
    ("/page/messages.js", SCRIPT, include_str!("page/messages.js")),
    ("/docs", HTML, include_str!("page/docs.html")),
    ("/page/docs.css", CSS, include_str!("page/docs.css")),
    ("/page/docs.js", SCRIPT, include_str!("page/docs.js")),
];

/// Returns the routes of the pages. They need no API key: the files hold no secret, and the pages ask
/// for the key themselves.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(move || file(kind, text)))
    })
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
