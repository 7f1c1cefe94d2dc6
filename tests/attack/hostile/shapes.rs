//! Schemas, grammars and regular expressions of hostile shape, at random: deep, wide, chained by references and multiplying,
//! through the fields of all APIs; and requests whose answers are dear to format, to continue or to read.

use super::bodies::{CHAT, chat};
use super::{Attacker, request};
use fastrand::Rng;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::thread::sleep;
use std::time::Duration;

const KINDS: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// Returns a schema that is built in so many steps around a simple one.
fn schema(rng: &mut Rng, steps: usize) -> Value {
    let mut schema = json!({"type": KINDS[rng.usize(..6)]});
    let mut definitions = Map::new();
    // One kind of step makes deep or multiplying shapes, several make mixtures.
    let only = rng.bool().then(|| rng.u32(..10));
    for step in 0..steps {
        let other = json!({"type": KINDS[rng.usize(..6)]});
        schema = match only.unwrap_or_else(|| rng.u32(..10)) {
            0 => {
                let others = KINDS.map(|kind| json!({"type": kind}));
                let options = [&[json!({"not": schema})][..], &others].concat();
                json!({"oneOf": options})
            }
            1 => json!({"anyOf": [schema, schema, other]}),
            2 => json!({"allOf": [{"anyOf": [schema, other]}, {"oneOf": [other, schema]}]}),
            3 => json!({"not": {"anyOf": [schema, other]}}),
            4 => json!({"if": schema, "then": other, "else": {"not": schema}}),
            5 => json!({"type": "object", "properties": {"a": schema, "b": schema},
                "dependentSchemas": {"a": other}, "required": ["a"]}),
            6 => json!({"type": "array", "prefixItems": vec![schema; 3], "contains": other}),
            7 => json!({"items": schema}),
            8 => {
                let wide: Vec<Value> = (0..rng.u32(2..400)).map(|i| json!({"const": i})).collect();
                json!({"oneOf": [schema, {"anyOf": wide}]})
            }
            _ => {
                definitions.insert(format!("d{step}"), json!({"anyOf": [schema, other]}));
                let target = if rng.u32(..20) == 0 { rng.usize(..steps) } else { step };
                json!({"$ref": format!("#/$defs/d{target}")})
            }
        };
        if schema.to_string().len() > 40_000 {
            definitions.insert(format!("e{step}"), schema);
            schema = json!({"$ref": format!("#/$defs/e{step}")});
        }
        if json!(definitions).to_string().len() > 90_000 {
            break;
        }
    }
    schema["$defs"] = definitions.into();
    schema
}

pub fn schemas(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let steps = rng.usize(1..60);
    let schema = schema(rng, steps);
    let object = json!({"type": "object", "properties": {"a": schema}});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema,
        "json_schema": {"name": "x", "schema": schema, "strict": rng.bool()}});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let function = json!({"name": "f", "parameters": object, "strict": rng.bool()});
    let tools = json!([{"type": "function", "function": function}]);
    let (path, body) = match rng.u32(..9) {
        0 => (CHAT, chat(&json!({"guided_json": schema, "best_effort": rng.bool()}))),
        1 => (CHAT, chat(&json!({"json_schema": schema.to_string()}))),
        2 => (CHAT, chat(&json!({"response_format": format}))),
        3 => (CHAT, chat(&json!({"structured_outputs": {"json": schema}}))),
        4 => (CHAT, chat(&json!({"tools": tools, "response_format": format}))),
        5 => ("/v1/responses", json!({"input": "Hi", "text": {"format": format}}).to_string()),
        6 => (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 20, "tool_choice": {"type": "any"},
                "tools": [{"name": "f", "input_schema": object}]})
            .to_string(),
        ),
        7 => (
            "/api/chat",
            json!({"messages": messages, "format": schema, "stream": false}).to_string(),
        ),
        _ => ("/completion", json!({"prompt": "Hi", "json_schema": schema}).to_string()),
    };
    attacker.post(path, &body)
}

