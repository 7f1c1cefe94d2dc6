//! `POST /v1/responses`: OpenAI's Responses API. The last responses are kept in memory.

pub mod body;
pub mod formatter;
pub mod scores;

use crate::access::keys::Tenant;
use crate::api::answer::aside::aside;
use crate::api::answer::loading::{self, SignFormat};
use crate::api::answer::stream;
use crate::api::answer::validation::attach;
use crate::api::body::{Body, GenerationOptions, JsonBody, KnownFields, OutputFormatFields, parse};
use crate::api::prompt::conversation::ChatRequest;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::response_store::{ResponseStore, bytes};
use crate::state::ServerState;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use body::{
    BODY, ResponsesInputFields, ResponsesLimits, ResponsesLogprobFields, ResponsesReasoningFields,
    ResponsesStateFields, ResponsesTextFields, ResponsesToolFields,
};
use formatter::{ResponsesFormatter, Storage};
use scores::Scores;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use wrinklefree::chat::{Conversation, Ending};

/// A conversation is stored if its JSON is no longer than the longest text of so many contexts: signs of
/// JSON are no text.
const STORED_CONTEXTS: usize = 2;

/// Fields that are not supported.
const UNSUPPORTED: [&str; 3] = ["conversation", "background", "prompt"];

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::new(BODY, &UNSUPPORTED));

/// Reads the conversation of a body, which may go on from a stored one. The second result is what a
/// response is stored with.
fn conversation(
    body: &Body,
    model: &ServedModel,
    store: &ResponseStore,
) -> Result<(ChatRequest, Option<Storage>), ApiError> {
    let (mut input, tools): (ResponsesInputFields, ResponsesToolFields) =
        (parse(body)?, parse(body)?);
    let format = parse::<ResponsesTextFields>(body)?.grammar();
    let state: ResponsesStateFields = parse(body)?;
    let system = input.system();
    let (mut messages, mut texts) = match &state.previous_response_id {
        None => (Vec::new(), Vec::new()),
        Some(id) => {
            let stored = store.get(&body.tenant, id).ok_or_else(|| not_stored(id))?;
            (stored.conversation(), stored.messages)
        }
    };
    let input = input.messages()?;
    texts.push(Value::from(input.clone()).to_string().into());
    messages.extend(input);
    // What no context can show is of no use later.
    let fits = model.tokenizer.least_tokens(bytes(&texts)) <= STORED_CONTEXTS * model.context;
    let storage = (fits && state.store.unwrap_or(true)).then(|| Storage {
        store: store.clone(),
        tenant: body.tenant.clone(),
        messages: texts,
    });
    let chat = Conversation {
        messages: system.into_iter().chain(messages).collect(),
        ending: Ending::NewMessage,
        tools: tools.tools(&body.ignored)?,
        documents: None,
        reasoning: parse::<ResponsesReasoningFields>(body)?.reasoning().or(parse(body)?),
    };
    let grammar = parse::<OutputFormatFields>(body)?.or(format)?;
    Ok((ChatRequest { field: "input", chat, grammar }, storage))
}

/// Checks all of a body that can be checked without the model.
fn check(body: &Body) -> Result<(), ApiError> {
    let options: GenerationOptions = parse(body)?;
    FIELDS.check(body)?;
    options.require_plain_output()?;
    parse::<ResponsesLimits>(body)?;
    parse::<ResponsesLogprobFields>(body)?.logprobs()?;
    let (input, tools): (ResponsesInputFields, ResponsesToolFields) = (parse(body)?, parse(body)?);
    input.messages()?;
    tools.tools(&body.ignored)?;
    let format = parse::<ResponsesTextFields>(body)?.grammar();
    parse::<OutputFormatFields>(body)?.or(format)?;
    parse::<ResponsesReasoningFields>(body).map(drop)
}

/// Creates the 400 for a response that is not stored.
fn not_stored(id: &str) -> ApiError {
    let message = format!(
        "the response `{id}` is not stored here: the server keeps the last ones in memory, unless \
         `store` is false"
    );
    ApiError {
        code: "previous_response_not_found",
        ..ApiError::bad("previous_response_id", message)
    }
}

/// Continues a conversation.
pub async fn responses(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let respond = |body| respond(server, body);
    loading::answer(body, respond, check, SignFormat::Responses).await
}

async fn respond(server: Arc<ServerState>, body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let arrival = body.arrival();
    let prepared = body.prepare(move |body| {
        let mut options: GenerationOptions = parse(body)?;
        FIELDS.check(body)?;
        options.require_plain_output()?;
        let limit = parse::<ResponsesLimits>(body)?.max_output_tokens;
        options.max_completion_tokens = limit.or(options.max_completion_tokens);
        let (conversation, storage) = conversation(body, &own, &server.responses)?;
        let logprobs = parse::<ResponsesLogprobFields>(body)?.logprobs()?;
        let prompt = conversation.prepare(&own, body, &options, logprobs)?;
        let scores = Scores::new(own.label(), logprobs);
        let parser = prompt.parser.clone();
        let formatter = ResponsesFormatter::new(scores, body, parser, storage);
        Ok((prompt, formatter, options.streams()))
    });
    let (prompt, formatter, streams) = prepared.await?;
    let mut generation = prompt.start(&model, arrival, 1).await?;
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = aside(|| formatter.whole(&outputs[0], &generation));
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}

/// Counts the tokens of a conversation.
pub async fn input_tokens(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.with_model().await?;
    let count = body.prepare(move |body| {
        FIELDS.check(body)?;
        Ok(conversation(body, &model, &server.responses)?.0.tokens(&model)?.len())
    });
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": count.await?})))
}

/// Returns a stored response.
pub async fn stored(
    State(server): State<Arc<ServerState>>,
    tenant: Option<Extension<Tenant>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let Extension(tenant) = tenant.unwrap_or_default();
    let stored = server.responses.get(&tenant, &id).ok_or_else(|| not_found(&id))?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, stored.response.to_string()).into_response())
}

/// Removes a stored response.
pub async fn delete(
    State(server): State<Arc<ServerState>>,
    tenant: Option<Extension<Tenant>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let Extension(tenant) = tenant.unwrap_or_default();
    if server.responses.remove(&tenant, &id) {
        Ok(Json(json!({"id": id, "object": "response", "deleted": true})))
    } else {
        Err(not_found(&id))
    }
}

fn not_found(id: &str) -> ApiError {
    let message = format!("the response `{id}` does not exist, or is not stored any more");
    ApiError::new(StatusCode::NOT_FOUND, "response_not_found", message)
}
