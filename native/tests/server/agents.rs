//! Requests as agents send them: Claude Code's and Codex's fields, roles, tools and model names.

use crate::common::server::{Reply, Server, ask};
use crate::puppet;
use serde_json::{Value, json};

fn ignored(reply: &Reply) -> &str {
    let header = |line: &'_ str| line.starts_with("x-ignored-fields: ");
    reply.head.lines().find(|line| header(line)).map_or("", |line| &line[18..])
}

/// A request of Claude Code, with short texts.
fn claude(more: Value) -> Value {
    let cache = json!({"type": "ephemeral"});
    let read = json!({"name": "Read", "description": "Reads a file.", "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"file_path": {"enum": ["/a", "/b"]}}, "required": ["file_path"],
        "additionalProperties": false}});
    let mut body = json!({
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": "You are an agent."},
            {"type": "text", "text": "Be brief.", "cache_control": cache}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "system", "content": [{"type": "text", "text": "It is noon.", "cache_control": cache}]}],
        "tools": [read],
        "metadata": {"user_id": "x"},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "tool_choice": {"type": "tool", "name": "Read"},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn claude_code_is_answered() {
    let server = Server::start(&["--alias", "claude-sonnet-4-5", "--alias", "claude-haiku-4-5"]);
    let reply = server.post("/v1/messages?beta=true", &claude(json!({}))).is(200);
    assert_eq!(ignored(&reply), "context_management");
    let answer = reply.json();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let call = answer["content"][0].clone();
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("Read")));
    assert!(call["id"].as_str().is_some_and(|id| id.starts_with("toolu_")), "{call}");
    let path = call["input"]["file_path"].as_str().expect("text");
    assert!(["/a", "/b"].contains(&path));
    // The next turn brings thinking, the call and its result back.
    let mut history = claude(json!({}))["messages"].as_array().unwrap().clone();
    history.push(json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"}, call]}));
    history.push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "rain"}]}]}));
    let next = claude(json!({"messages": history, "tool_choice": {"type": "none"}, "stream": true,
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 8}));
    let reply = server.post("/v1/messages?beta=true", &next).is(200);
    assert!(reply.body.contains("event: message_stop"), "{}", reply.body);
    let count = server.post("/v1/messages/count_tokens?beta=true", &next).is(200).json();
    assert!(count["input_tokens"].as_u64().is_some_and(|n| n > 40), "{count}");
    for (model, status) in [("claude-haiku-4-5", 200), ("default", 200), ("claude-opus-4-5", 404)] {
        server.post("/v1/messages", &claude(json!({"model": model, "max_tokens": 64}))).is(status);
    }
}

#[test]
fn codex_is_answered() {
    // Codex sends no temperature, and a call drawn at 1.0 may take more tokens than the limit.
    let server = Server::start(&["--any-model", "--temperature", "0"]);
    let function = |name: &str, parameters: Value| {
        json!({"type": "function", "name": name, "description": "…", "strict": false,
            "parameters": parameters})
    };
    let command = json!({"type": "object", "properties": {"cmd": {"enum": ["ls"]}},
        "required": ["cmd"], "additionalProperties": false});
    let tools = json!([
        function("exec_command", command),
        {"type": "namespace", "name": "agents", "description": "…", "tools": [function("spawn", json!({}))]},
        {"type": "web_search", "external_web_access": true},
    ]);
    let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
    let mut input = vec![
        message("developer", "Agent."),
        message("developer", "Brief."),
        message("user", "hello"),
    ];
    let body = |input: &[Value], choice: Value| {
        json!({"model": "gpt-5", "input": input, "tools": tools, "tool_choice": choice,
            "parallel_tool_calls": true, "reasoning": {"summary": "auto"}, "store": false, "stream": true,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
            "client_metadata": {"a": "b"}, "max_output_tokens": 64})
    };
    let named = json!({"type": "function", "name": "exec_command"});
    let reply = server.post("/v1/responses", &body(&input, named)).is(200);
    let skipped = "client_metadata, tools.type=namespace, tools.type=web_search";
    assert_eq!(ignored(&reply), skipped);
    let last: Value = serde_json::from_str(reply.events().last().expect("events")).expect("JSON");
    assert_eq!(last["type"], "response.completed", "{last}");
    let call = last["response"]["output"][0].clone();
    assert_eq!(
        (&call["type"], &call["arguments"]),
        (&json!("function_call"), &json!("{\"cmd\": \"ls\"}"))
    );
    input.push(json!({"type": "reasoning", "summary": [], "encrypted_content": null}));
    input.push(call.clone());
    input.push(
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}),
    );
    let reply = server.post("/v1/responses", &body(&input, "none".into())).is(200);
    assert!(reply.body.contains("response.output_text.delta"), "{}", reply.body);
    let counted = server.post("/v1/responses/input_tokens", &body(&input, "none".into())).is(200);
    assert!(counted.json()["input_tokens"].as_u64().is_some_and(|n| n > 10));
}

