//! Messages as OpenAI's API has them.

use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A message.
#[derive(Clone, Debug, Deserialize)]
pub struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

/// A text, or parts of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of text parts")]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message; `type` is `text`, or `input_text` and `output_text` in newer APIs.
#[derive(Clone, Debug, Deserialize)]
pub struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct ToolCall {
    #[serde(default)]
    id: Option<String>,
    function: Function,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl Content {
    /// The text, whose field is `param`.
    pub fn text(self, param: &str) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |part: Part| match (part.kind.as_str(), part.text) {
            ("text" | "input_text" | "output_text", Some(text)) => Ok(text),
            (kind, _) => Err(ApiError::bad(
                param,
                format!("this model takes text only, not a part of type `{kind}`"),
            )),
        };
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

impl ChatMessage {
    /// As templates take it.
    pub fn into_value(self, index: usize) -> Result<Value, ApiError> {
        let content = self.content.map(|c| c.text(&format!("messages[{index}].content")));
        let mut message = Map::new();
        // What OpenAI calls `developer` now was `system` when templates were written.
        let role = if self.role == "developer" { "system".into() } else { self.role };
        message.insert("role".into(), role.into());
        message.insert("content".into(), content.transpose()?.unwrap_or_default().into());
        if let Some(calls) = self.tool_calls.filter(|calls| !calls.is_empty()) {
            let calls = calls.into_iter().map(|call| call.into_value(index));
            message.insert("tool_calls".into(), calls.collect::<Result<Vec<_>, _>>()?.into());
        }
        let named = [("name", self.name), ("tool_call_id", self.tool_call_id)];
        message
            .extend(named.into_iter().filter_map(|(key, text)| Some((key.into(), text?.into()))));
        Ok(message.into())
    }
}

impl ToolCall {
    /// With arguments as an object: templates write them as JSON themselves.
    fn into_value(self, index: usize) -> Result<Value, ApiError> {
        let Function { name, arguments } = self.function;
        let arguments: Value = serde_json::from_str(&arguments).map_err(|e| {
            let param = format!("messages[{index}].tool_calls");
            ApiError::bad(param, format!("the arguments of `{name}` are no JSON: {e}"))
        })?;
        let function = json!({"name": name, "arguments": arguments});
        Ok(json!({"id": self.id, "type": "function", "function": function}))
    }
}
