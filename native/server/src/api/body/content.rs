//! Contents and roles of messages, as several APIs have them.

use crate::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wrinklefree::chat;
use wrinklefree::settings::shown;

/// Types of parts that are texts.
const TEXTS: [&str; 5] = ["text", "input_text", "output_text", "reasoning_text", "summary_text"];
/// Fields of foreign parts that tell a model nothing, or that only their makers can read.
const SILENT: [&str; 16] = [
    "annotations",
    "cache_control",
    "call_id",
    "citations",
    "data",
    "detail",
    "encrypted_content",
    "file_data",
    "id",
    "image_url",
    "input_audio",
    "logprobs",
    "signature",
    "source",
    "status",
    "tool_use_id",
];
/// Most characters of a text within a line that stands for a part, of the line, and most elements of a
/// list.
const LONGEST_TEXT: usize = 200;
const LONGEST_LINE: usize = 1000;
const LONGEST_LIST: usize = 16;

/// Returns the role that chat templates use for `role`, which came in the field `param`.
///
/// # Errors
/// If the role is unknown: templates would silently drop the message.
pub fn template_role(role: &str, param: &str) -> Result<&'static str, ApiError> {
    chat::template_role(role).ok_or_else(|| {
        let known = chat::ROLES.join(", ");
        ApiError::bad(param, format!("unknown role `{role}`: expected one of {known}"))
    })
}

/// Returns true for the roles of messages that the model answers.
pub fn is_asked(role: &str) -> bool {
    ["system", "developer", "user"].contains(&role)
}

/// A text, or an array of parts.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
    /// Another value, as results of tools and older messages have it: its JSON is the text.
    Other(Value),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ContentPart {
    /// Type of the part: `text`, or `input_text`, `output_text`, `reasoning_text` and `summary_text` in
    /// the Responses API. Images and other types are not supported; in older messages and in results of
    /// tools a line stands for them.
    #[serde(rename = "type")]
    kind: String,
    /// The text.
    #[schema(value_type = String, required = true)]
    text: Option<String>,
    /// Refusal of the assistant, in a part of type `refusal`.
    refusal: Option<String>,
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

impl Content {
    /// Returns the text that the model is to answer; parts are joined by line breaks. The content came in
    /// the field `param`.
    ///
    /// # Errors
    /// If a part is not text.
    pub fn text(self, param: &str) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
            Self::Other(value) => {
                let found = shown(&value.to_string());
                let message =
                    format!("`{param}`: expected a string or an array of text parts, not {found}");
                return Err(ApiError { code: "invalid_type", ..ApiError::bad(param, message) });
            }
        };
        let text = |part: ContentPart| match part.kind.as_str() {
            kind if TEXTS.contains(&kind) => super::required(part.text, param, kind, "text"),
            kind => Err(text_only(param, kind)),
        };
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }

    /// Returns the text of an older message, or of a tool's result. A line stands for each part that is no
    /// text: a conversation goes on, whatever it contains.
    pub fn history(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                parts.into_iter().map(ContentPart::line).collect::<Vec<_>>().join("\n")
            }
            Self::Other(Value::Null) => String::new(),
            Self::Other(value) => value.to_string(),
        }
    }

    /// Returns [`text`](Self::text) of a message that is asked now, and [`history`](Self::history) of an
    /// older one.
    ///
    /// # Errors
    /// If it is asked now, and a part is not text.
    pub fn of_turn(self, asked: bool, param: &str) -> Result<String, ApiError> {
        if asked { self.text(param) } else { Ok(self.history()) }
    }
}

impl ContentPart {
    fn line(self) -> String {
        match (self.text, self.refusal) {
            (Some(text), _) if TEXTS.contains(&self.kind.as_str()) => text,
            (None, Some(refusal)) if self.kind == "refusal" => refusal,
            (text, _) => {
                let mut fields = self.rest;
                fields.extend(text.map(|text| ("text".to_string(), text.into())));
                stand_in(&self.kind, &fields)
            }
        }
    }
}

/// Returns a line that stands for a part or an item which templates do not know, as
/// `[web_search_call: {"query":"fox"}]`.
pub fn stand_in(kind: &str, fields: &Map<String, Value>) -> String {
    let name = kind.strip_prefix("input_").unwrap_or(kind).trim_end_matches("_url");
    let told = fields.iter().filter(|(key, value)| !SILENT.contains(&key.as_str()) && tells(value));
    let told: Map<String, Value> = told.map(|(key, value)| (key.clone(), short(value))).collect();
    if told.is_empty() {
        return format!("[{name}]");
    }
    let line = cut(&format!("{name}: {}", Value::from(told)), LONGEST_LINE);
    format!("[{line}]")
}

/// Returns true for a value that is not empty.
fn tells(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns a value with short texts and lists.
fn short(value: &Value) -> Value {
    match value {
        Value::String(text) => cut(text, LONGEST_TEXT).into(),
        Value::Array(items) => items.iter().take(LONGEST_LIST).map(short).collect(),
        Value::Object(fields) => {
            let told = fields.iter().filter(|(key, _)| !SILENT.contains(&key.as_str()));
            told.map(|(key, value)| (key.clone(), short(value))).collect()
        }
        value => value.clone(),
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Creates the error for a part that is not text.
pub fn text_only(param: &str, kind: &str) -> ApiError {
    ApiError::bad(param, format!("a part of type `{kind}` is not supported: send text only"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn older_messages_keep_what_is_readable() {
        let text = "x".repeat(300);
        for (content, want) in [
            (json!("a"), "a"),
            (
                json!([{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}]),
                "a\nNo.",
            ),
            (
                json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
                "[image]",
            ),
            (
                json!([{"type": "image", "source": {"data": "AAAA"}}, {"type": "text", "text": "b"}]),
                "[image]\nb",
            ),
            (
                json!([{"type": "input_file", "filename": "a.pdf", "file_data": "AAAA"}]),
                "[file: {\"filename\":\"a.pdf\"}]",
            ),
            (json!([{"type": "text"}]), "[text]"),
            (json!({"temperature": 3}), "{\"temperature\":3}"),
            (json!(["a"]), "[\"a\"]"),
            (json!(null), ""),
        ] {
            let read: Content = serde_json::from_value(content.clone()).expect("content");
            assert_eq!(read.clone().of_turn(false, "content").expect("older"), want);
            let plain = ["a"].contains(&want);
            assert_eq!(read.of_turn(true, "content").is_ok(), plain, "{content}");
        }
        let fields = json!({"id": "w", "status": "completed", "action": {"query": "fox", "data": "AA", "x": text}});
        let line = stand_in("web_search_call", fields.as_object().expect("fields"));
        assert!(
            line.starts_with("[web_search_call: {\"action\":{\"query\":\"fox\",\"x\":\"xxx"),
            "{line}"
        );
        assert!(line.ends_with("x…\"}}]") && line.len() < 300, "{line}");
    }
}
