//! Chat templates: a model's own Jinja, rendered as Python's `transformers` renders it.
//!
//! A template comes with the model, so it is not trusted: it reads nothing but the conversation,
//! and fixed allowances of instructions, of nesting and of bytes ([`jinja`]) end one that would not
//! end.

use super::jinja::{Budget, Source, compile, environment};
use super::{Date, TextError, python};
use crate::format::TextParts;
use minijinja::machinery::{eval, make_string_output};
use minijinja::value::Value;
use minijinja::{AutoEscape, Error, ErrorKind};
use std::collections::BTreeMap;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// What a template is told besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Tools as OpenAI's API describes them, a JSON array.
    pub tools: Option<serde_json::Value>,
    /// Makes `strftime_now` print this moment. Without it the function is not defined, and
    /// templates that ask whether it is (Llama 3) print a fixed date.
    pub date: Option<Date>,
    /// Variables that this model's template knows (`enable_thinking`…).
    pub variables: serde_json::Map<String, serde_json::Value>,
}

/// A model's chat template (Jinja, as `transformers` runs it).
#[derive(Clone)]
pub struct ChatTemplate {
    original: String,
    source: Source,
    special: BTreeMap<String, String>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

/// Instructions that any conversation may use, and how many more with each message. Llama 3.1's
/// template, one of the longest, uses about 100 for a message.
const FUEL: u64 = 100_000;
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Bytes that any conversation may read and write, and how many more with each of its own. Qwen3's
/// template takes apart an answer in four steps, each of which reads and writes it.
const BYTES: usize = 64 << 20;
const BYTES_PER_BYTE: usize = 64;

/// What `raise_exception` was called with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl ChatTemplate {
    /// Compiles the template, if the model has one.
    ///
    /// # Errors
    /// When the template is not valid Jinja.
    pub fn new(parts: &TextParts) -> Result<Option<Self>, TextError> {
        let Some(original) = parts.chat_template.clone() else {
            return Ok(None);
        };
        let source = Source::new(&original)?;
        Ok(Some(Self { original, source, special: parts.special.clone() }))
    }

    /// The template as the model's files have it.
    pub fn source(&self) -> &str {
        &self.original
    }

    /// Special tokens that the template knows by name (`bos_token`…).
    pub fn special(&self) -> &BTreeMap<String, String> {
        &self.special
    }

    /// The prompt for a conversation, ready for [`super::Tokenizer::encode`] with
    /// `add_special = false`.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let messages = serde_json::to_value(messages).expect("messages are JSON");
        self.render_with(
            &messages,
            &RenderOptions { add_generation_prompt, ..RenderOptions::default() },
        )
    }

    /// The prompt for a conversation with everything that templates know: `messages` is a JSON
    /// array as OpenAI's API has it (`role`, `content`, `tool_calls`, `reasoning_content`…).
    ///
    /// # Errors
    /// When the template refuses the conversation, fails, or uses up its allowance.
    pub fn render_with(
        &self,
        messages: &serde_json::Value,
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, token) in &self.special {
            context.insert(name, token.as_str().into());
        }
        for (name, value) in &options.variables {
            context.insert(name, python::from_json(value));
        }
        // `transformers` always passes these two, as None where there are none.
        let tools = options.tools.as_ref().map(python::from_json);
        context.insert("tools", tools.unwrap_or(().into()));
        context.insert("documents", Value::from(()));
        context.insert("messages", python::from_json(messages));
        let add = options.add_generation_prompt;
        context.insert("add_generation_prompt", add.into());
        let variables: usize = options.variables.values().map(length).sum();
        let tools = options.tools.as_ref().map_or(0, length);
        let size = length(messages).saturating_add(tools).saturating_add(variables);
        let budget = Budget::new(BYTES.saturating_add(size.saturating_mul(BYTES_PER_BYTE)));
        let count = messages.as_array().map_or(1, Vec::len) as u64;
        let mut environment = environment(&budget, FUEL + FUEL_PER_MESSAGE * count);
        let own = budget.clone();
        environment.add_function("raise_exception", move |message: Value| {
            own.deep(&message)?;
            let message = python::to_str(&message)?;
            let error = Error::new(ErrorKind::InvalidOperation, message.clone());
            Err::<Value, _>(error.with_source(Refusal(message)))
        });
        if let Some(date) = options.date {
            let format = move |format: &str| {
                // A directive of two characters is a month of nine.
                budget.pay(5 * format.len())?;
                Ok::<_, Error>(date.format(format))
            };
            context.insert("strftime_now", Value::from_function(format));
        }

        let code = compile(&self.source).map_err(failure)?;
        let context = Value::from_pairs(context);
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        eval(&environment, &code, context, &BTreeMap::new(), &mut out, AutoEscape::None)
            .map_err(failure)?;
        drop(out);
        Ok(text)
    }
}

/// Bytes of text in a conversation.
fn length(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::String(text) => text.len(),
        serde_json::Value::Array(items) => items.iter().map(length).sum(),
        serde_json::Value::Object(map) => map.iter().map(|(k, v)| k.len() + length(v)).sum(),
        _ => 8,
    }
}

fn failure(error: Error) -> TextError {
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return TextError::TemplateRefused(message.clone());
        }
        source = cause.source();
    }
    TextError::TemplateFailed(match error.kind() {
        ErrorKind::OutOfFuel => "it runs for too long".into(),
        _ => error.to_string(),
    })
}
