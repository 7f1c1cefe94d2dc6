//! Reasoning apart from the answer: budgets, switches, tool calls in XML, in every API.

use crate::common::model::write_with;
use crate::common::run;
use crate::common::server::{Server, ask};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A template in the manner of Qwen3.5's: the prompt opens the thinking, or closes it where it is off.
const TEMPLATE: &str = "{{ bos_token }}{%- for m in messages -%}\
    {%- if m.role == 'assistant' -%}\
    {%- if m.reasoning_content and loop.last -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}\
    {{ m.content }}{{ eos_token }}\
    {%- else -%}<|user|>{{ m.content }}<|bot|>{%- endif -%}{%- endfor -%}\
    {# <tool_call> <function=f> #}\
    {%- if add_generation_prompt -%}<think>\n\
    {%- if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif -%}\
    {%- endif -%}";

const TOKENS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// A model that thinks.
pub fn model() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("thinking.wf.safetensors");
    write_with(&path, TEMPLATE, &TOKENS);
    let path = path.to_str().expect("UTF-8").into();
    (folder, path)
}

/// Returns reasoning and content of a chat answer.
fn message(answer: &Value) -> (String, String) {
    let message = &answer["choices"][0]["message"];
    let text = |field: &str| message[field].as_str().unwrap_or_default().to_string();
    (text("reasoning_content"), text("content"))
}

#[test]
fn a_budget_closes_the_thinking_and_the_answer_follows() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path]);
    let more =
        |budget: usize| json!({"thinking_budget": budget, "max_tokens": 40, "temperature": 0});
    for budget in [0, 1, 12] {
        let body = ask("A story, please.", more(budget));
        let answer = server.chat(&body).is(200).json();
        let (reasoning, content) = message(&answer);
        assert_eq!(reasoning.is_empty(), budget == 0, "{answer}");
        assert!(!content.is_empty() && !content.contains("think>"), "{answer}");
        let details = &answer["usage"]["completion_tokens_details"];
        let counted = details["reasoning_tokens"].as_u64().expect("counted");
        assert!((budget as u64..budget as u64 + 4).contains(&counted), "{answer}");

        let mut hidden = body.clone();
        hidden["include_reasoning"] = false.into();
        let answer = server.chat(&hidden).is(200).json();
        assert_eq!(message(&answer), (String::new(), content.clone()), "{answer}");
        hidden["stream"] = true.into();
        let streamed = server.chat(&hidden).is(200);
        assert!(!streamed.body.contains("reasoning_content"), "{}", streamed.body);
        assert_eq!(streamed.streamed(), content);

        let mut body = body;
        body["stream"] = true.into();
        let (mut streamed, mut order) = ([String::new(), String::new()], Vec::new());
        for chunk in server.chat(&body).is(200).chunks() {
            let delta = &chunk["choices"][0]["delta"];
            for (i, field) in ["reasoning_content", "content"].into_iter().enumerate() {
                if let Some(text) = delta[field].as_str().filter(|text| !text.is_empty()) {
                    streamed[i] += text;
                    order.push(i);
                }
            }
        }
        assert_eq!(streamed, [reasoning, content]);
        assert!(order.is_sorted(), "the reasoning comes first: {order:?}");
    }
    // Without a budget this model, which was not trained to think, thinks to the end.
    let answer = server.chat(&ask("A story.", json!({"max_tokens": 8}))).is(200).json();
    assert_eq!(message(&answer).1, "", "{answer}");
}

#[test]
fn thinking_can_be_switched_off() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path]);
    for off in [
        json!({"enable_thinking": false}),
        json!({"reasoning_effort": "none"}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let mut more = json!({"max_tokens": 8});
        more.as_object_mut().expect("an object").extend(off.as_object().cloned().expect("one"));
        let (reasoning, content) = message(&server.chat(&ask("Hi", more)).is(200).json());
        assert!(reasoning.is_empty() && !content.is_empty(), "{off}");
    }
    let error = server.chat(&ask("Hi", json!({"chat_template_kwargs": {"messages": []}})));
    assert_eq!(error.is(400).json()["error"]["param"], "chat_template_kwargs");
    drop(server);
    // A server's default, and a model that cannot think.
    let server = Server::start(&["-m", &path, "--enable-thinking=false"]);
    let (reasoning, _) = message(&server.chat(&ask("Hi", json!({"max_tokens": 8}))).is(200).json());
    assert_eq!(reasoning, "");
    let plain = Server::start(&["--enable-thinking"]);
    plain.chat(&ask("Hi", json!({"max_tokens": 4}))).is(200);
    let error = plain.chat(&ask("Hi", json!({"enable_thinking": true}))).is(400).json();
    assert_eq!(error["error"]["param"], "enable_thinking");
    plain.chat(&ask("Hi", json!({"enable_thinking": false, "max_tokens": 4}))).is(200);
}

