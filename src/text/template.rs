//! Chat templates: a model's Jinja template, rendered as Python's `transformers` does.
//!
//! A template comes with the model and is not trusted. It can read only the conversation, and budgets
//! of instructions, nesting and bytes ([`jinja`](super::jinja)) stop a template that would not end.

use super::control::{ControlTokens, Prompt};
use super::jinja::{Budget, Reporter, TemplateSource, compile, environment, panic_message};
use super::kept_reasoning::{self, AnswerForm};
use super::reasoning::reasoning_of;
use super::{Date, TextError, Tokenizer, python};
use crate::format::TextParts;
use minijinja::machinery::{eval, make_string_output};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

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
    /// Documents to answer from, as a JSON array of objects (`title`, `text`).
    pub documents: Option<serde_json::Value>,
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
    source: Source,
    /// The template for conversations with tools, if the model has one of its own.
    with_tools: Option<Source>,
    special: BTreeMap<String, String>,
    /// Control tokens that are text in messages.
    control: Option<Arc<ControlTokens>>,
    /// Form in which it begins answers, once that was asked.
    form: Arc<OnceLock<Option<AnswerForm>>>,
}

/// A template as the model's files have it, and compiled.
#[derive(Clone)]
struct Source {
    original: String,
    compiled: Result<TemplateSource, TextError>,
}

impl Source {
    fn new(original: &str) -> Self {
        Self { original: original.to_owned(), compiled: TemplateSource::new(original) }
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

/// Number of instructions that every conversation may use, and more for each message and each of its
/// bytes. Llama 3.1's template, one of the longest, uses about 100 per message; those that write the
/// schemas of tools in a language of their own use 5 per byte.
const FUEL: u64 = 150_000;
const FUEL_PER_MESSAGE: u64 = 3_000;
const FUEL_PER_BYTE: u64 = 16;
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
        let template = Self::open(parts);
        match template.as_ref().and_then(Self::fault) {
            Some(fault) => Err(fault.clone()),
            None => Ok(template),
        }
    }

    /// Compiles the model's template like [`ChatTemplate::new`], but one that does not compile only
    /// fails when it renders: the model still continues text.
    #[must_use]
    pub fn open(parts: &TextParts) -> Option<Self> {
        let source = Source::new(parts.chat_template.as_deref()?);
        let with_tools = parts.tool_template.as_deref().map(Source::new);
        let (special, form) = (parts.special.clone(), Arc::default());
        Some(Self { source, with_tools, special, control: None, form })
    }

    /// Makes [`ChatTemplate::prompt`] keep the control tokens of `tokenizer` out of messages: its special
    /// tokens, what the template writes as marks, and `ids` (the mask, ends of text).
    #[must_use]
    pub fn with_control_tokens(self, tokenizer: &Tokenizer, ids: &[u32]) -> Self {
        let both = || self.with_tools.iter().chain([&self.source]);
        let compiled = both().flat_map(|source| &source.compiled);
        let read: Vec<String> = compiled.flat_map(TemplateSource::read).collect();
        let written: String = both().map(|source| source.original.as_str()).collect();
        let control = ControlTokens::new(tokenizer, ids, &written, &read);
        Self { control: Some(Arc::new(control)), ..self }
    }

    /// Error of a template that does not compile.
    #[must_use]
    pub fn fault(&self) -> Option<&TextError> {
        self.source.compiled.as_ref().err()
    }

    /// Jinja source of the template, as in the model's files.
    pub fn source(&self) -> &str {
        &self.source.original
    }

    /// Jinja source of the template for conversations with tools.
    #[must_use]
    pub fn tool_source(&self) -> &str {
        &self.with_tools.as_ref().unwrap_or(&self.source).original
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

    /// Renders the prompt for a conversation, as [`ChatTemplate::render_with`] does. With
    /// [`ChatTemplate::with_control_tokens`], control tokens in messages, tools and documents are text. With
    /// the variable `preserve_thinking`, earlier answers have their reasoning, whatever the template does.
    ///
    /// # Errors
    /// When the template refuses the conversation, fails, or uses up its budget.
    pub fn prompt(
        &self,
        mut messages: serde_json::Value,
        mut options: RenderOptions,
    ) -> Result<Prompt, TextError> {
        if let Some(control) = &self.control
            && let Some(marks) = control.mark(self.source(), &mut messages, &mut options)?
        {
            let rendered = self.render_kept(&messages, &options)?;
            return Ok(control.prompt(rendered, marks));
        }
        let text = self.render_kept(&messages, &options)?;
        Ok(Prompt::plain(text, self.control.clone()))
    }

    /// Renders the prompt with the reasoning of earlier answers, if the options ask for it.
    fn render_kept(
        &self,
        messages: &serde_json::Value,
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        if kept_reasoning::is_asked(options)
            && let Some(form) = self.form.get_or_init(|| AnswerForm::of_template(self))
            && let Ok(Some(text)) = kept_reasoning::render(self, form, messages, options)
        {
            return Ok(text);
        }
        self.render_with(messages, options)
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
        let own = self.with_tools.as_ref().filter(|_| options.tools.is_some());
        let source = own.unwrap_or(&self.source).compiled.as_ref().map_err(Clone::clone)?;
        let render = Render { source, special: &self.special, messages, options };
        render.guarded(&|_| {})
    }
}

/// One rendering of a template.
struct Render<'a> {
    source: &'a TemplateSource,
    special: &'a BTreeMap<String, String>,
    messages: &'a serde_json::Value,
    options: &'a RenderOptions,
}

