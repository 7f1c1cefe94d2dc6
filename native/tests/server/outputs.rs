//! Parts of outputs that requests choose: no calls, some tokens alone, log-probabilities, ends of calls.

use crate::agents::{JSON_CALLS, XML_CALLS, answer, call_of, puppets, saying};
use crate::common::server::{Server, ask};
use crate::puppet;
use serde_json::{Value, json};

fn text() -> Value {
    json!({"type": "string"})
}

fn texts(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(ToString::to_string).collect()
}

#[test]
fn tools_stay_in_the_prompt_where_none_may_be_called() {
    // This template cannot write a tool without a description.
    let shown = "{%- for tool in tools or [] -%}{{ tool.function.name + ': ' + tool.function.description }}\n{% endfor -%}";
    let template = format!("{shown}{JSON_CALLS}");
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"d\": \"Oslo\"}}\n</tool_call>";
    let (_home, server) = saying(&[("calls", &template, puppet::pieces(call))]);
    let body = |choice: &str| call_of("calls", text(), json!({"tool_choice": choice}));
    let prompt = |choice: &str| server.post("/apply-template", &body(choice)).is(200).json();
    assert_eq!(prompt("none"), prompt("auto"));
    assert!(prompt("none")["prompt"].as_str().is_some_and(|text| text.contains("f: ")));
    let (_, _, calls, _) = answer(&server, &body("auto"));
    assert_eq!(calls, [json!({"d": "Oslo"})]);
    let (said, _, calls, _) = answer(&server, &body("none"));
    assert!(calls.is_empty() && !said.contains("<tool_call>\n{\"name\": \""), "{said}");
    // The format of an answer is still held.
    let form = json!({"tool_choice": "none", "guided_choice": ["yes"]});
    assert_eq!(answer(&server, &call_of("calls", text(), form)).0, "yes");
}

