//! What the server is and how it is.

use crate::serve::error::ApiError;
use crate::serve::state::{Ready, Server};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// OK as soon as requests can be answered.
pub async fn health(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    server.ready()?;
    Ok(Json(json!({"status": "ok"})))
}

/// This program's version.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

fn card(ready: &Ready) -> Value {
    json!({
        "id": ready.name,
        "object": "model",
        "created": ready.created,
        "owned_by": "wrinklefree",
        "max_model_len": ready.context,
    })
}

/// The models, which is one.
pub async fn models(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    Ok(Json(json!({"object": "list", "data": [card(&ready)]})))
}

/// One model.
pub async fn model(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    if ready.is(&id) {
        return Ok(Json(card(&ready)));
    }
    let message = format!("the model `{id}` does not exist: this server has `{}`", ready.name);
    Err(ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message))
}

/// How busy the engine is.
pub async fn loads(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let stats = ready.worker.stats().await;
    let stats = stats.ok_or_else(|| ApiError::unavailable("the engine has ended"))?;
    Ok(Json(json!({
        "num_running_reqs": stats.running,
        "num_waiting_reqs": stats.waiting,
        "kv_pages": stats.kv_pages,
        "kv_pages_used": stats.kv_pages - stats.free_pages - stats.idle_pages,
        "kv_pages_idle": stats.idle_pages,
    })))
}

/// What runs, and how.
pub async fn server_info(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": ready.name,
        "context": ready.context,
        "vocab_size": ready.vocab,
        "isa": ready.isa,
        "threads": ready.threads.decode,
        "prefill_threads": ready.threads.prefill,
        "kv": {
            "keys": ready.kv.keys.name(),
            "values": ready.kv.values.name(),
            "attention": ready.kv.selection.to_string(),
        },
        "rope": ready.rope,
        "activation_sparsity": ready.activation_sparsity.to_string(),
        "layout": if ready.tight { "tight" } else { "two-bit" },
        "logits": if ready.screened { "screened" } else { "exact" },
        "context_shift": ready.context_shift,
        "chat_template": ready.template.is_some(),
        "block_diffusion": ready.dlm,
    })))
}

/// Metrics for Prometheus.
pub async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], server.metrics.text()).into_response()
}

/// There is nothing there.
pub async fn not_found(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// There is something else there.
pub async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
