//! Requests in JSON, with the field names of OpenAI's API and of `wf-run`'s configuration.

use crate::error::Error;
use crate::model::LoadedModel;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wrinklefree::chat::tools::{ChatToolFields, Tools};
use wrinklefree::chat::{ChatError, ChatModel, ChatPrompt, Conversation, OutputParser, Snapshots};
use wrinklefree::decode::SamplingParams;
use wrinklefree::engine;
use wrinklefree::settings::{Hole, Reasoning, Sampling, Settings, explain_json_error};
use wrinklefree::text::{ChatTemplate, Date};

/// Default maximum number of tokens of an answer.
const DEFAULT_MAX_TOKENS: usize = 512;

/// A request. Its parts are read from the same JSON object.
pub struct Request {
    input: Input,
    tools: Tools,
    sampling: Sampling,
    settings: Settings,
    reasoning: Reasoning,
}

/// The input, which is exactly one of the first three fields, and the end of the answer.
#[derive(Deserialize)]
struct Input {
    prompt: Option<String>,
    messages: Option<Value>,
    tokens: Option<Vec<u32>>,
    /// Text after the output, which fills the hole between `prompt` and it.
    suffix: Option<String>,
    /// Skips the chat template.
    #[serde(default)]
    raw: bool,
    /// Maximum number of new tokens.
    max_tokens: Option<usize>,
    /// Strings that end the answer.
    #[serde(default)]
    stop: Vec<String>,
    /// Reports the block or draft in progress after each pass.
    #[serde(default)]
    watch: bool,
    /// Reports the whole output so far after each pass.
    #[serde(default)]
    diffusing: bool,
    /// Number of most likely tokens to report at each position.
    logprobs: Option<usize>,
    /// Documents to answer from.
    documents: Option<Vec<Value>>,
}

/// A request for the engine, and what reads its output.
pub struct BuiltRequest {
    pub request: engine::Request,
    pub parser: OutputParser,
    /// True if slots are reported.
    pub watched: bool,
    /// Makes snapshots, if they are reported.
    pub snapshots: Option<Snapshots>,
}

/// The prompt as the model reads it, and the hole that the output fills.
type InputPrompt = (ChatPrompt, Option<Hole>);

/// Reads the fields of `T` from an object and ignores all others.
pub fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let why = explain_json_error(error.inner());
        Error::bad_request(format!("`{}`: {why}", error.path()))
    })
}

/// Returns the tools that the output may call.
fn tools(fields: ChatToolFields) -> Result<Tools, Error> {
    let tools = fields.tools().map_err(ChatError::Tools)?;
    match tools.needs_grammar() {
        Some(field) => Err(Error::bad_request(format!(
            "{field} needs a grammar, which this package does not have: leave it out"
        ))),
        None => Ok(tools),
    }
}

impl Request {
    /// Parses a request.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let request: Value = serde_json::from_str(json)?;
        Ok(Self {
            input: read(&request)?,
            tools: tools(read(&request)?)?,
            sampling: read(&request)?,
            settings: read(&request)?,
            reasoning: read(&request)?,
        })
    }

    /// Returns the engine's request, and what reads its output. `now` is the Unix time in seconds, for
    /// chat templates.
    pub fn build(self, loaded: &LoadedModel, now: i64) -> Result<BuiltRequest, Error> {
        let (prompt, hole) = self.prompt(loaded, now)?;
        let stop_scope = prompt.stop_scope(&self.input.stop);
        let ChatPrompt { tokens, prefixes, reasoning, parser, .. } = prompt;
        let settings = match &hole {
            Some(hole) => hole.settings(self.settings, &Settings::default())?,
            None => self.settings,
        };
        let eos = &loaded.defaults.eos;
        let constraint = match reasoning.parser() {
            Some(_) => reasoning.constrain(loaded.tokenizer()?, eos, None)?,
            None => None,
        };
        let mut request = engine::Request {
            tokens,
            stable_prefix: prefixes.stable,
            message_ends: prefixes.message_ends,
            max_tokens: self.input.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            mode: settings.mode(&loaded.capabilities())?,
            sampling: SamplingParams {
                logprobs: self.input.logprobs,
                constraint,
                ..self.sampling.params(&loaded.defaults)
            },
            stop: self.input.stop,
            stop_scope,
            eos: eos.clone(),
            watch: self.input.watch || self.input.diffusing,
            ..engine::Request::default()
        };
        if let Some(hole) = hole {
            let room = hole.shape(&mut request.mode, &mut request.eos, request.tokens.len());
            request.max_tokens = self.input.max_tokens.or(room).unwrap_or(request.max_tokens);
        }
        let watched = self.input.watch;
        let tokenizer = loaded.tokenizer.as_deref();
        let snapshots = Snapshots::new(&request, parser.clone(), tokenizer);
        let snapshots = self.input.diffusing.then_some(snapshots);
        Ok(BuiltRequest { request, parser, watched, snapshots })
    }

    /// Returns the tokens of the prompt alone. `now` is the Unix time in seconds.
    pub fn tokens(&self, loaded: &LoadedModel, now: i64) -> Result<Vec<u32>, Error> {
        Ok(self.prompt(loaded, now)?.0.tokens)
    }

    /// Refuses a prompt that must have more tokens than the context, before it is tokenized: that takes
    /// time and about 30 times the memory of the text.
    ///
    /// # Errors
    /// `"context_length_exceeded"`.
    pub fn check_length(&self, loaded: &LoadedModel) -> Result<(), Error> {
        let context = loaded.engine.context();
        let Some(tokenizer) = &loaded.tokenizer else { return Ok(()) };
        let least = tokenizer.least_tokens(self.input.bytes());
        if least <= context {
            return Ok(());
        }
        let message = format!(
            "the prompt has at least {least} tokens, but the context holds {context} positions: shorten \
             the prompt, or load the model with a longer context"
        );
        Err(Error::new("context_length_exceeded", message))
    }

    fn prompt(&self, loaded: &LoadedModel, now: i64) -> Result<InputPrompt, Error> {
        let Self { input, tools, reasoning, .. } = self;
        let plain = |tokens, hole| {
            if tools.any() || input.documents.is_some() {
                return Err(Error::bad_request(
                    "tools and documents need messages, or a text that goes through a chat template",
                ));
            }
            Ok((ChatPrompt { tokens, ..ChatPrompt::default() }, hole))
        };
        let messages = match (&input.prompt, &input.messages, &input.tokens) {
            (Some(prefix), None, None) if input.suffix.is_some() => {
                let suffix = input.suffix.as_deref().unwrap_or_default();
                let model = (&*loaded.name, loaded.tokenizer()?, loaded.dlm.is_some());
                let (hole, tokens) = Hole::new(model, prefix, suffix)?;
                return plain(tokens, Some(hole));
            }
            _ if input.suffix.is_some() => {
                return Err(Error::bad_request("suffix needs a prompt that is a text"));
            }
            (None, None, Some(tokens)) => return plain(tokens.clone(), None),
            (Some(text), None, None) if input.raw || loaded.template.is_none() => {
                return plain(loaded.tokenizer()?.encode(text, true)?, None);
            }
            (Some(text), None, None) => &json!([{"role": "user", "content": text}]),
            (None, Some(messages), None) => messages,
            _ => {
                return Err(Error::bad_request(
                    "expected exactly one of prompt, messages and tokens",
                ));
            }
        };
        let recurrent = loaded.engine.model().spec().linear_attention.is_some();
        let (template, tokenizer) = (template(loaded)?, loaded.tokenizer()?);
        let (date, context) = (Some(Date::from_unix(now)), Some(loaded.engine.context()));
        let chat = ChatModel { template, tokenizer, recurrent, context, date, reasoning: None };
        let conversation = Conversation {
            tools: tools.clone(),
            documents: input.documents.clone(),
            reasoning: reasoning.clone(),
            ..Conversation::new(messages)?
        };
        let prompt = chat.prompt(&conversation)?;
        Ok((prompt, None))
    }
}

