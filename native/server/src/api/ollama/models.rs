//! The models of the server, as Ollama's API describes them.

use super::body::OllamaModelFields;
use crate::api::body::{JsonBody, parse};
use crate::api::openai::models::statuses;
use crate::api::prompt::infill;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::registry::ModelStatus;
use crate::state::ServerState;
use crate::time::{rfc3339, unix_now};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use wrinklefree::text::ReasoningMarkers;

/// Version of Ollama whose API this is: clients look for features by it.
const VERSION: &str = "0.13.0";
/// Time after which a model that stays loaded is said to expire: 100 years.
const FOREVER: Duration = Duration::from_secs(36_525 * 86_400);

/// Lists the models.
pub async fn tags(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let statuses = statuses(&server).await?;
    Ok(Json(json!({"models": statuses.iter().flat_map(cards).collect::<Vec<_>>()})))
}

/// Lists the models that are loaded.
pub async fn ps(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let loaded = |status: &ModelStatus| {
        let served = status.served.as_ref()?;
        let left = status.expires_in.unwrap_or(FOREVER);
        let mut cards = cards(status);
        for card in &mut cards {
            card["expires_at"] = rfc3339(Duration::from_secs(unix_now()) + left).into();
            card["size_vram"] = 0.into();
            card["context_length"] = served.context.into();
        }
        Some(cards)
    };
    let statuses = statuses(&server).await?;
    Ok(Json(json!({"models": statuses.iter().filter_map(loaded).flatten().collect::<Vec<_>>()})))
}

/// Describes a model. Of one that is not in memory, only its files are known.
pub async fn show(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let OllamaModelFields { model: name } = body.prepare(parse).await?;
    let statuses = statuses(&server).await?;
    let status = statuses.iter().find(|status| status.has_name(&name));
    let status = status.ok_or_else(|| server.models.unknown(&name))?;
    let mut description = json!({
        "modelfile": format!("FROM {}\n", status.name),
        "details": details(status.served.as_deref()),
        "modified_at": modified(status),
        "capabilities": ["completion"],
        "model_info": {},
    });
    if let Some(served) = &status.served {
        description["parameters"] = parameters(served).into();
        description["template"] =
            served.template.as_ref().map_or("", |template| template.source()).into();
        description["model_info"] = info(served).into();
        description["capabilities"] = capabilities(served).into();
    }
    Ok(Json(description))
}

/// Returns the version of the API.
pub async fn version() -> Json<Value> {
    Json(json!({"version": VERSION}))
}

/// Refuses an operation on Ollama's own files.
pub async fn unsupported(uri: Uri) -> ApiError {
    let message = format!("{} is not supported by this server", uri.path());
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", message)
}

/// Describes a model in lists, under each of its names. They share a digest.
fn cards(status: &ModelStatus) -> Vec<Value> {
    // A model with files has their size, in memory or not.
    let loaded = status.served.as_ref().map_or(0, |served| served.size.bytes);
    let size = if status.bytes > 0 { status.bytes } else { loaded };
    let card = |name: &String| {
        json!({
            "name": name,
            "model": name,
            "modified_at": modified(status),
            "size": size,
            "digest": digest(&status.name),
            "details": details(status.served.as_deref()),
        })
    };
    std::iter::once(&status.name).chain(&status.names).map(card).collect()
}

/// Returns the time at which a model was changed, if it is known.
fn modified(status: &ModelStatus) -> Option<String> {
    Some(rfc3339(Duration::from_secs(status.changed()?)))
}

/// Returns 64 hexadecimal digits that tell models of different names apart. They are no hash of a file.
pub fn digest(name: &str) -> String {
    let part = |index: u64| {
        let mut hasher = DefaultHasher::new();
        (index, name).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// Describes the shape of a model, if it is in memory.
fn details(model: Option<&ServedModel>) -> Value {
    let family = model.map_or(json!(""), |model| json!(model.spec.architecture));
    json!({
        "parent_model": "",
        "format": "wrinklefree",
        "family": family,
        "families": [family],
        "parameter_size": model.map_or(String::new(), |m| parameter_size(m.size.parameters)),
        "quantization_level": model.map_or("", |model| &model.size.quantization),
    })
}

/// Writes a number of parameters as Ollama does: `1.5B`, `135M`.
fn parameter_size(count: u64) -> String {
    let count = count as f64;
    match count {
        1e9.. => format!("{:.1}B", count / 1e9),
        1e6.. => format!("{:.1}M", count / 1e6),
        _ => format!("{:.1}K", count / 1e3),
    }
}

/// Returns the generation defaults, one on each line.
fn parameters(model: &ServedModel) -> String {
    let defaults = &model.defaults;
    let lines = [
        ("temperature", defaults.temperature.map(|x| x.to_string())),
        ("top_k", defaults.top_k.map(|x| x.to_string())),
        ("top_p", defaults.top_p.map(|x| x.to_string())),
        ("repeat_penalty", defaults.repetition_penalty.map(|x| x.to_string())),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the model's shape under the names of GGUF files.
fn info(model: &ServedModel) -> Map<String, Value> {
    let spec = &model.spec;
    let architecture = json!(spec.architecture).as_str().unwrap_or_default().to_string();
    let mut info = Map::new();
    info.insert("general.architecture".into(), architecture.as_str().into());
    info.insert("general.parameter_count".into(), model.size.parameters.into());
    let numbers = [
        ("context_length", model.context),
        ("embedding_length", spec.hidden_size),
        ("block_count", spec.layers),
        ("feed_forward_length", spec.intermediate_size),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("vocab_size", spec.vocab_size),
    ];
    info.extend(numbers.map(|(name, n)| (format!("{architecture}.{name}"), n.into())));
    info
}

fn capabilities(model: &ServedModel) -> Vec<&'static str> {
    let thinks = |template| ReasoningMarkers::of_template(template).is_some();
    let all = [
        ("completion", true),
        ("insert", infill::is_supported(model)),
        ("tools", model.template.is_some()),
        ("thinking", model.template.as_ref().is_some_and(thinks)),
    ];
    all.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let sizes = [900, 3_100_000, 134_515_008, 2_412_820_480].map(parameter_size);
        assert_eq!(sizes, ["0.9K", "3.1M", "134.5M", "2.4B"]);
    }
}
