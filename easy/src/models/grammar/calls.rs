//! Grammars of outputs with tool calls.

use super::arguments::{argument_schema, check_held, grammar_schema, regex, text};
use super::xml_calls::XmlRules;
use super::{Effort, Grammar, check_size, closed, compact, lenient, relax};
use serde_json::Value;
use std::fmt::Write;
use wrinklefree::chat::tools::{self, CallFormat, JsonFormat, Tool, ToolChoice, Tools, XmlDialect};

/// Returns the grammar of outputs that call tools. An output without calls must match `answer`, or is any
/// text.
///
/// # Errors
/// If `answer` or the parameters of a tool are not a JSON schema, or the grammar becomes too large.
pub fn call_grammar(
    tools: &Tools,
    format: CallFormat,
    answer: Option<Grammar>,
) -> Result<Grammar, String> {
    let mut lark = String::from("%llguidance {}\n");
    if *tools.choice() == ToolChoice::None {
        return Ok(Grammar::Lark(lark + &Shape::new(format).none() + "\n"));
    }
    let mut xml = XmlRules::new(format.xml());
    let mut alternatives = Vec::new();
    for (index, tool) in tools.chosen().enumerate() {
        alternatives.push(format!("call_{index}"));
        let written = check_held(tool).and_then(|()| match format.json() {
            Some(json) => json_call(index, tool, json).map(|rules| lark += &rules),
            None => xml.call(index, tool),
        });
        written.map_err(|error| format!("tools[{}] (`{}`): {error}", tool.index, tool.name))?;
        check_size(lark.len())?;
    }
    if format.json().is_none() {
        lark += &xml.lark;
    }
    let _ = writeln!(lark, "call: {}", alternatives.join(" | "));
    let shape = Shape::new(format);
    let between = shape.between.filter(|_| tools.are_parallel());
    let more = between.map(|between| format!("({} call)*", text(between))).unwrap_or_default();
    let _ = writeln!(lark, "calls: call {more} {}", text(shape.end));
    let head = format!("{} {}", text(shape.open), text(shape.before_name));
    let start = match (tools.choice(), answer) {
        (ToolChoice::Required | ToolChoice::Named(_), _) => format!("start: {head} calls"),
        (_, Some(answer)) => {
            let schema = answer_schema(answer)?;
            format!("start: {head} calls | answer\nanswer: %json {schema}")
        }
        (_, None) => shape.optional(tools.are_parallel()),
    };
    Ok(Grammar::Lark(lark + &start + "\n"))
}

/// Returns the forms of an answer next to calls, of which the first one that compiles is taken: with
/// `best_effort` less and less of a schema.
#[must_use]
pub fn answers(answer: Option<&Grammar>, best_effort: bool) -> Vec<Option<Grammar>> {
    let Some(Grammar::JsonSchema(schema)) = answer else { return vec![answer.cloned()] };
    let schema = closed(schema.clone());
    if !best_effort {
        return vec![Some(Grammar::JsonSchema(schema))];
    }
    let less = |effort| Some(Grammar::JsonSchema(lenient(relax(&schema, effort).schema, effort)));
    Effort::BEST.map(less).into()
}

/// Returns the schema of an answer as a part of a grammar. Calls cannot be told apart from other forms.
fn answer_schema(answer: Grammar) -> Result<Value, String> {
    match answer {
        // The schema becomes a part of a text, which nobody rewrites.
        Grammar::JsonSchema(schema) => compact(relax(&schema, Effort::Whole).schema),
        Grammar::Regex(_) | Grammar::Lark(_) => {
            Err("tools can be combined with JSON output only".into())
        }
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
            None => {
                let XmlDialect { function, between, .. } = format.xml();
                Self {
                    open: tools::OPEN,
                    before_name: function[0],
                    between: Some(between),
                    end: "",
                    first: false,
                    mixed: true,
                }
            }
        }
    }

    /// Returns the rules of outputs that call no tool: texts without the head of a call.
    fn none(&self) -> String {
        let head = regex(&format!("{}{}", self.open, self.before_name));
        let before = if self.first { "" } else { "(.|\\n)*" };
        format!("start: AFTER\nAFTER: /(.|\\n)*/ & ~/{before}{head}(.|\\n)*/")
    }

    /// Returns the rules of outputs that may call tools.
    fn optional(&self, parallel: bool) -> String {
        let head = regex(&format!("{}{}", self.open, self.before_name));
        // The answer is a text without the head of a call. It may mention the marker.
        if self.first {
            let open = text(self.open);
            return self.none().replacen("AFTER", &format!("{open} calls | AFTER"), 1);
        }
        let start = match (self.mixed, parallel) {
            (true, true) => "start: (before call)* AFTER",
            (true, false) => "start: before call | AFTER",
            (false, _) => "start: before calls | AFTER",
        };
        // `before` ends with the head of a call; AFTER does not contain it.
        let none = self.none().replacen("start: AFTER", start, 1);
        format!("{none}\nbefore[lazy]: /(.|\\n)*{head}/")
    }
}