impl Input {
    /// Returns the bytes of the texts that the prompt is made of.
    fn bytes(&self) -> usize {
        let texts = [&self.prompt, &self.suffix].into_iter().flatten().map(String::len);
        let messages = self.messages.iter().filter_map(Value::as_array).flatten();
        let contents = messages.filter_map(|message| message["content"].as_str()).map(str::len);
        texts.chain(contents).sum()
    }
}

fn template(loaded: &LoadedModel) -> Result<&ChatTemplate, Error> {
    loaded.template.as_ref().ok_or_else(|| {
        let name = &loaded.name;
        Error::new(
            "no_chat_template",
            format!("{name} has no chat template: send a prompt instead of messages"),
        )
    })
}

#[cfg(test)]
#[path = "../../../tests/common/defaults.rs"]
mod defaults_table;

#[cfg(test)]
mod tests {
    use super::defaults_table::{Absent, Column, rows};
    use super::*;
    use wrinklefree::format::GenerationDefaults;

    #[test]
    fn wrong_values_say_what_is_expected_and_found() {
        for (field, want) in [
            (r#""temperature": "hot""#, r#"`temperature`: expected a number, not "hot""#),
            (r#""max_tokens": -1"#, "`max_tokens`: expected a whole number from 0, not -1"),
            (r#""stop": "x""#, r#"`stop`: expected an array, not "x""#),
            (r#""stop": [3]"#, "`stop[0]`: expected a string, not 3"),
            (r#""raw": 1"#, "`raw`: expected true or false, not 1"),
            (r#""commit": "soon""#, r#"`commit`: expected one of clean, fused, not "soon""#),
            (r#""prompt": ["x"]"#, "`prompt`: expected a string, not an array"),
        ] {
            let error = Request::parse(&format!("{{{field}}}")).err().expect("refused");
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn absent_fields_mean_what_the_table_of_defaults_says() {
        let Ok(request) = Request::parse(r#"{"prompt": "a"}"#) else { panic!("a request") };
        let params = request.sampling.params(&GenerationDefaults::default());
        let found = |option: &str| match option {
            "temperature" => params.temperature,
            "max_tokens" => request.input.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS) as f32,
            "top_k" => params.top_k as f32,
            "top_p" => params.top_p,
            "min_p" => params.min_p,
            "repetition_penalty" => params.repetition_penalty,
            "frequency_penalty" => params.frequency_penalty,
            "presence_penalty" => params.presence_penalty,
            other => panic!("docs/command-line.md: npm has a value for {other}"),
        };
        let mut compared = 0;
        for row in rows() {
            match row.absent(Column::Npm, "npm") {
                Absent::Equals(want) => {
                    let found = f64::from(found(&row.option));
                    let want = want.as_f64().expect("a number");
                    assert!((found - want).abs() < 1e-6, "{}: {found}, not {want}", row.option);
                    compared += 1;
                }
                // The page draws it, and its tests say so.
                Absent::Drawn => assert_eq!(row.option, "seed"),
                Absent::Nothing | Absent::NoOption => {}
                Absent::Fits => panic!("{}: an answer has a limit", row.option),
            }
        }
        assert_eq!(compared, 8);
        assert!(params.logit_bias.is_empty() && params.logprobs.is_none());
        assert!(request.input.stop.is_empty() && request.input.logprobs.is_none());
    }
}