#[test]
fn responses_go_on_from_stored_ones() {
    let server = Server::start(&["--api-key", "one", "--api-key", "two"]);
    let send = |method: &str, path: &str, key: &str, body: Value| {
        let headers = format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n");
        server.send(method, path, &headers, &body.to_string())
    };
    let create = |key: &str, more: Value| {
        let mut body = json!({"input": "And then?", "temperature": 0, "max_output_tokens": 8});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        send("POST", "/v1/responses", key, body)
    };
    let first = create("one", json!({"instructions": "Be kind."})).is(200).json();
    let id = first["id"].as_str().expect("an id");
    assert!(id.starts_with("resp_") && first["store"] == true, "{first}");
    let path = format!("/v1/responses/{id}");
    assert_eq!(send("GET", &path, "one", json!({})).is(200).json(), first);
    send("GET", &path, "two", json!({})).is(404);
    let later = create("one", json!({"previous_response_id": id})).is(200).json();
    let text = first["output"][0]["content"][0]["text"].as_str().expect("text");
    let messages = json!([{"role": "user", "content": "And then?"},
        {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]);
    let whole = create("one", json!({"input": messages, "store": false})).is(200).json();
    assert_eq!(later["output"][0]["content"], whole["output"][0]["content"]);
    assert_eq!(later["previous_response_id"], id);
    let error = create("two", json!({"previous_response_id": id})).is(400).json();
    assert_eq!(error["error"]["code"], "previous_response_not_found");
    send("GET", &format!("/v1/responses/{}", whole["id"].as_str().unwrap()), "one", json!({}))
        .is(404);
    // A streamed response is stored too.
    let streamed = create("one", json!({"stream": true})).is(200);
    let last: Value =
        serde_json::from_str(streamed.events().last().expect("events")).expect("JSON");
    let streamed = last["response"]["id"].as_str().expect("an id");
    create("one", json!({"previous_response_id": streamed})).is(200);
    send("DELETE", &path, "two", json!({})).is(404);
    assert_eq!(send("DELETE", &path, "one", json!({})).is(200).json()["deleted"], true);
    send("GET", &path, "one", json!({})).is(404);
    let background = create("one", json!({"background": true})).is(400).json();
    assert_eq!(background["error"]["param"], "background");
}

#[test]
fn a_model_may_have_any_name() {
    let server = Server::start(&["--any-model"]);
    server.chat(&ask("Hi!", json!({"model": "gpt-4o", "max_tokens": 1}))).is(200);
    let strict = Server::start(&[]);
    strict.chat(&ask("Hi!", json!({"model": "gpt-4o", "max_tokens": 1}))).is(404);
}

/// Templates in the manner of Qwen3's (calls in JSON) and Qwen3.5's (calls in XML; the prompt begins the
/// thinking).
pub const JSON_CALLS: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {%- for call in m.tool_calls or [] -%}\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": \
    {%- if call.function.arguments is string %} {{ call.function.arguments }}\
    {%- else %} {{ call.function.arguments | tojson }}{% endif %}}\n</tool_call>{%- endfor -%}\
    <|im_end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}";
pub const XML_CALLS: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {%- for call in m.tool_calls or [] -%}\n<tool_call>\n<function={{ call.function.name }}>\n\
    {%- for name, value in call.function.arguments|items %}<parameter={{ name }}>\n{{ value | string }}\n</parameter>\n{% endfor -%}\
    </function>\n</tool_call>{%- endfor -%}\
    <|im_end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n<think>\n{# </think> #}{% endif -%}";

/// Texts of the puppets: name, template, text.
#[rustfmt::skip]
const SCRIPTS: [(&str, &str, &str); 12] = [
    ("json", JSON_CALLS, "ok then"),
    ("xml", XML_CALLS, "Hm.\n</think>\n\nYes."),
    ("null", XML_CALLS, "Hm.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=d>\nnull\n</parameter>\n</function>\n</tool_call>"),
    ("red", XML_CALLS, "Hm.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=d>\nred\n</parameter>\n</function>\n</tool_call>"),
    ("closing", XML_CALLS, "Hm.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=d>\nopen\n</parameter>\nclose\n</parameter>\n</function>\n</tool_call>"),
    ("lines", JSON_CALLS, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"d\": \"Oslo\"}}\n</tool_call>\nSo it is.\n\n\n- one\n\n- two end."),
    ("stop", XML_CALLS, "The Question: is\nold.\n</think>\n\nIt is blue Question: x"),
    ("shell", XML_CALLS, "Hm.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=d>\necho '}'\n</parameter>\n</function>\n</tool_call>"),
    ("letter", JSON_CALLS, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"d\": \"a\\u00e9b\"}}\n</tool_call>"),
    ("separator", JSON_CALLS, "An\u{2028}swer."),
    ("mention", JSON_CALLS, "The model writes <tool_call> before a call."),
    ("thinks", XML_CALLS, "Is it?\n</think>\n\nYes, it is."),
];

/// Starts a server of the puppets with these names.
pub fn puppets(names: &[&str]) -> (tempfile::TempDir, Server) {
    let named = SCRIPTS.iter().filter(|(name, ..)| names.contains(name));
    let scripts = named.map(|(name, template, text)| (*name, *template, puppet::pieces(text)));
    saying(&scripts.collect::<Vec<_>>())
}

/// Starts a server of puppets: their names, templates, and the pieces that they say.
pub fn saying(scripts: &[(&str, &str, Vec<String>)]) -> (tempfile::TempDir, Server) {
    let home = tempfile::tempdir().expect("a directory");
    for (name, template, pieces) in scripts {
        let folder = home.path().join(name);
        std::fs::create_dir(&folder).expect("made");
        puppet::write(&folder, pieces, template);
    }
    let server = Server::start(&["--models", home.path().to_str().expect("UTF-8")]);
    (home, server)
}

/// A chat with a tool `f` whose parameter `d` has this schema.
pub fn call_of(model: &str, schema: Value, more: Value) -> Value {
    let parameters = json!({"type": "object", "properties": {"d": schema}, "required": ["d"]});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let mut body =
        ask("hi", json!({"model": model, "temperature": 0, "max_tokens": 160, "tools": tools}));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns text, reasoning, calls and end of an answer, which is also streamed: its pieces are the whole.
#[track_caller]
pub fn answer(server: &Server, body: &Value) -> (String, String, Vec<Value>, String) {
    let whole = server.chat(body).is(200).json();
    let choice = &whole["choices"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let message = &choice["message"];
    let calls: Vec<String> = message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|call| text(&call["function"]["arguments"]))
        .collect();
    let mut streaming = body.clone();
    streaming["stream"] = true.into();
    let mut pieces = (String::new(), String::new(), Vec::<String>::new(), String::new());
    for chunk in server.chat(&streaming).is(200).chunks() {
        let choice = &chunk["choices"][0];
        pieces.0 += &text(&choice["delta"]["content"]);
        pieces.1 += &text(&choice["delta"]["reasoning_content"]);
        pieces.3 += &text(&choice["finish_reason"]);
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if call["id"].is_string() {
                pieces.2.push(String::new());
            }
            *pieces.2.last_mut().expect("a call") += &text(&call["function"]["arguments"]);
        }
    }
    let whole = (
        text(&message["content"]),
        text(&message["reasoning_content"]),
        calls,
        text(&choice["finish_reason"]),
    );
    assert_eq!(pieces, whole);
    let (text, reasoning, calls, end) = whole;
    let calls =
        calls.iter().map(|call| serde_json::from_str(call).unwrap_or_else(|_| call.clone().into()));
    (text, reasoning, calls.collect(), end)
}

#[test]
fn schemas_in_xml_mean_what_they_mean_in_json() {
    let (_home, server) = puppets(&["null", "red", "closing"]);
    let text = json!({"type": "string"});
    let required = json!({"tool_choice": "required"});
    let arguments = |model: &str, schema: Value, more: &Value| {
        let (text, _, calls, end) = answer(&server, &call_of(model, schema, more.clone()));
        assert!(text.is_empty() && end == "tool_calls", "{text:?} {calls:?} {end}");
        calls
    };
    for (schema, want) in [
        (json!({"type": ["string", "null"]}), Value::Null),
        (json!({"anyOf": [text, {"type": "null"}]}), Value::Null),
        (json!({"type": ["string", "null"], "enum": ["a", null]}), Value::Null),
        (text.clone(), json!("null")),
    ] {
        assert_eq!(arguments("null", schema.clone(), &required), [json!({"d": want})], "{schema}");
    }
    let parameters = |parameters: Value| {
        json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
            "tool_choice": "required"})
    };
    for schema in [
        json!({}),
        json!({"properties": {"d": {"$ref": "#/$defs/C"}}, "$defs": {"C": {"enum": ["blue", "red"]}}}),
        json!({"properties": {"d": text}, "required": null}),
        json!({"$ref": "#/$defs/P", "$defs": {"P": {"properties": {"d": text}}}}),
    ] {
        assert_eq!(arguments("red", json!({}), &parameters(schema)), [json!({"d": "red"})]);
    }
    let file = arguments("closing", text, &json!({}));
    assert_eq!(file, [json!({"d": "open\n</parameter>\nclose"})]);
    let mut strict = call_of("red", json!({"type": "string", "pattern": "^b"}), required);
    strict["tools"][0]["function"]["strict"] = true.into();
    let error = server.chat(&strict).is(400).json();
    assert!(error["error"]["message"].as_str().is_some_and(|m| m.contains("tools[0]")), "{error}");
}

