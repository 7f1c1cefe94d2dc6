//! State of the server: health, version, models, load, metrics and configuration.

use crate::error::ApiError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// The `model` parameter of a query.
pub struct ModelQuery(pub Option<String>);

impl<S: Sync> FromRequestParts<S> for ModelQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let pairs = parts.uri.query().unwrap_or_default().split('&');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(name, _)| *name == "model").map(|(_, value)| value);
        let decoded = value.map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned());
        Ok(Self(decoded.filter(|name| !name.is_empty())))
    }
}

/// Returns 200 once the server serves requests, and 503 before and during shutdown. A server of one
/// model loads it before.
pub async fn health(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    server.serves()?;
    if !server.models.on_demand() {
        server.loaded(None)?;
    }
    Ok(Json(json!({"status": "ok"})))
}

/// Returns the version of the program.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// Returns the load of the engine.
pub async fn loads(
    State(server): State<Arc<ServerState>>,
    ModelQuery(name): ModelQuery,
) -> Result<Json<Value>, ApiError> {
    let model = server.loaded(name.as_deref())?;
    let stats = model.engine.stats().await;
    let stats = stats.ok_or_else(|| ApiError::unavailable("the engine has stopped"))?;
    Ok(Json(json!({
        "num_running_reqs": stats.running,
        "num_waiting_reqs": stats.waiting,
        "kv_pages": stats.kv_pages,
        "kv_pages_used": stats.kv_pages - stats.free_pages - stats.idle_pages,
        "kv_pages_idle": stats.idle_pages,
        "state_snapshots": stats.snapshots,
        "state_snapshot_limit": stats.snapshot_limit,
        "state_snapshots_dropped": stats.dropped_snapshots,
        "state_bytes": stats.state_bytes,
    })))
}

/// Returns the number of requests that run or wait, as vLLM does.
pub async fn load(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    server.serves()?;
    let statuses = server.models.list();
    let active = statuses.iter().filter_map(|status| Some(status.served.as_ref()?.engine.active()));
    Ok(Json(json!({"server_load": active.sum::<usize>()})))
}

/// Describes the model and its configuration.
pub async fn server_info(
    State(server): State<Arc<ServerState>>,
    ModelQuery(name): ModelQuery,
) -> Result<Json<Value>, ApiError> {
    let model = server.loaded(name.as_deref())?;
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": model.name,
        "context": model.context,
        "vocab_size": model.vocab,
        "isa": model.isa,
        "threads": model.threads.decode,
        "prefill_threads": model.threads.prefill,
        "kv": {
            "keys": model.kv.keys.name(),
            "values": model.kv.values.name(),
            "attention": model.kv.selection.to_string(),
        },
        "rope": model.spec.rope,
        "activation_sparsity": model.activation_sparsity.to_string(),
        "layout": model.layout.name(),
        "logits": if model.screened { "screened" } else { "exact" },
        "context_shift": model.context_shift,
        "chat_template": model.template.is_some(),
        "block_diffusion": model.dlm,
    })))
}

/// Returns the metrics for Prometheus.
pub async fn metrics(State(server): State<Arc<ServerState>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], server.metrics.text()).into_response()
}

/// Creates the 404 for an unknown path.
pub async fn not_found(uri: Uri) -> ApiError {
    let message = format!("no such endpoint: {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// Creates the 405 for an unsupported method.
pub async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
