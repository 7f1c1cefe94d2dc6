//! `POST /v1/chat/completions`.

mod message;
mod shape;
mod tools;

pub use message::ChatMessage;

use super::dialogue::Dialogue;
use super::format::Format;
use super::openapi::{Part, part};
use super::options::{MAX_TOP, Options, parse};
use super::stream::{self, Envelope};
use super::{Body, id, refuse};
use crate::serve::error::ApiError;
use crate::serve::state::{Server, now};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use shape::Shape;
use std::sync::Arc;
use tools::ToolFields;
use utoipa::ToSchema;

/// What the document says of a body.
pub const BODY: &[Part] = &[part::<Options>, part::<Chat>, part::<ToolFields>, part::<Format>];

/// The fields that only chat has.
#[derive(Deserialize, ToSchema)]
struct Chat {
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    /// Whether the answer comes with log-probabilities.
    logprobs: Option<bool>,
    /// So many other tokens in each place.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
}

impl Chat {
    /// The log-probabilities of a token that are asked for.
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(top)) if top > MAX_TOP => {
                let message = format!("top_logprobs is {top}, {MAX_TOP} at most");
                Err(ApiError::bad("top_logprobs", message))
            }
            (false, Some(_)) => {
                Err(ApiError::bad("top_logprobs", "top_logprobs needs `logprobs: true`"))
            }
            (wanted, top) => Ok(wanted.then_some(top.unwrap_or(0))),
        }
    }
}

/// A conversation in a body.
pub fn messages(messages: Vec<ChatMessage>) -> Result<Vec<Value>, ApiError> {
    let numbered = messages.into_iter().enumerate();
    numbered.map(|(index, message)| message.into_value(index)).collect()
}

/// Answers a conversation.
pub async fn chat(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Response, ApiError> {
    let ready = server.ready()?;
    let options: Options = parse(&body)?;
    let (chat, tools): (Chat, ToolFields) = (parse(&body)?, parse(&body)?);
    options.check_model(&ready)?;
    refuse(&body, &["functions", "audio"])?;
    let (n, logprobs) = (options.n()?, chat.logprobs()?);
    let dialogue = Dialogue {
        messages: messages(chat.messages)?,
        tools: tools.tools()?,
        grammar: parse::<Format>(&body)?.grammar()?,
        ..Dialogue::default()
    };
    let callable = dialogue.tools.callable();
    let started = dialogue.start(&server, &ready, tenant, &options, (n, logprobs));
    let mut generation = started.await?;
    let envelope = Envelope {
        id: id("chatcmpl"),
        whole: "chat.completion",
        chunk: "chat.completion.chunk",
        created: now(),
        model: ready.name.clone(),
        include_usage: options.include_usage(),
    };
    let shape = Shape::new(envelope, ready, n, (logprobs.is_some(), callable));
    if options.streams() {
        return Ok(stream::respond(generation, shape));
    }
    let answers = generation.collect().await?;
    Ok(Json(shape.whole(&answers, &generation)).into_response())
}
