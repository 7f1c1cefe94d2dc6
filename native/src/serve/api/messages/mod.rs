//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API.

mod error;
mod formatter;

pub use error::{AnthropicErrorBody, convert_errors};

use super::body::messages::{
    AnthropicLimits, AnthropicMessageFields, AnthropicOutputFields, AnthropicToolFields,
};
use super::body::{
    GenerationOptions, JsonBody, OutputFormatFields, Texts, parse, refuse_unsupported,
};
use super::conversation::{Conversation, OutputRequest};
use super::stream;
use crate::serve::error::ApiError;
use crate::serve::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use formatter::MessageFormatter;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads the conversation of a body.
fn conversation(body: &Value) -> Result<Conversation, ApiError> {
    let (messages, tools): (AnthropicMessageFields, AnthropicToolFields) =
        (parse(body)?, parse(body)?);
    refuse_unsupported(body, &["thinking", "mcp_servers", "container"])?;
    let format = parse::<AnthropicOutputFields>(body)?.grammar()?;
    Ok(Conversation {
        field: "messages",
        messages: messages.messages()?,
        tools: tools.tools()?,
        grammar: parse::<OutputFormatFields>(body)?.or(format)?,
    })
}

/// Continues a conversation.
pub async fn messages(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, tenant }: JsonBody,
) -> Result<Response, ApiError> {
    let model = server.model()?;
    let (mut options, limits): (GenerationOptions, AnthropicLimits) =
        (parse(&body)?, parse(&body)?);
    options.check_model(&model)?;
    options.require_one_output()?;
    options.max_completion_tokens = Some(limits.max_tokens);
    options.stop = limits.stop_sequences.map(Texts::Many).or(options.stop);
    let conversation = conversation(&body)?;
    let calls = conversation.tools.callable();
    let started = conversation.start(&server, &model, tenant, &options, OutputRequest::SINGLE);
    let mut generation = started.await?;
    let (name, stops) = (model.name.clone(), options.stops()?);
    let formatter = MessageFormatter::new(name, stops, calls, generation.prompt_tokens);
    if options.streams() {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    Ok(Json(formatter.whole(&outputs[0], calls, &generation)).into_response())
}

/// Counts the tokens of a conversation.
pub async fn count_tokens(
    State(server): State<Arc<ServerState>>,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = server.model()?;
    parse::<GenerationOptions>(&body)?.check_model(&model)?;
    let count = conversation(&body)?.count_tokens(&model).await?;
    Ok(Json(json!({"input_tokens": count})))
}
