//! Bodies of Ollama's API.

pub mod chat;
pub mod options;

pub use chat::OllamaChatFields;
pub use options::check_options;

use crate::api::body::model::ModelFields;
use crate::api::body::options::GenerationOptions;
use crate::api::body::prompts::Prompts;
use crate::api::body::{Body, KnownFields, parse};
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::engine::grammars::{AnswerForm, RequestedGrammar};
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::state::ServerState;
use options::OllamaOptions;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;
use wf_run_cli::config::KeepAlive;
use wrinklefree::chat::tools::ChatToolFields;
use wrinklefree::settings::{Effort, Reasoning};

/// Schemas of the body of `/api/chat`.
pub const CHAT: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<OllamaFields>,
    schema_of::<OllamaChatFields>,
    schema_of::<ChatToolFields>,
    schema_of::<OllamaLoadFields>,
];
/// Schemas of the body of `/api/generate`.
pub const GENERATE: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<OllamaFields>,
    schema_of::<OllamaGenerateFields>,
    schema_of::<OllamaLoadFields>,
];
/// Schemas of the body of `/api/embed`.
pub const EMBED: &[SchemaFn] =
    &[schema_of::<ModelFields>, schema_of::<OllamaEmbedFields>, schema_of::<OllamaLoadFields>];
/// Schemas of the body of `/api/embeddings`.
pub const EMBEDDINGS: &[SchemaFn] =
    &[schema_of::<ModelFields>, schema_of::<OllamaEmbeddingsFields>, schema_of::<OllamaLoadFields>];
/// Schemas of the body of `/api/pull`.
pub const PULL: &[SchemaFn] = &[schema_of::<OllamaModelFields>, schema_of::<OllamaPullFields>];
/// Schemas of the bodies that name a model.
pub const MODEL: &[SchemaFn] = &[schema_of::<OllamaModelFields>];

/// Maximum number of alternatives per token.
const MAX_TOP_LOGPROBS: usize = 20;

/// Fields that `/api/chat` and `/api/generate` share.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct OllamaFields {
    /// Send the response as lines of JSON. Defaults to true.
    stream: Option<bool>,
    /// Format of the output: `json`, or a JSON schema.
    #[schema(value_type = Option<Object>)]
    format: Option<Value>,
    /// Options of sampling.
    options: Option<OllamaOptions>,
    /// Let the model think before it answers.
    think: Option<Think>,
    /// Return the log-probability of each output token.
    logprobs: Option<bool>,
    /// Number of most probable tokens to return at each position. Needs `logprobs`.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// Continue after the context by dropping its older half. Defaults to the server's setting.
    shift: Option<bool>,
}

/// Thinking: on, off, or its amount.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected true, false, `high`, `medium` or `low`")]
enum Think {
    Switch(bool),
    Amount(Effort),
}

/// Fields of `/api/generate`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct OllamaGenerateFields {
    /// Text to answer, or to continue with `raw` or `suffix`. Without it, the model is only loaded.
    #[serde(default)]
    pub prompt: String,
    /// Text after the output: the output fills the hole.
    pub suffix: Option<String>,
    /// System message.
    pub system: Option<String>,
    /// Continue the prompt as it is, without the chat template.
    #[serde(default)]
    pub raw: Option<bool>,
}

/// Fields of `/api/embed`.
#[derive(Deserialize, ToSchema)]
pub struct OllamaEmbedFields {
    /// Texts to embed.
    #[schema(value_type = Prompts)]
    pub input: Option<Prompts>,
    /// Cut texts that are longer than the context, instead of refusing them. Defaults to true.
    pub truncate: Option<bool>,
    /// Length of the embeddings. Only the model's own length is supported.
    pub dimensions: Option<usize>,
}

/// Fields of `/api/embeddings`.
#[derive(Deserialize, ToSchema)]
pub struct OllamaEmbeddingsFields {
    /// Text to embed.
    pub prompt: String,
}

/// Fields that name a model.
#[derive(Deserialize, ToSchema)]
pub struct OllamaModelFields {
    /// Name of the model; `:latest` may follow it.
    #[serde(alias = "name")]
    pub model: String,
}

/// Fields of `/api/pull`.
#[derive(Deserialize, ToSchema)]
pub struct OllamaPullFields {
    /// Send the progress as lines of JSON. Defaults to true.
    pub stream: Option<bool>,
}

/// Fields about loading a model.
#[derive(Deserialize, ToSchema)]
pub struct OllamaLoadFields {
    /// Time for which the model stays loaded: seconds, or a text such as `5m`. Negative: forever.
    #[schema(value_type = Option<String>)]
    pub keep_alive: Option<KeepAlive>,
}

impl OllamaLoadFields {
    /// Returns true if the model is to be unloaded at once.
    pub fn unloads(&self) -> bool {
        self.keep_alive == Some(KeepAlive(Some(Duration::ZERO)))
    }

    /// Sets how long a model stays loaded. Without the field, that does not change.
    pub fn apply(&self, server: &ServerState, model: &ServedModel) {
        if let Some(KeepAlive(time)) = self.keep_alive {
            server.models.keep_alive(&model.name, time);
        }
    }
}

impl OllamaFields {
    /// Parses the fields of a body, refuses those that no response would honor, and reports those that
    /// are not `known`.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn parse(body: &Body, known: &KnownFields) -> Result<Self, ApiError> {
        known.check(body)?;
        check_options(body)?;
        parse(body)
    }

    /// Returns true if the response is streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(true)
    }

    /// Returns the options of sampling and decoding. A `num_ctx` that is larger than the context of the
    /// model cannot be honored: the body reports it as ignored.
    pub fn options(&self, model: &ServedModel, body: &Body) -> GenerationOptions {
        let mut options = self.options.clone().unwrap_or_default();
        if options.num_ctx.is_some_and(|positions| positions > model.context) {
            options.num_ctx = None;
            body.ignored.add("options.num_ctx");
        }
        GenerationOptions { shift: self.shift, ..options.into() }
    }

    /// Returns the grammar of `format`.
    ///
    /// # Errors
    /// If it is neither `json` nor a schema.
    pub fn grammar(&self) -> Result<Option<RequestedGrammar>, ApiError> {
        let form = match &self.format {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.is_empty() => return Ok(None),
            Some(Value::String(text)) if text == "json" => AnswerForm::JsonObject,
            Some(schema @ Value::Object(_)) => AnswerForm::JsonSchema(schema.clone()),
            Some(other) => {
                let message = format!("format is {other}: expected \"json\" or a JSON schema");
                return Err(ApiError::bad("format", message));
            }
        };
        RequestedGrammar::of_answer(form, "format").checked().map(Some)
    }

    /// Returns the settings of reasoning.
    pub fn reasoning(&self) -> Reasoning {
        match self.think {
            None => Reasoning::default(),
            Some(Think::Switch(on)) => {
                Reasoning { enable_thinking: Some(on), ..Reasoning::default() }
            }
            Some(Think::Amount(effort)) => {
                Reasoning { reasoning_effort: Some(effort), ..Reasoning::default() }
            }
        }
    }

    /// Returns the number of alternatives per token, or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If it is too large.
    pub fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match self.top_logprobs {
            Some(top) if top > MAX_TOP_LOGPROBS => {
                let message = format!("top_logprobs is {top}: at most {MAX_TOP_LOGPROBS}");
                Err(ApiError::bad("top_logprobs", message))
            }
            top => Ok(self.logprobs.unwrap_or(false).then(|| top.unwrap_or(0))),
        }
    }
}
