//! How the model is told of tools, calls and results.

use super::{AFTER_NAME, BEFORE_NAME, CLOSE, OPEN};
use serde_json::{Value, json};
use wrinklefree::text::ChatTemplate;

/// Messages and tools for a template. One that does not know how calls are written gets all of it as
/// text.
pub fn conversation(
    template: &ChatTemplate,
    messages: Vec<Value>,
    tools: Vec<Value>,
) -> (Vec<Value>, Option<Value>) {
    if template.source().contains(OPEN) {
        return (messages, (!tools.is_empty()).then(|| tools.into()));
    }
    let mut messages: Vec<Value> = messages.into_iter().map(as_text).collect();
    if !tools.is_empty() {
        let told = described(&tools);
        match messages.first_mut() {
            Some(first) if first["role"] == "system" => {
                let own = first["content"].as_str().unwrap_or_default();
                first["content"] = format!("{own}\n\n{told}").into();
            }
            _ => messages.insert(0, json!({"role": "system", "content": told})),
        }
    }
    (messages, None)
}

/// What a model is told that may call tools.
fn described(tools: &[Value]) -> String {
    let lines: Vec<String> = tools.iter().map(Value::to_string).collect();
    format!(
        "You may call functions. These are their signatures:\n{}\nA call looks like this, with the \
         function's name and arguments:\n{OPEN}{BEFORE_NAME}name{AFTER_NAME}{{…}}{CLOSE}",
        lines.join("\n")
    )
}

/// Calls and results as messages of text alone.
fn as_text(mut message: Value) -> Value {
    let content = message["content"].as_str().unwrap_or_default().to_string();
    if message["role"] == "tool" {
        let text = format!("<tool_response>\n{content}\n</tool_response>");
        return json!({"role": "user", "content": text});
    }
    if let Some(calls) = message["tool_calls"].as_array() {
        let written = |call: &Value| {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or_default();
            let arguments = &function["arguments"];
            format!("{OPEN}{BEFORE_NAME}{name}{AFTER_NAME}{arguments}{CLOSE}")
        };
        let calls: Vec<String> = calls.iter().map(written).collect();
        let parts = [content, calls.join("\n")];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        message["content"] = parts.join("\n").into();
        message.as_object_mut().expect("it has fields").remove("tool_calls");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use wrinklefree::format::TextParts;

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
    fn a_template_that_knows_calls_gets_them_as_they_are() {
        let tools = vec![json!({"type": "function"})];
        let knows = template("{{ '<tool_call>' }}");
        let (same, given) = conversation(&knows, messages(), tools.clone());
        assert_eq!((same, given), (messages(), Some(tools.into())));
        assert_eq!(conversation(&knows, messages(), Vec::new()).1, None);
    }

    #[test]
    fn another_gets_text() {
        let tools = vec![json!({"function": {"name": "weather"}})];
        let (texts, given) = conversation(&template("{{ messages }}"), messages(), tools);
        assert_eq!(given, None);
        let roles: Vec<&str> = texts.iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert!(texts[0]["content"].as_str().unwrap().contains(r#"{"name":"weather"}"#));
        let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>";
        assert_eq!(texts[2], json!({"role": "assistant", "content": call}));
        assert_eq!(texts[3]["content"], "<tool_response>\nrain\n</tool_response>");
    }
}
