//! `POST /v1/embeddings`.

use super::body::embeddings::{EmbeddingEncoding, EmbeddingFields, PoolingMethod};
use super::body::{GenerationOptions, JsonBody, parse};
use super::generation::Generation;
use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use crate::serve::state::ServerState;
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use wrinklefree::decode::{DecodeMode, Pooling};
use wrinklefree::engine::Request;

/// Maximum number of texts per request.
const MAX_TEXTS: usize = 2048;
/// Maximum number of texts of a request that the engine has at the same time. The rest waits here so
/// that other requests get their turn.
const CONCURRENT_TEXTS: usize = 8;

/// Returns the embeddings of texts.
pub async fn embeddings(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, tenant }: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    let (options, fields): (GenerationOptions, EmbeddingFields) = (parse(&body)?, parse(&body)?);
    options.check_model(&model)?;
    if let Some(length) = fields.dimensions.filter(|&length| length != model.hidden) {
        let message =
            format!("dimensions is {length}, but this model supports {} only", model.hidden);
        return Err(ApiError::bad("dimensions", message));
    }
    let (own, input) = (model.clone(), fields.input);
    let texts = spawn_blocking(move || input.encode(&own, "input", MAX_TEXTS)).await;
    let texts = texts.map_err(ApiError::internal)??;
    let mode = DecodeMode::Embed(match fields.pooling.unwrap_or_default() {
        PoolingMethod::Mean => Pooling::Mean,
        PoolingMethod::Last => Pooling::Last,
    });
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let requests = texts.into_iter().map(|tokens| {
        let (mode, cache_salt) = (mode.clone(), options.salt(&tenant));
        let request = Request { tokens, mode, cache_salt, ..Request::default() };
        embed(&model, request, server.limits.time)
    });
    let embeddings: Vec<Vec<f32>> =
        stream::iter(requests).buffered(CONCURRENT_TEXTS).try_collect().await?;
    let data = embeddings.iter().enumerate().map(|(index, embedding)| {
        let embedding = encode(embedding, fields.encoding_format.unwrap_or_default());
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    Ok(Json(json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// Computes one embedding.
async fn embed(
    model: &ServedModel,
    request: Request,
    time: Duration,
) -> Result<Vec<f32>, ApiError> {
    let mut generation = Generation::start(&model.engine, &[request], 1, "input", time).await?;
    let mut outputs = generation.collect().await?;
    Ok(std::mem::take(&mut outputs[0].embedding))
}

/// Encodes an embedding for the response.
fn encode(embedding: &[f32], encoding: EmbeddingEncoding) -> Value {
    match encoding {
        EmbeddingEncoding::Float => json!(embedding),
        EmbeddingEncoding::Base64 => {
            let bytes: Vec<u8> = embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
    }
}
