//! Grammars of outputs with tool calls.

use super::definitions::{self, Definitions};
use super::format::JsonFormat;
use super::xml::{self, XmlDialect};
use super::{CallFormat, Tool, ToolChoice, Tools};
use crate::models::grammar::{Effort, Grammar, TEXT, closed, compact, lenient, relax};
use serde_json::{Value, json};
use std::fmt::Write;

impl Tools {
    /// Returns the grammar of outputs. An output without calls must match the JSON schema `output`,
    /// or is any text.
    ///
    /// # Errors
    /// If `output` or the parameters of a tool are not a JSON schema.
    pub fn grammar(&self, output: Option<Value>, format: CallFormat) -> Result<Grammar, String> {
        let mut lark = String::from("%llguidance {}\n");
        let (mut alternatives, mut copies) = (Vec::new(), TEXT);
        for (index, tool) in self.callable_tools().enumerate() {
            alternatives.push(format!("call_{index}"));
            lark += &match format.json() {
                Some(json) => json_call(index, tool, json)?,
                None => xml_call(index, tool, format.xml(), &mut copies)?,
            };
        }
        if format.json().is_none() {
            let end = escaped(format.xml().end_of_value);
            let _ = writeln!(lark, "string[lazy]: /(.|\\n)*{end}{}/", escaped("\n"));
        }
        let _ = writeln!(lark, "call: {}", alternatives.join(" | "));
        let shape = Shape::new(format);
        // A function that is named is called once.
        let named = matches!(self.choice, ToolChoice::Named(_));
        let between = shape.between.filter(|_| self.parallel && !named);
        let more = between.map(|between| format!("({} call)*", text(between))).unwrap_or_default();
        let _ = writeln!(lark, "calls: {} {more} {}", shape.first_call(), text(shape.end));
        let open = text(shape.open);
        let start = match (&self.choice, output) {
            (ToolChoice::Required | ToolChoice::Named(_), _) => format!("start: {open} calls"),
            (_, Some(schema)) => {
                let schema = compact(schema)?;
                format!("start: {open} calls | answer\nanswer: %json {schema}")
            }
            (_, None) => shape.optional(self.parallel),
        };
        Ok(Grammar::Lark(lark + &start + "\n"))
    }

    fn callable_tools(&self) -> impl Iterator<Item = &Tool> {
        let callable = |tool: &&Tool| match &self.choice {
            ToolChoice::Named(name) => *name == tool.name,
            _ => true,
        };
        self.list.iter().filter(callable)
    }
}

/// Texts around the calls of an output.
struct Shape {
    open: &'static str,
    before_name: &'static str,
    between: Option<&'static str>,
    end: &'static str,
    first: bool,
    mixed: bool,
}

impl Shape {
    fn new(format: CallFormat) -> Self {
        match format.json() {
            Some(&JsonFormat { open, before_name, between, end, first, mixed, .. }) => {
                Self { open, before_name, between, end, first, mixed }
            }
            None => Self {
                open: xml::OPEN,
                before_name: "",
                between: Some("\n<tool_call>"),
                end: "",
                first: false,
                mixed: true,
            },
        }
    }

    /// Returns the symbols of a call behind the opening marker.
    fn first_call(&self) -> String {
        format!("{} call", text(self.before_name))
    }

    /// Returns the rules of outputs that may call tools.
    fn optional(&self, parallel: bool) -> String {
        let open = escaped(self.open);
        // The answer is a text without the marker.
        if self.first {
            let open_text = text(self.open);
            return format!(
                "start: {open_text} calls | AFTER\nAFTER: /(.|\\n)*/ & ~/{open}(.|\\n)*/"
            );
        }
        let start = match (self.mixed, parallel) {
            (true, true) => format!("start: (before {})* AFTER", self.first_call()),
            (true, false) => format!("start: before {} | AFTER", self.first_call()),
            (false, _) => "start: before calls | AFTER".into(),
        };
        // `before` ends with the marker of a call; AFTER does not contain it.
        format!(
            "{start}\nbefore[lazy]: /(.|\\n)*{open}/\n\
             AFTER: /(.|\\n)*/ & ~/(.|\\n)*{open}(.|\\n)*/"
        )
    }
}

/// Returns a text as a terminal; nothing for no text.
fn text(text: &str) -> String {
    if text.is_empty() { String::new() } else { json!(text).to_string() }
}

/// Returns a regular expression for a text.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c.is_ascii_alphanumeric() || c == '_' {
        true => c.to_string(),
        false => format!("\\x{{{:x}}}", u32::from(c)),
    };
    text.chars().map(escape).collect()
}

/// Returns the schema of a tool's arguments as far as a grammar holds it.
fn argument_schema(tool: &Tool) -> Value {
    relax(&closed(tool.parameters.clone()), effort(tool)).schema
}

