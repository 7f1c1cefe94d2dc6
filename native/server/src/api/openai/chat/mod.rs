//! `POST /v1/chat/completions`: OpenAI's chat API.

pub mod body;
pub mod formatter;

use crate::api::answer::aside::aside;
use crate::api::answer::loading::{self, SignFormat};
use crate::api::answer::stream::{self, Envelope};
use crate::api::answer::validation::attach;
use crate::api::body::{
    Body, DiffusingFields, GenerationOptions, JsonBody, KnownFields, OutputFormatFields, parse,
};
use crate::api::prompt::conversation::{ChatRequest, OutputRequest};
use crate::error::ApiError;
use crate::ids;
use crate::time::unix_now;
use axum::Json;
use axum::response::{IntoResponse, Response};
use body::{BODY, ChatFields, EndingFields};
use formatter::{Beginning, ChatFormatter};
use std::sync::LazyLock;
use wrinklefree::chat::Conversation;
use wrinklefree::chat::tools::ChatToolFields;

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::new(BODY, &[]));

/// Continues a conversation.
pub async fn chat(body: JsonBody) -> Result<Response, ApiError> {
    loading::answer(body, |body| respond(body, false), check, SignFormat::Completions).await
}

/// Continues a conversation. The first chunk of a stream has no text, as llama-server's.
pub async fn llama_chat(body: JsonBody) -> Result<Response, ApiError> {
    loading::answer(body, |body| respond(body, true), check, SignFormat::Completions).await
}

/// Checks all of a body that can be checked without the model.
fn check(body: &Body) -> Result<(), ApiError> {
    let options: GenerationOptions = parse(body)?;
    FIELDS.check(body)?;
    options.stream_usage()?;
    let outputs = outputs(&options, &parse(body)?)?;
    let conversation = conversation(body, &mut parse(body)?)?;
    replaces(body, &options, &outputs, &conversation).map(drop)
}

fn outputs(options: &GenerationOptions, chat: &ChatFields) -> Result<OutputRequest, ApiError> {
    Ok(OutputRequest {
        count: options.n()?,
        logprobs: chat.logprobs()?,
        prompt_logprobs: options.prompt_logprobs()?,
        token_ids: options.returns_token_ids(),
        by_id: options.names_tokens_by_id(),
        reasoning: chat.includes_reasoning(),
    })
}

/// Returns true if the chunks of a stream have the whole answer so far.
fn replaces(
    body: &Body,
    options: &GenerationOptions,
    outputs: &OutputRequest,
    conversation: &ChatRequest,
) -> Result<bool, ApiError> {
    let others =
        [("logprobs", outputs.logprobs.is_some()), ("tools", conversation.chat.tools.callable())];
    parse::<DiffusingFields>(body)?.replaces(options, &others)
}

/// Reads the conversation of a body.
fn conversation(body: &Body, chat: &mut ChatFields) -> Result<ChatRequest, ApiError> {
    let tools: ChatToolFields = parse(body)?;
    let messages = chat.messages()?;
    let chat = Conversation {
        documents: chat.documents()?,
        ending: parse::<EndingFields>(body)?.ending(&messages)?,
        messages,
        tools: tools.tools()?,
        reasoning: parse(body)?,
    };
    let grammar = parse::<OutputFormatFields>(body)?.grammar()?;
    Ok(ChatRequest { field: "messages", chat, grammar })
}

/// Answers a body. With `null_first`, the content of a stream's first chunk is null where it is empty.
async fn respond(body: JsonBody, null_first: bool) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let arrival = body.arrival();
    let prepared = body.prepare(move |body| {
        let mut options: GenerationOptions = parse(body)?;
        options.speculative = parse(body)?;
        FIELDS.check(body)?;
        let mut chat: ChatFields = parse(body)?;
        let outputs = outputs(&options, &chat)?;
        let conversation = conversation(body, &mut chat)?;
        let replaces = replaces(body, &options, &outputs, &conversation)?;
        let mut prompt = conversation.prepare(&own, body, &options, outputs.logprobs)?;
        prompt.replaces(replaces);
        let echo = chat.echoed(&conversation.chat.messages, conversation.chat.ending);
        Ok((prompt, options.streams(), options.stream_usage()?, outputs, echo))
    });
    let (prompt, streams, usage, outputs, echo) = prepared.await?;
    let prompt_tokens = prompt.tokens().to_vec();
    let parser = prompt.parser.clone();
    let mut generation = prompt.start(&model, arrival, outputs.count).await?;
    let envelope = Envelope {
        id: ids::new("chatcmpl"),
        whole: "chat.completion",
        chunk: "chat.completion.chunk",
        created: unix_now(),
        model: model.name.clone(),
        usage,
    };
    let beginning = Beginning { echo, prompt: prompt_tokens, null_first };
    let formatter = ChatFormatter::new(envelope, model.label(), outputs, parser, beginning);
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = aside(|| formatter.whole(&outputs, &generation));
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}
