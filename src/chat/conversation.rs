//! A conversation to continue.

use super::ChatError;
use super::messages::{Ending, with_called_arguments};
use super::tools::Tools;
use crate::settings::Reasoning;
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

/// Messages, and what else the model reads or may do.
///
/// ```
/// use serde_json::json;
/// use wrinklefree::chat::Conversation;
///
/// let conversation = Conversation::new(&json!([{"role": "developer", "content": "Rhyme."}]))?;
/// assert_eq!(conversation.messages[0]["role"], "system");
/// # Ok::<(), wrinklefree::chat::ChatError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Messages in the format of chat templates.
    pub messages: Vec<Value>,
    /// Tools that the model may call.
    pub tools: Tools,
    /// Documents to answer from: objects, mostly with `title` and `text`.
    pub documents: Option<Vec<Value>>,
    /// Settings of reasoning.
    pub reasoning: Reasoning,
    /// End of the prompt.
    pub ending: Ending,
}

impl Conversation {
    /// Reads a list of messages in the form of OpenAI's API: `role`, `content`, `reasoning_content`,
    /// `tool_calls`, `tool_call_id`, and other fields that a template may read. A last message that is the
    /// assistant's text is continued.
    ///
    /// # Errors
    /// If there is no message, or one has no known role.
    pub fn new(messages: impl Serialize) -> Result<Self, ChatError> {
        let messages = checked(serde_json::to_value(messages).unwrap_or_default())?;
        let ending = Ending::of_last(messages.last());
        Ok(Self { messages, ending, ..Self::default() })
    }
}

/// Returns the messages with the roles and arguments that templates know.
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
        let bad = |problem| ChatError::Message { index, problem };
        message["content"] = content(message.get("content")).ok_or_else(|| bad(CONTENT))?.into();
        if !calls_functions(message) {
            return Err(bad(CALLS));
        }
        with_called_arguments(message);
    }
    Ok(list)
}

/// Problems of messages.
const CONTENT: &str = "content: expected a text or a list of text parts";
const CALLS: &str =
    "tool_calls: expected a list of calls, each with a `function` that has a `name`";

/// Returns the text of a message, whose parts are joined by line breaks; `None` for anything else.
fn content(given: Option<&Value>) -> Option<String> {
    match given {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match part["type"].as_str() {
                Some("text") => part["text"].as_str().map(str::to_owned),
                _ => None,
            };
            Some(parts.iter().map(text).collect::<Option<Vec<_>>>()?.join("\n"))
        }
        Some(_) => None,
    }
}

/// Returns true if the calls of a message, if there are any, name functions.
fn calls_functions(message: &Value) -> bool {
    match message.get("tool_calls") {
        None | Some(Value::Null) => true,
        Some(Value::Array(calls)) => calls.iter().all(|call| call["function"]["name"].is_string()),
        Some(_) => false,
    }
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

    #[test]
    fn arguments_are_what_templates_write() {
        let message = |arguments: Value| {
            let call = json!({"function": {"name": "f", "arguments": arguments}});
            json!([{"role": "assistant", "content": "", "tool_calls": [call]}])
        };
        for (given, want) in [
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1})),
            (json!(""), json!({})),
            (json!(null), json!({})),
            (json!("{\"a\": "), json!("{\"a\":")),
        ] {
            let all = checked(message(given)).expect("known roles");
            assert_eq!(all[0]["tool_calls"][0]["function"]["arguments"], want);
        }
    }

    #[test]
    fn contents_are_texts_and_calls_name_functions() {
        let content = |given: Value| {
            checked(json!([{"role": "user", "content": given}]))
                .map(|all| all[0]["content"].clone())
        };
        let part = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(content(json!([part("a"), part("b")])), Ok(json!("a\nb")));
        assert_eq!(content(json!(null)), Ok(json!("")));
        let bad = |problem| ChatError::Message { index: 0, problem };
        assert_eq!(content(json!(7)), Err(bad(CONTENT)));
        assert_eq!(content(json!([{"type": "image_url"}])), Err(bad(CONTENT)));
        for calls in [json!("x"), json!([1]), json!([{"function": "f"}]), json!([{"function": {}}])]
        {
            let message = json!([{"role": "assistant", "content": "", "tool_calls": calls}]);
            assert_eq!(checked(message), Err(bad(CALLS)), "{calls}");
        }
    }
}