#[test]
fn streams_and_stop_strings_respect_what_is_text() {
    let (_home, server) =
        puppets(&["lines", "stop", "shell", "letter", "separator", "mention", "thinks"]);
    let text = || json!({"type": "string"});
    let (said, _, calls, _) = answer(&server, &call_of("lines", text(), json!({})));
    assert_eq!(
        (said.as_str(), &calls[..]),
        ("So it is.\n\n\n- one\n\n- two end.", &[json!({"d": "Oslo"})][..])
    );
    for (stop, want) in [("\n", "It is blue Question: x"), ("Question:", "It is blue ")] {
        let body = ask(
            "hi",
            json!({"model": "stop", "temperature": 0, "stop": [stop], "max_tokens": 160}),
        );
        let (said, thought, ..) = answer(&server, &body);
        assert_eq!((said.as_str(), thought.as_str()), (want, "The Question: is\nold."), "{stop:?}");
    }
    let (said, _, calls, end) =
        answer(&server, &call_of("shell", text(), json!({"stop": ["echo"]})));
    assert_eq!(
        (said, calls, end),
        (String::new(), vec![json!({"d": "echo '}'"})], "tool_calls".into())
    );
    let (_, _, calls, _) = answer(&server, &call_of("letter", text(), json!({})));
    assert_eq!(calls, [json!({"d": "aéb"})]);
    let (said, _, calls, end) = answer(&server, &call_of("mention", text(), json!({})));
    assert_eq!(
        (said.as_str(), calls.len(), end.as_str()),
        ("The model writes <tool_call> before a call.", 0, "stop")
    );

    let user = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "separator", "messages": user, "options": {"temperature": 0}});
    let lines = server.post("/api/chat", &body).is(200).body;
    assert!(lines.contains("\\u2028") && !lines.contains('\u{2028}'), "{lines}");
    let body = json!({"model": "thinks", "messages": user, "max_tokens": 99, "temperature": 0, "stream": true});
    let events = server.post("/v1/messages", &body).is(200).events();
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let end =
        events.iter().position(|event| event["type"] == "content_block_stop").expect("an end");
    let delta = &events[end - 1]["delta"];
    assert_eq!(delta["type"], "signature_delta", "{delta}");
    assert!(delta["signature"].as_str().is_some_and(|signature| !signature.is_empty()));
}

