//! Grammars of strangers in `wf-run serve`: they end in time, delay nobody, and say what they do not
//! hold.

use crate::common::server::{Reply, Server, ask};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Asks for little output.
fn short(more: Value) -> Value {
    let mut body = ask("Hi", more);
    body["max_tokens"] = 16.into();
    body
}

/// A schema that no limit of work refuses. The compiler copies its properties for every option, which
/// takes seconds.
fn slow_schema(number: usize) -> Value {
    let properties: serde_json::Map<String, Value> =
        (0..1500).map(|i| (format!("p{i}"), json!({"const": i + number}))).collect();
    let (object, any_of) =
        (json!({"type": "object", "properties": properties}), vec![json!({"type": "null"}); 5500]);
    let both = json!({"allOf": [{"$ref": "#/$defs/object"}, {"$ref": "#/$defs/nulls"}]});
    json!({"type": "object", "$defs": {"object": object, "nulls": {"anyOf": any_of}},
        "properties": {"a": both, "b": both, "c": both, "d": both, "e": both, "f": both}})
}

fn reply(mut stream: TcpStream) -> Reply {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    Reply::all(&text).pop().expect("a response")
}

/// In the lexer of this schema a number has as many states as its divisor is large.
#[test]
fn a_grammar_of_any_api_that_would_take_minutes_is_refused() {
    let server = Server::start(&[]);
    let schema = json!({"type": "integer", "multipleOf": 99_999_989});
    let object = json!({"type": "object", "properties": {"n": schema}, "required": ["n"]});
    let function = json!({"name": "f", "parameters": object, "strict": true});
    let tools = json!([{"type": "function", "function": function}]);
    let of_schema = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let text = json!({"format": {"type": "json_schema", "name": "x", "schema": schema}});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let tool = json!([{"name": "f", "input_schema": object}]);
    let bodies = [
        ("/v1/chat/completions", short(json!({"guided_json": schema}))),
        ("/v1/chat/completions", short(json!({"response_format": of_schema}))),
        ("/v1/chat/completions", short(json!({"tools": tools, "tool_choice": "required"}))),
        ("/v1/completions", json!({"prompt": "Hi", "guided_json": schema})),
        ("/v1/responses", json!({"input": "Hi", "text": text})),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 9, "tools": tool,
                "tool_choice": {"type": "tool", "name": "f"}}),
        ),
    ];
    for (path, body) in &bodies {
        let begin = Instant::now();
        let refused = server.post(path, body).is(400);
        assert!(refused.body.contains("too complex"), "{path}: {}", refused.body);
        assert!(begin.elapsed() < Duration::from_secs(30), "{path}: {:?}", begin.elapsed());
    }
    let answer = server.chat(&short(json!({"guided_json": schema, "best_effort": true})));
    let choice = &answer.is(200).json()["choices"][0];
    let parts = &choice["schema_validation"]["not_enforced"];
    assert_eq!(parts[0], "`multipleOf` at `#`", "{choice}");
    assert!(choice["schema_validation"]["valid"].is_boolean(), "{choice}");
}

/// Many slow grammars at once: some wait, others get 429, all of them end, and who asks for something
/// else is answered meanwhile. A client that leaves takes its grammar with it.
#[test]
fn slow_grammars_delay_nobody_and_end_with_their_client() {
    let server = Server::start(&[]);
    server.chat(&short(json!({"guided_json": {"type": "object"}}))).is(200);
    let slow = |number: usize| {
        let body = short(json!({"guided_json": slow_schema(number)})).to_string();
        server.open("POST", "/v1/chat/completions", "content-type: application/json\r\n", &body)
    };
    let streams: Vec<TcpStream> = (0..16).map(slow).collect();
    let begin = Instant::now();
    server.chat(&short(json!({}))).is(200);
    server.post("/tokenize", &json!({"content": "Hi"})).is(200);
    // A grammar that is known needs no place.
    server.chat(&short(json!({"guided_json": {"type": "object"}}))).is(200);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let mut streams = streams.into_iter();
    let refused: Vec<u16> = streams.by_ref().skip(9).map(|stream| reply(stream).status).collect();
    assert!(refused.contains(&429), "{refused:?}");
    drop(streams);
    let begin = Instant::now();
    while server.chat(&short(json!({"guided_regex": "(ab){2,3}c"}))).status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    }
}

