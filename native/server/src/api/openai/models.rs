//! `/v1/models`: the models, their states, and endpoints that load and unload them.

use crate::api::body::model::{LoadFields, ModelFields};
use crate::api::body::{JsonBody, parse};
use crate::error::ApiError;
use crate::registry::ModelStatus;
use crate::state::ServerState;
use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};
use std::sync::Arc;
use wrinklefree::format::DrafterConfig;

/// Describes a model as OpenAI's API does, with its state as llama-server's router does.
fn model_card(status: &ModelStatus) -> Value {
    let mut card = json!({
        "id": status.name,
        "object": "model",
        "created": status.changed().unwrap_or(0),
        "owned_by": "wrinklefree",
        "root": status.name,
        "parent": null,
        "status": {"value": status.state},
    });
    if !status.aliases.is_empty() {
        card["aliases"] = json!(status.aliases);
    }
    if let Some(served) = &status.served {
        card["max_model_len"] = served.context.into();
        // As llama-server has it; the chat page chooses its suggestions by the number of parameters.
        card["meta"] = json!({
            "n_params": served.size.parameters,
            "n_vocab": served.vocab,
            "n_embd": served.spec.hidden_size,
            "n_ctx_train": served.spec.context_length,
            "size": served.size.bytes,
            // The page shows how answers are denoised.
            "denoises": served.denoises(),
            "drafter": served.drafter.as_ref().map(DrafterConfig::describe),
        });
    }
    if status.bytes > 0 {
        card["size"] = status.bytes.into();
    }
    if status.state == "loading" && status.downloaded > 0 {
        card["status"]["downloaded_percent"] = status.downloaded.into();
    }
    if let Some(error) = &status.error {
        card["status"]["failed"] = true.into();
        card["status"]["error"] = error.as_str().into();
    }
    card
}

/// Describes a model under each of its names that lists have.
fn model_cards(status: &ModelStatus) -> Vec<Value> {
    let first = model_card(status);
    let named = |name: &String| {
        let mut card = first.clone();
        card["id"] = name.as_str().into();
        card
    };
    let others: Vec<Value> = status.names.iter().map(named).collect();
    [vec![first], others].concat()
}

/// Lists the models.
///
/// # Errors
/// 503 while the only model of a server is loading.
pub async fn models(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let cards: Vec<Value> = statuses(&server).await?.iter().flat_map(model_cards).collect();
    Ok(Json(json!({"object": "list", "data": cards})))
}

/// Describes one model.
///
/// # Errors
/// 404 for another model's name.
pub async fn model(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let statuses = statuses(&server).await?;
    let found = statuses.iter().find(|status| status.has_name(&id));
    found.map(|status| Json(model_card(status))).ok_or_else(|| server.models.unknown(&id))
}

/// Loads a model, and answers when it is in memory.
///
/// # Errors
/// As for every request that names the model.
pub async fn load(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let fields: LoadFields = body.prepare(parse).await?;
    if let Some(time) = fields.keep_alive {
        server.models.keep_alive(&model.name, time.0);
    }
    Ok(Json(json!({"success": true, "model": model.name})))
}

/// Unloads a model, and answers when its running requests have ended.
///
/// # Errors
/// 404 for an unknown model, and 400 for the only one of a server.
pub async fn unload(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let ModelFields { model } = body.prepare(parse).await?;
    let missing = || ApiError {
        code: "missing_field",
        ..ApiError::bad("model", "name the model that is to be unloaded")
    };
    let model = model.ok_or_else(missing)?;
    server.models.unload(&model).await?;
    Ok(Json(json!({"success": true, "model": model})))
}

/// Returns the states of all models.
///
/// # Errors
/// 503 during shutdown, and while the only model of a server is loading.
pub async fn statuses(server: &Arc<ServerState>) -> Result<Vec<ModelStatus>, ApiError> {
    server.serves()?;
    if !server.models.on_demand() {
        server.loaded(None)?;
    }
    server.models.rescan().await;
    Ok(server.models.list())
}
