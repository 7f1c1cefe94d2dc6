//! Options as JSON objects.

use crate::error::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use wrinklefree_easy::{EngineBuilder, GenerateOptions, Grammar, Message, Sampling, Settings};

/// Options of `wf_open`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenFields {
    threads: Option<usize>,
    pinned: bool,
    context: Option<usize>,
    max_sequences: Option<usize>,
}

impl OpenFields {
    pub fn apply(self, mut builder: EngineBuilder) -> EngineBuilder {
        builder = builder.pinned(self.pinned);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(context) = self.context {
            builder = builder.context(context);
        }
        if let Some(sequences) = self.max_sequences {
            builder = builder.max_sequences(sequences);
        }
        builder
    }
}

/// Options of a request: those of this crate, the sampling and the decode settings.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RequestFields {
    max_tokens: Option<usize>,
    stop: Vec<String>,
    logprobs: Option<usize>,
    context_shift: Option<usize>,
    json_schema: Option<Value>,
    regex: Option<String>,
    grammar: Option<String>,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    settings: Settings,
    /// Fields that none of the parts above knows.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl RequestFields {
    /// Checks the fields and returns the options.
    pub fn options(self) -> Result<GenerateOptions, Failure> {
        if let Some(name) = self.unknown.keys().next() {
            return Err(Failure::argument(format!("options: there is no field `{name}`")));
        }
        let schema = self.json_schema.map(Grammar::JsonSchema);
        let regex = self.regex.map(Grammar::Regex);
        let mut grammars = schema.into_iter().chain(regex).chain(self.grammar.map(Grammar::Lark));
        let grammar = grammars.next();
        if grammars.next().is_some() {
            let message = "options: json_schema, regex and grammar exclude each other";
            return Err(Failure::argument(message));
        }
        let default = GenerateOptions::default();
        Ok(GenerateOptions {
            max_tokens: self.max_tokens.unwrap_or(default.max_tokens),
            sampling: self.sampling,
            stop: self.stop,
            settings: self.settings,
            logprobs: self.logprobs,
            context_shift: self.context_shift,
            grammar,
            best_effort: default.best_effort,
        })
    }
}

/// Reads an options object; NULL means no options.
pub fn parse<T: Default + DeserializeOwned>(options: Option<&str>) -> Result<T, Failure> {
    options.map_or(Ok(T::default()), |text| {
        serde_json::from_str(text).map_err(|error| Failure::argument(format!("options: {error}")))
    })
}

/// Reads a conversation: an array of objects with `role` and `content`.
pub fn messages(text: &str) -> Result<Vec<Message>, Failure> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        role: String,
        content: String,
    }
    let messages: Vec<Fields> = serde_json::from_str(text)
        .map_err(|error| Failure::argument(format!("messages: {error}")))?;
    Ok(messages.into_iter().map(|Fields { role, content }| Message { role, content }).collect())
}
