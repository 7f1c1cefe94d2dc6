//! Logging, the access log and the response to a panic.

use super::log_writer::LogWriter;
use super::metrics::Metrics;
use super::request_log::RequestRecord;
use crate::error::ApiError;
use crate::ids;
use anyhow::Context;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
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
use wf_run_cli::config::LogFormat;
use wf_run_cli::exit::usage;

/// Header that identifies a request in logs and responses.
const REQUEST_ID: &str = "x-request-id";
/// Name of that header in Anthropic's API.
const ANTHROPIC_REQUEST_ID: &str = "request-id";

/// Environment variable with the log filter.
const WF_LOG: &str = "WF_LOG";

/// Paths that programs ask for again and again, to see whether the server is well.
const PROBES: [&str; 2] = ["/health", "/metrics"];
/// Types of bodies that are streams.
const STREAMS: [&str; 2] = ["text/event-stream", "application/x-ndjson"];

/// Returns true if the body of a response is a stream.
fn streams(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    STREAMS.iter().any(|stream| kind.starts_with(stream))
}

/// Returns the filter in `WF_LOG`, or `info`. `wf_run` names all crates of the program, since their names begin
/// with it.
fn filter() -> anyhow::Result<EnvFilter> {
    let asked = env::var_os(WF_LOG).unwrap_or_default().to_string_lossy().into_owned();
    let asked = if asked.trim().is_empty() { "info" } else { asked.trim() };
    let levels = "off, error, warn, info, debug, trace";
    // `EnvFilter` would read a misspelled level as the name of a module and log nothing.
    let filter = if asked.contains(['=', ',', '[']) {
        asked.parse::<EnvFilter>().ok()
    } else {
        asked.parse::<LevelFilter>().ok().map(|level| EnvFilter::new(level.to_string()))
    };
    filter.ok_or_else(|| {
        usage(format!(
            "{WF_LOG}={asked}: expected one of {levels}, or a filter such as `wf_run=debug,warn`"
        ))
    })
}

/// Starts logging to standard error. `WF_LOG` sets the level or a filter.
///
/// # Errors
/// If `WF_LOG` is invalid.
pub fn start(format: LogFormat) -> anyhow::Result<()> {
    let filter = filter()?;
    #[cfg(feature = "otlp")]
    let filter = filter.add_directive(super::otlp::log_directive());
    let writer = LogWriter::start().context("cannot start the log")?;
    let lines = layer().with_writer(writer).with_ansi(io::stderr().is_terminal());
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

/// Middleware: logs each request, counts errors and adds the request's id to the response.
pub(crate) async fn requests(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let begin = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let id = request.headers().get(REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let id = id.unwrap_or_else(|| {
        let fresh = ids::new("req");
        HeaderValue::from_str(&fresh).expect("letters and digits")
    });
    let record = RequestRecord::new(id.to_str().unwrap_or("?"));
    let mut response = record.scope(next.run(request)).await;
    let status = response.status().as_u16();
    if status >= 400 {
        metrics.refused(status);
    }
    let milliseconds = begin.elapsed().as_millis() as u64;
    // The body of a stream follows; the line `answered` has the time to its end.
    let (head, whole) =
        if streams(&response) { (Some(milliseconds), None) } else { (None, Some(milliseconds)) };
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                id = id.to_str().unwrap_or("?"),
                %method,
                path,
                status,
                head_milliseconds = head,
                milliseconds = whole,
                "request"
            )
        };
    }
    // Probes come every few seconds, and only their failures are of interest.
    if status < 400 && PROBES.contains(&path.as_str()) {
        log!(debug)
    } else {
        log!(info)
    }
    // Anthropic's clients look for the second name.
    response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id.clone());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Logs a panic of a handler and answers with status 500.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
    tracing::error!(text, "request handler panicked");
    let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, "internal");
    ApiError::new(status, code, "internal error: the server's log has the details").into_response()
}