fn effort(tool: &Tool) -> Effort {
    if tool.strict { Effort::Whole } else { Effort::Supported }
}

/// Returns the schema of a tool's arguments, or of one of them, for a grammar.
fn grammar_schema(tool: &Tool, schema: Value) -> Result<Value, String> {
    compact(lenient(schema, effort(tool)))
}

/// Returns the rules of a call in JSON, from its name on.
fn json_call(index: usize, tool: &Tool, format: &JsonFormat) -> Result<String, String> {
    let head = text(&format!("{}{}", tool.name, format.after_name));
    let schema = grammar_schema(tool, argument_schema(tool))?;
    let close = text(format.close);
    Ok(format!("call_{index}: {head} args_{index} {close}\nargs_{index}: %json {schema}\n"))
}

/// Returns the rules of a call in XML, behind its opening marker. Parameters come in the order of the
/// schema. Of a string's schema only a list of values is enforced. The definitions that parameters refer
/// to may take `copies` bytes.
fn xml_call(
    index: usize,
    tool: &Tool,
    dialect: &XmlDialect,
    copies: &mut usize,
) -> Result<String, String> {
    let [before, behind] = dialect.function;
    let head = text(&format!("{before}{}{behind}", tool.name));
    let close = text(&format!("{}{}", dialect.end_of_function, xml::END_OF_CALL));
    let (mut parameters, mut rules) = (String::new(), String::new());
    let arguments = argument_schema(tool);
    let Some(properties) = arguments["properties"].as_object() else {
        return Ok(format!("call_{index}: {head} {close}\n"));
    };
    let required = arguments["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|n| n == name));
    let mut definitions = Definitions::new(&arguments, copies);
    for (i, (name, schema)) in properties.iter().enumerate() {
        if name.contains(['<', '>', '\n']) {
            return Err(format!("the name of the parameter {name:?} cannot stand in XML"));
        }
        let optional = if is_required(name) { "" } else { "?" };
        let _ = write!(parameters, " p_{index}_{i}{optional}");
        let [before, behind] = dialect.parameter;
        let head = text(&format!("{before}{name}{behind}"));
        let end = text(&format!("{}\n", dialect.end_of_value));
        let target = schema["$ref"].as_str().and_then(definitions::pointer);
        let listed = target.and_then(|pointer| arguments.pointer(&pointer)).unwrap_or(schema);
        let value = match (xml::is_string(schema, &arguments), listed["enum"].as_array()) {
            (true, None) => "string".into(),
            (true, Some(values)) => {
                let values = values.iter().filter_map(Value::as_str).map(text);
                format!("({}) {end}", values.collect::<Vec<_>>().join(" | "))
            }
            (false, _) => {
                let schema = grammar_schema(tool, definitions.whole(schema)?)?;
                let _ = writeln!(rules, "v_{index}_{i}: %json {schema}");
                format!("v_{index}_{i} {end}")
            }
        };
        let _ = writeln!(rules, "p_{index}_{i}: {head} {value}");
    }
    Ok(format!("call_{index}: {head}{parameters} {close}\n{rules}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use crate::models::grammar::Grammars;
    use crate::models::{Loaded, OpenOptions};
    use wrinklefree::decode::Next;
    use wrinklefree::text::Tokenizer;

    fn tool(name: &str, parameters: Value) -> Tool {
        Tool { name: name.into(), description: None, parameters, strict: false }
    }

    fn tools(choice: ToolChoice, parallel: bool) -> Tools {
        let city = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"], "additionalProperties": false});
        let none = json!({"type": "object", "additionalProperties": false});
        Tools::new(vec![tool("weather", city), tool("time", none)], choice, parallel)
            .expect("valid")
    }

    /// Returns true if the grammar accepts `text`, with the embedded model's tokenizer.
    fn accepts(
        loaded: &Loaded,
        tools: &Tools,
        output: Option<Value>,
        format: CallFormat,
        text: &str,
    ) -> bool {
        let tokenizer = loaded.tokenizer().expect("has one");
        let vocab = loaded.model.spec().vocab_size;
        let grammars = Grammars::new(tokenizer, vocab, &loaded.defaults.eos).expect("made");
        let grammar = tools.grammar(output, format).expect("schemas");
        let mut constraint = grammars.compile(grammar).expect("compiles").constraint;
        let ids = tokenizer.encode(text, false).expect("text");
        for token in ids.iter().chain(&loaded.defaults.eos[..1]) {
            match constraint.next() {
                Next::Tokens(set) if set[*token as usize / 32] >> (token % 32) & 1 == 1 => {
                    constraint.accept(*token);
                }
                // Only an end-of-sequence token may follow the end.
                Next::End => return loaded.defaults.eos.contains(token),
                _ => return false,
            }
        }
        constraint.next() == Next::End
    }

    const OSLO: &str =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    const TIME: &str = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

    #[test]
    fn grammars_accept_the_allowed_calls() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let both = format!("{OSLO}\n{TIME}");
        let talk = format!("Let me see, 1 < 2.\n{OSLO}\n{TIME}\nSo.");
        let paris = OSLO.replace("Oslo", "Paris");
        let named = || ToolChoice::Named("time".into());
        #[rustfmt::skip]
        let cases = [
            (ToolChoice::Auto, true, &[(OSLO, true), (&both, true), (&talk, true), ("No.", true), (&paris, false), ("a<tool_call>b", false)][..]),
            (ToolChoice::Auto, false, &[(OSLO, true), (&both, false), ("No.", true)]),
            (ToolChoice::Required, true, &[(OSLO, true), (&both, true), (&talk, false), ("No.", false)]),
            (ToolChoice::Required, false, &[(TIME, true), (&both, false)]),
            (named(), true, &[(TIME, true), (OSLO, false)]),
        ];
        for (choice, parallel, texts) in cases {
            let tools = tools(choice.clone(), parallel);
            for (text, want) in texts {
                let got = accepts(&loaded, &tools, None, CallFormat::Hermes, text);
                assert_eq!(got, *want, "{choice:?}, parallel: {parallel}: {text}");
            }
        }
        let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
        for (text, want) in [("{\"ok\": true}", true), (OSLO, true), ("No.", false)] {
            assert_eq!(
                accepts(
                    &loaded,
                    &tools(ToolChoice::Auto, true),
                    Some(schema.clone()),
                    CallFormat::Hermes,
                    text
                ),
                want
            );
        }
    }

    #[test]
    fn grammars_accept_calls_in_xml() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let parameters = json!({"type": "object", "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "integer"}},
            "required": ["city", "days"], "additionalProperties": false});
        let list = vec![tool("weather", parameters), tool("time", json!({"type": "object"}))];
        let tools = Tools::new(list, ToolChoice::Required, true).expect("valid");
        let call = |parameters: &[(&str, &str)]| {
            let value = |(name, value): &(&str, &str)| {
                format!("<parameter={name}>\n{value}\n</parameter>\n")
            };
            let parameters: String = parameters.iter().map(value).collect();
            format!("<tool_call>\n<function=weather>\n{parameters}</function>\n</tool_call>")
        };
        let oslo = call(&[("city", "Oslo\n\"N\""), ("days", "3")]);
        let time = "<tool_call>\n<function=time>\n</function>\n</tool_call>";
        for (text, want) in [
            (oslo.as_str(), true),
            (time, true),
            (&format!("{oslo}\n{time}"), true),
            (&call(&[("city", ""), ("unit", "F"), ("days", "-1")]), true),
            (&call(&[("city", "Oslo"), ("unit", "K"), ("days", "3")]), false),
            (&call(&[("city", "Oslo"), ("days", "three")]), false),
            (&call(&[("city", "Oslo")]), false),
            (OSLO, false),
        ] {
            assert_eq!(accepts(&loaded, &tools, None, CallFormat::QwenXml, text), want, "{text}");
        }
    }

    #[test]
    fn grammars_accept_calls_of_each_template() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let weather = "{\"city\": \"Oslo\"}";
        let glm = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>";
        let llama = format!("{{\"name\": \"weather\", \"parameters\": {weather}}}");
        let mistral = format!("[TOOL_CALLS][{{\"name\": \"weather\", \"arguments\": {weather}}}]");
        let both = mistral.replace("}]", "}, {\"name\": \"time\", \"arguments\": {}}]");
        let args = format!("[TOOL_CALLS]weather[ARGS]{weather}");
        let functionary = format!("<function=weather>{weather}</function>");
        #[rustfmt::skip]
        let cases = [
            (CallFormat::GlmXml, &[(glm, true), ("<tool_call>time\n</tool_call>", true), (OSLO, false), ("No.", true)][..]),
            (CallFormat::Llama, &[(&llama, true), ("{\"a\": 1}", true), ("No {", true), ("{\"name\": 1}", true), ("{\"name\": \"x\"}", false)]),
            (CallFormat::Mistral, &[(&mistral, true), (&both, true), (&format!("So: {both}"), true), ("No [1].", true), (&mistral[..mistral.len() - 1], false)]),
            (CallFormat::MistralArgs, &[(&args, true), (&format!("{args}[TOOL_CALLS]time[ARGS]{{}}"), true), (&mistral, false)]),
            (CallFormat::Functionary, &[(&functionary, true), (&format!("{functionary}<function=time>{{}}</function>"), true), ("<function=no>", false)]),
        ];
        for (format, texts) in cases {
            for (text, want) in texts {
                for choice in [ToolChoice::Auto, ToolChoice::Required] {
                    let open = format.json().map_or(xml::OPEN, |json| json.open);
                    let begins = text.starts_with(open) && !text.ends_with(": 1}");
                    let want = *want && (choice == ToolChoice::Auto || begins);
                    let tools = tools(choice.clone(), true);
                    let got = accepts(&loaded, &tools, None, format, text);
                    assert_eq!(got, want, "{format:?}, {choice:?}: {text}");
                }
            }
        }
    }

    /// Pydantic and MCP write nested types as references to definitions of the whole tool.
    #[test]
    fn parameters_in_xml_know_the_definitions_of_their_tool() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let parameters = json!({"type": "object", "required": ["c"], "properties": {
            "c": {"$ref": "#/$defs/Color"},
            "n": {"anyOf": [{"$ref": "#/definitions/Node"}, {"type": "null"}]}},
            "$defs": {"Color": {"type": "string", "enum": ["red", "blue"]}},
            "definitions": {"Node": {"type": "object", "properties": {
                "color": {"$ref": "#/$defs/Color"}, "next": {"$ref": "#/definitions/Node"}}}}});
        let tools = |parameters: &Value| {
            let list = vec![tool("paint", parameters.clone())];
            Tools::new(list, ToolChoice::Required, true).expect("valid")
        };
        let qwen = |color: &str, node: &str| {
            let node = Some(node).filter(|node| !node.is_empty());
            let node = node.map(|node| format!("<parameter=n>\n{node}\n</parameter>\n"));
            let node = node.unwrap_or_default();
            format!(
                "<tool_call>\n<function=paint>\n<parameter=c>\n{color}\n</parameter>\n{node}</function>\n</tool_call>"
            )
        };
        let glm = |color: &str| {
            format!(
                "<tool_call>paint\n<arg_key>c</arg_key>\n<arg_value>{color}</arg_value>\n</tool_call>"
            )
        };
        let nested = "{\"color\": \"blue\", \"next\": {\"color\": \"red\"}}";
        for (format, text, want) in [
            (CallFormat::QwenXml, qwen("red", ""), true),
            (CallFormat::QwenXml, qwen("green", ""), false),
            (CallFormat::QwenXml, qwen("red", nested), true),
            (CallFormat::QwenXml, qwen("red", "{\"color\": \"green\"}"), false),
            (CallFormat::QwenXml, qwen("red", "null"), true),
            (CallFormat::GlmXml, glm("blue"), true),
            (CallFormat::GlmXml, glm("green"), false),
        ] {
            assert_eq!(accepts(&loaded, &tools(&parameters), None, format, &text), want, "{text}");
        }
        let mut large = parameters;
        large["definitions"]["Node"]["properties"]["x"] = json!({"const": "x".repeat(TEXT)});
        let error = tools(&large).grammar(None, CallFormat::QwenXml).expect_err("too large");
        assert!(error.contains("too large"), "{error}");
        large["definitions"]["Node"]["properties"]["x"] = json!({"description": "x".repeat(TEXT)});
        assert!(tools(&large).grammar(None, CallFormat::QwenXml).is_ok());
    }

    /// Some vocabularies have the markers as control tokens, which text never contains.
    #[test]
    fn markers_may_be_control_tokens() {
        let [open, close, eos] = [96, 97, 98];
        let added: Vec<Value> = [(open, xml::OPEN), (close, "</tool_call>"), (eos, "<eos>")]
            .iter()
            .map(|(id, name)| {
                json!({"id": id, "content": name, "special": true, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false})
            })
            .collect();
        let mut vocab = json!({"<0x0A>": 0});
        for (id, letter) in (1..).zip(' '..='~') {
            vocab[letter.to_string()] = id.into();
        }
        let json = json!({"version": "1.0", "added_tokens": added,
            "decoder": {"type": "ByteFallback"},
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": " "}});
        let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).expect("one");
        let size = tokenizer.vocab_size();
        let grammars = Grammars::new(&tokenizer, size, &[eos]).expect("made");
        let grammar =
            tools(ToolChoice::Required, false).grammar(None, CallFormat::Hermes).expect("schemas");
        let mut constraint = grammars.compile(grammar).expect("compiles").constraint;
        let letter = |c: char| 1 + (c as u32 - ' ' as u32);
        let call = "{\"name\": \"time\", \"arguments\": {}}".chars().map(letter);
        for token in [open, 0].into_iter().chain(call).chain([0, close, eos]) {
            match constraint.next() {
                Next::Tokens(set) => {
                    assert!(set[token as usize / 32] >> (token % 32) & 1 == 1, "{token}");
                    constraint.accept(token);
                }
                Next::End => assert_eq!(token, eos, "the output ends after the call"),
                other => panic!("{other:?}"),
            }
        }
    }
}
