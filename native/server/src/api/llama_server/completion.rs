//! `POST /completion` and `/infill` of llama-server.

use super::body as llama;
use super::body::{
    ExtraFile, InfillFields, LlamaFields, LlamaOutput, LlamaPromptFields, known_fields,
};
use super::formatter::LlamaFormatter;
use crate::api::answer::aside::aside;
use crate::api::answer::loading::{self, SignFormat};
use crate::api::answer::stream;
use crate::api::body::{Body, JsonBody, KnownFields, OutputFormatFields, parse};
use crate::api::prompt::infill::Hole;
use crate::api::prompt::plain_text::PlainText;
use crate::engine::grammars::RequestedGrammar;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::LazyLock;

/// Maximum number of prompts per request.
const MAX_PROMPTS: usize = 32;

/// Fields of `/completion`.
static COMPLETION: LazyLock<KnownFields> = LazyLock::new(|| known_fields(llama::COMPLETION));
/// Fields of `/infill`.
static INFILL: LazyLock<KnownFields> = LazyLock::new(|| known_fields(llama::INFILL));

/// Continues texts.
pub async fn completion(body: JsonBody) -> Result<Response, ApiError> {
    let check = |body: &Body| LlamaFields::parse(body, &COMPLETION).map(drop);
    loading::answer(body, complete, check, SignFormat::Llama).await
}

async fn complete(body: JsonBody) -> Result<Response, ApiError> {
    respond(body, &COMPLETION, |body, model, fields| {
        let options = fields.options(model)?;
        let output = fields.output(&options)?;
        let LlamaPromptFields { prompt } = parse(body)?;
        let prompts = prompt.encode(model, "prompt", MAX_PROMPTS)?;
        let request = |tokens| options.request(model, &body.tenant, tokens, output.logprobs);
        let requests = prompts.into_iter().map(request).collect::<Result<_, _>>()?;
        Ok((PlainText { field: "prompt", requests, grammar: grammar(body)? }, output))
    })
    .await
}

/// Fills a hole between two texts.
pub async fn infill(body: JsonBody) -> Result<Response, ApiError> {
    let check = |body: &Body| LlamaFields::parse(body, &INFILL).map(drop);
    loading::answer(body, fill, check, SignFormat::Llama).await
}

async fn fill(body: JsonBody) -> Result<Response, ApiError> {
    respond(body, &INFILL, |body, model, fields| {
        let options = fields.options(model)?;
        let output = fields.output(&options)?;
        let InfillFields { input_prefix, input_suffix, input_extra, prompt } = parse(body)?;
        let file = |ExtraFile { filename, text }| (filename.unwrap_or("tmp".into()), text);
        let hole = Hole {
            prefix: (&input_prefix, "input_prefix"),
            suffix: (&input_suffix, "input_suffix"),
            extra: input_extra.unwrap_or_default().into_iter().map(file).collect(),
            begin: prompt.unwrap_or_default(),
            tokens: None,
        };
        let request = hole.request(model, body, &options, output.logprobs)?;
        let requests = vec![request];
        Ok((PlainText { field: "input_prefix", requests, grammar: grammar(body)? }, output))
    })
    .await
}

/// Returns the grammar that a body asks for: an empty schema is none.
fn grammar(body: &Body) -> Result<Option<RequestedGrammar>, ApiError> {
    match body.fields(&["json_schema"]).get("json_schema") {
        Some(Value::Object(schema)) if schema.is_empty() => Ok(None),
        _ => parse::<OutputFormatFields>(body)?.grammar(),
    }
}

/// Reads a body's prompt and what the answer has.
type Prepare = fn(&Body, &ServedModel, &LlamaFields) -> Result<(PlainText, LlamaOutput), ApiError>;

/// Prepares a body of `known` fields with `prepare` and answers it.
async fn respond(
    body: JsonBody,
    known: &'static KnownFields,
    prepare: Prepare,
) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, mut arrival) = (model.clone(), body.arrival());
    let prepared = body.prepare(move |body| prepare(body, &own, &LlamaFields::parse(body, known)?));
    let (text, output) = prepared.await?;
    arrival.limits = output.limits;
    let requests = text.requests.clone();
    let slots = model.slots.count();
    if let Some(slot) = output.slot.filter(|&slot| slot >= slots) {
        let message = format!("id_slot is {slot}, but this server has {slots} slots");
        return Err(ApiError::bad("id_slot", message));
    }
    let started = text.start(&model, arrival, output.count).await?;
    let mut generation = started.in_slot(&model, output.slot, &requests[0]);
    let streams = output.streams;
    let formatter = LlamaFormatter::new(model.label(), output, requests, generation.slot_ids());
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut bodies = aside(|| formatter.whole(&outputs, &generation));
    let body = if bodies.len() == 1 { bodies.remove(0) } else { bodies.into() };
    Ok(Json(body).into_response())
}
