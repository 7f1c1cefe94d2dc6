//! `POST /v1/embeddings`, and `POST /pooling` of vLLM.

pub mod body;

use crate::api::answer::generation::Generation;
use crate::api::body::{
    Body as RequestBody, GenerationOptions, JsonBody, KnownFields, Prompts, parse,
    refuse_unsupported,
};
use crate::engine::arrival::Arrival;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::ids;
use crate::time::unix_now;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use body as embeddings;
use body::{EmbeddingEncoding, EmbeddingFields, PoolingFields, PoolingMethod};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::iter;
use std::sync::LazyLock;
use wrinklefree::decode::{DecodeMode, Pooling};
use wrinklefree::engine::Request;

/// Fields of other endpoints that embeddings have, too.
const SHARED: [&str; 3] = ["cache_salt", "truncate_prompt_tokens", "truncation_side"];
/// Fields of `/v1/embeddings`.
static EMBEDDINGS: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(embeddings::BODY, &[]).and(SHARED));
/// Fields of `/pooling`.
static POOLING: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(embeddings::POOLING, &[]).and(SHARED).and(["messages"]));

/// Maximum number of texts per request.
const MAX_TEXTS: usize = 2048;
/// Maximum number of texts of a request that the engine has at the same time. The rest waits here so
/// that other requests get their turn.
const CONCURRENT_TEXTS: usize = 8;

/// Texts that are tokenized and wait for the engine.
pub struct TextsToEmbed {
    field: &'static str,
    texts: Vec<Vec<u32>>,
    pooling: Pooling,
    cache_salt: String,
}

impl TextsToEmbed {
    /// Tokenizes texts that came in the field `field`.
    ///
    /// # Errors
    /// If there is none, too many, or one is longer than the context.
    pub fn encode(
        model: &ServedModel,
        texts: Prompts,
        field: &'static str,
        pooling: Pooling,
        cache_salt: String,
    ) -> Result<Self, ApiError> {
        let texts = texts.encode(model, field, MAX_TEXTS)?;
        Ok(Self { field, texts, pooling, cache_salt })
    }

    /// Cuts texts after so many tokens.
    pub fn truncate(&mut self, tokens: usize) {
        self.texts.iter_mut().for_each(|text| text.truncate(tokens));
    }

    /// Returns the number of tokens of all texts.
    pub fn tokens(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    /// Computes the embedding of each text.
    ///
    /// # Errors
    /// If the engine does not accept a text, or the time is over.
    pub async fn vectors(
        self,
        model: &ServedModel,
        arrival: Arrival,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        let Self { field, texts, pooling, cache_salt } = self;
        let requests = texts.into_iter().map(|tokens| {
            let (mode, cache_salt) = (DecodeMode::Embed(pooling), cache_salt.clone());
            let request = Request { tokens, mode, cache_salt, ..Request::default() };
            embed(model, arrival, request, field)
        });
        stream::iter(requests).buffered(CONCURRENT_TEXTS).try_collect().await
    }
}

/// Checks the requested length of embeddings.
///
/// # Errors
/// If it is not the model's own.
pub fn check_dimensions(model: &ServedModel, dimensions: Option<usize>) -> Result<(), ApiError> {
    match dimensions.filter(|&length| length != model.spec.hidden_size) {
        None => Ok(()),
        Some(length) => {
            let message = format!(
                "dimensions is {length}, but this model supports {} only",
                model.spec.hidden_size
            );
            Err(ApiError::bad("dimensions", message))
        }
    }
}

/// Parses and tokenizes a body.
fn prepare(
    body: &RequestBody,
    model: &ServedModel,
) -> Result<(TextsToEmbed, EmbeddingEncoding), ApiError> {
    let options: GenerationOptions = parse(body)?;
    let EmbeddingFields { input, encoding_format, dimensions, pooling } = parse(body)?;
    check_dimensions(model, dimensions)?;
    let pooling = match pooling.unwrap_or_default() {
        PoolingMethod::Mean => Pooling::Mean,
        PoolingMethod::Last => Pooling::Last,
    };
    let salt = options.salt(&body.tenant)?;
    let input = input.cut(model, options.truncates());
    let mut texts = TextsToEmbed::encode(model, input, "input", pooling, salt)?;
    for text in &mut texts.texts {
        *text = options.truncated(std::mem::take(text), model.context)?;
    }
    Ok((texts, encoding_format.unwrap_or_default()))
}

/// Returns the embeddings of texts.
pub async fn embeddings(body: JsonBody) -> Result<Response, ApiError> {
    respond(body, "embedding", json!({})).await
}

/// Returns the embeddings of texts as vLLM's API for pooling does.
pub async fn pooling(body: JsonBody) -> Result<Response, ApiError> {
    respond(body, "pooling", json!({"id": ids::new("pool"), "created": unix_now()})).await
}

/// Returns embeddings as objects of this kind, whose vector is in the field `embedding`, or `data` for
/// pooling. The response also has the fields of `more`.
async fn respond(body: JsonBody, kind: &'static str, more: Value) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, arrival) = (model.clone(), body.arrival());
    let (texts, encoding) = body
        .prepare(move |body| {
            if kind == "pooling" {
                check_pooling(body)?;
            } else {
                EMBEDDINGS.check(body)?;
            }
            prepare(body, &own)
        })
        .await?;
    let tokens = texts.tokens();
    let embeddings = texts.vectors(&model, arrival).await?;
    let mut rest = json!({
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    rest.as_object_mut().into_iter().for_each(|rest| {
        rest.extend(more.as_object().cloned().unwrap_or_default());
    });
    let begin = "{\"object\":\"list\",\"data\":[".to_string();
    let end = format!("],{}", &rest.to_string()[1..]);
    let vector = if kind == "pooling" { "data" } else { "embedding" };
    let data = embeddings.into_iter().enumerate().map(move |(index, embedding)| {
        let comma = if index == 0 { "" } else { "," };
        let embedding = encode(&embedding, encoding);
        format!("{comma}{}", json!({"object": kind, "index": index, vector: embedding}))
    });
    // The text of many embeddings is several times as large as their numbers, so it is made in pieces.
    let pieces = iter::once(begin).chain(data).chain(iter::once(end)).map(Ok::<_, Infallible>);
    let json = (header::CONTENT_TYPE, "application/json");
    Ok(([json], Body::from_stream(stream::iter(pieces))).into_response())
}

/// Checks the fields that only pooling has.
///
/// # Errors
/// If the task is not that of embeddings.
fn check_pooling(body: &RequestBody) -> Result<(), ApiError> {
    refuse_unsupported(body, &["messages"])?;
    POOLING.check(body)?;
    let PoolingFields { task, normalize } = parse(body)?;
    match task.as_deref() {
        None | Some("embed") => {}
        Some(task) => {
            let message = format!("task is `{task}`: this server's models support `embed` only");
            return Err(ApiError::bad("task", message));
        }
    }
    match normalize {
        Some(false) => {
            let message = "`normalize`: embeddings have length 1: leave it out";
            Err(ApiError { code: "unsupported", ..ApiError::bad("normalize", message) })
        }
        _ => Ok(()),
    }
}

/// Computes one embedding.
async fn embed(
    model: &ServedModel,
    arrival: Arrival,
    request: Request,
    field: &str,
) -> Result<Vec<f32>, ApiError> {
    let mut generation = Generation::start(model, arrival, &[request], 1, field).await?;
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
