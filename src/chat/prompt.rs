//! The prompt of a conversation.

use super::SharedPrefixes;
use crate::settings::{OutputReasoning, Reasoning, ReasoningError};
use crate::text::{ChatTemplate, Date, RenderOptions, TextError, Tokenizer};
use serde::Serialize;
use serde_json::Value;

/// Roles of messages, as OpenAI's APIs name them.
pub const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Returns the role by which chat templates know `role`; `None` if it is unknown, because templates would
/// silently drop the message.
#[must_use]
pub fn template_role(role: &str) -> Option<&'static str> {
    match role {
        // OpenAI's newer name for `system`; templates know the older one.
        "developer" => Some("system"),
        // OpenAI's older name for `tool`.
        "function" => Some("tool"),
        known => ROLES.into_iter().find(|&role| role == known),
    }
}

/// Error: a conversation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// There is no list of messages, or it is empty.
    #[error("messages is empty: send at least one message")]
    Empty,
    /// The role of a message is unknown.
    #[error("messages[{index}].role: unknown role `{role}`: expected one of {}", ROLES.join(", "))]
    Role {
        /// Index of the message.
        index: usize,
        /// The role; empty if there is none.
        role: String,
    },
    /// The template refuses the conversation, or its text cannot be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A setting of reasoning does not fit the model.
    #[error(transparent)]
    Reasoning(#[from] ReasoningError),
}

impl ChatError {
    /// Returns a stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Text(error) => error.code(),
            Self::Empty | Self::Role { .. } | Self::Reasoning(_) => "bad_request",
        }
    }
}

/// The parts of a model that turn a conversation into a prompt.
#[derive(Clone, Copy)]
pub struct ChatModel<'a> {
    /// The chat template.
    pub template: &'a ChatTemplate,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// True if the model has recurrent states, which the prefix cache keeps at few positions only.
    pub recurrent: bool,
}

/// A prompt that makes the model answer a conversation.
#[derive(Clone, Debug, Default)]
pub struct ChatPrompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Prefixes that other prompts share, of a model with recurrent states.
    pub prefixes: SharedPrefixes,
    /// Reasoning that the answer has.
    pub reasoning: OutputReasoning,
}

impl ChatModel<'_> {
    /// Renders and tokenizes the prompt for an answer to `messages`, a list of objects in the form of
    /// OpenAI's API (`role`, `content`, `reasoning_content`…). `date` is the one that templates print.
    ///
    /// # Errors
    /// If a message has no known role, the template refuses the conversation, or a setting of reasoning
    /// does not fit the model.
    pub fn prompt(
        &self,
        messages: impl Serialize,
        reasoning: &Reasoning,
        date: Option<Date>,
    ) -> Result<ChatPrompt, ChatError> {
        let messages = checked(serde_json::to_value(messages).unwrap_or_default())?;
        let variables = reasoning.variables()?;
        let options =
            RenderOptions { add_generation_prompt: true, date, variables, ..Default::default() };
        let prompt = self.template.prompt(messages.clone().into(), options.clone())?;
        let tokens = prompt.encode(self.tokenizer)?;
        let bare = RenderOptions { add_generation_prompt: false, ..options };
        let render =
            |messages: &[Value]| self.template.prompt(messages.to_vec().into(), bare.clone()).ok();
        let prefixes = if self.recurrent {
            let preserves = reasoning.preserves() == Some(true);
            let known = (&prompt, &*tokens);
            SharedPrefixes::find(known, &messages, self.tokenizer, preserves, render)
        } else {
            SharedPrefixes::default()
        };
        let reasoning = reasoning.of_output(self.template, prompt.text())?;
        Ok(ChatPrompt { tokens, prefixes, reasoning })
    }
}

/// Returns the messages with the roles that templates know.
fn checked(messages: Value) -> Result<Vec<Value>, ChatError> {
    let Value::Array(mut list) = messages else { return Err(ChatError::Empty) };
    if list.is_empty() {
        return Err(ChatError::Empty);
    }
    for (index, message) in list.iter_mut().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let Some(known) = template_role(role) else {
            return Err(ChatError::Role { index, role: role.into() });
        };
        message["role"] = known.into();
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_roles_that_templates_know() {
        let role = |messages: Value| checked(messages).map(|known| known[0]["role"].clone());
        for (given, known) in [("developer", "system"), ("function", "tool"), ("user", "user")] {
            assert_eq!(role(json!([{"role": given, "content": ""}])), Ok(json!(known)));
        }
        for empty in [json!([]), json!(null), json!("Hello")] {
            assert_eq!(role(empty), Err(ChatError::Empty));
        }
        let error = role(json!([{"role": "user"}, {"role": "robot"}])).expect_err("unknown");
        assert!(error.to_string().starts_with("messages[1].role: unknown role `robot`"), "{error}");
        assert!(role(json!(["Hello"])).is_err());
    }
}
