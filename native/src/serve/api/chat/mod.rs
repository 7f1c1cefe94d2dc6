//! `POST /v1/chat/completions`: OpenAI's chat API.

mod formatter;

use super::body::chat::{ChatFields, ChatToolFields};
use super::body::{GenerationOptions, JsonBody, OutputFormatFields, parse, refuse_unsupported};
use super::conversation::{Conversation, OutputRequest};
use super::stream::{self, Envelope};
use super::validation::attach;
use crate::serve::error::ApiError;
use crate::serve::ids;
use crate::serve::state::now;
use axum::Json;
use axum::response::{IntoResponse, Response};
use formatter::ChatFormatter;

/// Continues a conversation.
pub async fn chat(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let arrival = body.arrival();
    let prepared = body.prepare(move |body| {
        let options: GenerationOptions = parse(body)?;
        let (chat, tools): (ChatFields, ChatToolFields) = (parse(body)?, parse(body)?);
        refuse_unsupported(body, &["functions", "audio"])?;
        let outputs = OutputRequest { count: options.n()?, logprobs: chat.logprobs()? };
        let conversation = Conversation {
            field: "messages",
            documents: chat.documents()?,
            messages: chat.messages()?,
            tools: tools.tools()?,
            grammar: parse::<OutputFormatFields>(body)?.grammar()?,
            reasoning: parse(body)?,
        };
        let prompt = conversation.prepare(&own, body, &options, outputs.logprobs)?;
        Ok((prompt, options.streams(), options.include_usage(), outputs))
    });
    let (prompt, streams, include_usage, outputs) = prepared.await?;
    let parser = prompt.parser.clone();
    let mut generation = prompt.start(&model, arrival, outputs.count).await?;
    let envelope = Envelope {
        id: ids::new("chatcmpl"),
        whole: "chat.completion",
        chunk: "chat.completion.chunk",
        created: now(),
        model: model.name.clone(),
        include_usage,
    };
    let formatter = ChatFormatter::new(envelope, model, outputs, parser);
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = formatter.whole(&outputs, &generation);
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}
