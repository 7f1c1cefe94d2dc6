//! Messages of a conversation, and the calls in them.

use crate::Completion;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "MessageFields")]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another of [`ROLES`](wrinklefree::chat::ROLES).
    pub role: String,
    /// Text of the message.
    pub content: String,
    /// Reasoning before an assistant's answer, for templates that keep it.
    #[serde(rename = "reasoning_content", skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Calls of an assistant's answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Id of the call that a message of the role `tool` answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the author, for templates that write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The fields of a message in the form of OpenAI's API. Some clients send both names of reasoning.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageFields {
    role: String,
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

impl TryFrom<MessageFields> for Message {
    type Error = &'static str;

    fn try_from(fields: MessageFields) -> Result<Self, Self::Error> {
        let MessageFields { role, content, tool_call_id, name, .. } = fields;
        let reasoning = fields.reasoning_content.or(fields.reasoning);
        let tool_calls = fields.tool_calls.unwrap_or_default();
        let content = match content {
            // Clients send no text for a message that calls tools.
            None if tool_calls.is_empty() => return Err("missing field `content`"),
            content => content.unwrap_or_default(),
        };
        Ok(Self { role, content, reasoning, tool_calls, tool_call_id, name })
    }
}

impl Message {
    /// Makes an instruction for the whole conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Makes a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// Makes an answer of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// Makes the result of the call `id`.
    ///
    /// ```
    /// use wrinklefree_easy::Message;
    ///
    /// let result = Message::tool("call_1", "12 °C");
    /// assert_eq!((result.role.as_str(), result.tool_call_id.as_deref()), ("tool", Some("call_1")));
    /// ```
    pub fn tool(id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new("tool", content) }
    }

    fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

/// Makes the message that continues a conversation with this answer.
impl From<&Completion> for Message {
    fn from(answer: &Completion) -> Self {
        let reasoning = Some(&answer.reasoning).filter(|text| !text.is_empty()).cloned();
        let tool_calls = answer.tool_calls.clone();
        Self { reasoning, tool_calls, ..Self::assistant(answer.text.clone()) }
    }
}

/// A call of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Id, by which a result names the call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments: a JSON object, unless the output was cut inside it.
    pub arguments: String,
}

/// The form of a call in OpenAI's API.
#[derive(Deserialize, Serialize)]
struct CallFields {
    #[serde(default)]
    id: Option<String>,
    #[serde(rename = "type", default)]
    kind: Option<String>,
    function: FunctionFields,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FunctionFields {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { id, name, arguments } = self.clone();
        let function = FunctionFields { name, arguments: arguments.into() };
        CallFields { id: Some(id), kind: Some("function".into()), function }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let CallFields { id, function: FunctionFields { name, arguments }, .. } =
            CallFields::deserialize(from)?;
        let arguments = match arguments {
            Value::Null => String::new(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(Self { id: id.unwrap_or_default(), name, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_form_of_openai() {
        let function = json!({"name": "f", "arguments": "{\"a\": 1}"});
        let call = json!({"id": "call_1", "type": "function", "function": function});
        let sent = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        let mut given = sent.clone();
        given["content"] = Value::Null;
        let message: Message = serde_json::from_value(given).expect("valid");
        assert_eq!(message.tool_calls[0].arguments, "{\"a\": 1}");
        assert_eq!(serde_json::to_value(&message).expect("JSON"), sent);
        let object = json!({"role": "assistant", "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": 1}}}]});
        let message: Message = serde_json::from_value(object).expect("valid");
        assert_eq!(message.tool_calls[0].arguments, "{\"a\":1}");
        let null = json!({"role": "user", "content": "Hi", "tool_calls": null, "name": null});
        assert_eq!(serde_json::from_value::<Message>(null).expect("valid"), Message::user("Hi"));
        let both =
            json!({"role": "assistant", "content": "", "reasoning": "a", "reasoning_content": "a"});
        let message: Message = serde_json::from_value(both).expect("valid");
        assert_eq!(message.reasoning.as_deref(), Some("a"));
        for wrong in [
            json!({"role": "user"}),
            json!({"role": "user", "content": null}),
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "args": {}}}]}),
        ] {
            assert!(serde_json::from_value::<Message>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