/// The time of a request counts from its arrival, not from the first pass.
#[test]
fn the_time_limit_includes_the_grammar() {
    let server = Server::start(&["--request-timeout", "1"]);
    let begin = Instant::now();
    server.chat(&short(json!({"guided_json": slow_schema(0)}))).is(504);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

/// The answer of every API says whether it matches a schema that no grammar holds.
#[test]
fn best_effort_says_whether_the_answer_matches() {
    let server = Server::start(&[]);
    let schema = json!({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 2,
        "items": {"enum": ["a"]}});
    let format = |strict: Value| {
        json!({"type": "json_schema", "name": "x", "schema": schema, "strict": strict,
            "json_schema": {"name": "x", "schema": schema, "strict": strict}})
    };
    let part = "`uniqueItems` at `#`";
    for strict in [json!(true), json!(null)] {
        let refused = server.chat(&short(json!({"response_format": format(strict)}))).is(400);
        assert!(refused.body.contains(part), "{}", refused.body);
    }
    let check = |validation: &Value| {
        assert_eq!(validation["valid"], false, "{validation}");
        assert_eq!(validation["not_enforced"], json!([part]));
        assert!(validation["errors"][0].is_string(), "{validation}");
    };
    let mut body = short(json!({"response_format": format(json!(false))}));
    let answer = server.chat(&body).is(200).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "[\"a\", \"a\"]");
    check(&choice["schema_validation"]);
    body["stream"] = true.into();
    let chunks = server.chat(&body).is(200).chunks();
    check(&chunks.last().expect("one")["choices"][0]["schema_validation"]);

    let input = json!({"input": "Hi", "text": {"format": format(json!(false))}});
    check(&server.post("/v1/responses", &input).is(200).json()["schema_validation"]);
    let completion = json!({"prompt": "Hi", "guided_json": schema, "best_effort": true, "n": 2});
    let answer = server.post("/v1/completions", &completion).is(200).json();
    (0..2).for_each(|i| check(&answer["choices"][i]["schema_validation"]));
    let config = json!({"format": {"type": "json_schema", "schema": schema}});
    let message = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20,
        "output_config": config, "best_effort": true, "stream": true});
    let events = server.post("/v1/messages", &message).is(200).events();
    let mut events = events.iter().map(|event| serde_json::from_str::<Value>(event).expect("JSON"));
    let end = events.rfind(|event| event["type"] == "message_delta").expect("one");
    check(&end["schema_validation"]);
    // A strict answer needs no report.
    let answer = server.chat(&short(json!({"guided_json": {"type": "boolean"}}))).is(200).json();
    assert!(answer["choices"][0].get("schema_validation").is_none());
}

/// Two requests of eight outputs whose parser has thousands of items in each step: a stream next to them
/// goes on.
#[test]
fn expensive_steps_do_not_stall_a_stream() {
    let server = Server::start(&["--context", "512"]);
    let lark = "start: s \"z\"\ns: s s | s s s | /[a-z]/ | /[a-z][a-z]/ | \"\"\n";
    let mut guided = ask("Hi", json!({"guided_grammar": lark, "n": 8, "max_tokens": 300}));
    guided["temperature"] = 1.5.into();
    let guided = guided.to_string();
    let open = || {
        server.open("POST", "/v1/chat/completions", "content-type: application/json\r\n", &guided)
    };
    let streams = [open(), open()];
    let body = ask("Tell me a story.", json!({"stream": true, "max_tokens": 60})).to_string();
    let mut stream =
        server.open("POST", "/v1/chat/completions", "content-type: application/json\r\n", &body);
    let (mut buffer, mut last, mut longest) = ([0; 4096], Instant::now(), Duration::ZERO);
    let mut text = String::new();
    loop {
        let read = stream.read(&mut buffer).expect("goes on");
        if read == 0 {
            break;
        }
        if text.contains("\"content\"") {
            longest = longest.max(last.elapsed());
        }
        last = Instant::now();
        text += &String::from_utf8_lossy(&buffer[..read]);
    }
    assert!(text.contains("[DONE]"), "{text}");
    println!("the longest gap is {longest:?}");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    drop(streams);
}

/// S₀ is a string; each further schema is one of "not the last one" and seven other types.
fn multiplying(depth: usize) -> Value {
    let others = ["null", "boolean", "number", "array", "object", "null", "number"];
    (0..depth).fold(json!({"type": "string"}), |inner, _| {
        let others = others.map(|name| json!({"type": name}));
        let options: Vec<Value> = [json!({"not": inner})].into_iter().chain(others).collect();
        json!({"oneOf": options})
    })
}

