//! Conversations as OpenAI's responses API has them.

use crate::models::grammar::Grammar;
use crate::serve::api::Asked;
use crate::serve::api::message::{self, Content, arguments, need};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The conversation.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponsesConversation)]
pub struct Conversation {
    /// What the model is told first.
    instructions: Option<String>,
    input: Input,
}

/// How long an answer may be.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponsesLimits)]
pub struct Limits {
    /// Tokens of the answer at most.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<usize>,
}

/// A text of the user's, or items.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of items")]
#[schema(as = ResponsesInput)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// A part of a conversation: `message` (with `role` and `content`), `function_call` (with `call_id`,
/// `name` and `arguments`) or `function_call_output` (with `call_id` and `output`).
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponsesItem)]
struct Item {
    /// `message`, which may be left out, `function_call` or `function_call_output`.
    #[schema(pattern = "^(message|function_call|function_call_output)$")]
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `system` or `developer`, `user` or `assistant`.
    #[schema(pattern = "^(system|developer|user|assistant)$")]
    role: Option<String>,
    content: Option<Content>,
    call_id: Option<String>,
    name: Option<String>,
    /// JSON as text.
    arguments: Option<String>,
    output: Option<Content>,
}

/// What texts look like.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponsesTextFields)]
pub struct TextFields {
    text: Option<TextOptions>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponsesText)]
struct TextOptions {
    format: Option<TextFormat>,
}

/// `text`, any JSON object, or JSON that fits a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = ResponsesTextFormat)]
enum TextFormat {
    Text,
    JsonObject,
    JsonSchema {
        #[schema(value_type = Object)]
        schema: Value,
    },
}

impl TextFields {
    /// The grammar that is asked for.
    pub fn grammar(self) -> Option<Asked> {
        let grammar = match self.text?.format? {
            TextFormat::Text => return None,
            TextFormat::JsonObject => Grammar::json_object(),
            TextFormat::JsonSchema { schema } => Grammar::JsonSchema(schema),
        };
        Some(Asked { grammar, field: "text.format" })
    }
}

impl Conversation {
    /// As chat templates know it.
    pub fn messages(self) -> Result<Vec<Value>, ApiError> {
        let mut conversation = message::Conversation::default();
        if let Some(instructions) = self.instructions {
            conversation.say("system", &instructions);
        }
        match self.input {
            Input::Text(text) => conversation.say("user", &text),
            Input::Items(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    item.tell(&mut conversation, &format!("input[{index}]"))?;
                }
            }
        }
        Ok(conversation.0)
    }
}

impl Item {
    fn tell(self, conversation: &mut message::Conversation, place: &str) -> Result<(), ApiError> {
        let text = |content: Content, field: &str| content.text(&format!("{place}.{field}"));
        match self.kind.as_deref().unwrap_or("message") {
            kind @ "message" => {
                let role = need(self.role, place, kind, "role")?;
                let role = message::role(&role, &format!("{place}.role"))?;
                let content = need(self.content, place, kind, "content")?;
                conversation.say(role, &text(content, "content")?);
            }
            kind @ "function_call" => {
                let id = need(self.call_id, place, kind, "call_id")?;
                let name = need(self.name, place, kind, "name")?;
                let given = need(self.arguments, place, kind, "arguments")?;
                let given = arguments(&name, &given, &format!("{place}.arguments"))?;
                conversation.call(id, &name, given);
            }
            kind @ "function_call_output" => {
                let id = need(self.call_id, place, kind, "call_id")?;
                let output = need(self.output, place, kind, "output")?;
                conversation.result(&id, &text(output, "output")?);
            }
            kind => {
                let message = format!(
                    "an item is a `message`, `function_call` or `function_call_output`, not a \
                     `{kind}`"
                );
                return Err(ApiError::bad(format!("{place}.type"), message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<Vec<Value>, ApiError> {
        serde_json::from_value::<Conversation>(body).expect("parses").messages()
    }

    #[test]
    fn items_become_messages() {
        let parts = json!([{"type": "output_text", "text": "I look."}]);
        let told = read(json!({"instructions": "Be kind.", "input": [
            {"role": "developer", "content": "Short."},
            {"role": "user", "content": "How is it?"},
            {"type": "message", "role": "assistant", "content": parts},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": 1}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"},
        ]}));
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "f", "arguments": {"x": 1}}});
        let want = json!([
            {"role": "system", "content": "Be kind."},
            {"role": "system", "content": "Short."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
        ]);
        assert_eq!(Value::from(told.expect("good")), want);
        let text = read(json!({"input": "Hi!"})).expect("good");
        assert_eq!(Value::from(text), json!([{"role": "user", "content": "Hi!"}]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |item: Value| read(json!({"input": [item]})).expect_err("wrong").param.unwrap();
        assert_eq!(wrong(json!({"content": "x"})), "input[0].role");
        assert_eq!(wrong(json!({"type": "reasoning"})), "input[0].type");
        let image = json!([{"type": "input_image", "image_url": "x"}]);
        assert_eq!(wrong(json!({"role": "user", "content": image})), "input[0].content");
        let call = json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"});
        assert_eq!(wrong(call), "input[0].arguments");
    }
}
