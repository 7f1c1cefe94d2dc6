//! Messages in the format of chat templates.

use serde_json::{Value, json};

/// Builds the messages of a conversation, for chat templates, from texts, tool calls and results.
#[derive(Clone, Debug, Default)]
pub struct TemplateMessages {
    messages: Vec<Value>,
    /// Reasoning of the assistant's next message.
    reasoning: Option<String>,
}

impl TemplateMessages {
    /// Returns the messages with one system message, which is the first: the first ones are joined, and
    /// later ones become the user's, or a part of the user's message before them. `None` if they are so
    /// already.
    #[must_use]
    pub fn with_one_system(messages: &[Value]) -> Option<Vec<Value>> {
        let is_system = |message: &&Value| message["role"] == "system";
        let first = messages.iter().take_while(is_system).count();
        if first < 2 && !messages[first..].iter().any(|message| is_system(&message)) {
            return None;
        }
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_string();
        let joined: Vec<String> = messages[..first].iter().map(text).collect();
        let system = (first > 0).then(|| json!({"role": "system", "content": joined.join("\n\n")}));
        let mut all: Vec<Value> = system.into_iter().collect();
        for message in &messages[first..] {
            if !is_system(&message) {
                all.push(message.clone());
                continue;
            }
            // Many templates want turns to alternate.
            match all.last_mut().filter(|last| last["role"] == "user") {
                Some(last) => append(&mut last["content"], message["content"].as_str()),
                None => all.push(json!({"role": "user", "content": text(message)})),
            }
        }
        Some(all)
    }

    /// Returns the messages with objects as the arguments of all calls: others become a member of one, for
    /// templates that write an object's members. `None` if they are objects already.
    #[must_use]
    pub fn with_objects(messages: &[Value]) -> Option<Vec<Value>> {
        let mut all = messages.to_vec();
        let calls = all.iter_mut().filter_map(|message| message.get_mut("tool_calls"));
        let calls = calls.filter_map(Value::as_array_mut).flatten();
        let arguments = calls.filter_map(|call| call.get_mut("function")?.get_mut("arguments"));
        let mut changed = false;
        for text in arguments.filter(|arguments| !arguments.is_object()) {
            *text = json!({"arguments": text.take()});
            changed = true;
        }
        changed.then_some(all)
    }

    /// Returns the messages so that users and assistants alternate: texts of the same role are joined.
    /// `None` if there are none.
    #[must_use]
    pub fn joined(messages: &[Value]) -> Option<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        for message in messages {
            let joins = |last: &&mut Value| {
                let is_text = |message: &Value| message.get("tool_calls").is_none();
                let talks = message["role"] == "user" || message["role"] == "assistant";
                talks && last["role"] == message["role"] && is_text(last) && is_text(message)
            };
            match all.last_mut().filter(joins) {
                Some(last) => append(&mut last["content"], message["content"].as_str()),
                None => all.push(message.clone()),
            }
        }
        (all.len() < messages.len()).then_some(all)
    }

    /// Adds a message with a text.
    pub fn push_text(&mut self, role: &str, text: &str) {
        let mut message = json!({"role": role, "content": text});
        if role == "assistant"
            && let Some(reasoning) = self.reasoning.take()
        {
            message["reasoning_content"] = reasoning.into();
        }
        self.messages.push(message);
    }

    /// Adds a line to the last message, if it is a text of this role, or as a new one.
    pub fn push_line(&mut self, role: &str, line: &str) {
        let last = self.messages.last_mut();
        match last.filter(|last| last["role"] == role && last.get("tool_calls").is_none()) {
            Some(last) => {
                let text = last["content"].as_str().unwrap_or_default();
                last["content"] = format!("{text}\n{line}").into();
            }
            None => self.push_text(role, line),
        }
    }

    /// Adds reasoning to the assistant's next message.
    pub fn push_reasoning(&mut self, text: &str) {
        let reasoning = self.reasoning.get_or_insert_default();
        if !reasoning.is_empty() {
            reasoning.push('\n');
        }
        reasoning.push_str(text);
    }

    /// Returns the messages.
    #[must_use]
    pub fn finish(self) -> Vec<Value> {
        self.messages
    }

    /// Adds a tool call to the assistant's last message, or to a new one.
    pub fn push_call(&mut self, id: String, name: &str, arguments: Value) {
        let last = self.messages.last();
        if self.reasoning.is_some() || last.is_none_or(|last| last["role"] != "assistant") {
            self.push_text("assistant", "");
        }
        let message = self.messages.last_mut().and_then(Value::as_object_mut).expect("just added");
        let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
        calls.as_array_mut().expect("an array").push(tool_call(Some(id), name, arguments));
    }

    /// Adds the result of the tool call `id`.
    pub fn push_result(&mut self, id: &str, text: &str) {
        self.messages.push(json!({"role": "tool", "content": text, "tool_call_id": id}));
    }
}

/// Appends a paragraph to a text in place: thousands of messages may be joined.
fn append(content: &mut Value, more: Option<&str>) {
    if !content.is_string() {
        *content = "".into();
    }
    if let Value::String(text) = content {
        text.push_str("\n\n");
        text.push_str(more.unwrap_or_default());
    }
}

/// End of a conversation's prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The model begins a new message.
    #[default]
    NewMessage,
    /// The model continues the last message, which is the assistant's (prefill).
    LastMessage,
    /// The prompt ends after the last message.
    Bare,
}

