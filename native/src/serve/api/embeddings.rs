//! `POST /v1/embeddings`.

use super::Body;
use super::generation::Generation;
use super::openapi::{Part, part};
use super::options::{Options, parse};
use super::prompts::Prompts;
use crate::serve::error::ApiError;
use crate::serve::state::{Ready, Server};
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;
use wrinklefree::decode::{DecodeMode, Pooling};
use wrinklefree::engine::Request;

/// Texts of one request at most.
const MAX_TEXTS: usize = 2048;
/// Those of them that are with the engine at the same time: others want something too.
const AT_ONCE: usize = 8;

/// What the document says of a body.
pub const BODY: &[Part] = &[part::<Embed>];

/// The fields.
#[derive(Deserialize, ToSchema)]
struct Embed {
    input: Prompts,
    encoding_format: Option<Encoding>,
    /// The model's own number, if any.
    dimensions: Option<usize>,
    /// How the hidden states of a text become one vector.
    pooling: Option<PoolingName>,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    #[default]
    Float,
    /// f32 in little endian.
    Base64,
}

/// Our own field.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PoolingName {
    #[default]
    Mean,
    Last,
}

impl Encoding {
    fn write(self, vector: &[f32]) -> Value {
        match self {
            Self::Float => json!(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                STANDARD.encode(bytes).into()
            }
        }
    }
}

/// Vectors of texts.
pub async fn embeddings(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    let (options, embed): (Options, Embed) = (parse(&body)?, parse(&body)?);
    options.check_model(&ready)?;
    if let Some(asked) = embed.dimensions.filter(|&asked| asked != ready.hidden) {
        let message = format!("dimensions is {asked}, but the model has {} only", ready.hidden);
        return Err(ApiError::bad("dimensions", message));
    }
    let (own, input) = (ready.clone(), embed.input);
    let texts = spawn_blocking(move || input.encode(&own, "input", MAX_TEXTS)).await;
    let texts = texts.map_err(ApiError::internal)??;
    let mode = DecodeMode::Embed(match embed.pooling.unwrap_or_default() {
        PoolingName::Mean => Pooling::Mean,
        PoolingName::Last => Pooling::Last,
    });
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let requests = texts.into_iter().map(|tokens| {
        let (mode, cache_salt) = (mode.clone(), options.salt(&tenant));
        vector(
            &ready,
            Request { tokens, mode, cache_salt, ..Request::default() },
            server.limits.time,
        )
    });
    let vectors: Vec<Vec<f32>> = stream::iter(requests).buffered(AT_ONCE).try_collect().await?;
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = embed.encoding_format.unwrap_or_default().write(vector);
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    Ok(Json(json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": ready.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

async fn vector(ready: &Ready, request: Request, time: Duration) -> Result<Vec<f32>, ApiError> {
    let mut generation = Generation::start(&ready.worker, (&[request], 1), "input", time).await?;
    let mut answers = generation.collect().await?;
    Ok(std::mem::take(&mut answers[0].vector))
}
