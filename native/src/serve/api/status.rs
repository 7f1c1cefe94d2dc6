//! State of the server: health, version, models, load, metrics and configuration.

use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use crate::serve::state::ServerState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns 200 once the model is loaded, and 503 before and during shutdown.
pub async fn health(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    server.model()?;
    Ok(Json(json!({"status": "ok"})))
}

/// Returns the version of the program.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// Describes the model as OpenAI's API does.
fn model_card(model: &ServedModel) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "wrinklefree",
        "max_model_len": model.context,
    })
}

/// Lists the models, of which there is one.
pub async fn models(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    Ok(Json(json!({"object": "list", "data": [model_card(&model)]})))
}

/// Describes one model.
///
/// # Errors
/// 404 for another model's name.
pub async fn model(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    if model.has_name(&id) {
        return Ok(Json(model_card(&model)));
    }
    let message = format!("the model `{id}` does not exist: this server has `{}`", model.name);
    Err(ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message))
}

/// Returns the load of the engine.
pub async fn loads(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let stats = model.engine.stats().await;
    let stats = stats.ok_or_else(|| ApiError::unavailable("the engine has stopped"))?;
    Ok(Json(json!({
        "num_running_reqs": stats.running,
        "num_waiting_reqs": stats.waiting,
        "kv_pages": stats.kv_pages,
        "kv_pages_used": stats.kv_pages - stats.free_pages - stats.idle_pages,
        "kv_pages_idle": stats.idle_pages,
        "state_snapshots": stats.snapshots,
        "state_bytes": stats.state_bytes,
    })))
}

/// Describes the model and its configuration.
pub async fn server_info(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
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
        "rope": model.rope,
        "activation_sparsity": model.activation_sparsity.to_string(),
        "layout": if model.tight { "tight" } else { "two-bit" },
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
