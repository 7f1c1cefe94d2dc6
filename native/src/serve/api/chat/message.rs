//! Messages as OpenAI's API has them.

use crate::serve::api::message::{self, Content};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system` or `developer`, `user`, `assistant` or `tool`.
    #[schema(pattern = "^(system|developer|user|assistant|tool)$")]
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    name: Option<String>,
    /// Calls that the model made.
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
    /// The call that this is the result of.
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ToolCall {
    #[serde(default)]
    id: Option<String>,
    function: Function,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = CalledFunction)]
struct Function {
    name: String,
    /// JSON as text.
    arguments: String,
}

impl ChatMessage {
    /// As templates take it.
    pub fn into_value(self, index: usize) -> Result<Value, ApiError> {
        let role = message::role(&self.role, &format!("messages[{index}].role"))?;
        let content = self.content.map(|c| c.text(&format!("messages[{index}].content")));
        let mut message = Map::new();
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
    fn into_value(self, index: usize) -> Result<Value, ApiError> {
        let Function { name, arguments } = self.function;
        let arguments =
            message::arguments(&name, &arguments, &format!("messages[{index}].tool_calls"))?;
        Ok(message::call(self.id, &name, arguments))
    }
}
