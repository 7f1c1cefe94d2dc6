//! Chat templates: a model's Jinja template, rendered as Python's `transformers` does.
//!
//! A template comes with the model and is not trusted. It can read only the conversation, and budgets
//! of instructions, nesting and bytes ([`jinja`](super::jinja)) stop a template that would not end.

use super::jinja::{Budget, TemplateSource, compile, environment};
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
    /// Text of the message.
    pub content: String,
}

/// Inputs of a template besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// True if the prompt ends with the start of an answer.
    pub add_generation_prompt: bool,
    /// Tools, as a JSON array in the form of OpenAI's API.
    pub tools: Option<serde_json::Value>,
    /// Date that `strftime_now` prints. Without it the function is undefined, and templates that check
    /// for it (Llama 3) print a fixed date.
    pub date: Option<Date>,
    /// Further variables of this model's template (`enable_thinking`…).
    pub variables: serde_json::Map<String, serde_json::Value>,
}

/// A model's chat template: Jinja with the extensions of `transformers`.
///
/// ```
/// use wrinklefree::format::TextParts;
/// use wrinklefree::text::{ChatTemplate, Message};
///
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}\
///               {% if add_generation_prompt %}<assistant>{% endif %}";
/// let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
/// let template = ChatTemplate::new(&parts)?.expect("there is a template");
/// let messages = [Message { role: "user".into(), content: "Hi".into() }];
/// assert_eq!(template.render(&messages, true)?, "<user>Hi<assistant>");
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    original: String,
    source: TemplateSource,
    special: BTreeMap<String, String>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

/// Number of instructions that every conversation may use, and more for each message. Llama 3.1's
/// template, one of the longest, uses about 100 per message.
const FUEL: u64 = 100_000;
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Bytes that every conversation may read and write, and more for each of its bytes. Qwen3's template
/// parses an answer in four steps, each of which reads and writes it.
const BYTES: usize = 64 << 20;
const BYTES_PER_BYTE: usize = 64;

/// The message of a call of `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl ChatTemplate {
    /// Compiles the model's template; `None` if the model has none.
    ///
    /// # Errors
    /// When the template is not valid Jinja, or uses an unsupported feature.
    pub fn new(parts: &TextParts) -> Result<Option<Self>, TextError> {
        let Some(original) = parts.chat_template.clone() else {
            return Ok(None);
        };
        let source = TemplateSource::new(&original)?;
        Ok(Some(Self { original, source, special: parts.special.clone() }))
    }

    /// Jinja source of the template, as in the model's files.
    pub fn source(&self) -> &str {
        &self.original
    }

    /// Special tokens by the names of the template's variables (`bos_token`…).
    pub fn special(&self) -> &BTreeMap<String, String> {
        &self.special
    }

    /// Renders the prompt for a conversation, to be encoded with `add_special = false`
    /// ([`Tokenizer::encode`](super::Tokenizer::encode)).
    ///
    /// # Errors
    /// When the template refuses the conversation, fails, or uses up its budget.
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

    /// Renders the prompt for a conversation, with all inputs of templates. `messages` is a JSON array
    /// in the form of OpenAI's API (`role`, `content`, `tool_calls`, `reasoning_content`…).
    ///
    /// # Errors
    /// When the template refuses the conversation, fails, or uses up its budget.
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
        // `transformers` always passes these two, as None where they are not given.
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
            own.charge_deep(&message)?;
            let message = python::to_str(&message)?;
            let error = Error::new(ErrorKind::InvalidOperation, message.clone());
            Err::<Value, _>(error.with_source(Refusal(message)))
        });
        if let Some(date) = options.date {
            let format = move |format: &str| {
                // A directive of two characters prints up to nine ("September").
                budget.charge(5 * format.len())?;
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
