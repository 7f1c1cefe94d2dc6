//! Earlier answers of a conversation, as the model wrote them.
//!
//! A prompt gets the tokens that were generated where it shows the text of an answer. Clients drop thinking
//! and write arguments in JSON, whatever the model wrote. So a message that means the same as an answer to the
//! same messages gets the answer's thinking and its spelling of arguments; the template decides what it
//! shows of them.

use crate::api::answer::aside::aside;
use crate::engine::exact_history::{AnswerPlace, TenantHistory};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use wrinklefree::chat::{OutputBlocks, OutputParser, ToolCall};
use wrinklefree::text::{GeneratedAnswer, LocatedPrompt, Prompt, TextError, Tokenizer};

/// Names of a message's thinking.
const THINKING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Answers of a tenant's history in a prompt.
pub struct KnownAnswers {
    /// The history and the prompt; `None` if nothing is remembered.
    prompt: Option<(TenantHistory, LocatedPrompt)>,
    /// Answers in the prompt.
    answers: Vec<GeneratedAnswer>,
}

impl KnownAnswers {
    /// Finds the answers in a prompt.
    pub fn find(history: Option<&TenantHistory>, prompt: &Prompt, tokenizer: &Tokenizer) -> Self {
        let prompt = history.and_then(|own| Some((own.clone(), prompt.located()?)));
        let find = |(own, prompt): &(TenantHistory, LocatedPrompt)| own.find(prompt, tokenizer);
        Self { answers: prompt.as_ref().map(find).unwrap_or_default(), prompt }
    }

    /// Returns the number of tokens that were generated.
    pub fn count(&self) -> usize {
        self.answers.iter().map(|answer| answer.tokens.len()).sum()
    }

    /// Returns the tokens of the prompt, with those of its answers as they were generated.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, prompt: &Prompt, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        match &self.prompt {
            Some((_, located)) if !self.answers.is_empty() => located.encode(&self.answers),
            _ => prompt.encode(tokenizer),
        }
    }

    /// Returns the place of the next answer, which ids of `eos` end.
    pub fn place(self, eos: Vec<u32>) -> Option<AnswerPlace> {
        self.prompt.map(|(own, prompt)| own.place(&prompt, eos))
    }
}

/// Remembers the answer of a conversation.
pub struct AnswerRecorder {
    /// Place of its tokens.
    pub place: AnswerPlace,
    /// The message that it is; `None` if the conversation ends with a part of it.
    pub message: Option<MessageRecorder>,
    /// Tokenizer of the model.
    pub tokenizer: Arc<Tokenizer>,
}

/// Work that follows an answer. It returns at once.
pub type OnAnswer = Box<dyn Fn(OutputBlocks) + Send + Sync>;

/// Remembers an answer as a message.
pub struct MessageRecorder {
    /// Hash of the messages before it.
    pub before: Option<u64>,
    /// Parses the answer as clients see it.
    pub parser: OutputParser,
    /// Parses it with arguments as they are spelled.
    pub spelled: OutputParser,
    /// True if the model writes arguments in JSON.
    pub in_json: bool,
    /// Called with the answer.
    pub then: Option<OnAnswer>,
}

impl AnswerRecorder {
    /// Remembers the tokens of an output.
    pub fn remember(&self, tokens: &[u32]) {
        let tokens = self.place.without_end(tokens);
        self.place.remember(tokens);
        if let Some(message) = &self.message {
            aside(|| message.remember(&self.place.of, &self.text(tokens)));
        }
    }

