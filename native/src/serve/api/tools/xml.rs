//! Streaming parser of tool calls in XML, as Qwen3-Coder and Qwen3.5 write them:
//!
//! ```text
//! <tool_call>
//! <function=weather>
//! <parameter=city>
//! Oslo
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Values are raw text. The tool's schema says which are strings; the others are JSON.

use super::held_text::HeldText;
use super::output::OutputDelta;
use super::{OPEN, Tool};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text before a function's name.
pub const FUNCTION: &str = "<function=";
/// Text before a parameter's name.
pub const PARAMETER: &str = "<parameter=";
/// Text behind a value.
pub const END_OF_VALUE: &str = "\n</parameter>";
/// Text behind the last parameter.
pub const END_OF_FUNCTION: &str = "</function>";
/// Text behind a call.
pub const END_OF_CALL: &str = "</tool_call>";

/// The parameters of each tool whose values are not strings.
#[derive(Clone, Debug, Default)]
pub struct XmlTypes(Arc<BTreeMap<String, Vec<String>>>);

impl XmlTypes {
    /// Reads the schemas of tools.
    pub fn new<'a>(tools: impl Iterator<Item = &'a Tool>) -> Self {
        let json_parameters = |tool: &Tool| {
            let properties = tool.parameters["properties"].as_object();
            let json = properties.into_iter().flatten().filter(|(_, schema)| !is_string(schema));
            json.map(|(name, _)| name.clone()).collect()
        };
        Self(Arc::new(tools.map(|tool| (tool.name.clone(), json_parameters(tool))).collect()))
    }

    fn is_json(&self, tool: &str, parameter: &str) -> bool {
        self.0.get(tool).is_some_and(|names| names.iter().any(|name| name == parameter))
    }
}

/// Returns true if values of this schema are written without quotes.
pub fn is_string(schema: &Value) -> bool {
    let strings =
        |list: &Value| list.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.iter().any(|name| name == "string"),
        _ if schema["enum"].is_array() => strings(&schema["enum"]),
        _ if schema.get("const").is_some() => schema["const"].is_string(),
        _ => match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            Some(alternatives) => alternatives.iter().any(is_string),
            // Without a type everything is possible. JSON stays what it is.
            None => false,
        },
    }
}

/// Splits text with calls while it is generated.
#[derive(Clone, Debug, Default)]
pub struct XmlParser {
    types: XmlTypes,
    state: State,
    held: HeldText,
    /// Name of the current function.
    function: String,
    /// Number of parameters of the current call so far.
    parameters: usize,
    /// Text of the current value, if it is JSON.
    value: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    /// Before a function's name.
    Call,
    /// Before a parameter or the function's end.
    Function,
    /// Inside a string.
    String,
    /// Inside another value.
    Json,
    /// Behind the function.
    End,
}

impl XmlParser {
    /// Makes a parser of calls of tools with these types.
    pub fn new(types: XmlTypes) -> Self {
        Self { types, ..Self::default() }
    }

    /// Parses more of the text.
    pub fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        self.held.text += text;
        let mut deltas = Vec::new();
        while let Some(state) = self.advance(&mut deltas) {
            self.state = state;
        }
        deltas
    }

    /// Returns text that was held back, at the end of the output. Of a value that was cut off, only a
    /// string is returned, without its closing quote.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let rest = std::mem::take(&mut self.held.text);
        let deltas = match self.state {
            State::Text => self.held.between_calls(&rest),
            State::String if !END_OF_VALUE.starts_with(&rest) => Some(escaped(&rest)),
            _ => None,
        };
        deltas.into_iter().collect()
    }

    /// Parses up to the next marker. Returns the state behind it if it has arrived.
    fn advance(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        match self.state {
            State::Text => {
                let (text, found) = self.held.until(OPEN);
                deltas.extend(self.held.between_calls(&text));
                found.then_some(State::Call)
            }
            State::Call => match self.named(FUNCTION) {
                None => None,
                Some(name) => {
                    deltas.push(OutputDelta::CallStart(name.clone()));
                    deltas.push(OutputDelta::Arguments("{".into()));
                    (self.function, self.parameters) = (name, 0);
                    Some(State::Function)
                }
            },
            State::Function => self.parameter(deltas),
            State::String => {
                let (text, found) = self.held.until(END_OF_VALUE);
                deltas.extend((!text.is_empty()).then(|| escaped(&text)));
                deltas.extend(found.then(|| OutputDelta::Arguments("\"".into())));
                found.then_some(State::Function)
            }
            State::Json => {
                let (text, found) = self.held.until(END_OF_VALUE);
                self.value += &text;
                deltas.extend(found.then(|| OutputDelta::Arguments(json_of(&self.value))));
                found.then_some(State::Function)
            }
            State::End => {
                let (_, found) = self.held.until_end_of_call(END_OF_CALL);
                found.then_some(State::Text)
            }
        }
    }

    /// Begins the next parameter, or ends the call.
    fn parameter(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        if let Some(name) = self.named(PARAMETER) {
            let comma = if self.parameters > 0 { ", " } else { "" };
            self.parameters += 1;
            let (is_json, key) = (self.types.is_json(&self.function, &name), json!(name));
            let quote = if is_json { "" } else { "\"" };
            deltas.push(OutputDelta::Arguments(format!("{comma}{key}: {quote}")));
            self.value.clear();
            return Some(if is_json { State::Json } else { State::String });
        }
        let rest = self.held.text.trim_start();
        if rest.starts_with(PARAMETER) || PARAMETER.starts_with(rest) {
            return None;
        }
        let (_, found) = self.held.until(END_OF_FUNCTION);
        deltas.extend(found.then(|| OutputDelta::Arguments("}".into())));
        found.then_some(State::End)
    }

    /// Takes the text up to `>` and a line break behind a marker, and returns the name between them.
    fn named(&mut self, marker: &str) -> Option<String> {
        let rest = self.held.text.trim_start().strip_prefix(marker)?;
        let (name, rest) = rest.split_once('>')?;
        if rest.is_empty() {
            // The line break may still come.
            return None;
        }
        let (name, rest) = (name.to_string(), rest.strip_prefix('\n').unwrap_or(rest).to_string());
        self.held.text = rest;
        Some(name)
    }
}

