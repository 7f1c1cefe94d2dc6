//! Valid bodies of all endpoints, with grammars of all kinds.

use fastrand::Rng;
use serde_json::{Value, json};

/// Returns a valid body and its endpoint.
pub fn choose(rng: &mut Rng) -> (&'static str, Value) {
    let tool = json!({"type": "function", "function": {"name": "f", "description": "d",
        "parameters": schema(rng)}});
    let call =
        json!({"id": "1", "function": {"name": "f", "arguments": "{\"a\": [1, {\"b\": null}]}"}});
    let messages = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
        {"role": "user", "content": "And now?"},
    ]);
    let (path, body) = match rng.u32(..12) {
        0 => (
            "/v1/completions",
            json!({"prompt": ["Once", "upon"], "echo": true, "logprobs": 2,
            "best_of": 2, "n": 1}),
        ),
        1 => ("/v1/completions", json!({"prompt": [[1, 2, 3], [4]], "suffix": ""})),
        2 => (
            "/v1/embeddings",
            json!({"input": ["a", "b"], "encoding_format": "base64", "pooling": "last"}),
        ),
        3 => (
            "/v1/responses",
            json!({"instructions": "Be kind.", "input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "x"}],
            "max_output_tokens": 4, "metadata": {"a": "b"}, "text": {"format": {"type": "text"}}}),
        ),
        4 => (
            "/v1/messages",
            json!({"system": "Be kind.", "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": "f", "input_schema": schema(rng)}], "tool_choice": {"type": "auto"},
            "stop_sequences": ["x"]}),
        ),
        5 => {
            ("/v1/messages/count_tokens", json!({"messages": [{"role": "user", "content": "Hi"}]}))
        }
        6 => ("/tokenize", json!({"content": "Once upon a time", "add_special_tokens": false})),
        7 => ("/detokenize", json!({"tokens": [1, 2, 3]})),
        8 => ("/apply-template", json!({"messages": messages})),
        9 => (
            "/v1/chat/completions",
            json!({"messages": messages, "tools": [tool], "tool_choice": "auto",
            "parallel_tool_calls": false}),
        ),
        _ => {
            let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
            let (field, grammar) = grammar(rng);
            body[field] = grammar;
            ("/v1/chat/completions", body)
        }
    };
    (path, with_options(path, body, rng))
}

/// Adds options that all generating endpoints have; few tokens, so that cases are quick.
fn with_options(path: &str, mut body: Value, rng: &mut Rng) -> Value {
    if path.contains("/v1/") {
        body["max_tokens"] = json!(rng.u32(1..4));
        let options = [
            ("temperature", json!(0.5)),
            ("top_p", json!(0.9)),
            ("top_k", json!(5)),
            ("seed", json!(1)),
            ("stop", json!(["x"])),
            ("logit_bias", json!({"5": 1.5})),
            ("stream", json!(true)),
            ("presence_penalty", json!(0.5)),
            ("cache_salt", json!("s")),
            ("ignore_eos", json!(true)),
            ("decode_mode", json!("verify")),
            ("min_p", json!(0.1)),
        ];
        for _ in 0..rng.u32(..3) {
            let (name, value) = &options[rng.usize(..options.len())];
            body[*name] = value.clone();
        }
    }
    body
}

fn grammar(rng: &mut Rng) -> (&'static str, Value) {
    match rng.u32(..6) {
        0 => ("guided_regex", json!("[a-z]+(, [a-z]{2,5})*|[0-9]{1,3}")),
        1 => ("guided_choice", json!(["yes", "no"])),
        2 => ("guided_grammar", json!("start: a+ | \"x\"\na: /[a-z]/ b?\nb: \"(\" start \")\"\n")),
        3 => ("response_format", json!({"type": "json_object"})),
        4 => (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"schema": schema(rng)}}),
        ),
        _ => ("guided_json", schema(rng)),
    }
}

fn schema(rng: &mut Rng) -> Value {
    let schemas = [
        json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "multipleOf": 3},
            "b": {"enum": ["x", 1, null]}}, "required": ["a"], "additionalProperties": false}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"},
            "maxItems": 3}}}),
        json!({"anyOf": [{"type": "string", "pattern": "^[a-z]{1,9}$", "maxLength": 9},
            {"type": "number", "exclusiveMaximum": 5.5}]}),
        json!({"type": "string", "format": "date-time"}),
        json!({"allOf": [{"properties": {"x": {"const": [1, {"y": "z"}]}}}], "patternProperties":
            {"^a": {"type": "boolean"}}, "type": "object"}),
    ];
    schemas[rng.usize(..schemas.len())].clone()
}
