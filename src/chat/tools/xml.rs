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
//! Values are raw text. Where the tool's schema allows other values, what JSON can say comes first.
//! `</parameter>` and `</arg_value>` end a value only where another parameter or the end of the call follows.

use super::Tool;
use super::held_text::HeldText;
use super::parameters::alternatives;
use super::values::{MOST_STEPS, Values};
use crate::chat::output::OutputDelta;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text before a call, and after it.
pub const OPEN: &str = "<tool_call>";
/// Text after a call.
pub const END_OF_CALL: &str = "</tool_call>";

/// Texts around the parts of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct XmlDialect {
    /// Text before and after a function's name.
    pub function: [&'static str; 2],
    /// Text before a parameter's name, and between name and value.
    pub parameter: [&'static str; 2],
    /// Text after a value, which is its end only where another parameter or the end of the call follows.
    end_of_value: &'static str,
    /// Text after the last parameter, and the rest of the end of a call.
    close: [&'static str; 2],
    /// Text between a call and the next one's function.
    pub between: &'static str,
}

/// The XML of Qwen3-Coder and Qwen3.5.
pub const QWEN: XmlDialect = XmlDialect {
    function: ["\n<function=", ">\n"],
    parameter: ["<parameter=", ">\n"],
    end_of_value: "\n</parameter>",
    close: ["</function>", "\n</tool_call>"],
    between: "\n<tool_call>\n<function=",
};
/// The XML of GLM-4.5.
pub const GLM: XmlDialect = XmlDialect {
    function: ["", "\n"],
    parameter: ["<arg_key>", "</arg_key>\n<arg_value>"],
    end_of_value: "</arg_value>",
    close: [END_OF_CALL, ""],
    between: "\n<tool_call>",
};

impl XmlDialect {
    /// Returns the markers that may follow a value and a line break: of another parameter, and of the end
    /// of the call.
    pub fn after_value(&self) -> [&'static str; 2] {
        [self.parameter[0], self.close[0]]
    }

    /// Returns the rest of the end of a call, after its marker.
    pub fn end_of_call(&self) -> &'static str {
        self.close[1]
    }

    /// Returns the texts that end a value, with the marker that follows.
    pub fn ends_of_value(&self) -> [String; 2] {
        self.after_value().map(|marker| format!("{}\n{marker}", self.end_of_value))
    }
}

/// The values that the parameters of each tool may have.
#[derive(Clone, Debug, Default)]
pub struct XmlTypes(Arc<BTreeMap<String, ToolTypes>>);

/// The values that the parameters of a tool may have.
#[derive(Clone, Debug, Default)]
struct ToolTypes {
    named: BTreeMap<String, Values>,
    /// Values of parameters that the schema does not name.
    others: Values,
}

impl XmlTypes {
    /// Reads the schemas of tools.
    pub fn new<'a>(tools: impl Iterator<Item = &'a Tool>) -> Self {
        let mut left = MOST_STEPS;
        let types = tools.map(|tool| (tool.name.clone(), ToolTypes::new(tool, &mut left)));
        Self(Arc::new(types.collect()))
    }

    fn values(&self, tool: &str, parameter: &str) -> Values {
        let tool = self.0.get(tool);
        let values = tool.map(|tool| tool.named.get(parameter).unwrap_or(&tool.others));
        values.cloned().unwrap_or_default()
    }
}

impl ToolTypes {
    fn new(tool: &Tool, left: &mut usize) -> Self {
        let (mut types, root) = (Self::default(), &tool.parameters);
        // The grammar has refused other schemas.
        for set in alternatives(root).unwrap_or_default() {
            for parameter in &set.named {
                let values = Values::of_schemas(&parameter.schemas, root, left);
                match types.named.get_mut(parameter.name) {
                    Some(known) => *known = std::mem::take(known).or(values),
                    None => drop(types.named.insert(parameter.name.into(), values)),
                }
            }
            if let Some(others) = &set.others {
                types.others = Values::of_schemas(others, root, left);
            }
        }
        types
    }
}