/// Returns a part of a string as it stands in JSON.
fn escaped(text: &str) -> OutputDelta {
    let quoted = json!(text).to_string();
    OutputDelta::Arguments(quoted[1..quoted.len() - 1].into())
}

/// Returns a value as JSON. Templates write booleans and null as Python does. A text that is no JSON is
/// a string.
fn json_of(text: &str) -> String {
    let value = match text.trim() {
        "True" => json!(true),
        "False" => json!(false),
        "None" => Value::Null,
        other => serde_json::from_str(other).unwrap_or_else(|_| json!(text)),
    };
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::output::{CallParser, OutputBlocks, OutputParser, ToolCall};
    use super::*;

    const OUTPUT: &str = "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo \"N\"\n\nä\n\
        </parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=fine>\nTrue\n</parameter>\n\
        <parameter=at>\n{\"x\": [1, 2]}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
        <function=time>\n</function>\n</tool_call>\n";

    fn parser() -> XmlParser {
        let parameters = json!({"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "fine": {"type": "boolean"},
            "at": {"type": "object"}}});
        let tool = |name: &str, parameters| Tool {
            name: name.into(),
            description: None,
            parameters,
            strict: false,
        };
        let tools = [tool("weather", parameters), tool("time", json!({"type": "object"}))];
        XmlParser::new(XmlTypes::new(tools.iter()))
    }

    fn parse(output: &str, size: usize) -> OutputBlocks {
        let mut parser = OutputParser::new(None, CallParser::Xml(parser()));
        let mut blocks = OutputBlocks::default();
        let chars: Vec<char> = output.chars().collect();
        for part in chars.chunks(size) {
            let deltas = parser.push(&part.iter().collect::<String>());
            deltas.iter().for_each(|delta| _ = blocks.push(delta));
        }
        parser.finish().iter().for_each(|delta| _ = blocks.push(delta));
        blocks
    }

    #[test]
    fn values_have_the_types_of_the_schema() {
        let arguments = "{\"city\": \"Oslo \\\"N\\\"\\n\\nä\", \"days\": 3, \"fine\": true, \
                         \"at\": {\"x\":[1,2]}}";
        let calls = [("weather", arguments), ("time", "{}")]
            .map(|(name, arguments)| ToolCall { name: name.into(), arguments: arguments.into() });
        for size in 1..OUTPUT.len() {
            let blocks = parse(OUTPUT, size);
            assert_eq!(blocks.text(), "I look.\n", "{size}");
            assert_eq!(blocks.calls().cloned().collect::<Vec<_>>(), calls, "{size}");
        }
        assert!(serde_json::from_str::<Value>(arguments).is_ok());
    }

    #[test]
    fn cut_calls_have_the_beginning_of_their_arguments() {
        let whole = parse(OUTPUT, 1000);
        let all = &whole.calls().next().expect("a call").arguments;
        for (end, _) in OUTPUT.char_indices() {
            let blocks = parse(&OUTPUT[..end], 7);
            if let Some(call) = blocks.calls().next() {
                assert!(all.starts_with(&call.arguments), "{end}: {} of {all}", call.arguments);
            }
        }
    }
}
