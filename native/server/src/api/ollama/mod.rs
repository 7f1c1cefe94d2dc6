//! Ollama's API, below `/api/`.

pub mod body;
pub mod embed;
pub mod error;
pub mod formatter;
pub mod generate;
pub mod models;
pub mod store;

pub use error::{OllamaErrorBody, body as error_body};
pub use formatter::{Shape, empty_part};

use super::answer::aside::aside;
use super::answer::generation::Generation;
use super::answer::stream;
use super::answer::validation::attach;
use super::body::JsonBody;
use super::prompt::conversation::PreparedConversation;
use super::prompt::plain_text::PlainText;
use crate::engine::arrival::Arrival;
use crate::engine::served_model::{ModelLabel, ServedModel};
use crate::error::ApiError;
use crate::state::ServerState;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use formatter::OllamaFormatter;
use std::sync::Arc;
use std::time::Instant;
use wrinklefree::chat::OutputParser;
use wrinklefree::chat::tools::CallParser;

/// Path below which this API is.
pub const PATH: &str = "/api/";

/// The server, for handlers.
type Server = State<Arc<ServerState>>;

/// Returns the router of this API.
pub fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route(
            "/api/chat",
            post(|state: Server, body: JsonBody| generate::run(state, body, Shape::Chat)),
        )
        .route(
            "/api/generate",
            post(|state: Server, body: JsonBody| generate::run(state, body, Shape::Generate)),
        )
        .route("/api/embed", post(embed::embed))
        .route("/api/embeddings", post(embed::embeddings))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(models::show))
        .route("/api/version", get(models::version))
        .route("/api/delete", delete(store::delete))
        .route("/api/pull", post(store::pull))
        .route("/api/push", post(models::unsupported))
        .route("/api/create", post(models::unsupported))
        .route("/api/copy", post(models::unsupported))
}

/// A text to generate, tokenized.
enum Prompt {
    /// Nothing: the model is only loaded or unloaded.
    None,
    /// A conversation to continue.
    Conversation(Box<PreparedConversation>),
    /// A text to continue.
    Text(PlainText),
}

/// A body that is parsed and tokenized.
struct Prepared {
    prompt: Prompt,
    streams: bool,
    logprobs: Option<usize>,
}

impl Prompt {
    /// Starts generating one output. Also returns its parser.
    async fn start(
        self,
        model: &Arc<ServedModel>,
        arrival: Arrival,
    ) -> Result<Option<(Generation, OutputParser)>, ApiError> {
        Ok(match self {
            Self::None => None,
            Self::Conversation(conversation) => {
                let parser = conversation.parser.clone();
                Some((conversation.start(model, arrival, 1).await?, parser))
            }
            Self::Text(text) => {
                let parser = OutputParser::new(None, CallParser::Plain);
                Some((text.start(model, arrival, 1).await?, parser))
            }
        })
    }
}

/// Answers a request that arrived at `started`. One without a prompt `unloads` the model or has loaded it;
/// there is no model then: who holds one keeps it in memory.
async fn answer(
    (model, label): (Option<Arc<ServedModel>>, ModelLabel),
    (arrival, started): (Arrival, Instant),
    prepared: Prepared,
    (shape, unloads): (Shape, bool),
) -> Result<Response, ApiError> {
    let Prepared { prompt, streams, logprobs } = prepared;
    let started_output = match &model {
        Some(model) => prompt.start(model, arrival).await?,
        None => None,
    };
    let Some((mut generation, parser)) = started_output else {
        return Ok(Json(formatter::loaded(&label, shape, unloads)).into_response());
    };
    let formatter = OllamaFormatter::new(label, shape, parser, logprobs, started);
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let outputs = generation.collect().await?;
    let mut body = aside(|| formatter.whole(&outputs[0], &generation));
    attach(&mut body, &generation.reports);
    Ok(Json(body).into_response())
}
