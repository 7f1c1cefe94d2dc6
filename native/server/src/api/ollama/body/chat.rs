//! Messages of Ollama's API.

use crate::api::body::content::{is_asked, template_role};
use crate::error::ApiError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wrinklefree::chat::{called_arguments, tool_call};

/// Most lines that stand for the images of a message.
const MOST_LINES: usize = 16;

/// Fields of `/api/chat`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct OllamaChatFields {
    /// The conversation so far. Without messages, the model is only loaded.
    #[serde(default)]
    messages: Option<Vec<OllamaMessage>>,
}

/// A message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct OllamaMessage {
    /// Role of the author: `system`, `user`, `assistant`, or `tool`.
    #[schema(pattern = "^(system|developer|user|assistant|tool|function)$")]
    role: String,
    /// Text of the message.
    content: Option<String>,
    /// Reasoning of the assistant before its content.
    thinking: Option<String>,
    /// Images. They are not supported; in older messages a line stands for each.
    #[schema(value_type = Option<Vec<String>>, max_items = 0)]
    images: Option<Vec<IgnoredAny>>,
    /// Tool calls of the assistant.
    tool_calls: Option<Vec<OllamaToolCall>>,
    /// Name of the tool that a `tool` message comes from.
    tool_name: Option<String>,
    /// Id of the call that a `tool` message answers.
    tool_call_id: Option<String>,
}

/// A tool call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct OllamaToolCall {
    /// Id of the call.
    id: Option<String>,
    /// The function and its arguments.
    function: OllamaCalledFunction,
}

/// A called function.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct OllamaCalledFunction {
    /// Name of the function.
    name: String,
    /// Arguments of the call.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Option<Value>,
}

impl OllamaChatFields {
    /// Converts the messages for chat templates.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn messages(self) -> Result<Vec<Value>, ApiError> {
        let messages = self.messages.unwrap_or_default();
        let answered = messages.iter().rposition(|message| !is_asked(&message.role));
        let first_asked = answered.map_or(0, |last| last + 1);
        let numbered = messages.into_iter().enumerate();
        numbered.map(|(index, message)| message.into_value(index, index >= first_asked)).collect()
    }
}

/// Refuses images, which came in the field `param`.
///
/// # Errors
/// If there are any.
pub fn refuse_images(count: usize, param: &str) -> Result<(), ApiError> {
    if count == 0 {
        return Ok(());
    }
    let message = format!("`{param}`: images are not supported: send text only");
    Err(ApiError { code: "unsupported", ..ApiError::bad(param, message) })
}

impl OllamaMessage {
    /// Converts message number `index` for chat templates. It is `asked` if no other role's follows.
    fn into_value(self, index: usize, asked: bool) -> Result<Value, ApiError> {
        let images = self.images.map_or(0, |images| images.len());
        if asked {
            refuse_images(images, &format!("messages[{index}].images"))?;
        }
        let lines = std::iter::repeat_n("[image]".to_string(), images.min(MOST_LINES));
        let content: Vec<String> = lines.chain(self.content).collect();
        let role = template_role(&self.role, &format!("messages[{index}].role"))?;
        let mut message = Map::new();
        message.insert("role".into(), role.into());
        message.insert("content".into(), content.join("\n").into());
        if let Some(calls) = self.tool_calls.filter(|calls| !calls.is_empty()) {
            let call = |OllamaToolCall { id, function }: OllamaToolCall| {
                tool_call(id, &function.name, called_arguments(function.arguments))
            };
            message.insert("tool_calls".into(), calls.into_iter().map(call).collect());
        }
        let named = [
            ("reasoning_content", self.thinking),
            ("name", self.tool_name),
            ("tool_call_id", self.tool_call_id),
        ];
        message
            .extend(named.into_iter().filter_map(|(key, text)| Some((key.into(), text?.into()))));
        Ok(message.into())
    }
}
