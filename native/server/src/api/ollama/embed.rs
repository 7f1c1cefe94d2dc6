//! `POST /api/embed` and `/api/embeddings`.

use super::body as ollama;
use super::body::{OllamaEmbedFields, OllamaEmbeddingsFields, OllamaLoadFields, check_options};
use crate::api::body::{GenerationOptions, JsonBody, KnownFields, Side, parse};
use crate::api::openai::embeddings::{TextsToEmbed, check_dimensions};
use crate::error::ApiError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use wrinklefree::decode::Pooling;

/// Fields of `/api/embed`.
static EMBED: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::EMBED, &[]).and(["options"]));
/// Fields of `/api/embeddings`.
static EMBEDDINGS: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::EMBEDDINGS, &[]).and(["options"]));

/// Returns the embeddings of texts.
pub async fn embed(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let (arrival, started) = (body.arrival(), Instant::now());
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let texts = body.prepare(move |body| {
        let fields: OllamaEmbedFields = parse(body)?;
        EMBED.check(body)?;
        check_options(body)?;
        let load: OllamaLoadFields = parse(body)?;
        check_dimensions(&own, fields.dimensions)?;
        let salt = GenerationOptions::default().salt(&body.tenant)?;
        let Some(input) = fields.input else { return Ok((None, load)) };
        let truncate = fields.truncate.unwrap_or(true);
        let input = input.cut(&own, truncate.then_some(Side::Right));
        let mut texts = TextsToEmbed::encode(&own, input, "input", Pooling::Mean, salt)?;
        if truncate {
            texts.truncate(own.context);
        }
        Ok((Some(texts), load))
    });
    let (mut tokens, mut embeddings) = (0, Vec::new());
    let (texts, load) = texts.await?;
    load.apply(&server, &model);
    if let Some(texts) = texts {
        (tokens, embeddings) = (texts.tokens(), texts.vectors(&model, arrival).await?);
    }
    Ok(Json(json!({
        "model": model.name,
        "embeddings": embeddings,
        "total_duration": u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "load_duration": 0,
        "prompt_eval_count": tokens,
    })))
}

/// Returns the embedding of one text.
pub async fn embeddings(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let arrival = body.arrival();
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let texts = body.prepare(move |body| {
        let fields: OllamaEmbeddingsFields = parse(body)?;
        EMBEDDINGS.check(body)?;
        check_options(body)?;
        let load: OllamaLoadFields = parse(body)?;
        let salt = GenerationOptions::default().salt(&body.tenant)?;
        let prompt = fields.prompt.into();
        Ok((TextsToEmbed::encode(&own, prompt, "prompt", Pooling::Mean, salt)?, load))
    });
    let (texts, load) = texts.await?;
    load.apply(&server, &model);
    let embeddings = texts.vectors(&model, arrival).await?;
    Ok(Json(json!({"embedding": embeddings.first()})))
}