/// A grammar whose rules name the next one, of about `bytes` bytes.
fn chained(bytes: usize) -> String {
    let count = bytes / 18;
    let links: String = (0..count).map(|i| format!("r{i}::=r{}\n", i + 1)).collect();
    format!("root ::= r0\n{links}r{count} ::= \"x\"\n")
}

/// Returns requests of all APIs that ask for a schema, with the field's name.
fn with_schema(schema: &Value) -> Vec<(&'static str, Value)> {
    let object = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let function = json!({"name": "f", "parameters": object});
    let chat_tools = json!([{"type": "function", "function": function}]);
    let format = json!({"type": "json_schema", "name": "x", "schema": schema,
        "json_schema": {"name": "x", "schema": schema}});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let tool = json!([{"name": "f", "input_schema": object}]);
    let output = json!({"format": {"type": "json_schema", "schema": schema}});
    let options = json!({"num_predict": 8});
    vec![
        ("/v1/chat/completions", short(json!({"guided_json": schema}))),
        ("/v1/chat/completions", short(json!({"guided_json": schema.to_string()}))),
        ("/v1/chat/completions", short(json!({"guided_json": schema, "best_effort": true}))),
        ("/v1/chat/completions", short(json!({"response_format": format}))),
        ("/v1/chat/completions", short(json!({"structured_outputs": {"json": schema}}))),
        ("/v1/chat/completions", short(json!({"tools": chat_tools, "tool_choice": "required"}))),
        ("/v1/chat/completions", short(json!({"tools": chat_tools, "response_format": format}))),
        ("/v1/completions", json!({"prompt": "Hi", "max_tokens": 8, "json_schema": schema})),
        ("/completion", json!({"prompt": "Hi", "n_predict": 8, "json_schema": schema})),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "json_schema": schema})),
        (
            "/v1/responses",
            json!({"input": "Hi", "max_output_tokens": 16, "text": {"format": format}}),
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 9, "tools": tool,
                "tool_choice": {"type": "tool", "name": "f"}}),
        ),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 9, "output_config": output})),
        (
            "/api/chat",
            json!({"messages": messages, "stream": false, "options": options, "format": schema}),
        ),
        (
            "/api/generate",
            json!({"prompt": "Hi", "stream": false, "options": options, "format": schema}),
        ),
    ]
}

/// Returns requests of all APIs that take a grammar.
fn with_grammar(grammar: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("/v1/chat/completions", short(json!({"grammar": grammar}))),
        ("/v1/chat/completions", short(json!({"guided_grammar": grammar}))),
        ("/v1/chat/completions", short(json!({"ebnf": grammar}))),
        ("/v1/chat/completions", short(json!({"structured_outputs": {"grammar": grammar}}))),
        ("/v1/completions", json!({"prompt": "Hi", "max_tokens": 8, "grammar": grammar})),
        ("/completion", json!({"prompt": "Hi", "n_predict": 8, "grammar": grammar})),
        ("/v1/responses", json!({"input": "Hi", "max_output_tokens": 16, "grammar": grammar})),
    ]
}

/// Sends a request and returns its status, after the server has shown that it lives and is small.
fn survives(server: &Server, idle: f64, path: &str, body: &Value) -> u16 {
    let begin = Instant::now();
    let reply = server.post(path, body);
    assert!([200, 400, 501].contains(&reply.status), "{path}: {} {}", reply.status, reply.body);
    assert!(begin.elapsed() < Duration::from_secs(40), "{path}: {:?}", begin.elapsed());
    server.get("/health").is(200);
    #[cfg(target_os = "linux")]
    assert!(server.resident_mib() - idle < 400.0, "{path}: {} MiB", server.resident_mib() - idle);
    let _ = idle;
    reply.status
}

#[cfg(target_os = "linux")]
fn resident(server: &Server) -> f64 {
    server.resident_mib()
}

#[cfg(not(target_os = "linux"))]
fn resident(_: &Server) -> f64 {
    0.0
}

