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
//! and as GLM-4.5 does:
//!
//! ```text
//! <tool_call>weather
//! <arg_key>city</arg_key>
//! <arg_value>Oslo</arg_value>
//! </tool_call>
//! ```
//!
//! Values are raw text. The tool's schema says which are strings; the others are JSON.

use super::Tool;
use super::definitions;
use super::held_text::HeldText;
use super::output::OutputDelta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text before a call, and behind it.
pub const OPEN: &str = "<tool_call>";
pub const END_OF_CALL: &str = "</tool_call>";

/// Most schemas that are looked at to find the type of a parameter: references may lead in circles.
const MOST_SCHEMAS: usize = 1000;

/// Texts around the parts of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct XmlDialect {
    /// Text before and behind a function's name.
    pub function: [&'static str; 2],
    /// Text before a parameter's name, and between name and value.
    pub parameter: [&'static str; 2],
    /// Text behind a value.
    pub end_of_value: &'static str,
    /// Text behind the last parameter, before the end of the call.
    pub end_of_function: &'static str,
}

/// The XML of Qwen3-Coder and Qwen3.5.
pub const QWEN: XmlDialect = XmlDialect {
    function: ["\n<function=", ">\n"],
    parameter: ["<parameter=", ">\n"],
    end_of_value: "\n</parameter>",
    end_of_function: "</function>\n",
};
/// The XML of GLM-4.5.
pub const GLM: XmlDialect = XmlDialect {
    function: ["", "\n"],
    parameter: ["<arg_key>", "</arg_key>\n<arg_value>"],
    end_of_value: "</arg_value>",
    end_of_function: "",
};

/// The parameters of each tool whose values are not strings.
#[derive(Clone, Debug, Default)]
pub struct XmlTypes(Arc<BTreeMap<String, Vec<String>>>);

impl XmlTypes {
    /// Reads the schemas of tools.
    pub fn new<'a>(tools: impl Iterator<Item = &'a Tool>) -> Self {
        let json_parameters = |tool: &Tool| {
            let root = &tool.parameters;
            let properties = root["properties"].as_object().into_iter().flatten();
            let json = properties.filter(|(_, schema)| !is_string(schema, root));
            json.map(|(name, _)| name.clone()).collect()
        };
        Self(Arc::new(tools.map(|tool| (tool.name.clone(), json_parameters(tool))).collect()))
    }

    fn is_json(&self, tool: &str, parameter: &str) -> bool {
        self.0.get(tool).is_some_and(|names| names.iter().any(|name| name == parameter))
    }
}

/// Returns true if values of this schema, a part of `root`, are written without quotes.
pub fn is_string(schema: &Value, root: &Value) -> bool {
    let mut left = MOST_SCHEMAS;
    writes_text(schema, root, &mut left)
}

/// Looks at `left` schemas at most.
fn writes_text(schema: &Value, root: &Value, left: &mut usize) -> bool {
    let strings =
        |list: &Value| list.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.iter().any(|name| name == "string"),
        _ if schema["enum"].is_array() => strings(&schema["enum"]),
        _ if schema.get("const").is_some() => schema["const"].is_string(),
        _ => {
            let target = schema["$ref"].as_str().and_then(definitions::pointer);
            let target = target.as_deref().and_then(|pointer| root.pointer(pointer));
            let lists = ["anyOf", "oneOf", "allOf"].map(|keyword| schema[keyword].as_array());
            // Without a type everything is possible. JSON stays what it is.
            let mut parts = lists.into_iter().flatten().flatten().chain(target);
            parts.any(|part| writes_text(part, root, left))
        }
    }
}

/// Splits text with calls while it is generated.
#[derive(Clone, Debug)]
pub struct XmlParser {
    dialect: &'static XmlDialect,
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
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
    pub fn new(types: XmlTypes, dialect: &'static XmlDialect) -> Self {
        Self {
            dialect,
            types,
            state: State::Text,
            held: HeldText::default(),
            function: String::new(),
            parameters: 0,
            value: String::new(),
        }
    }

