//! A line for each request, and nobody hears of a panic but its own client.

use super::error::ApiError;
use super::state::Server;
use crate::cli::exit::usage;
use crate::config::LogFormat;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Instant;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, registry};

/// Names a request in logs and answers.
const REQUEST_ID: &str = "x-request-id";

/// The variable that chooses what is logged.
const WF_LOG: &str = "WF_LOG";

/// What to log: `WF_LOG`, or what an administrator wants to know.
fn filter() -> anyhow::Result<EnvFilter> {
    let asked = env::var(WF_LOG).unwrap_or_default();
    let asked = if asked.trim().is_empty() { "info" } else { asked.trim() };
    let levels = "off, error, warn, info, debug, trace";
    // A word alone could be a module too, of which there would be nothing to log.
    let filter = match asked.contains(['=', ',', '[']) {
        true => asked.parse::<EnvFilter>().ok(),
        false => asked.parse::<LevelFilter>().ok().map(|level| EnvFilter::new(level.to_string())),
    };
    filter.ok_or_else(|| {
        usage(format!("{WF_LOG}={asked}: expected one of {levels}, or as `wf_run=debug,warn`"))
    })
}

/// Starts logging to standard error. `WF_LOG` chooses what (`warn`, `debug`…).
///
/// # Errors
/// When that cannot be understood.
pub fn start(format: LogFormat) -> anyhow::Result<()> {
    let filter = filter()?;
    #[cfg(feature = "otlp")]
    let filter = filter.add_directive(super::otlp::unlogged());
    let lines = layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let log = registry().with(lines.with_filter(filter));
    #[cfg(feature = "otlp")]
    let log = log.with(super::otlp::layer()?);
    log.init();
    Ok(())
}

/// Logs and counts requests.
pub async fn requests(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let id = request.headers().get(REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let id = id.unwrap_or_else(|| {
        let fresh = super::api::id("req");
        HeaderValue::from_str(&fresh).expect("letters and digits")
    });
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    if status >= 400 {
        server.metrics.refused(status);
    }
    tracing::info!(
        id = id.to_str().unwrap_or("?"),
        %method,
        path,
        status,
        milliseconds = begin.elapsed().as_millis() as u64,
        "request"
    );
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The answer to a request whose handler panicked, which is a bug.
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
    tracing::error!(text, "a request panicked");
    let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, "internal");
    ApiError::new(status, code, "a bug in the server: its log says more").into_response()
}
