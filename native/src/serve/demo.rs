//! Serves the browser demo at `/demo`. The demo computes on the visitor's machine.

use anyhow::Context;
use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Redirect;
use axum::routing::get;
use std::path::Path;
use tower::ServiceBuilder;
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeaderLayer;

/// Response headers. Browsers need the first two to give a page threads, and the third to give its
/// workers files.
const HEADERS: [(&str, &str); 4] = [
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
];

/// Adds the files of `folder` to `router`. They need no API key.
///
/// # Errors
/// If the folder has no `index.html`.
pub fn serve(router: Router, folder: &Path) -> anyhow::Result<Router> {
    let page = folder.join("index.html");
    page.metadata().with_context(|| {
        let page = page.display();
        format!("cannot serve the demo: {page} is missing; `web/build` makes it in web/demo/dist")
    })?;
    let header = |(name, value)| {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        SetResponseHeaderLayer::overriding(name, value)
    };
    let [a, b, c, d] = HEADERS.map(header);
    let layers = ServiceBuilder::new().layer(a).layer(b).layer(c).layer(d);
    Ok(router
        .route("/demo", get(|| async { Redirect::permanent("/demo/") }))
        .nest_service("/demo/", layers.service(ServeDir::new(folder))))
}
