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

/// Two requests of eight outputs whose parser has thousands of items in each step: a stream beside them
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