    fn text(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> =
            tokens.iter().flat_map(|token| self.tokenizer.bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl MessageRecorder {
    fn remember(&self, history: &TenantHistory, text: &str) {
        let blocks = self.parser.clone().parse(text);
        self.remember_blocks(history, &blocks, text);
        if let Some(then) = &self.then {
            then(blocks);
        }
    }

    fn remember_blocks(&self, history: &TenantHistory, blocks: &OutputBlocks, text: &str) {
        let spelled = self.spelled.clone().parse(text);
        let calls: Vec<&ToolCall> = spelled.calls().collect();
        if calls.is_empty() && spelled.reasoning().is_empty() {
            return;
        }
        let function = |call: &ToolCall| json!({"name": call.name, "arguments": call.arguments});
        let seen: Vec<Value> =
            blocks.calls().map(|call| json!({"function": function(call)})).collect();
        let message = json!({"role": "assistant", "content": blocks.text(), "tool_calls": seen});
        let key = history.message_key(self.before, &meaning(&message));
        // Templates write a text as it is, and the members of an object.
        let arguments = |call: &&ToolCall| match serde_json::from_str(&call.arguments) {
            Ok(values) if !self.in_json => values,
            _ => Value::from(call.arguments.as_str()),
        };
        let arguments: Vec<Value> = calls.iter().map(arguments).collect();
        let written = json!({"thinking": spelled.reasoning(), "arguments": arguments});
        history.remember_message(key, &written.to_string());
    }
}

/// Returns the hash of each message and all before it.
fn message_keys(history: &TenantHistory, messages: &[Value]) -> Vec<u64> {
    let mut before = None;
    let key = |message: &Value| {
        let key = history.message_key(before, &meaning(message));
        before = Some(key);
        key
    };
    messages.iter().map(key).collect()
}

/// Returns the hash of all messages; `None` if there are none.
pub fn last_key(history: &TenantHistory, messages: &[Value]) -> Option<u64> {
    message_keys(history, messages).pop()
}

/// Returns the messages with what the model wrote and the client does not send; `None` if that is nothing.
pub fn as_generated(history: &TenantHistory, messages: &[Value]) -> Option<Vec<Value>> {
    let keys = message_keys(history, messages);
    let answers = keys.iter().zip(messages).filter(|(_, message)| message["role"] == "assistant");
    let answers: Vec<u64> = answers.map(|(key, _)| *key).collect();
    let known: HashMap<u64, Arc<str>> = history.messages(&answers).into_iter().collect();
    let (mut changed, mut all) = (false, messages.to_vec());
    for (message, key) in all.iter_mut().zip(&keys) {
        if let Some(written) = known.get(key) {
            changed |= restore(message, &serde_json::from_str(written).unwrap_or_default());
        }
    }
    changed.then_some(all)
}

/// Gives a message what the model wrote. Returns true if that changes it.
fn restore(message: &mut Value, written: &Value) -> bool {
    let before = message.clone();
    let thinks = THINKING.iter().any(|name| message[*name].as_str().is_some_and(|t| !t.is_empty()));
    if !thinks && written["thinking"] != "" {
        message["reasoning_content"] = written["thinking"].clone();
    }
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
    let functions = calls.filter_map(|call| call.get_mut("function")?.get_mut("arguments"));
    for (arguments, spelled) in functions.zip(written["arguments"].as_array().into_iter().flatten())
    {
        arguments.clone_from(spelled);
    }
    *message != before
}

/// Returns what a message means, the same for all its spellings: without thinking, ids, the order of
/// arguments and white space around texts.
fn meaning(message: &Value) -> String {
    let content: Value = match &message["content"] {
        Value::Null => "".into(),
        Value::String(text) => text.trim().into(),
        other => other.clone(),
    };
    let call = |call: &Value| {
        let Value::Object(function) = &call["function"] else { return call.clone() };
        let mut arguments = function.get("arguments").cloned().unwrap_or_default();
        if let Value::String(text) = &arguments
            && let Ok(parsed) = serde_json::from_str(text)
        {
            arguments = parsed;
        }
        arguments.sort_all_objects();
        json!([function.get("name"), arguments])
    };
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<Value> = calls.map(call).collect();
    json!([message["role"], content, calls]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_mean_the_same_in_all_spellings() {
        let called = |arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls":
                [{"id": "1", "function": {"name": "f", "arguments": arguments}}]})
        };
        let object = called(json!({"b": [true, {"d": 1, "c": 2}], "a": "x"}));
        let text = called(json!("{\"a\": \"x\",\n\"b\": [true, {\"c\": 2, \"d\": 1}]}"));
        assert_eq!(meaning(&object), meaning(&text));
        let mut other = object.clone();
        other["reasoning_content"] = "Hm.".into();
        other["content"] = " \n".into();
        other["tool_calls"][0]["id"] = "2".into();
        assert_eq!(meaning(&object), meaning(&other));
        for other in [called(json!({})), json!({"role": "assistant", "content": "a"})] {
            assert_ne!(meaning(&object), meaning(&other));
        }
    }

    #[test]
    fn a_message_gets_what_the_model_wrote() {
        let mut message = json!({"role": "assistant", "content": "", "tool_calls":
            [{"function": {"name": "f", "arguments": {"a": true}}}]});
        assert!(restore(&mut message, &json!({"thinking": "Hm.", "arguments": [{"a": "True"}]})));
        assert_eq!(message["reasoning_content"], "Hm.");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], json!({"a": "True"}));
        let spaced = json!({"thinking": "So.", "arguments": ["{\"a\" : true}"]});
        assert!(restore(&mut message, &spaced));
        assert_eq!(message["reasoning_content"], "Hm.", "the client's own stays");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"a\" : true}");
        assert!(!restore(&mut message, &json!({"thinking": "", "arguments": []})));
    }
}
