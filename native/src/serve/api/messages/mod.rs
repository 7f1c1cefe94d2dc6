//! `POST /v1/messages`: Anthropic's API.

mod error;
mod format;
mod request;
mod shape;
mod tools;

pub use error::Body as ErrorBody;
pub use error::shaped;

use super::dialogue::Dialogue;
use super::format::Format;
use super::openapi::{Part, part};
use super::options::{OneOrMany, Options, parse};
use super::{Body, refuse, stream};
use crate::serve::error::ApiError;
use crate::serve::state::Server;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use format::OutputFields;
use request::{Limits, Messages};
use serde_json::{Value, json};
use shape::Shape;
use std::sync::Arc;
use tools::ToolFields;

/// What the document says of a body.
pub const BODY: &[Part] = &[
    part::<Options>,
    part::<Limits>,
    part::<Messages>,
    part::<ToolFields>,
    part::<OutputFields>,
    part::<Format>,
];
/// What it says of a body whose tokens are counted.
pub const COUNT: &[Part] = &[part::<Messages>, part::<ToolFields>];

/// The conversation in a body.
fn dialogue(body: &Value) -> Result<Dialogue, ApiError> {
    let (messages, tools): (Messages, ToolFields) = (parse(body)?, parse(body)?);
    refuse(body, &["thinking", "mcp_servers", "container"])?;
    let format = parse::<OutputFields>(body)?.grammar()?;
    Ok(Dialogue {
        messages: messages.conversation()?,
        tools: tools.tools()?,
        grammar: parse::<Format>(body)?.or(format)?,
        ..Dialogue::default()
    })
}

/// Answers a conversation.
pub async fn messages(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Response, ApiError> {
    let ready = server.ready()?;
    let (mut options, limits): (Options, Limits) = (parse(&body)?, parse(&body)?);
    options.check_model(&ready)?;
    options.one_answer()?;
    options.max_completion_tokens = Some(limits.max_tokens);
    options.stop = limits.stop_sequences.map(OneOrMany::Many).or(options.stop);
    let dialogue = dialogue(&body)?;
    let calls = dialogue.tools.callable();
    let mut generation = dialogue.start(&server, &ready, tenant, &options, (1, None)).await?;
    let shape = Shape::new(ready.name.clone(), options.stops()?, calls, generation.prompt_tokens);
    if options.streams() {
        return Ok(stream::respond(generation, shape));
    }
    let answers = generation.collect().await?;
    Ok(Json(shape.whole(&answers[0], calls, &generation)).into_response())
}

/// How many tokens a conversation has.
pub async fn count_tokens(
    State(server): State<Arc<Server>>,
    Body { value: body, .. }: Body,
) -> Result<Json<Value>, ApiError> {
    let ready = server.ready()?;
    parse::<Options>(&body)?.check_model(&ready)?;
    let count = dialogue(&body)?.count(&ready).await?;
    Ok(Json(json!({"input_tokens": count})))
}
