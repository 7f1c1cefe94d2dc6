//! Requests as agents send them: Claude Code's and Codex's fields, roles, tools and model names.

use crate::common::server::{Reply, Server, ask};
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