/// Whatever an earlier turn contains, the conversation goes on, and the model sees what is readable.
#[test]
fn no_history_ends_a_conversation() {
    let (_home, server) = puppets(&["json", "xml"]);
    let call = |arguments: Value| json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let around = |messages: Vec<Value>| {
        let user = |text: &str| json!({"role": "user", "content": text});
        [vec![user("Do it.")], messages, vec![user("Go on.")]].concat()
    };
    let called = |call: Value| {
        around(vec![
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}),
        ])
    };
    let answered = |content: Value| around(vec![json!({"role": "assistant", "content": content})]);
    let cases = [
        (called(call(json!("{\"value\": "))), "{\"value\":"),
        (called(call(json!(""))), "f"),
        (called(call(json!("[1]"))), "[1]"),
        (called(call(json!({"a": "Reinhard"}))), "Reinhard"),
        (called(call(json!("{}"))), "[image]"),
        (called(json!({"type": "custom", "custom": {"name": "f", "input": "rm -r"}})), "rm -r"),
        (answered(json!([{"type": "refusal", "refusal": "I will not."}])), "I will not."),
        (answered(json!("half a pair")), "half a pair"),
        (
            around(vec![
                json!({"role": "assistant", "function_call": {"name": "f", "arguments": "{\"a\": \"old\"}"}}),
                json!({"role": "function", "name": "f", "content": "done"}),
            ]),
            "old",
        ),
        (
            around(vec![
                json!({"role": "assistant", "content": "a", "reasoning": "Hm.", "reasoning_content": "Hm."}),
                json!({"role": "assistant", "content": "b", "reasoning": "Hm.", "reasoning_content": null}),
            ]),
            "b",
        ),
    ];
    for (messages, shown) in cases {
        for model in ["json", "xml"] {
            let body = json!({"model": model, "messages": messages, "max_tokens": 2});
            server.chat(&body).is(200);
            let prompt = server.post("/apply-template", &body).is(200).json();
            assert!(
                prompt["prompt"].as_str().is_some_and(|p| p.contains(shown)),
                "{model}: {prompt}"
            );
        }
    }
}

