//! `POST /v1/responses`: OpenAI's Responses API. Responses are not stored.

mod formatter;

use super::body::responses::{
    BODY, ResponsesInputFields, ResponsesLimits, ResponsesReasoningFields, ResponsesTextFields,
    ResponsesToolFields,
};
use super::body::{Body, GenerationOptions, JsonBody, KnownFields, OutputFormatFields, parse};
use super::conversation::{Conversation, Ending};
use super::stream;
use super::validation::attach;
use crate::serve::error::ApiError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use formatter::ResponsesFormatter;
use std::sync::LazyLock;

/// Fields that need stored responses, or are not supported for another reason.
const UNSUPPORTED: [&str; 5] =
    ["previous_response_id", "conversation", "background", "prompt", "top_logprobs"];

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::new(BODY, &UNSUPPORTED));

/// Reads the conversation of a body.
fn conversation(body: &Body) -> Result<Conversation, ApiError> {
    let (input, tools): (ResponsesInputFields, ResponsesToolFields) = (parse(body)?, parse(body)?);
    let format = parse::<ResponsesTextFields>(body)?.grammar();
    Ok(Conversation {
        field: "input",
        messages: input.messages()?,
        ending: Ending::NewMessage,
        tools: tools.tools()?,
        documents: None,
        grammar: parse::<OutputFormatFields>(body)?.or(format)?,
        reasoning: parse::<ResponsesReasoningFields>(body)?.reasoning().or(parse(body)?),
    })
}

/// Continues a conversation.
pub async fn responses(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let arrival = body.arrival();
    let prepared = body.prepare(move |body| {
        let mut options: GenerationOptions = parse(body)?;
        FIELDS.check(body)?;
        options.require_plain_output()?;
        let limit = parse::<ResponsesLimits>(body)?.max_output_tokens;
        options.max_completion_tokens = limit.or(options.max_completion_tokens);
        let conversation = conversation(body)?;
        let prompt = conversation.prepare(&own, body, &options, None)?;
        let formatter = ResponsesFormatter::new(own.name.clone(), body, prompt.parser.clone());
        Ok((prompt, formatter, options.streams()))
    });
    let (prompt, formatter, streams) = prepared.await?;
    let mut generation = prompt.start(&model, arrival, 1).await?;
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = formatter.whole(&outputs[0], &generation);
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}
