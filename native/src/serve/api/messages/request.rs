//! Conversations as Anthropic's API has them.

use crate::serve::api::message::{Content, Conversation, need, text_only};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The conversation.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Messages {
    /// What the model is told first: a text, or `text` blocks.
    #[serde(default)]
    system: Option<Content>,
    #[schema(min_items = 1)]
    messages: Vec<Message>,
}

/// The fields that end an answer.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Limits {
    /// Tokens of the answer at most.
    #[schema(minimum = 1)]
    pub max_tokens: usize,
    /// Texts that end the answer and are no part of it.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub stop_sequences: Option<Vec<String>>,
}

/// A message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicMessage)]
struct Message {
    role: Role,
    content: Blocks,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicRole)]
enum Role {
    User,
    Assistant,
}

/// A text, or blocks.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of content blocks")]
#[schema(as = AnthropicContent)]
enum Blocks {
    Text(String),
    Blocks(Vec<Block>),
}

/// A part of a message: `text`, `tool_use` (with `id`, `name` and `input`) or `tool_result` (with
/// `tool_use_id` and `content`).
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicBlock)]
struct Block {
    /// `text`, `tool_use` or `tool_result`.
    #[schema(pattern = "^(text|tool_use|tool_result)$")]
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    tool_use_id: Option<String>,
    content: Option<Content>,
}

impl Messages {
    /// As chat templates know it.
    pub fn conversation(self) -> Result<Vec<Value>, ApiError> {
        let mut conversation = Conversation::default();
        if let Some(system) = self.system {
            conversation.say("system", &system.text("system")?);
        }
        if self.messages.last().is_some_and(|last| last.role == Role::Assistant) {
            return Err(ApiError::bad(
                "messages",
                "the last message is the assistant's: to begin the answer for it is not supported",
            ));
        }
        for (index, message) in self.messages.into_iter().enumerate() {
            message.tell(&mut conversation, &format!("messages[{index}].content"))?;
        }
        Ok(conversation.0)
    }
}

impl Message {
    fn tell(self, conversation: &mut Conversation, param: &str) -> Result<(), ApiError> {
        let role = if self.role == Role::User { "user" } else { "assistant" };
        let blocks = match self.content {
            Blocks::Text(text) => {
                conversation.say(role, &text);
                return Ok(());
            }
            Blocks::Blocks(blocks) => blocks,
        };
        // Texts that stand together are one.
        let mut texts: Vec<String> = Vec::new();
        let say = |texts: &mut Vec<String>, conversation: &mut Conversation| {
            if !texts.is_empty() {
                conversation.say(role, &std::mem::take(texts).join("\n"));
            }
        };
        for (index, block) in blocks.into_iter().enumerate() {
            let place = format!("{param}[{index}]");
            if block.kind == "text" {
                texts.push(need(block.text, &place, "text", "text")?);
            } else {
                say(&mut texts, conversation);
                block.tell(conversation, &place)?;
            }
        }
        say(&mut texts, conversation);
        Ok(())
    }
}

impl Block {
    /// What is no text.
    fn tell(self, conversation: &mut Conversation, place: &str) -> Result<(), ApiError> {
        match self.kind.as_str() {
            kind @ "tool_use" => {
                let id = need(self.id, place, kind, "id")?;
                let name = need(self.name, place, kind, "name")?;
                conversation.call(id, &name, need(self.input, place, kind, "input")?);
            }
            kind @ "tool_result" => {
                let id = need(self.tool_use_id, place, kind, "tool_use_id")?;
                let text = self.content.map(|c| c.text(&format!("{place}.content")));
                conversation.result(&id, &text.transpose()?.unwrap_or_default());
            }
            kind => return Err(text_only(place, kind)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<Vec<Value>, ApiError> {
        serde_json::from_value::<Messages>(body).expect("parses").conversation()
    }

    #[test]
    fn blocks_become_messages_in_their_order() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let told = read(json!({"system": [text("Be"), text("kind.")], "messages": [
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": [text("I look."),
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [text("rain")]},
                text("And"), text("now?")]},
        ]}));
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Oslo"}}});
        let want = json!([
            {"role": "system", "content": "Be\nkind."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
            {"role": "user", "content": "And\nnow?"},
        ]);
        assert_eq!(Value::from(told.expect("good")), want);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |role: &str, block: Value| {
            let messages =
                json!([{"role": role, "content": [block]}, {"role": "user", "content": ""}]);
            let error = read(json!({"messages": messages})).expect_err("wrong");
            (error.param.unwrap(), error.message)
        };
        let (param, message) = wrong("user", json!({"type": "image", "source": {}}));
        assert!(param == "messages[0].content[0]" && message.contains("`image`"), "{message}");
        let (param, message) = wrong("assistant", json!({"type": "tool_use", "id": "1"}));
        assert!(param == "messages[0].content[0].name" && message.contains("`tool_use`"));
        let prefill = json!({"messages": [{"role": "assistant", "content": "I"}]});
        assert!(read(prefill).expect_err("wrong").message.contains("last message"));
    }
}
