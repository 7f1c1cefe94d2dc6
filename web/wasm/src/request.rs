//! Requests as they come: JSON with the names of OpenAI's API and of `wf-run`'s configuration.

use crate::error::Error;
use crate::model::Loaded;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wrinklefree::decode::SamplingParams;
use wrinklefree::engine;
use wrinklefree::settings::{Sampling, Settings};
use wrinklefree::text::{Date, RenderOptions};

/// Tokens of an answer where the caller does not say.
const MAX_TOKENS: usize = 512;

/// A request: one JSON object, read in parts.
pub struct Request {
    input: Input,
    sampling: Sampling,
    settings: Settings,
}

/// What is to be continued or answered, one of the first three, and when that ends.
#[derive(Deserialize)]
struct Input {
    prompt: Option<String>,
    messages: Option<Value>,
    tokens: Option<Vec<u32>>,
    /// The prompt does not go through the chat template.
    #[serde(default)]
    raw: bool,
    max_tokens: Option<usize>,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    watch: bool,
    /// Of so many tokens for each place.
    logprobs: Option<usize>,
}

/// The fields of `T` in a request; others are ignored.
fn part<T: DeserializeOwned>(request: &Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(request)
        .map_err(|error| Error::bad_request(format!("`{}`: {}", error.path(), error.inner())))
}

impl Request {
    /// Reads a request.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let request: Value = serde_json::from_str(json)?;
        Ok(Self { input: part(&request)?, sampling: part(&request)?, settings: part(&request)? })
    }

    /// The request as the engine takes it. `now`: seconds since 1970.
    pub fn build(self, loaded: &Loaded, now: i64) -> Result<engine::Request, Error> {
        Ok(engine::Request {
            tokens: self.input.tokens(loaded, now)?,
            max_tokens: self.input.max_tokens.unwrap_or(MAX_TOKENS),
            mode: self.settings.mode(&loaded.ability())?,
            sampling: SamplingParams {
                logprobs: self.input.logprobs,
                ..self.sampling.params(&loaded.defaults)
            },
            stop: self.input.stop,
            eos: loaded.defaults.eos.clone(),
            watch: self.input.watch,
            ..engine::Request::default()
        })
    }
}

impl Input {
    fn tokens(&self, loaded: &Loaded, now: i64) -> Result<Vec<u32>, Error> {
        let messages = match (&self.prompt, &self.messages, &self.tokens) {
            (None, None, Some(tokens)) => return Ok(tokens.clone()),
            (Some(text), None, None) if self.raw || loaded.template.is_none() => {
                return Ok(loaded.tokenizer()?.encode(text, true)?);
            }
            (Some(text), None, None) => &json!([{"role": "user", "content": text}]),
            (None, Some(messages), None) => messages,
            _ => return Err(Error::bad_request("give one of prompt, messages and tokens")),
        };
        Ok(loaded.tokenizer()?.encode(&render(loaded, messages, now)?, false)?)
    }
}

/// The prompt that makes the model answer these messages.
pub fn render(loaded: &Loaded, messages: &Value, now: i64) -> Result<String, Error> {
    let template = loaded.template.as_ref().ok_or_else(|| {
        let name = &loaded.name;
        Error::new("no_chat_template", format!("{name} has no chat template: give a prompt"))
    })?;
    let options = RenderOptions {
        add_generation_prompt: true,
        date: Some(Date::from_unix(now)),
        ..RenderOptions::default()
    };
    Ok(template.render_with(messages, &options)?)
}
