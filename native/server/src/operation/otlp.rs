//! Exports a span for each request to an OpenTelemetry collector (OTLP, protobuf over HTTP).
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and the other standard variables configure it.
//! Without an endpoint nothing is sent.

use anyhow::Context;
use axum::extract::Request;
use axum::response::Response;
use axum::{Router, http};
use bytes::Bytes;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::env;
use std::sync::OnceLock;
use std::time::Duration;
use tower_http::trace::TraceLayer;
use tracing::field::Empty;
use tracing::{Level, Span, Subscriber, info_span};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Directive, Targets};
use tracing_subscriber::registry::LookupSpan;
use ureq::Agent;

/// Target of the request spans, which go to the collector and not to the log.
const TARGET: &str = "otlp";
/// Time limit for sending a batch of spans.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Environment variables that hold the collector's address.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Batches and sends spans; empty if no endpoint is configured.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Returns the directive that keeps request spans out of the log.
pub fn log_directive() -> Directive {
    format!("{TARGET}=off").parse().expect("a directive")
}

/// Returns the layer that exports spans, or `None` if no endpoint is configured.
///
/// # Errors
/// If the exporter cannot be created.
pub fn layer<S>() -> anyhow::Result<Option<impl Layer<S>>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if ENDPOINTS.iter().all(|name| env::var_os(name).is_none_or(|value| value.is_empty())) {
        return Ok(None);
    }
    let config =
        Agent::config_builder().http_status_as_error(false).timeout_global(Some(EXPORT_TIMEOUT));
    let client = Client(config.build().into());
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
    let exporter = exporter.context("cannot create the exporter of spans")?;
    let name = env::var("OTEL_SERVICE_NAME").unwrap_or("wf-run".into());
    let resource = Resource::builder().with_service_name(name).build();
    let provider = SdkTracerProvider::builder().with_resource(resource);
    let provider = provider.with_batch_exporter(exporter).build();
    let layer = OpenTelemetryLayer::new(PROVIDER.get_or_init(|| provider).tracer("wf-run"));
    Ok(Some(layer.with_filter(Targets::new().with_target(TARGET, Level::INFO))))
}

/// Sends the remaining spans.
pub fn shut_down() {
    if let Some(Err(error)) = PROVIDER.get().map(SdkTracerProvider::shutdown) {
        tracing::warn!(%error, "cannot send the last spans");
    }
}

/// Adds a span to each request, from its head to the last byte of its response.
pub fn trace_requests(router: Router) -> Router {
    let layer = TraceLayer::new_for_http().make_span_with(span).on_response(answered);
    router.layer(layer.on_request(()).on_body_chunk(()).on_eos(()).on_failure(()))
}

/// Creates the span of a request, as a child of the client's span if the request names one.
fn span(request: &Request) -> Span {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let span = info_span!(
        target: TARGET,
        "request",
        otel.name = format!("{method} {path}"),
        otel.kind = "server",
        http.request.method = method,
        url.path = path,
        http.response.status_code = Empty,
    );
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
    // Fails if nothing is exported.
    let _ = span.set_parent(parent);
    span
}

fn answered(response: &Response, _: Duration, span: &Span) {
    span.record("http.response.status_code", response.status().as_u16());
}

/// HTTP client of the exporter. It blocks the exporter's own thread.
#[derive(Debug)]
struct Client(Agent);

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        let (head, mut body) = self.0.run(request.map(|body| body.to_vec()))?.into_parts();
        Ok(http::Response::from_parts(head, body.read_to_vec()?.into()))
    }
}
