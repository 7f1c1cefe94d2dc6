//! Messages: their contents as several APIs have them, and conversations as chat templates know them.

use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Who may have said something, in OpenAI's APIs.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// The role, which came in the field `param`, as chat templates know it. They leave out what others
/// say, without a word.
pub fn role<'a>(role: &'a str, param: &str) -> Result<&'a str, ApiError> {
    match role {
        // What OpenAI calls `developer` now was `system` when templates were written.
        "developer" => Ok("system"),
        known if ROLES.contains(&known) => Ok(known),
        other => {
            let message = format!("the role `{other}` is none of {}", ROLES.join(", "));
            Err(ApiError::bad(param, message))
        }
    }
}

/// A text, or parts of one.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of text parts")]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Part {
    /// `text`, or `input_text` and `output_text` in newer APIs.
    #[schema(pattern = "^(text|input_text|output_text)$")]
    #[serde(rename = "type")]
    kind: String,
    #[schema(value_type = String, required = true)]
    text: Option<String>,
}

impl Content {
    /// The text, whose field is `param`.
    pub fn text(self, param: &str) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |part: Part| match part.kind.as_str() {
            kind @ ("text" | "input_text" | "output_text") => need(part.text, param, kind, "text"),
            kind => Err(text_only(param, kind)),
        };
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

/// There is a part that is no text.
pub fn text_only(param: &str, kind: &str) -> ApiError {
    ApiError::bad(param, format!("this model takes text only, not a part of type `{kind}`"))
}

/// A field that a part of this type must have.
pub fn need<T>(value: Option<T>, place: &str, kind: &str, field: &str) -> Result<T, ApiError> {
    let missing = || {
        let message = format!("`{field}` is missing, which `{kind}` needs");
        ApiError::bad(format!("{place}.{field}"), message)
    };
    value.ok_or_else(missing)
}

/// The arguments of a call, which came as text.
pub fn arguments(name: &str, text: &str, param: &str) -> Result<Value, ApiError> {
    let wrong = |e| ApiError::bad(param, format!("the arguments of `{name}` are no JSON: {e}"));
    serde_json::from_str(text).map_err(wrong)
}

/// A call as chat templates know it, with arguments as an object: they write them as JSON themselves.
pub fn call(id: Option<String>, name: &str, arguments: Value) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

/// A conversation as chat templates know it, made from texts, calls and results one by one.
#[derive(Clone, Debug, Default)]
pub struct Conversation(pub Vec<Value>);

impl Conversation {
    /// Somebody said something.
    pub fn say(&mut self, role: &str, text: &str) {
        self.0.push(json!({"role": role, "content": text}));
    }

    /// The model called a function. What it said right before is the same message.
    pub fn call(&mut self, id: String, name: &str, arguments: Value) {
        if self.0.last().is_none_or(|last| last["role"] != "assistant") {
            self.say("assistant", "");
        }
        let message = self.0.last_mut().and_then(Value::as_object_mut).expect("just there");
        let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
        calls.as_array_mut().expect("an array").push(call(Some(id), name, arguments));
    }

    /// What a function answered.
    pub fn result(&mut self, id: &str, text: &str) {
        self.0.push(json!({"role": "tool", "content": text, "tool_call_id": id}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_join_what_was_said_before() {
        let mut conversation = Conversation::default();
        conversation.call("1".into(), "f", json!({}));
        conversation.call("2".into(), "g", json!({"x": 1}));
        conversation.result("1", "one");
        conversation.say("assistant", "So.");
        conversation.call("3".into(), "f", json!({}));
        let roles: Vec<_> = conversation.0.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["assistant", "tool", "assistant"]);
        assert_eq!(
            conversation.0[0]["tool_calls"][1],
            call(Some("2".into()), "g", json!({"x": 1}))
        );
        assert_eq!(conversation.0[2]["content"], "So.");
        assert_eq!(conversation.0[2]["tool_calls"].as_array().unwrap().len(), 1);
    }
}
