//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API.

pub mod body;
pub mod error;
pub mod formatter;

pub use error::{AnthropicErrorBody, body as error_body};

/// Path below which errors have this API's format.
pub const PATH: &str = "/v1/messages";

use super::answer::aside::aside;
use super::answer::loading::{self, SignFormat};
use super::answer::stream;
use super::answer::validation::attach;
use super::body::{
    Body, GenerationOptions, JsonBody, KnownFields, OutputFormatFields, Texts, parse,
};
use super::prompt::conversation::ChatRequest;
use crate::error::ApiError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use body::{
    AnthropicLimits, AnthropicMessageFields, AnthropicOutputFields, AnthropicThinkingFields,
    AnthropicToolFields, BODY,
};
use formatter::MessageFormatter;
use serde_json::{Value, json};
use std::sync::LazyLock;
use wrinklefree::chat::{Conversation, Ending};
use wrinklefree::settings::Reasoning;

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(BODY, &["mcp_servers", "container"]));

/// Reads the conversation of a body.
fn conversation(body: &Body) -> Result<ChatRequest, ApiError> {
    let (messages, tools): (AnthropicMessageFields, AnthropicToolFields) =
        (parse(body)?, parse(body)?);
    let output: AnthropicOutputFields = parse(body)?;
    let (effort, format) = (output.effort(), output.grammar()?);
    let messages = messages.messages()?;
    let chat = Conversation {
        ending: Ending::of_last(messages.last()),
        messages,
        tools: tools.tools()?,
        documents: None,
        reasoning: parse::<AnthropicThinkingFields>(body)?
            .reasoning()
            .or(parse(body)?)
            .or(Reasoning { reasoning_effort: effort, ..Reasoning::default() }),
    };
    let grammar = parse::<OutputFormatFields>(body)?.or(format)?;
    Ok(ChatRequest { field: "messages", chat, grammar })
}

/// Checks all of a body that can be checked without the model.
fn check(body: &Body) -> Result<(), ApiError> {
    let (options, _): (GenerationOptions, AnthropicLimits) = (parse(body)?, parse(body)?);
    FIELDS.check(body)?;
    options.require_plain_output()?;
    conversation(body).map(drop)
}

/// Continues a conversation.
pub async fn messages(body: JsonBody) -> Result<Response, ApiError> {
    loading::answer(body, respond, check, SignFormat::Anthropic).await
}

async fn respond(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let arrival = body.arrival();
    let prepared = body.prepare(move |body| {
        let (mut options, limits): (GenerationOptions, AnthropicLimits) =
            (parse(body)?, parse(body)?);
        FIELDS.check(body)?;
        options.require_plain_output()?;
        options.max_completion_tokens = Some(limits.max_tokens);
        options.stop = limits.stop_sequences.map(Texts::Many).or(options.stop);
        let conversation = conversation(body)?;
        let prompt = conversation.prepare(&own, body, &options, None)?;
        Ok((prompt, options.stops()?, options.streams()))
    });
    let (prompt, stops, streams) = prepared.await?;
    let parser = prompt.parser.clone();
    let mut generation = prompt.start(&model, arrival, 1).await?;
    let name = model.name.clone();
    let formatter = MessageFormatter::new(name, stops, parser, generation.prompt_tokens);
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = aside(|| formatter.whole(&outputs[0], &generation));
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}

/// Counts the tokens of a conversation.
pub async fn count_tokens(body: JsonBody) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let count = body.prepare(move |body| {
        parse::<GenerationOptions>(body)?;
        FIELDS.check(body)?;
        Ok(conversation(body)?.tokens(&model)?.len())
    });
    Ok(Json(json!({"input_tokens": count.await?})))
}