/// The same in the other APIs, and for texts that are cut within a character.
#[test]
fn no_item_or_block_ends_a_conversation() {
    let (_home, server) = puppets(&["json", "xml"]);
    let user = |text: &str| json!({"role": "user", "content": text});
    let half =
        json!({"model": "json", "max_tokens": 2, "messages": [user("Do it."), user("Go on.")]})
            .to_string();
    let half = half.replace("Go on.", "\\ud83d x \\udc00 \\ud83d\\ude00");
    server
        .send("POST", "/v1/chat/completions", "content-type: application/json\r\n", &half)
        .is(200);
    for items in [
        json!([user("a"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"v"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:"}]}]),
        json!([user("a"), {"type": "web_search_call", "id": "w", "action": {"query": "fox"}}, user("b")]),
    ] {
        for model in ["json", "xml"] {
            server
                .post(
                    "/v1/responses",
                    &json!({"model": model, "input": items, "max_output_tokens": 3}),
                )
                .is(200);
        }
    }
    let image = json!({"type": "image", "source": {"type": "base64", "data": "AA"}});
    let blocks = json!([{"role": "user", "content": [image]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": "{\"v"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [image]}]}]);
    server
        .post("/v1/messages", &json!({"model": "xml", "messages": blocks, "max_tokens": 2}))
        .is(200);
    let calls = json!([{"function": {"name": "f", "arguments": "{\"v"}}]);
    let turns = json!([{"role": "user", "content": "a", "images": ["AA"]},
        {"role": "assistant", "content": "", "tool_calls": calls}, user("b")]);
    server
        .post(
            "/api/chat",
            &json!({"model": "xml", "messages": turns, "options": {"num_predict": 2}}),
        )
        .is(200);
    // What is asked now must be readable.
    let now = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]);
    server.chat(&json!({"model": "json", "messages": now})).is(400);
}

#[test]
fn errors_about_tools_name_the_tool() {
    let server = Server::start(&[]);
    let good =
        json!({"type": "function", "function": {"name": "f", "parameters": {"required": null}}});
    let odd = json!({"name": "exec", "type": "function", "function": {"parameters": {}}});
    let body = |tools: Value| ask("hi", json!({"tools": tools, "max_tokens": 2}));
    let error = server.chat(&body(json!([good, odd]))).is(400).json();
    assert_eq!(error["error"]["param"], "tools[1]", "{error}");
    server.chat(&body(json!([good]))).is(200);
    let mut cut = body(json!([good]));
    cut["tool_choice"] = "required".into();
    let cut = server.chat(&cut).is(200).json();
    assert_eq!(cut["choices"][0]["message"]["content"], "", "{cut}");
    let long = json!({"input": "fox ".repeat(2000), "truncate_prompt_tokens": 100});
    assert_eq!(server.post("/v1/embeddings", &long).is(200).json()["usage"]["prompt_tokens"], 100);
}
