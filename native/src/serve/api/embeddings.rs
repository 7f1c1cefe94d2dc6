//! `POST /v1/embeddings`.

use super::body::embeddings::{EmbeddingEncoding, EmbeddingFields, PoolingMethod};
use super::body::{GenerationOptions, JsonBody, parse};
use super::generation::Generation;
use crate::serve::client::Arrival;
use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::iter;
use wrinklefree::decode::{DecodeMode, Pooling};
use wrinklefree::engine::Request;

/// Maximum number of texts per request.
const MAX_TEXTS: usize = 2048;
/// Maximum number of texts of a request that the engine has at the same time. The rest waits here so
/// that other requests get their turn.
const CONCURRENT_TEXTS: usize = 8;

/// Returns the embeddings of texts.
pub async fn embeddings(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, arrival) = (model.clone(), body.arrival());
    let prepared = body.prepare(move |body| {
        let options: GenerationOptions = parse(body)?;
        let EmbeddingFields { input, encoding_format, dimensions, pooling } = parse(body)?;
        if let Some(length) = dimensions.filter(|&length| length != own.hidden) {
            let message =
                format!("dimensions is {length}, but this model supports {} only", own.hidden);
            return Err(ApiError::bad("dimensions", message));
        }
        let mode = DecodeMode::Embed(match pooling.unwrap_or_default() {
            PoolingMethod::Mean => Pooling::Mean,
            PoolingMethod::Last => Pooling::Last,
        });
        let texts = input.encode(&own, "input", MAX_TEXTS)?;
        Ok((texts, mode, options.salt(&body.tenant)?, encoding_format.unwrap_or_default()))
    });
    let (texts, mode, cache_salt, encoding) = prepared.await?;
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let requests = texts.into_iter().map(|tokens| {
        let (mode, cache_salt) = (mode.clone(), cache_salt.clone());
        let request = Request { tokens, mode, cache_salt, ..Request::default() };
        embed(&model, arrival, request)
    });
    let embeddings: Vec<Vec<f32>> =
        stream::iter(requests).buffered(CONCURRENT_TEXTS).try_collect().await?;
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let end = format!("],\"model\":{},\"usage\":{usage}}}", json!(model.name));
    let begin = "{\"object\":\"list\",\"data\":[".to_string();
    let data = embeddings.into_iter().enumerate().map(move |(index, embedding)| {
        let embedding = encode(&embedding, encoding);
        let comma = if index == 0 { "" } else { "," };
        format!("{comma}{}", json!({"object": "embedding", "index": index, "embedding": embedding}))
    });
    // The text of many embeddings is several times as large as their numbers, so it is made in pieces.
    let pieces = iter::once(begin).chain(data).chain(iter::once(end)).map(Ok::<_, Infallible>);
    let json = (header::CONTENT_TYPE, "application/json");
    Ok(([json], Body::from_stream(stream::iter(pieces))).into_response())
}

/// Computes one embedding.
async fn embed(
    model: &ServedModel,
    arrival: Arrival,
    request: Request,
) -> Result<Vec<f32>, ApiError> {
    let mut generation = Generation::start(&model.engine, arrival, &[request], 1, "input").await?;
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
