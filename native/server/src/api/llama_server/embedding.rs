//! `POST /embedding` of llama-server.

use super::body::{EMBEDDING, LlamaEmbeddingFields};
use crate::api::body::{GenerationOptions, JsonBody, KnownFields, parse};
use crate::api::openai::embeddings::TextsToEmbed;
use crate::error::ApiError;
use axum::Json;
use serde_json::{Value, json};
use std::sync::LazyLock;
use wrinklefree::decode::Pooling;

/// Norm of embeddings: the Euclidean one.
const NORM: i64 = 2;

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(EMBEDDING, &[]).and(["input"]));

/// Returns the embeddings of texts.
pub async fn embedding(body: JsonBody) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, arrival) = (model.clone(), body.arrival());
    let texts = body.prepare(move |body| {
        let LlamaEmbeddingFields { content, embd_normalize } = parse(body)?;
        FIELDS.check(body)?;
        if embd_normalize.is_some_and(|norm| norm != NORM) {
            let message = "`embd_normalize`: embeddings have the Euclidean norm 1: leave it out";
            return Err(ApiError::bad("embd_normalize", message));
        }
        let salt = GenerationOptions::default().salt(&body.tenant)?;
        TextsToEmbed::encode(&own, content, "content", Pooling::Mean, salt)
    });
    let embeddings = texts.await?.vectors(&model, arrival).await?;
    let entry =
        |(index, vector): (usize, &Vec<f32>)| json!({"index": index, "embedding": [vector]});
    Ok(Json(embeddings.iter().enumerate().map(entry).collect()))
}
