//! `POST /v1/responses`: OpenAI's newer API for conversations. Nothing is stored.

mod request;
mod shape;
mod tools;

use super::dialogue::{Dialogue, Field};
use super::format::Format;
use super::openapi::{Part, part};
use super::options::{Options, parse};
use super::{Body, refuse, stream};
use crate::serve::error::ApiError;
use crate::serve::state::Server;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use request::{Conversation, Limits, TextFields};
use serde_json::Value;
use shape::Shape;
use std::sync::Arc;
use tools::ToolFields;

/// What the document says of a body.
pub const BODY: &[Part] = &[
    part::<Options>,
    part::<Limits>,
    part::<Conversation>,
    part::<ToolFields>,
    part::<TextFields>,
    part::<Format>,
];

/// What needs a server that stores answers, or more than text.
const UNSUPPORTED: [&str; 5] =
    ["previous_response_id", "conversation", "background", "prompt", "top_logprobs"];

/// The conversation in a body.
fn dialogue(body: &Value) -> Result<Dialogue, ApiError> {
    let (conversation, tools): (Conversation, ToolFields) = (parse(body)?, parse(body)?);
    let format = parse::<TextFields>(body)?.grammar();
    Ok(Dialogue {
        field: Field("input"),
        messages: conversation.messages()?,
        tools: tools.tools()?,
        grammar: parse::<Format>(body)?.or(format)?,
    })
}

/// Answers a conversation.
pub async fn responses(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Response, ApiError> {
    let ready = server.ready()?;
    let mut options: Options = parse(&body)?;
    options.check_model(&ready)?;
    options.one_answer()?;
    refuse(&body, &UNSUPPORTED)?;
    let limit = parse::<Limits>(&body)?.max_output_tokens;
    options.max_completion_tokens = limit.or(options.max_completion_tokens);
    let dialogue = dialogue(&body)?;
    let calls = dialogue.tools.callable();
    let mut generation = dialogue.start(&server, &ready, tenant, &options, (1, None)).await?;
    let shape = Shape::new(ready.name.clone(), &body, calls);
    if options.streams() {
        return Ok(stream::respond(generation, shape));
    }
    let answers = generation.collect().await?;
    Ok(Json(shape.whole(&answers[0], calls, &generation)).into_response())
}
