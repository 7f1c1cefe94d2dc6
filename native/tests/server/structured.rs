//! Structured outputs of `wf-run serve`: schemas, grammars and tool calls.

use crate::common::server::{Server, ask};
use serde_json::{Value, json};

fn schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["animal", "age"],
        "properties": {"animal": {"enum": ["fox", "owl"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}})
}

#[test]
fn outputs_match_schemas_and_grammars_in_every_mode() {
    let server = Server::start(&[]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
    let function = json!({"name": "meet", "parameters": schema()});
    let tools = json!([{"type": "function", "function": function}]);
    for mode in ["ar", "verify", "iterative", "adaptive", "greedy"] {
        for seed in 0..4 {
            let more = json!({"response_format": format, "decode_mode": mode, "seed": seed, "temperature": 1.5});
            let answer = server.chat(&ask("Who is there?", more)).is(200).json();
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "stop", "{mode}");
            let text = choice["message"]["content"].as_str().unwrap();
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let (animal, age) = (value["animal"].as_str(), value["age"].as_u64());
            assert!(
                matches!(animal, Some("fox" | "owl")) && age.is_some_and(|a| a < 100),
                "{text}"
            );

            let more = json!({"tools": tools, "tool_choice": "required", "decode_mode": mode, "seed": seed,
                "parallel_tool_calls": false});
            let mut body = ask("Who is there?", more);
            let answer = server.chat(&body).is(200).json();
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "tool_calls", "{mode}");
            let call = &choice["message"]["tool_calls"][0]["function"];
            let arguments: Value =
                serde_json::from_str(call["arguments"].as_str().unwrap()).expect("JSON");
            assert!(call["name"] == "meet" && arguments["age"].is_u64(), "{call}");

            body["stream"] = true.into();
            let events = server.chat(&body).is(200).events();
            let deltas = events[..events.len() - 1].iter().map(|event| {
                let chunk: Value = serde_json::from_str(event).unwrap();
                chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone()
            });
            let streamed: String = deltas.filter_map(|d| d.as_str().map(String::from)).collect();
            assert_eq!(call["arguments"], streamed, "{mode}");
        }
        let more = json!({"guided_regex": "(ab){2,3}c", "decode_mode": mode});
        let answer = server.chat(&ask("Hi", more)).is(200).json();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(["ababc", "abababc"].contains(&text), "{text}");
    }
    // Unsupported keywords in tools' schemas are ignored, but refused with `strict`.
    let loose = json!({"type": "object", "additionalProperties": false, "required": ["age"], "properties": {
        "age": {"oneOf": [{"type": "integer", "maximum": 99}, {"type": "integer", "maximum": 50}]},
        "tags": {"type": "array", "items": {"type": "string", "format": "password"}, "uniqueItems": true}}});
    let call = |strict: bool| {
        let function = json!({"name": "meet", "parameters": loose, "strict": strict});
        let tools = json!([{"type": "function", "function": function}]);
        ask("Who is there?", json!({"tools": tools, "tool_choice": "required"}))
    };
    let answer = server.chat(&call(false)).is(200).json();
    let arguments = &answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).expect("JSON");
    assert!(arguments["age"].is_i64(), "{arguments}");
    assert_eq!(server.chat(&call(true)).is(400).json()["error"]["param"], "tools");
    let text = |more: Value| {
        let answer = server.chat(&ask("Who is there?", more)).is(200).json();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_string()
    };
    let choice = text(json!({"guided_choice": ["a \"fox\"", "an owl\n"]}));
    assert!(["a \"fox\"", "an owl\n"].contains(&choice.as_str()), "{choice}");
    let value: Value = serde_json::from_str(&text(json!({"guided_json": schema()}))).unwrap();
    assert!(value["age"].is_u64(), "{value}");
    // An output may be cut off before the grammar ends; its finish reason says so.
    let more = json!({"guided_grammar": "start: \"fox\" foxes"});
    let answer = server.chat(&ask("Hi", more)).is(400).json();
    assert_eq!(answer["error"]["code"], "invalid_grammar");
    let more = json!({"guided_grammar": "start: \"fox\"{50,100}", "max_tokens": 10});
    let choice = &server.chat(&ask("Hi", more)).is(200).json()["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"]["content"].as_str().unwrap().starts_with("foxfox"));
}

/// llguidance follows rules recursively. The deepest grammar of the maximum size must not overflow
/// the stack.
#[test]
fn the_deepest_grammars_do_not_crash_the_server() {
    let server = Server::start(&[]);
    let link = |i: usize| json!({"$ref": format!("#/$defs/{i:x}")});
    let chain = |count: usize, step: &dyn Fn(Value) -> Value| -> Value {
        let defs = (0..count).map(|i| (format!("{i:x}"), step(link(i + 1))));
        let last = (format!("{count:x}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/0", "$defs": defs.chain([last]).collect::<serde_json::Map<_, _>>()})
    };
    let array = |next: Value| json!({"type": "array", "minItems": 1, "items": next});
    let all_of = |next: Value| json!({"allOf": [next]});
    let rules = |count: usize, rule: &dyn Fn(usize) -> String| -> String {
        let rules: String = (0..count).map(rule).collect();
        format!("start: r0\n{rules}r{count:x}: \"y\"\n")
    };
    let schemas = [chain(4000, &|next| next), chain(2800, &all_of), chain(1500, &array)];
    let larks = [
        rules(8000, &|i| format!("r{i:x}: r{:x}\n", i + 1)),
        rules(6000, &|i| format!("r{i:x}: \"x\" r{:x}\n", i + 1)),
    ];
    let asks = schemas.map(|schema| {
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
    });
    for mut more in asks.into_iter().chain(larks.map(|lark| json!({"guided_grammar": lark}))) {
        more["max_tokens"] = 4.into();
        let text = more.to_string();
        assert!(text.len() > 80_000, "{}", text.len());
        let reply = server.chat(&ask("Hi", more));
        assert!([200, 400].contains(&reply.status), "{}", reply.body);
        assert!(!reply.body.contains("131072"), "{}", reply.body);
    }
    // Larger grammars are refused before they are parsed.
    let more = json!({"guided_grammar": rules(14_000, &|i| format!("r{i:x}: r{:x}\n", i + 1))});
    let error = server.chat(&ask("Hi", more)).is(400).json();
    assert!(error["error"]["message"].as_str().unwrap().contains("131072"), "{error}");
    server.chat(&ask("Hi", json!({"max_tokens": 2}))).is(200);
}