    /// Length of the end of the text that is not parsed yet.
    pub fn held_len(&self) -> usize {
        self.held.text.len()
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
            State::String if !self.dialect.end_of_value.starts_with(&rest) => Some(escaped(&rest)),
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
            State::Call => match self.named(&self.dialect.function) {
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
                let (text, found) = self.held.until(self.dialect.end_of_value);
                deltas.extend((!text.is_empty()).then(|| escaped(&text)));
                deltas.extend(found.then(|| OutputDelta::Arguments("\"".into())));
                found.then_some(State::Function)
            }
            State::Json => {
                let (text, found) = self.held.until(self.dialect.end_of_value);
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
        let parameter = &self.dialect.parameter;
        if let Some(name) = self.named(parameter) {
            let comma = if self.parameters > 0 { ", " } else { "" };
            self.parameters += 1;
            let (is_json, key) = (self.types.is_json(&self.function, &name), json!(name));
            let quote = if is_json { "" } else { "\"" };
            deltas.push(OutputDelta::Arguments(format!("{comma}{key}: {quote}")));
            self.value.clear();
            return Some(if is_json { State::Json } else { State::String });
        }
        let rest = self.held.text.trim_start();
        if rest.starts_with(parameter[0]) || parameter[0].starts_with(rest) {
            return None;
        }
        let end = match self.dialect.end_of_function.trim_end() {
            // The end of the call is left for the next state.
            "" if rest.starts_with(END_OF_CALL) => {
                deltas.push(OutputDelta::Arguments("}".into()));
                return Some(State::End);
            }
            "" => return None,
            end => end,
        };
        let (_, found) = self.held.until(end);
        deltas.extend(found.then(|| OutputDelta::Arguments("}".into())));
        found.then_some(State::End)
    }

    /// Takes the text between two marks and returns it. Line breaks around the marks may be missing.
    fn named(&mut self, [before, behind]: &[&str; 2]) -> Option<String> {
        let rest = self.held.text.trim_start().strip_prefix(before.trim_start())?;
        let (mark, tail) = match behind.trim_end() {
            "" => (*behind, ""),
            mark => (mark, &behind[mark.len()..]),
        };
        let (name, rest) = rest.split_once(mark)?;
        if !tail.is_empty() && rest.is_empty() {
            // The line break may still come.
            return None;
        }
        let rest = rest.strip_prefix(tail).unwrap_or(rest).to_string();
        let name = name.to_string();
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

    const GLM_OUTPUT: &str = "I look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo \"N\"\n\nä\
        </arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>fine</arg_key>\n\
        <arg_value>True</arg_value>\n<arg_key>at</arg_key>\n<arg_value>{\"x\": [1, 2]}</arg_value>\n\
        </tool_call>\n<tool_call>time\n</tool_call>\n";

    fn parser(dialect: &'static XmlDialect) -> XmlParser {
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
        XmlParser::new(XmlTypes::new(tools.iter()), dialect)
    }

    fn parse(output: &str, size: usize) -> OutputBlocks {
        let mut parser = OutputParser::new(
            None,
            CallParser::Xml(parser(if output.contains("<tool_call>w") { &GLM } else { &QWEN })),
        );
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
        for output in [OUTPUT, GLM_OUTPUT] {
            for size in 1..output.len() {
                let blocks = parse(output, size);
                assert_eq!(blocks.text(), "I look.\n", "{size}");
                assert_eq!(blocks.calls().cloned().collect::<Vec<_>>(), calls, "{size}");
            }
        }
        assert!(serde_json::from_str::<Value>(arguments).is_ok());
    }

    #[test]
    fn cut_calls_have_the_beginning_of_their_arguments() {
        for output in [OUTPUT, GLM_OUTPUT] {
            let whole = parse(output, 1000);
            let all = &whole.calls().next().expect("a call").arguments;
            for (end, _) in output.char_indices() {
                let blocks = parse(&output[..end], 7);
                if let Some(call) = blocks.calls().next() {
                    assert!(all.starts_with(&call.arguments), "{end}: {} of {all}", call.arguments);
                }
            }
        }
    }
}