#[test]
fn a_grammar_describes_the_answer_behind_the_thinking() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path]);
    for mode in ["ar", "verify"] {
        for seed in 0..3 {
            let more = json!({"guided_regex": "(ab){2,3}c", "thinking_budget": 9, "seed": seed,
                "decode_mode": mode, "temperature": 1.2});
            let answer = server.chat(&ask("Hi", more)).is(200).json();
            let (reasoning, content) = message(&answer);
            assert!(["ababc", "abababc"].contains(&content.as_str()), "{answer}");
            assert!(!reasoning.is_empty(), "{answer}");
        }
    }
}

#[test]
fn calls_in_xml_are_parsed() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path]);
    let parameters = json!({"type": "object", "required": ["animal", "age"], "properties": {
        "animal": {"type": "string", "enum": ["fox", "owl"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 99}}});
    let function = json!({"name": "meet", "parameters": parameters});
    let more = json!({"tools": [{"type": "function", "function": function}], "temperature": 1.5,
        "tool_choice": "required", "parallel_tool_calls": false, "thinking_budget": 5, "seed": 3});
    let mut body = ask("Who is there?", more);
    let answer = server.chat(&body).is(200).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).expect("JSON");
    assert!(call["name"] == "meet" && arguments["age"].is_u64(), "{call}");
    assert!(["fox", "owl"].contains(&arguments["animal"].as_str().unwrap()), "{call}");
    assert!(!message(&answer).0.is_empty(), "{answer}");
    body["stream"] = true.into();
    let chunks = server.chat(&body).is(200).chunks();
    let part = |chunk: &Value| {
        let call = &chunk["choices"][0]["delta"]["tool_calls"][0]["function"];
        call["arguments"].as_str().map(String::from)
    };
    assert_eq!(call["arguments"], chunks.iter().filter_map(part).collect::<String>());
}

#[test]
fn every_api_has_the_reasoning_apart() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path]);
    let thinking = json!({"type": "enabled", "budget_tokens": 6});
    let history = json!([{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Hello."}]},
        {"role": "user", "content": "A story, please."}]);
    let mut body = json!({"model": "default", "messages": history, "max_tokens": 30,
        "temperature": 0, "thinking": thinking});
    let answer = server.post("/v1/messages", &body).is(200).json();
    let kinds = |items: &Value| -> Vec<String> {
        let items = items.as_array().expect("an array").iter();
        items.map(|item| item["type"].as_str().unwrap_or_default().into()).collect()
    };
    assert_eq!(kinds(&answer["content"]), ["thinking", "text"], "{answer}");
    body["stream"] = true.into();
    let (mut thought, mut text) = (String::new(), String::new());
    for event in server.post("/v1/messages", &body).is(200).events() {
        let event: Value = serde_json::from_str(&event).expect("JSON");
        thought += event["delta"]["thinking"].as_str().unwrap_or_default();
        text += event["delta"]["text"].as_str().unwrap_or_default();
    }
    assert_eq!(answer["content"][0]["thinking"], thought);
    assert_eq!(answer["content"][1]["text"], text);

    let mut body = json!({"input": "A story, please.", "thinking_budget": 6, "temperature": 0,
        "max_output_tokens": 30});
    let answer = server.post("/v1/responses", &body).is(200).json();
    assert_eq!(kinds(&answer["output"]), ["reasoning", "message"], "{answer}");
    let details = &answer["usage"]["output_tokens_details"];
    assert!(details["reasoning_tokens"].as_u64() >= Some(6), "{answer}");
    body["stream"] = true.into();
    let mut thought = String::new();
    for event in server.post("/v1/responses", &body).is(200).events() {
        let event: Value = serde_json::from_str(&event).expect("JSON");
        if event["type"] == "response.reasoning_text.delta" {
            thought += event["delta"].as_str().expect("a text");
        }
    }
    assert_eq!(answer["output"][0]["content"][0]["text"], thought);
    // The next turn brings the items back.
    let mut items = answer["output"].as_array().cloned().expect("an array");
    items.push(json!({"role": "user", "content": "Go on."}));
    server.post("/v1/responses", &json!({"input": items, "max_output_tokens": 4})).is(200);
}

#[test]
fn generate_prints_the_answer_and_notes_the_thinking() {
    let (_folder, path) = model();
    let args = ["generate", "-m", &path, "-n", "30", "--thinking-budget", "6", "A story."];
    let ran = run(&args).ends(0, &[]);
    let json = run(&[&args[..], &["--json"]].concat()).ends(0, &[]).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let reasoning = json["reasoning"].as_str().expect("some");
    assert!(ran.stdout.trim_end() == json["text"].as_str().unwrap().trim_end(), "{}", ran.stdout);
    assert!(ran.stderr.contains(reasoning), "{}", ran.stderr);
    run(&["generate", "--raw", "--thinking-budget", "6", "x"]).ends(2, &["--raw"]);
    run(&["generate", "--enable-thinking", "x"]).ends(1, &["knows no thinking"]);
}
