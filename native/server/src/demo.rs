//! Serves the browser demo at `/demo`. The demo computes on the visitor's machine.

use anyhow::Context;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use percent_encoding::percent_decode_str;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use tokio::task::spawn_blocking;
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
    let root =
        folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))?;
    let root: Arc<Path> = root.into();
    let inside = from_fn(move |request: Request, next: Next| {
        let root = root.clone();
        async move {
            let path = request.uri().path().to_string();
            match spawn_blocking(move || is_served(&root, &path)).await {
                Ok(true) => next.run(request).await,
                _ => StatusCode::NOT_FOUND.into_response(),
            }
        }
    });
    let layers = ServiceBuilder::new().layer(a).layer(b).layer(c).layer(d).layer(inside);
    Ok(router
        .route("/demo", get(|| async { Redirect::permanent("/demo/") }))
        .nest_service("/demo/", layers.service(ServeDir::new(folder))))
}

/// Returns true if a path of a URL names a file in `root` that may be served: no part of its name
/// begins with a dot, no link leads out of the folder, and it is no device.
fn is_served(root: &Path, path: &str) -> bool {
    let Ok(path) = percent_decode_str(path).decode_utf8() else { return false };
    if path.split(['/', '\\']).any(|part| part.starts_with('.')) || path.contains('\0') {
        return false;
    }
    let within = |path: &Path| {
        path.canonicalize().ok().filter(|real| {
            let own = real.strip_prefix(root).ok();
            own.is_some_and(|own| !own.components().any(|c| is_hidden(c.as_os_str())))
        })
    };
    let Some(real) = within(&root.join(path.trim_start_matches('/'))) else { return false };
    let file = if real.is_dir() { within(&real.join("index.html")) } else { Some(real) };
    file.is_some_and(|file| file.is_file())
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
