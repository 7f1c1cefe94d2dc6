//! Properties of the server, as llama-server describes them.

use crate::api::body::SpeculativeType;
use crate::api::status::ModelQuery;
use crate::error::ApiError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use wrinklefree::decode::{DecodeMode, Drafter};
use wrinklefree::format::DrafterConfig;

/// Describes the model and the defaults of requests.
pub async fn props(
    State(server): State<Arc<ServerState>>,
    ModelQuery(name): ModelQuery,
) -> Result<Json<Value>, ApiError> {
    let model = server.loaded(name.as_deref())?;
    let (defaults, own) = (&model.defaults, &model.sampling);
    let mode = model.settings.mode(&model.capabilities()).unwrap_or_default();
    let (longest, least) = drafts(&mode);
    let special = |name: &str| {
        let template = model.template.as_ref()?;
        template.special().get(name).cloned()
    };
    let eos = defaults.eos.first().and_then(|&id| model.tokenizer.token(id));
    Ok(Json(json!({
        "default_generation_settings": {
            "n_ctx": model.context,
            "params": {
                "n_predict": -1,
                "temperature": defaults.temperature.unwrap_or(1.0),
                "top_k": defaults.top_k.unwrap_or(0),
                "top_p": defaults.top_p.unwrap_or(1.0),
                "min_p": own.min_p.unwrap_or(0.0),
                "repeat_penalty": defaults.repetition_penalty.unwrap_or(1.0),
                "presence_penalty": own.presence_penalty.unwrap_or(0.0),
                "frequency_penalty": own.frequency_penalty.unwrap_or(0.0),
                "seed": -1,
                "stop": [],
                "speculative.type": SpeculativeType::of(&mode),
                "speculative.n_max": longest,
                "speculative.n_min": 0,
                "speculative.p_min": least,
            },
        },
        "total_slots": model.slots.count(),
        "model_alias": model.name,
        "model_path": model.name,
        "draft_model": model.drafter.as_ref().map(DrafterConfig::describe),
        "modalities": {"vision": false, "audio": false},
        "chat_template": model.template.as_ref().map_or("", |template| template.source()),
        "bos_token": special("bos_token").unwrap_or_default(),
        "eos_token": eos.unwrap_or_default(),
        "build_info": concat!("wf-run ", env!("CARGO_PKG_VERSION")),
        "is_sleeping": false,
    })))
}

/// Returns the greatest length of a mode's drafts, and the confidence below which they end.
fn drafts(mode: &DecodeMode) -> (usize, f32) {
    match mode {
        DecodeMode::Verify { drafter, .. } => match *drafter {
            Drafter::Denoise { length, .. } | Drafter::Ngram { length, .. } => (length, 0.0),
            Drafter::Net { length, threshold, .. } => (length, threshold),
        },
        _ => (0, 0.0),
    }
}

/// Refuses adapters by name.
pub async fn no_adapters() -> ApiError {
    let message = "LoRA adapters are not supported: merge them into the model before converting it";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", message)
}
