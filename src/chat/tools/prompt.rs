//! Presents tools, calls and results to the model.

use super::CallFormat;
use crate::text::ChatTemplate;
use serde_json::{Value, json};

/// Texts around the parts of a call, for templates without calls.
const OPEN: &str = "<tool_call>\n{\"name\": \"";
const AFTER_NAME: &str = "\", \"arguments\": ";
const CLOSE: &str = "}\n</tool_call>";

/// Length of the ids that Mistral's templates accept.
const MISTRAL_ID: usize = 9;

/// Returns the messages and tools to render with a chat template. If the template knows no calls, tools,
/// calls and results become text.
#[must_use]
pub fn for_template(
    template: &ChatTemplate,
    messages: Vec<Value>,
    tools: Vec<Value>,
) -> (Vec<Value>, Option<Value>) {
    let tools_value = || (!tools.is_empty()).then(|| tools.clone().into());
    match CallFormat::of_template(template) {
        Some(CallFormat::Mistral | CallFormat::MistralArgs) => {
            let messages = messages.into_iter().map(with_short_ids).collect();
            return (messages, tools_value());
        }
        Some(_) => return (messages, tools_value()),
        None => {}
    }
    let mut messages: Vec<Value> = messages.into_iter().map(as_text).collect();
    if !tools.is_empty() {
        let instructions = instructions(&tools);
        match messages.first_mut() {
            Some(first) if first["role"] == "system" => {
                let own = first["content"].as_str().unwrap_or_default();
                first["content"] = format!("{own}\n\n{instructions}").into();
            }
            _ => messages.insert(0, json!({"role": "system", "content": instructions})),
        }
    }
    (messages, None)
}

/// Returns the text that tells the model about its tools.
fn instructions(tools: &[Value]) -> String {
    let lines: Vec<String> = tools.iter().map(Value::to_string).collect();
    format!(
        "You may call functions. These are their signatures:\n{}\nA call looks like this, with the \
         function's name and arguments:\n{OPEN}name{AFTER_NAME}{{…}}{CLOSE}",
        lines.join("\n")
    )
}

/// Replaces the ids of calls by such as Mistral's templates accept: nine letters and digits.
fn with_short_ids(mut message: Value) -> Value {
    let short = |id: &mut Value| {
        let Some(text) = id.as_str() else { return };
        let fits = text.len() == MISTRAL_ID && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if !fits {
            // FNV-1a: the same id is the same in each turn.
            let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let hex = format!("{hash:016x}");
            *id = hex[..MISTRAL_ID].into();
        }
    };
    if let Some(id) = message.get_mut("tool_call_id") {
        short(id);
    }
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    calls.into_iter().flatten().filter_map(|call| call.get_mut("id")).for_each(short);
    message
}

/// Writes the calls or the result of a message as text.
fn as_text(mut message: Value) -> Value {
    let content = message["content"].as_str().unwrap_or_default().to_string();
    if message["role"] == "tool" {
        let text = format!("<tool_response>\n{content}\n</tool_response>");
        return json!({"role": "user", "content": text});
    }
    if let Some(calls) = message["tool_calls"].as_array() {
        let text = |call: &Value| {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or_default();
            let arguments = match &function["arguments"] {
                Value::String(text) => text.clone(),
                arguments => arguments.to_string(),
            };
            format!("{OPEN}{name}{AFTER_NAME}{arguments}{CLOSE}")
        };
        let calls: Vec<String> = calls.iter().map(text).collect();
        let parts = [content, calls.join("\n")];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        message["content"] = parts.join("\n").into();
        message.as_object_mut().expect("an object").remove("tool_calls");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TextParts;

    fn template(source: &str) -> ChatTemplate {
        let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
        ChatTemplate::new(&parts).expect("valid").expect("there")
    }

    fn messages() -> Vec<Value> {
        let function = json!({"name": "weather", "arguments": {"city": "Oslo"}});
        vec![
            json!({"role": "user", "content": "How is it?"}),
            json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]}),
            json!({"role": "tool", "content": "rain"}),
        ]
    }

    #[test]
    fn a_template_with_tool_support_gets_calls_unchanged() {
        let tools = vec![json!({"type": "function"})];
        let supporting = template("{{ '<tool_call>' }}");
        let (same, given) = for_template(&supporting, messages(), tools.clone());
        assert_eq!((same, given), (messages(), Some(tools.into())));
        assert_eq!(for_template(&supporting, messages(), Vec::new()).1, None);
    }

    #[test]
    fn mistrals_templates_get_short_ids() {
        let call = json!({"id": "call-0123", "type": "function", "function": {"name": "f"}});
        let messages = vec![
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "content": "rain", "tool_call_id": "call-0123"}),
        ];
        let (messages, _) = for_template(&template("{# [TOOL_CALLS] #}"), messages, Vec::new());
        let id = messages[0]["tool_calls"][0]["id"].as_str().expect("text");
        assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
        assert_eq!(messages[1]["tool_call_id"], id);
    }

    #[test]
    fn a_template_without_tool_support_gets_text() {
        let tools = vec![json!({"function": {"name": "weather"}})];
        let (texts, given) = for_template(&template("{{ messages }}"), messages(), tools);
        assert_eq!(given, None);
        let roles: Vec<&str> = texts.iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert!(texts[0]["content"].as_str().unwrap().contains(r#"{"name":"weather"}"#));
        let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>";
        assert_eq!(texts[2], json!({"role": "assistant", "content": call}));
        assert_eq!(texts[3]["content"], "<tool_response>\nrain\n</tool_response>");
    }
}