impl Ending {
    /// Returns the end of a prompt whose last message is this one: the model continues a text of the
    /// assistant.
    #[must_use]
    pub fn of_last(message: Option<&Value>) -> Self {
        if message.is_some_and(is_prefill) { Self::LastMessage } else { Self::NewMessage }
    }
}

/// Returns true for a text of the assistant, which can be continued.
#[must_use]
pub fn is_prefill(message: &Value) -> bool {
    let text = message["content"].as_str().unwrap_or_default();
    message["role"] == "assistant" && message.get("tool_calls").is_none() && !text.trim().is_empty()
}

/// Returns a tool call for templates. Its arguments are an object: templates serialize it themselves.
#[must_use]
pub fn tool_call(id: Option<String>, name: &str, arguments: Value) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

/// Returns the arguments of an earlier call for chat templates: an object, or the text as it came. A model
/// may have written them, or a limit of tokens may have cut them.
#[must_use]
pub fn called_arguments(arguments: Option<Value>) -> Value {
    let text = match arguments {
        None | Some(Value::Null) => return json!({}),
        Some(Value::String(text)) => text,
        Some(object @ Value::Object(_)) => return object,
        Some(other) => other.to_string(),
    };
    match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) => object,
        _ if text.trim().is_empty() => json!({}),
        _ => text.trim().into(),
    }
}

/// Replaces the arguments of a message's calls by what templates write.
pub fn with_called_arguments(message: &mut Value) {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    let functions = calls.into_iter().flatten().filter_map(|call| call.get_mut("function"));
    for function in functions.filter_map(Value::as_object_mut) {
        let arguments = called_arguments(function.get_mut("arguments").map(Value::take));
        function.insert("arguments".into(), arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_become_one() {
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let given = [
            message("system", "a"),
            message("system", "b"),
            message("user", "c"),
            message("system", "d"),
        ];
        let want = [message("system", "a\n\nb"), message("user", "c\n\nd")];
        assert_eq!(TemplateMessages::with_one_system(&given).expect("several"), want);
        assert_eq!(TemplateMessages::with_one_system(&given[1..3]), None);
        assert_eq!(TemplateMessages::with_one_system(&[]), None);
    }

    /// Each message once copied all before it: 80 GB here.
    #[test]
    fn joining_takes_linear_time() {
        let system = json!({"role": "system", "content": "x".repeat(100)});
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        messages.resize(40_000, system);
        let begin = std::time::Instant::now();
        let joined = TemplateMessages::with_one_system(&messages).expect("several");
        assert_eq!(joined[0]["content"].as_str().map(str::len), Some(2 + 39_999 * 102));
        let turns = vec![json!({"role": "user", "content": "x".repeat(100)}); 40_000];
        let joined = TemplateMessages::joined(&turns).expect("several");
        assert_eq!(joined[0]["content"].as_str().map(str::len), Some(40_000 * 102 - 2));
        assert!(begin.elapsed() < std::time::Duration::from_secs(3), "{:?}", begin.elapsed());
    }

    #[test]
    fn arguments_become_objects() {
        let call = |arguments: Value| json!({"role": "assistant", "tool_calls": [tool_call(None, "f", arguments)]});
        let given = [call(json!({"a": 1})), call("{\"a".into())];
        let want = [call(json!({"a": 1})), call(json!({"arguments": "{\"a"}))];
        assert_eq!(TemplateMessages::with_objects(&given).expect("a text"), want);
        assert_eq!(TemplateMessages::with_objects(&want), None);
    }

    #[test]
    fn texts_of_a_role_are_joined() {
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let given = [
            message("user", "a"),
            message("user", "b"),
            message("tool", "c"),
            message("tool", "d"),
        ];
        let want = [message("user", "a\n\nb"), message("tool", "c"), message("tool", "d")];
        assert_eq!(TemplateMessages::joined(&given).expect("two"), want);
        assert_eq!(TemplateMessages::joined(&want), None);
    }

    #[test]
    fn calls_join_the_assistants_last_message() {
        let mut messages = TemplateMessages::default();
        messages.push_call("1".into(), "f", json!({}));
        messages.push_call("2".into(), "g", json!({"x": 1}));
        messages.push_result("1", "one");
        messages.push_text("assistant", "So.");
        messages.push_call("3".into(), "f", json!({}));
        let messages = messages.finish();
        let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["assistant", "tool", "assistant"]);
        let call = tool_call(Some("2".into()), "g", json!({"x": 1}));
        assert_eq!(messages[0]["tool_calls"][1], call);
        assert_eq!(messages[2]["content"], "So.");
        assert_eq!(messages[2]["tool_calls"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn arguments_are_an_object_or_shown() {
        for (given, want) in [
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1})),
            (json!(""), json!({})),
            (json!(" \n"), json!({})),
            (json!(null), json!({})),
            (json!("{\"value\": "), json!("{\"value\":")),
            (json!("[1]"), json!("[1]")),
            (json!([1]), json!("[1]")),
            (json!("7"), json!("7")),
            (json!(true), json!("true")),
        ] {
            assert_eq!(called_arguments(Some(given.clone())), want, "{given}");
        }
        assert_eq!(called_arguments(None), json!({}));
    }
}
