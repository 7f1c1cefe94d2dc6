//! Chat templates: a model's own Jinja, rendered as Python's `transformers` renders it.
//!
//! A template comes with the model, so it is not trusted: it reads nothing but the conversation,
//! and a fixed allowance of instructions, of nesting and of output ends one that would not end.
//! (What it cannot be kept from is doubling a string in a variable; the allowance limits how often,
//! not how much memory that takes.)

use super::{Date, TextError, python};
use crate::format::TextParts;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
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
    environment: Environment<'static>,
    special: BTreeMap<String, String>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

const NAME: &str = "chat_template";
/// Instructions that any conversation may use, and how many more with each message. Llama 3.1's
/// template, one of the longest, uses about 60 for a message.
const FUEL: u64 = 100_000;
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Bytes of output that any conversation may make, on top of 16 times its own length.
const OUTPUT: usize = 1 << 20;

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
        let Some(source) = &parts.chat_template else {
            return Ok(None);
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .expect("Jinja's own delimiters");
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_recursion_limit(64);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, _, value| {
            out.write_str(&python::to_str(value)?).map_err(Error::from)
        });
        environment.add_filter("tojson", to_json);
        environment.add_filter("string", |value: Value| python::to_str(&value));
        environment.add_function("raise_exception", |message: String| {
            let error = Error::new(ErrorKind::InvalidOperation, message.clone());
            Err::<Value, _>(error.with_source(Refusal(message)))
        });
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|e| TextError::TemplateSyntax(e.to_string()))?;
        Ok(Some(Self { environment, special: parts.special.clone() }))
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
        if let Some(date) = options.date {
            let format = move |format: String| date.format(&format);
            context.insert("strftime_now", Value::from_function(format));
        }

        let count = messages.as_array().map_or(1, Vec::len) as u64;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * count));
        let template = environment.get_template(NAME).map_err(failure)?;
        let mut out = Bounded { bytes: Vec::new(), left: OUTPUT + 16 * length(messages) };
        let context = Value::from_pairs(context);
        template.render_captured_to(context, &mut out).map_err(failure)?;
        String::from_utf8(out.bytes).map_err(|e| TextError::TemplateFailed(e.to_string()))
    }
}

/// Takes so many bytes and no more.
struct Bounded {
    bytes: Vec<u8>,
    left: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or_else(|| std::io::Error::other("the output is too long"))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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

/// The `tojson` of `transformers`: not Jinja's own, which escapes HTML.
fn to_json(value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        None => options.get::<Option<usize>>("indent")?,
        some => some,
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let item = if indent.is_some() { "," } else { ", " };
    let [item, key] = separators
        .unwrap_or_else(|| vec![item.into(), ": ".into()])
        .try_into()
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators are two strings"))?;
    let json = python::Json {
        // A page is wide enough; hostile indents are wider.
        indent: indent.map(|n| n.min(32)),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item,
        key,
    };
    // Python can escape other scripts; no template wants that from its model.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    json.dump(&value)
}

/// `{% generation %}` marks for training what an assistant says; for prompts it is a block that
/// always runs.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}") else {
            break;
        };
        let tag = &rest[start..start + end];
        let name = tag[2..].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start]);
        match name {
            "generation" => out.push_str(&tag.replace(name, "if true")),
            "endgeneration" => out.push_str(&tag.replace(name, "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + end..];
    }
    out + rest
}