/// The markers of this model's thinking are several tokens each.
#[test]
fn thinking_may_end_without_a_token_of_its_own() {
    let open = XML_CALLS.replace("think>", "seed:think>");
    let optional = JSON_CALLS.to_string() + "{# <seed:think> </seed:think> #}";
    let rest = ["Hm", ".\n", "</se", "ed:th", "ink>", "\n\n", "{\"ok\"", ": true", "}"];
    // What follows the first character of a marker before JSON is forced.
    let (_home, server) = saying(&[
        ("open", &open, texts(&rest)),
        ("optional", &optional, [texts(&["<", ">"]), texts(&rest)].concat()),
    ]);
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"], "additionalProperties": false});
    for model in ["open", "optional"] {
        let more = json!({"model": model, "temperature": 0, "max_tokens": 99, "response_format":
            {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
        let (said, thought, _, end) = answer(&server, &ask("hi", more.clone()));
        assert_eq!(
            (said.as_str(), thought.as_str(), end.as_str()),
            ("{\"ok\": true}", "Hm.", "stop"),
            "{model}"
        );
        let mut budget = more;
        budget["thinking_budget"] = 1.into();
        let (said, thought, ..) = answer(&server, &ask("hi", budget));
        assert_eq!((said.as_str(), thought.as_str()), ("{\"ok\": true}", "Hm"), "{model}");
    }
}

#[test]
fn outputs_have_the_allowed_tokens_alone() {
    let server = Server::start(&[]);
    let allowed = json!([65, 66, 300]);
    let with = |mut body: Value, ids: Value| {
        body["allowed_token_ids"] = ids;
        body
    };
    let user = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"messages": user, "max_tokens": 9, "return_token_ids": true});
    let answer = server.chat(&with(chat.clone(), allowed.clone())).is(200).json();
    let ids = answer["choices"][0]["token_ids"].as_array().expect("ids").clone();
    assert_eq!(ids.len(), 9);
    assert!(ids.iter().all(|id| allowed.as_array().unwrap().contains(id)), "{ids:?}");
    let plain = json!({"prompt": "hi", "max_tokens": 9, "return_token_ids": true});
    let answer = server.post("/v1/completions", &with(plain, allowed.clone())).is(200).json();
    let ids = answer["choices"][0]["token_ids"].as_array().expect("ids").clone();
    assert_eq!(ids.len(), 9);
    assert!(ids.iter().all(|id| allowed.as_array().unwrap().contains(id)), "{ids:?}");
    let one = json!([300]);
    let fixed = server.chat(&with(chat.clone(), one.clone())).is(200).json();
    let text = fixed["choices"][0]["message"]["content"].as_str().expect("text");
    for (path, body, place) in [
        (
            "/v1/responses",
            json!({"input": "hi", "max_output_tokens": 9}),
            "/output/0/content/0/text",
        ),
        ("/v1/messages", json!({"messages": user, "max_tokens": 9}), "/content/0/text"),
    ] {
        let answer = server.post(path, &with(body, one.clone())).is(200).json();
        assert_eq!(answer.pointer(place), Some(&json!(text)), "{path}: {answer}");
    }
    for wrong in [json!([]), json!([999_999])] {
        let error = server.chat(&with(chat.clone(), wrong)).is(400).json();
        assert_eq!(error["error"]["param"], "allowed_token_ids", "{error}");
    }
    let mut both = with(chat, allowed);
    both["guided_choice"] = json!(["a"]);
    let error = server.chat(&both).is(400).json();
    assert_eq!(error["error"]["param"], "allowed_token_ids", "{error}");
}

#[test]
fn responses_have_log_probabilities() {
    let (_home, server) = puppets(&["thinks"]);
    let ask = |more: Value| {
        let mut body =
            json!({"model": "thinks", "input": "hi", "max_output_tokens": 99, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/responses", &body)
    };
    let logprobs = |response: &Value| {
        let output = response["output"].as_array().expect("items");
        let message = output.iter().find(|item| item["type"] == "message").expect("a message");
        message["content"][0]["logprobs"].as_array().expect("a list").clone()
    };
    let included = json!({"include": ["message.output_text.logprobs"]});
    for (more, alternatives) in [(json!({"top_logprobs": 2}), 2), (included, 0)] {
        let whole = logprobs(&ask(more.clone()).is(200).json());
        let tokens: String =
            whole.iter().map(|entry| entry["token"].as_str().expect("text")).collect();
        assert_eq!(tokens.trim_end_matches("<|im_end|>"), "Yes, it is.", "{whole:?}");
        for entry in &whole {
            assert!(entry["logprob"].as_f64().is_some_and(|p| p <= 0.0), "{entry}");
            assert_eq!(entry["top_logprobs"].as_array().map(Vec::len), Some(alternatives));
        }
        let mut streaming = more;
        streaming["stream"] = true.into();
        let events = ask(streaming).is(200).events();
        let events: Vec<Value> =
            events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let pieces: Vec<Value> = deltas
            .flat_map(|delta| delta["logprobs"].as_array().expect("a list").clone())
            .collect();
        assert_eq!(pieces, whole);
        assert_eq!(logprobs(&events.last().expect("an end")["response"]), whole);
        let done = events.iter().find(|event| event["type"] == "response.output_text.done");
        assert_eq!(done.expect("done")["logprobs"], json!(whole));
    }
    assert!(logprobs(&ask(json!({})).is(200).json()).is_empty());
    for (field, wrong) in
        [("top_logprobs", json!(21)), ("include", json!(["file_search_call.results"]))]
    {
        let error = ask(json!({field: wrong})).is(400).json();
        assert_eq!(error["error"]["param"], field, "{error}");
    }
}

/// A stop token may end an output within a call, which is not complete then, in any API.
#[test]
fn a_cut_call_never_looks_complete() {
    let (_home, server) = puppets(&["shell"]);
    let tools = call_of("shell", text(), json!({}));
    let mut whole = tools.clone();
    whole["return_token_ids"] = true.into();
    let answer_ids = server.chat(&whole).is(200).json()["choices"][0]["token_ids"].clone();
    let ids = answer_ids.as_array().expect("ids");
    // The end of the call and of the output are some pieces after this one.
    let stop = ids[ids.len() - 8].clone();
    let with = |mut body: Value, stream: bool| {
        body["stop_token_ids"] = json!([stop]);
        body["stream"] = stream.into();
        body["temperature"] = 0.into();
        body["model"] = "shell".into();
        body
    };
    let chat = with(tools.clone(), false);
    let (_, _, _, end) = answer(&server, &chat);
    assert_eq!(end, "length");
    let user = json!([{"role": "user", "content": "hi"}]);
    let schema = tools["tools"][0]["function"]["parameters"].clone();
    let messages = json!({"messages": user, "max_tokens": 160, "tools": [{"name": "f", "input_schema": schema}]});
    let message = server.post("/v1/messages", &with(messages.clone(), false)).is(200).json();
    assert_eq!(message["stop_reason"], "max_tokens", "{message}");
    let events = server.post("/v1/messages", &with(messages, true)).is(200).body;
    assert!(
        events.contains("\"max_tokens\"") && !events.contains("\"tool_use\",\"stop"),
        "{events}"
    );
    let input =
        json!({"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": schema}]});
    let response = server.post("/v1/responses", &with(input.clone(), false)).is(200).json();
    assert_eq!(response["status"], "incomplete", "{response}");
    let events = server.post("/v1/responses", &with(input, true)).is(200).body;
    assert!(events.contains("response.incomplete"), "{events}");
    assert!(!events.contains("function_call_arguments.done"), "{events}");
}

#[test]
fn texts_in_json_may_have_escaped_slashes() {
    let value = ["\"a", "\\/", "b", "\\", "/c\""];
    let call = ["<tool_call>", "\n{\"name\": \"", "f\", \"arguments\": {\"d\": "];
    let call = texts(&[&call[..], &value, &["}}\n", "</tool_call>"]].concat());
    let answers = texts(&[&["{\"d\": "][..], &value, &["}"]].concat());
    let (_home, server) = saying(&[("answers", JSON_CALLS, answers), ("calls", JSON_CALLS, call)]);
    let (_, _, calls, _) = answer(&server, &call_of("calls", text(), json!({})));
    assert_eq!(calls, [json!({"d": "a/b/c"})]);
    let schema = json!({"type": "object", "properties": {"d": text()}, "required": ["d"],
        "additionalProperties": false});
    let more = json!({"model": "answers", "temperature": 0, "max_tokens": 40, "response_format":
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let (said, ..) = answer(&server, &ask("hi", more));
    assert_eq!(said, "{\"d\": \"a\\/b\\/c\"}");
    // No other text has them.
    let regex = json!({"model": "answers", "temperature": 0, "max_tokens": 40,
        "guided_regex": "\\{\"d\": \"a/b/c\"\\}"});
    assert_eq!(answer(&server, &ask("hi", regex)).0, "{\"d\": \"a/b/c\"}");
}
