//! Grammars of outputs with tool calls.

use super::{AFTER_NAME, BEFORE_NAME, CLOSE, CallFormat, OPEN, Tool, ToolChoice, Tools, xml};
use crate::models::grammar::{Effort, Grammar, compact, lenient, relax};
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
        let mut alternatives = Vec::new();
        for (index, tool) in self.callable_tools().enumerate() {
            alternatives.push(format!("call_{index}"));
            lark += &match format {
                CallFormat::Hermes => hermes_call(index, tool)?,
                CallFormat::Xml => xml_call(index, tool)?,
            };
        }
        if format == CallFormat::Xml {
            let end = xml::END_OF_VALUE.replace('/', "\\/");
            let _ = writeln!(lark, "string[lazy]: /(.|\\n)*{}\\n/", end.replace('\n', "\\n"));
        }
        let _ = writeln!(lark, "call: {}", alternatives.join(" | "));
        let (open, next) = (text(OPEN), text(&format!("\n{OPEN}")));
        let calls = match self.parallel {
            true => format!("calls: {open} call ({next} call)*"),
            false => format!("calls: {open} call"),
        };
        let start = match (&self.choice, output) {
            (ToolChoice::Required | ToolChoice::Named(_), _) => format!("start: calls\n{calls}"),
            (_, Some(schema)) => {
                let schema = compact(schema)?;
                format!("start: calls | answer\n{calls}\nanswer: %json {schema}")
            }
            (_, None) => {
                let repeat = if self.parallel {
                    "start: (before call)* AFTER"
                } else {
                    "start: before call | AFTER"
                };
                // `before` ends with the marker of a call; AFTER does not contain it.
                format!(
                    "{repeat}\nbefore[lazy]: /(.|\\n)*{OPEN}/\n\
                     AFTER: /(.|\\n)*/ & ~/(.|\\n)*{OPEN}(.|\\n)*/"
                )
            }
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

/// Returns a text as a terminal.
fn text(text: &str) -> String {
    json!(text).to_string()
}

/// Returns a schema for a part of a tool's arguments.
fn argument_schema(tool: &Tool, schema: &Value) -> Result<Value, String> {
    let effort = if tool.strict { Effort::Whole } else { Effort::Supported };
    compact(lenient(relax(schema, effort).schema, effort))
}

/// Returns the rule of a call in JSON, behind its opening marker.
fn hermes_call(index: usize, tool: &Tool) -> Result<String, String> {
    let head = text(&format!("{BEFORE_NAME}{}{AFTER_NAME}", tool.name));
    let schema = argument_schema(tool, &tool.parameters)?;
    let close = text(CLOSE);
    Ok(format!("call_{index}: {head} args_{index} {close}\nargs_{index}: %json {schema}\n"))
}

/// Returns the rules of a call in XML. Parameters come in the order of the schema. Of a string's schema
/// only a list of values is enforced.
fn xml_call(index: usize, tool: &Tool) -> Result<String, String> {
    let head = text(&format!("\n{}{}>\n", xml::FUNCTION, tool.name));
    let close = text(&format!("{}\n{}", xml::END_OF_FUNCTION, xml::END_OF_CALL));
    let (mut parameters, mut rules) = (String::new(), String::new());
    let Some(properties) = tool.parameters["properties"].as_object() else {
        return Ok(format!("call_{index}: {head} {close}\n"));
    };
    let required = tool.parameters["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|n| n == name));
    for (i, (name, schema)) in properties.iter().enumerate() {
        if name.contains(['>', '\n']) {
            return Err(format!("the name of the parameter {name:?} cannot stand in XML"));
        }
        let optional = if is_required(name) { "" } else { "?" };
        let _ = write!(parameters, " p_{index}_{i}{optional}");
        let head = text(&format!("{}{name}>\n", xml::PARAMETER));
        let end = text(&format!("{}\n", xml::END_OF_VALUE));
        let value = match (xml::is_string(schema), schema["enum"].as_array()) {
            (true, None) => "string".into(),
            (true, Some(values)) => {
                let values = values.iter().filter_map(Value::as_str).map(text);
                format!("({}) {end}", values.collect::<Vec<_>>().join(" | "))
            }
            (false, _) => {
                let schema = argument_schema(tool, schema)?;
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
            assert_eq!(accepts(&loaded, &tools, None, CallFormat::Xml, text), want, "{text}");
        }
    }

    /// Some vocabularies have the markers as control tokens, which text never contains.
    #[test]
    fn markers_may_be_control_tokens() {
        let [open, close, eos] = [96, 97, 98];
        let added: Vec<Value> = [(open, OPEN), (close, "</tool_call>"), (eos, "<eos>")]
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