/// Shapes whose recursion, rewriting or conversion once ended the server or took gigabytes, through the
/// fields of all APIs.
#[test]
fn shapes_that_a_client_chooses_end_no_server() {
    let server = Server::start(&[]);
    server.chat(&short(json!({"guided_regex": "[0-9]+"}))).is(200);
    let idle = resident(&server);
    let signs = "?".repeat(6000);
    for (path, body) in
        with_grammar(&format!("root ::= \"a\"{signs} [b]{signs} (c){signs}\nc ::= .{signs}"))
    {
        survives(&server, idle, path, &body);
    }
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(5000), ")+".repeat(5000));
    let counted = format!("root ::= \"a\"{}", "{1,2}".repeat(5000));
    for grammar in [nested, counted, chained(120 << 10), chained(548 << 10)] {
        let (path, body) = &with_grammar(&grammar)[0];
        assert_eq!(survives(&server, idle, path, body), 400, "{}", &grammar[..40]);
    }
    for (path, body) in with_schema(&multiplying(7)) {
        survives(&server, idle, path, &body);
    }
    let (path, body) = &with_schema(&multiplying(12))[5];
    survives(&server, idle, path, body);
    let deep = (0..110).fold(json!(true), |inner, _| json!({"not": inner}));
    let wide: Vec<Value> = (0..3000).map(|i| json!({"const": i})).collect();
    let wide = json!({"oneOf": [{"anyOf": wide}, {"not": {"anyOf": wide}}]});
    let link = |i: usize| {
        (format!("d{i}"), json!({"anyOf": [{"$ref": format!("#/$defs/d{}", i + 1)}, true]}))
    };
    let mut links: serde_json::Map<String, Value> = (0..1500).map(link).collect();
    links.insert("d1500".into(), json!({"type": "null"}));
    let linked = json!({"$ref": "#/$defs/d0", "$defs": links});
    let named = json!({"properties": {"k".repeat(50_000): {"anyOf": vec![json!({"not": {"const": 1}}); 2000]}}});
    for schema in [deep, wide, linked, named] {
        for index in [0, 2, 5] {
            let (path, body) = &with_schema(&schema)[index];
            survives(&server, idle, path, body);
        }
    }
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    assert!(!log.contains("panicked"), "{log}");
}

/// The size is checked before anything is converted, and schemas may also be texts.
#[test]
fn large_grammars_are_refused_at_once() {
    let server = Server::start(&[]);
    let choices: Vec<String> = (0..20_000).map(|i| format!("choice number {i}")).collect();
    let schema = json!({"enum": choices});
    let mut bodies = with_schema(&schema);
    bodies.extend(with_grammar(&chained(200 << 10)));
    bodies.push(("/v1/chat/completions", short(json!({"guided_choice": choices}))));
    bodies.push(("/v1/chat/completions", short(json!({"guided_regex": choices.join("|")}))));
    for (path, body) in &bodies {
        let begin = Instant::now();
        let refused = server.post(path, body);
        if refused.status != 501 && !path.contains("infill") {
            assert_eq!(refused.status, 400, "{path}: {}", refused.body);
            assert!(refused.body.contains("131072 bytes"), "{path}: {}", refused.body);
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{path}: {:?}", begin.elapsed());
    }
    // What only describes does not count.
    let described = json!({"type": "boolean", "description": "x".repeat(200 << 10)});
    server.chat(&short(json!({"guided_json": described}))).is(200);
    let text = json!({"type": "boolean"}).to_string();
    let answer = server.chat(&short(json!({"guided_json": text}))).is(200).json();
    let content = answer["choices"][0]["message"]["content"].as_str().expect("text");
    assert!(["true", "false"].contains(&content), "{content}");
    let error = server.chat(&short(json!({"guided_json": "{no JSON"}))).is(400);
    assert!(error.body.contains("not JSON"), "{}", error.body);
    let error = server.chat(&short(json!({"grammar": "root ::= \"a"}))).is(400).json();
    assert_eq!(error["error"]["code"], "invalid_grammar", "{error}");
    assert!(error["error"]["message"].as_str().expect("text").contains("line 1"), "{error}");
}

/// Grammars that take as long as they may: requests of other kinds are answered meanwhile, and nothing
/// goes on when their clients have left.
#[test]
fn conversion_holds_up_nobody() {
    let server = Server::start(&[]);
    server.chat(&short(json!({"guided_regex": "[0-9]+"}))).is(200);
    let open = |number: usize| {
        let body =
            short(json!({"grammar": format!("{}# {number}", chained(110 << 10))})).to_string();
        server.open("POST", "/v1/chat/completions", "content-type: application/json\r\n", &body)
    };
    let streams: Vec<TcpStream> = (0..8).map(open).collect();
    for _ in 0..4 {
        let begin = Instant::now();
        server.chat(&short(json!({}))).is(200);
        server.post("/tokenize", &json!({"content": "Hi"})).is(200);
        server.get("/health").is(200);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }
    drop(streams);
    let begin = Instant::now();
    while server.chat(&short(json!({"guided_regex": "(ab){2,3}d"}))).status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}
