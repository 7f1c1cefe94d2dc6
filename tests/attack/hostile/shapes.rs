//! Schemas and grammars of hostile shape, at random: deep, wide, chained by references and multiplying,
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

pub fn loads(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let path = ["/models/load", "/models/unload", "/api/generate"][rng.usize(..3)];
    attacker.post(path, &json!({"model": "default", "keep_alive": 0}).to_string())
}

/// Reads a few bytes of a large stream at a time.
pub fn slow_reader(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let more = json!({"n": 4, "stream": true, "logprobs": true, "top_logprobs": 20,
        "ignore_eos": true, "max_tokens": 1000});
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