/// Splits text with calls while it is generated.
#[derive(Clone, Debug)]
pub struct XmlParser {
    dialect: &'static XmlDialect,
    required: bool,
    types: XmlTypes,
    state: State,
    held: HeldText,
    /// Name of the current function.
    function: String,
    /// Number of parameters of the current call so far.
    parameters: usize,
    /// Values of the current parameter.
    values: Values,
    /// Text of the current value, while it may be JSON.
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Text,
    /// Before a function's name.
    Call,
    /// Before a parameter or the function's end.
    Function,
    /// Inside a text.
    String,
    /// Inside a value that may be JSON.
    Value,
    /// After the function.
    End,
}

impl XmlParser {
    /// Makes a parser of calls of tools with these types. If a call is `required`, there is no text before
    /// it.
    pub fn new(types: XmlTypes, dialect: &'static XmlDialect, required: bool) -> Self {
        Self {
            dialect,
            required,
            types,
            state: State::Text,
            held: HeldText::default(),
            function: String::new(),
            parameters: 0,
            values: Values::default(),
            value: String::new(),
        }
    }

    /// Length of the end of the text that is not parsed yet.
    pub fn held_len(&self) -> usize {
        self.held.text.len()
    }

    /// Returns true inside a call whose arguments are not complete.
    pub fn is_in_call(&self) -> bool {
        matches!(self.state, State::Call | State::Function | State::String | State::Value)
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

    /// Returns text that was held back, at the end of the output. Of a value that was cut off, the part
    /// that is known to be a text was returned, without its closing quote.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let text = match self.state {
            State::Text => self.held.rest_of_text(OPEN, self.required),
            _ => None,
        };
        text.into_iter().collect()
    }

    /// Parses up to the next marker. Returns the state after it if it has arrived.
    fn advance(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        match self.state {
            State::Text => {
                let before = self.dialect.function[0];
                let (text, found) = self.held.until(&format!("{OPEN}{before}"));
                deltas.extend(self.held.between_calls(&text));
                // The text before a function's name is left for the next state.
                if found {
                    self.held.text.insert_str(0, before);
                }
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
                let (text, found) = self.value_text();
                deltas.extend((!text.is_empty()).then(|| escaped(&text)));
                deltas.extend(found.then(|| OutputDelta::Arguments("\"".into())));
                found.then_some(State::Function)
            }
            State::Value => {
                let (text, found) = self.value_text();
                self.value += &text;
                if found {
                    let value = self.values.value(&self.value).to_string();
                    deltas.push(OutputDelta::Arguments(value));
                    return Some(State::Function);
                }
                if !self.values.have_texts() || self.values.may_begin(&self.value) {
                    return None;
                }
                let quoted = escaped(&std::mem::take(&mut self.value));
                deltas.extend([OutputDelta::Arguments("\"".into()), quoted]);
                Some(State::String)
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
            self.values = self.types.values(&self.function, &name);
            self.value.clear();
            let (is_text, key) = (self.values.are_texts(), json!(name));
            let quote = if is_text { "\"" } else { "" };
            deltas.push(OutputDelta::Arguments(format!("{comma}{key}: {quote}")));
            return Some(if is_text { State::String } else { State::Value });
        }
        let rest = self.held.text.trim_start();
        if rest.starts_with(parameter[0]) || parameter[0].starts_with(rest) {
            return None;
        }
        let [close, rest_of_end] = self.dialect.close;
        if rest_of_end.is_empty() {
            // The end of the call is left for the next state.
            let ends = rest.starts_with(close);
            deltas.extend(ends.then(|| OutputDelta::Arguments("}".into())));
            return ends.then_some(State::End);
        }
        let (_, found) = self.held.until(close);
        deltas.extend(found.then(|| OutputDelta::Arguments("}".into())));
        found.then_some(State::End)
    }

    /// Takes the text of a value up to its end, and returns it with whether the end was found. The marker
    /// that follows the value stays.
    fn value_text(&mut self) -> (String, bool) {
        let ends = self.dialect.ends_of_value();
        let (text, found) = self.held.until_any(&ends.each_ref().map(String::as_str));
        if let Some(index) = found {
            self.held.text.insert_str(0, self.dialect.after_value()[index]);
        }
        (text, found.is_some())
    }

    /// Takes the text between two marks and returns it. Line breaks around the marks may be missing.
    fn named(&mut self, [before, after]: &[&str; 2]) -> Option<String> {
        let rest = self.held.text.trim_start().strip_prefix(before.trim_start())?;
        let (mark, tail) = match after.trim_end() {
            "" => (*after, ""),
            mark => (mark, &after[mark.len()..]),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::tools::CallParser;
    use crate::chat::{OutputBlocks, OutputParser, ToolCall};
    use serde_json::Value;

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
        let tool =
            |name: &str, parameters| Tool { name: name.into(), parameters, ..Tool::default() };
        let tools = [tool("weather", parameters), tool("time", json!({"type": "object"}))];
        XmlParser::new(XmlTypes::new(tools.iter()), dialect, false)
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

    /// A value ends only where another parameter or the end of the call follows.
    #[test]
    fn texts_may_contain_lines_like_the_closing_tag() {
        let qwen = "a\n</parameter>\nb\n</parameter>\n</para\n</parameter>";
        let glm = "a</arg_value>\nb</arg_value></tool_call></arg_value>\n<arg";
        let calls = [
            (
                format!(
                    "<tool_call>\n<function=weather>\n<parameter=city>\n{qwen}\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
                ),
                qwen,
            ),
            (
                format!(
                    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>{glm}</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
                ),
                glm,
            ),
        ];
        for (output, city) in calls {
            let want = format!("{{\"city\": {}, \"days\": 3}}", json!(city));
            for size in 1..output.len() {
                let blocks = parse(&output, size);
                let calls: Vec<_> = blocks.calls().map(|call| call.arguments.clone()).collect();
                assert_eq!(calls, std::slice::from_ref(&want), "{size}");
                assert_eq!(blocks.text(), "", "{size}");
            }
        }
    }

    #[test]
    fn values_are_json_where_the_schema_allows_it() {
        let optional = |value: &str| {
            let output = format!(
                "<tool_call>\n<function=time>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"
            );
            let all: Vec<String> = (1..output.len())
                .map(|size| parse(&output, size).calls().next().expect("a call").arguments.clone())
                .collect();
            assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
            serde_json::from_str::<Value>(&all[0]).expect("JSON")["x"].clone()
        };
        for (value, want) in [
            ("null", json!(null)),
            ("nul", json!("nul")),
            ("3", json!(3)),
            ("3 apples\n\nä", json!("3 apples\n\nä")),
            ("[1, 2]", json!([1, 2])),
            ("[1, 2", json!("[1, 2")),
            ("", json!("")),
        ] {
            assert_eq!(optional(value), want, "{value}");
        }
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

    /// Each parameter once kept its own copy of the values: 45 million here.
    #[test]
    fn values_that_parameters_share_are_read_with_one_budget() {
        let shared = json!({"$ref": "#/$defs/e"});
        let named = (0..2_400).map(|n| (format!("a{n}"), shared.clone()));
        let parameters = json!({"type": "object", "$defs": {"e": {"enum": vec![0; 19_000]}},
            "properties": named.collect::<serde_json::Map<_, _>>()});
        let tool = Tool { name: "f".into(), parameters, ..Tool::default() };
        let begin = std::time::Instant::now();
        let types = XmlTypes::new(std::iter::once(&tool));
        assert!(begin.elapsed() < std::time::Duration::from_secs(3), "{:?}", begin.elapsed());
        assert!(!types.values("f", "a0").have_texts());
        assert_eq!(types.values("f", "a2399"), Values::default());
    }
}