/// Returns a part of a rule that has other parts in it.
fn part(rng: &mut Rng, depth: usize) -> String {
    let leaf = |rng: &mut Rng| match rng.u32(..6) {
        0 => "\"a\"".to_string(),
        1 => "[a-z]".into(),
        2 => ".".into(),
        3 => "[ \\n]".into(),
        4 => format!("r{}", rng.u32(..20)),
        _ => "\"\"".into(),
    };
    let inner = if depth == 0 { leaf(rng) } else { part(rng, depth - 1) };
    let sign = ["*", "+", "?", "{2}", "{1,9}", "{3,}", "?+*"][rng.usize(..7)];
    let signs = if rng.u32(..8) == 0 { rng.usize(..6000) } else { rng.usize(..2) };
    match rng.u32(..4) {
        0 => format!("({inner}){}", sign.repeat(signs)),
        1 => format!("({inner} | {}){}", leaf(rng), sign.repeat(signs)),
        2 => format!("{inner} {}{}", leaf(rng), sign.repeat(signs)),
        _ => format!("{}({inner}){}", "(".repeat(depth), ")".repeat(depth)),
    }
}

pub fn grammars(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let grammar = match rng.u32(..4) {
        0 => {
            let count = rng.usize(1000..30_000);
            let links: String = (0..count).map(|i| format!("c{i}::=c{}\n", i + 1)).collect();
            format!("root ::= c0\n{links}c{count} ::= \"x\"?\n")
        }
        1 => format!("start: {}\"a\"", ["(", "~", "f{", "%lark {"][rng.usize(..4)].repeat(20_000)),
        _ => {
            let rules: String = (0..20)
                .map(|i| {
                    let depth = rng.usize(..70);
                    format!("r{i} ::= {}\n", part(rng, depth))
                })
                .collect();
            format!("root ::= r0\n{rules}")
        }
    };
    let field = ["grammar", "ebnf", "guided_grammar"][rng.usize(..3)];
    attacker.post(CHAT, &chat(&json!({field: grammar, "max_tokens": 30})))
}

/// Returns a regular expression: nested repetitions, wide alternatives, classes and large counts.
fn regex(rng: &mut Rng, depth: usize) -> String {
    let leaf = ["a", "[a-z]", ".", "\\w", "\\p{L}", "(?:)", "[^x]", "\\d"][rng.usize(..8)];
    if depth == 0 {
        return leaf.into();
    }
    let inner = regex(rng, depth - 1);
    let count = ["*", "+", "?", "{2}", "{1,9}", "{3,}", "{1,300}", "{99999}"][rng.usize(..8)];
    match rng.u32(..5) {
        0 => format!("({inner}){count}"),
        1 => format!("({inner}|{leaf}{inner}){count}"),
        2 => format!("{leaf}{inner}"),
        3 => {
            let wide: Vec<String> = (0..rng.u32(2..500)).map(|i| format!("{leaf}{i}")).collect();
            format!("({})({inner})", wide.join("|"))
        }
        _ => format!("({inner}).{count}{leaf}"),
    }
}

pub fn regexes(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let depth = rng.usize(1..25);
    let pattern = regex(rng, depth);
    let schema = json!({"type": "string", "pattern": pattern});
    let more = match rng.u32(..3) {
        0 => json!({"guided_regex": pattern, "n": 8, "max_tokens": 60}),
        1 => json!({"guided_json": schema, "best_effort": rng.bool(), "max_tokens": 60}),
        _ => json!({"guided_choice": vec![pattern; rng.usize(1..300)]}),
    };
    attacker.post(CHAT, &chat(&more))
}

/// Grammars of Lark's form whose rules refer to each other at random: they are ambiguous, so a step has many
/// ways to go on.
pub fn ambiguous(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let count = rng.usize(2..12);
    let mut symbol = || match rng.u32(..4) {
        0 => "\"a\"".to_string(),
        1 => "/[a-z]/".into(),
        2 => "\"\"".into(),
        _ => format!("r{}", rng.usize(..count)),
    };
    let mut sequence = || (0..4).map(|_| symbol()).collect::<Vec<_>>().join(" ");
    let rules: String =
        (0..count).map(|i| format!("r{i}: {} | {} | \"b\"\n", sequence(), sequence())).collect();
    let more = json!({"guided_grammar": format!("start: r0\n{rules}"), "n": 4, "max_tokens": 60});
    attacker.post(CHAT, &chat(&more))
}

pub fn formatters(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let fields = vec!["generation_settings/stop"; [1, 64, 110_000][rng.usize(..3)]];
    let prompts: Vec<Vec<u32>> = (0..15).map(|_| vec![rng.u32(..1000); 100]).collect();
    let body = json!({"prompt": prompts, "n_cmpl": 8, "n_predict": 1, "response_fields": fields});
    attacker.post("/completion", &body.to_string())
}

