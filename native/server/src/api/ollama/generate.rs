//! `POST /api/chat` and `/api/generate`.

use super::body::{OllamaChatFields, OllamaFields, OllamaGenerateFields, OllamaLoadFields};
use super::formatter::Shape;
use super::{Prepared, Prompt, answer, body as ollama};
use crate::api::answer::loading::{self, SignFormat};
use crate::api::body::{Body, GenerationOptions, JsonBody, KnownFields, parse, refuse_unsupported};
use crate::api::prompt::conversation::ChatRequest;
use crate::api::prompt::infill::Hole;
use crate::api::prompt::plain_text::PlainText;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::state::ServerState;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use wrinklefree::chat::tools::{ChatToolFields, Tools};
use wrinklefree::chat::{Conversation, Ending};
use wrinklefree::engine::Request;

/// Fields that Ollama has and this server refuses.
const UNSUPPORTED: &[&str] = &["template", "context", "truncate"];
/// Fields of `/api/chat`.
static CHAT: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::CHAT, UNSUPPORTED).and(["name"]));
/// Fields of `/api/generate`.
static GENERATE: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::GENERATE, UNSUPPORTED).and(["name", "images"]));

/// Continues a conversation, or answers or continues a text. A stream has signs of life while it waits.
pub async fn run(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
    shape: Shape,
) -> Result<Response, ApiError> {
    let handler = |body| async move { respond(&server, body, shape).await };
    let check = if shape == Shape::Chat { check_chat } else { check_generate };
    loading::answer(body, handler, check, SignFormat::Ollama(shape)).await
}

/// Checks a body of `/api/chat` without its model.
fn check_chat(body: &Body) -> Result<(), ApiError> {
    check_fields(body, &CHAT)?;
    parse::<OllamaChatFields>(body)?.messages()?;
    Ok(parse::<ChatToolFields>(body)?.tools().map(drop)?)
}

/// Checks a body of `/api/generate` without its model.
fn check_generate(body: &Body) -> Result<(), ApiError> {
    check_fields(body, &GENERATE)?;
    refuse_unsupported(body, &["images"])?;
    parse::<OllamaGenerateFields>(body).map(drop)
}

fn check_fields(body: &Body, known: &KnownFields) -> Result<(), ApiError> {
    let fields = OllamaFields::parse(body, known)?;
    fields.logprobs()?;
    fields.grammar()?;
    parse::<OllamaLoadFields>(body).map(drop)
}

async fn respond(server: &ServerState, body: JsonBody, shape: Shape) -> Result<Response, ApiError> {
    let times = (body.arrival(), Instant::now());
    let (model, body) = body.with_model().await?;
    let own = model.clone();
    let prepared = body.prepare(move |body| {
        let known = if shape == Shape::Chat { &*CHAT } else { &*GENERATE };
        let fields = OllamaFields::parse(body, known)?;
        let options = fields.options(&own, body);
        let prompt = match shape {
            Shape::Chat => chat_prompt(body, &own, &fields, &options),
            Shape::Generate => generate_prompt(body, &own, &fields, &options),
        };
        let prepared =
            Prepared { prompt: prompt?, streams: fields.streams(), logprobs: fields.logprobs()? };
        Ok((prepared, parse::<OllamaLoadFields>(body)?))
    });
    let (prepared, load) = prepared.await?;
    let (label, unloads) =
        (model.label(), load.unloads() && matches!(prepared.prompt, Prompt::None));
    if unloads {
        // The model goes when nobody holds it any more.
        drop(model);
        server.models.unload(&label.name).await?;
        return answer((None, label), times, prepared, (shape, unloads)).await;
    }
    load.apply(server, &model);
    answer((Some(model), label), times, prepared, (shape, unloads)).await
}

fn chat_prompt(
    body: &Body,
    model: &Arc<ServedModel>,
    fields: &OllamaFields,
    options: &GenerationOptions,
) -> Result<Prompt, ApiError> {
    let messages = parse::<OllamaChatFields>(body)?.messages()?;
    let tools = parse::<ChatToolFields>(body)?.tools()?;
    conversation(body, model, fields, options, (messages, tools))
}

fn generate_prompt(
    body: &Body,
    model: &Arc<ServedModel>,
    fields: &OllamaFields,
    options: &GenerationOptions,
) -> Result<Prompt, ApiError> {
    refuse_unsupported(body, &["images"])?;
    let OllamaGenerateFields { prompt, suffix, system, raw } = parse(body)?;
    let system = system.filter(|system| !system.is_empty());
    if let Some(suffix) = suffix.filter(|suffix| !suffix.is_empty()) {
        let hole = Hole::new((&prompt, "prompt"), (&suffix, "suffix"));
        return text(hole.request(model, body, options, fields.logprobs()?)?, fields);
    }
    let raw = raw.unwrap_or(false) || (model.template.is_none() && system.is_none());
    if prompt.is_empty() {
        return Ok(Prompt::None);
    }
    if !raw {
        let user = json!({"role": "user", "content": prompt});
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let messages = system.into_iter().chain([user]).collect();
        return conversation(body, model, fields, options, (messages, Tools::default()));
    }
    if system.is_some() {
        let message = "`system` needs the chat template: leave out `raw`";
        return Err(ApiError::bad("system", message));
    }
    let tokens = model.encode(&prompt, true, "prompt")?;
    text(options.request(model, &body.tenant, tokens, fields.logprobs()?)?, fields)
}

/// Returns the prompt of a text to continue.
fn text(request: Request, fields: &OllamaFields) -> Result<Prompt, ApiError> {
    let grammar = fields.grammar()?;
    Ok(Prompt::Text(PlainText { field: "prompt", requests: vec![request], grammar }))
}

fn conversation(
    body: &Body,
    model: &Arc<ServedModel>,
    fields: &OllamaFields,
    options: &GenerationOptions,
    (messages, tools): (Vec<Value>, Tools),
) -> Result<Prompt, ApiError> {
    if messages.is_empty() {
        return Ok(Prompt::None);
    }
    let chat = Conversation {
        ending: Ending::of_last(messages.last()),
        messages,
        tools,
        documents: None,
        reasoning: fields.reasoning(),
    };
    let conversation = ChatRequest { field: "messages", chat, grammar: fields.grammar()? };
    let prepared = conversation.prepare(model, body, options, fields.logprobs()?)?;
    Ok(Prompt::Conversation(Box::new(prepared)))
}