/// Returns the rules of a call in JSON, from its name on.
fn json_call(index: usize, tool: &Tool, format: &JsonFormat) -> Result<String, String> {
    let head = text(&format!("{}{}", tool.name, format.after_name));
    let schema = grammar_schema(tool, argument_schema(tool))?;
    let close = text(format.close);
    Ok(format!("call_{index}: {head} args_{index} {close}\nargs_{index}: %json {schema}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use crate::models::grammar::{Grammars, TEXT};
    use crate::models::{Loaded, OpenOptions};
    use serde_json::json;
    use wrinklefree::decode::Next;
    use wrinklefree::text::Tokenizer;

    fn tool(name: &str, parameters: Value) -> Tool {
        Tool { name: name.into(), parameters, ..Tool::default() }
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
        let grammar =
            call_grammar(tools, format, output.map(Grammar::JsonSchema)).expect("schemas");
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
    fn errors_name_the_tool() {
        let list = vec![tool("f", json!("x"))];
        let text = Tools::new(list, ToolChoice::Auto, true).expect("valid");
        for format in [CallFormat::Hermes, CallFormat::QwenXml] {
            let error = call_grammar(&text, format, None).expect_err("no schema");
            assert!(error.contains("an object") && error.contains("tools[0]"), "{error}");
        }
    }

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
            (ToolChoice::Auto, true, &[(OSLO, true), (&both, true), (&talk, true), ("No.", true), (&paris, false), ("a<tool_call>b", true), ("a<tool_call>\n{\"name\": \"b", false)][..]),
            (ToolChoice::Auto, false, &[(OSLO, true), (&both, false), ("No.", true)]),
            (ToolChoice::Required, true, &[(OSLO, true), (&both, true), (&talk, false), ("No.", false)]),
            (ToolChoice::Required, false, &[(TIME, true), (&both, false)]),
            (named(), true, &[(TIME, true), (OSLO, false)]),
            (ToolChoice::None, true, &[(TIME, false), (&talk, false), ("No.", true), ("a<tool_call>b", true)]),
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
        // A line like the closing tag ends a text only where a parameter or the end of the call follows.
        let inner = call(&[("city", "a\n</parameter>\nb\n</parameter>"), ("days", "3")]);
        let open = call(&[("days", "3"), ("x", "a\n</parameter>\nb")]).replace("=weather", "=time");
        let ended = call(&[("city", "a\n</parameter>\n</function>\nb"), ("days", "3")]);
        for (text, want) in [
            (inner.as_str(), true),
            (&open, true),
            (&ended, false),
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

    /// A model may write any escape that JSON has for a character.
    #[test]
    fn texts_in_json_may_have_escapes() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let text = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let list = vec![tool("weather", text)];
        let tools = Tools::new(list, ToolChoice::Required, true).expect("valid");
        for (text, want) in [
            ("a\\u00e9\\u0000\\n", true),
            ("\\ud83d\\ude00", true),
            ("\\ud83d", false),
            ("a\\/b\\\\/", true),
            ("\\u00g0", false),
        ] {
            let call = OSLO.replace("Oslo", text);
            assert_eq!(accepts(&loaded, &tools, None, CallFormat::Hermes, &call), want, "{text}");
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
                    let open = format.json().map_or(tools::OPEN, |json| json.open);
                    let begins = text.starts_with(open) && !text.ends_with(": 1}");
                    let want = *want && (choice == ToolChoice::Auto || begins);
                    let tools = tools(choice.clone(), true);
                    let got = accepts(&loaded, &tools, None, format, text);
                    assert_eq!(got, want, "{format:?}, {choice:?}: {text}");
                }
            }
        }
    }

    /// Grammar of a value, for a parameter `d` with this schema.
    #[test]
    fn values_in_xml_are_those_of_the_schema() {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let listed = json!({"anyOf": [{"type": "string", "enum": ["a", "ab"]}, {"type": "null"}]});
        let of = |schema: Value| json!({"type": "object", "properties": {"d": schema}, "required": ["d"]});
        let open = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        let either = json!({"type": "object", "additionalProperties": false,
            "properties": {"d": {"type": "string"}, "e": {"type": "integer"}},
            "anyOf": [{"required": ["d"]}, {"required": ["e"]}]});
        #[rustfmt::skip]
        let cases = [
            (of(listed), &[(&[("d", "ab")][..], true), (&[("d", "null")], true), (&[("d", "None")], true), (&[("d", "b")], false)][..]),
            (of(json!({"type": ["string", "integer"]})), &[(&[("d", "7")], true), (&[("d", "x")], true)]),
            (of(json!({"type": "string"})), &[(&[("d", "x"), ("e", "1")], false)]),
            (json!({}), &[(&[("d", "x"), ("other", "{\"a\": 1}")], true), (&[], true)]),
            (json!({"type": "object", "properties": {}}), &[(&[], true), (&[("d", "x")], false)]),
            (open, &[(&[("d", "7"), ("e", "8")], true), (&[("d", "x")], false)]),
            (json!({"properties": {"d": {"type": "integer"}}, "additionalProperties": true, "required": null}), &[(&[("d", "7"), ("e", "x")], true), (&[("d", "x")], false), (&[("e", "x")], true)]),
            (either, &[(&[("d", "x")], true), (&[("e", "7")], true), (&[("d", "x"), ("e", "7")], true), (&[], false)]),
        ];
        for (parameters, texts) in cases {
            let list = vec![tool("f", parameters.clone())];
            let tools = Tools::new(list, ToolChoice::Required, true).expect("valid");
            for (values, want) in texts {
                let qwen = |(name, value): &(&str, &str)| {
                    format!("<parameter={name}>\n{value}\n</parameter>\n")
                };
                let glm = |(name, value): &(&str, &str)| {
                    format!("<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n")
                };
                let qwen: String = values.iter().map(qwen).collect();
                let glm: String = values.iter().map(glm).collect();
                for (format, text) in [
                    (
                        CallFormat::QwenXml,
                        format!("<tool_call>\n<function=f>\n{qwen}</function>\n</tool_call>"),
                    ),
                    (CallFormat::GlmXml, format!("<tool_call>f\n{glm}</tool_call>")),
                ] {
                    assert_eq!(
                        accepts(&loaded, &tools, None, format, &text),
                        *want,
                        "{parameters}: {text}"
                    );
                }
            }
        }
        let strict =
            Tool { strict: true, ..tool("f", of(json!({"type": "string", "pattern": "^b"}))) };
        let tools = Tools::new(vec![strict], ToolChoice::Auto, true).expect("valid");
        let error = call_grammar(&tools, CallFormat::QwenXml, None).expect_err("a pattern");
        assert!(
            error.contains("tools[0]") && error.contains("`pattern` of the parameter `d`"),
            "{error}"
        );
        assert!(call_grammar(&tools, CallFormat::Hermes, None).is_ok());
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
        let error = call_grammar(&tools(&large), CallFormat::QwenXml, None).expect_err("too large");
        assert!(error.contains("too large"), "{error}");
        large["definitions"]["Node"]["properties"]["x"] = json!({"description": "x".repeat(TEXT)});
        assert!(call_grammar(&tools(&large), CallFormat::QwenXml, None).is_ok());
    }

    /// Some vocabularies have the markers as control tokens, which text never contains.
    #[test]
    fn markers_may_be_control_tokens() {
        let [open, close, eos] = [96, 97, 98];
        let added: Vec<Value> = [(open, tools::OPEN), (close, "</tool_call>"), (eos, "<eos>")]
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
        let grammar = call_grammar(&tools(ToolChoice::Required, false), CallFormat::Hermes, None)
            .expect("schemas");
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