pub fn continuations(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let filler = "x".repeat(rng.usize(..3_900_000));
    let body = json!({"input": "Hi", "metadata": {"a": filler}, "max_output_tokens": 16});
    let Some(mut stream) =
        attacker.send(request("/v1/responses", "", &body.to_string()).as_bytes())
    else {
        return 0;
    };
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let id = answer.split_once("\"id\":\"").and_then(|(_, rest)| rest.split('"').next());
    let Some(id) = id else { return 0 };
    let body = json!({"input": "And?", "previous_response_id": id, "max_output_tokens": 16});
    let mut last = 0;
    for _ in 0..8 {
        last = attacker.post("/v1/responses", &body.to_string());
    }
    last
}

/// Models of the server whose models come and go: the first is the honest clients' one.
pub const MODELS: [&str; 3] = ["fox", "owl", "cat"];

/// Loads, unloads and uses models, in the words of each API.
pub fn loads(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let model = if rng.u32(..8) == 0 { "none" } else { MODELS[rng.usize(..MODELS.len())] };
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let (path, body) = match rng.u32(..6) {
        0 => ("/models/load", json!({"model": model, "keep_alive": -1})),
        1 => ("/models/unload", json!({"model": model})),
        2 => ("/api/generate", json!({"model": model, "keep_alive": 0})),
        3 => ("/api/chat", json!({"model": model, "messages": messages, "keep_alive": "1ms"})),
        4 => ("/v1/embeddings", json!({"model": model, "input": "Hi"})),
        _ => {
            (CHAT, json!({"model": model, "messages": messages, "stream": true, "max_tokens": 99}))
        }
    };
    if rng.u32(..4) == 0 {
        // The client leaves before its model is there.
        drop(attacker.send(request(path, "", &body.to_string()).as_bytes()));
        return 0;
    }
    attacker.post(path, &body.to_string())
}

/// Tools with many parameters that all refer to the same values, for a template whose calls are XML: what
/// reads the values of a call must not copy them for each parameter.
pub fn shared_values(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let names = rng.usize(1..2400);
    let parameters: Map<String, Value> =
        (0..names).map(|i| (format!("p{i}"), json!({"$ref": "#/$defs/v"}))).collect();
    // As many as the limit on the size of schemas leaves room for.
    let most = (130_000 - names * 32).max(8) / 8;
    let values: Vec<Value> = (0..rng.usize(1..most)).map(|i| json!(i)).collect();
    let shared = match rng.u32(..3) {
        0 => json!({"enum": values}),
        1 => json!({"anyOf": [{"type": "null"}, {"enum": values}]}),
        _ => json!({"anyOf": values.iter().map(|v| json!({"const": v})).collect::<Vec<_>>()}),
    };
    let schema = json!({"type": "object", "properties": parameters, "$defs": {"v": shared}});
    let function = json!({"name": "f", "parameters": schema, "strict": rng.bool()});
    let tools = vec![json!({"type": "function", "function": function}); rng.usize(1..3)];
    let model = MODELS[rng.usize(..MODELS.len())];
    let choice = ["auto", "required"][rng.usize(..2)];
    attacker.post(
        CHAT,
        &chat(&json!({"model": model, "tools": tools, "tool_choice": choice, "max_tokens": 30})),
    )
}

/// Reads a few bytes of a large stream at a time.
pub fn slow_reader(attacker: &Attacker, rng: &mut Rng) -> u16 {
    slow_reader_of(attacker, rng, "default")
}

/// As [`slow_reader`], of one of several models.
pub fn slow_reader_of_any(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let model = MODELS[rng.usize(..MODELS.len())];
    slow_reader_of(attacker, rng, model)
}

fn slow_reader_of(attacker: &Attacker, rng: &mut Rng, model: &str) -> u16 {
    let more = json!({"n": 4, "stream": true, "logprobs": true, "top_logprobs": 20,
        "ignore_eos": true, "max_tokens": 1000, "model": model});
    let Some(mut stream) = attacker.send(request(CHAT, "", &chat(&more)).as_bytes()) else {
        return 0;
    };
    let mut bytes = [0; 64];
    for _ in 0..20 {
        let Ok(1..) = stream.read(&mut bytes) else { return 0 };
        sleep(Duration::from_millis(rng.u64(50..250)));
    }
    200
}