impl Render<'_> {
    /// Renders the text. No panic is known, but minijinja is not written for hostile templates, so one
    /// becomes an error. A second run then finds its line.
    fn guarded(&self, prepare: &dyn Fn(&mut Environment)) -> Result<String, TextError> {
        let run = |mark_lines: bool, reporter: &Reporter| {
            catch_unwind(AssertUnwindSafe(|| self.run(mark_lines, reporter, prepare)))
        };
        let panic = match run(false, &Reporter::default()) {
            Ok(result) => return result,
            Err(panic) => panic,
        };
        let reporter = Reporter::default();
        drop(run(true, &reporter));
        let (line, message) = (reporter.line(), panic_message(&*panic));
        Err(TextError::TemplateFailed(format!("line {line} made the renderer panic: {message}")))
    }

    fn run(
        &self,
        mark_lines: bool,
        reporter: &Reporter,
        prepare: &dyn Fn(&mut Environment),
    ) -> Result<String, TextError> {
        let Self { source, messages, options, .. } = *self;
        let inputs = [&options.tools, &options.documents].into_iter().flatten();
        let inputs = inputs.chain(options.variables.values()).chain([messages]);
        let size = inputs.map(length).fold(0, usize::saturating_add);
        let budget = Budget::new(BYTES.saturating_add(size.saturating_mul(BYTES_PER_BYTE)));
        let count = messages.as_array().map_or(1, Vec::len) as u64;
        let fuel = FUEL + FUEL_PER_MESSAGE * count + FUEL_PER_BYTE * size as u64;
        let marks = if mark_lines { 4 } else { 1 };
        let mut environment = environment(&budget, marks * fuel, reporter);
        let own = budget.clone();
        environment.add_function("raise_exception", move |message: Value| {
            own.charge_deep(&message)?;
            let message = python::to_str(&message)?;
            let error = Error::new(ErrorKind::InvalidOperation, message.clone());
            Err::<Value, _>(error.with_source(Refusal(message)))
        });
        prepare(&mut environment);
        let code = compile(source.text(), mark_lines).map_err(failure)?;
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let context = self.context(&budget);
        eval(&environment, &code, context, &BTreeMap::new(), &mut out, AutoEscape::None)
            .map_err(failure)?;
        drop(out);
        Ok(text)
    }

    /// The variables that the template sees.
    fn context(&self, budget: &Budget) -> Value {
        let options = self.options;
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, token) in self.special {
            context.insert(name, token.as_str().into());
        }
        for (name, value) in &options.variables {
            context.insert(name, python::from_json(value));
        }
        // `transformers` always passes these two, as None where they are not given.
        let given = [("tools", &options.tools), ("documents", &options.documents)];
        for (name, value) in given {
            let value = value.as_ref().map(python::from_json);
            context.insert(name, value.unwrap_or(().into()));
        }
        context.insert("messages", python::from_json(&with_reasoning(self.messages)));
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        if let Some(date) = options.date {
            let budget = budget.clone();
            let format = move |format: &str| {
                // A directive of two characters prints up to 24 ("Fri Jul 26 09:05:07 2024").
                budget.charge(12 * format.len())?;
                Ok::<_, Error>(date.format(format))
            };
            context.insert("strftime_now", Value::from_function(format));
        }
        Value::from_pairs(context)
    }
}

/// Gives the reasoning of each message both names that templates know, as `transformers` does.
fn with_reasoning(messages: &serde_json::Value) -> Cow<'_, serde_json::Value> {
    let Some(all) = messages.as_array().filter(|all| all.iter().any(|m| reasoning_of(m).is_some()))
    else {
        return Cow::Borrowed(messages);
    };
    let mut all = all.clone();
    for message in &mut all {
        let text = reasoning_of(message).cloned();
        if let (Some(text), Some(message)) = (text, message.as_object_mut()) {
            message.entry("thinking").or_insert(text.clone());
            message.insert("reasoning_content".into(), text);
        }
    }
    Cow::Owned(all.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_the_line() {
        let source = TemplateSource::new("a\n{% if true %}\n{{ burst() }}\n{% endif %}").unwrap();
        let (special, messages) = (BTreeMap::new(), serde_json::json!([]));
        let options = RenderOptions::default();
        let render =
            Render { source: &source, special: &special, messages: &messages, options: &options };
        let prepare = |environment: &mut Environment| {
            environment.add_function("burst", || -> Result<Value, Error> { panic!("bang") });
        };
        let error = render.guarded(&prepare).unwrap_err();
        assert_eq!(error.code(), "chat_template_failed");
        assert!(error.to_string().contains("line 3 made the renderer panic: bang"), "{error}");
    }
}
