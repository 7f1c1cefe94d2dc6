//! Ollama's API over real connections.

use crate::common::server::{Reply, Server};
use serde_json::{Value, json};

const PROMPT: &str = "Tell me a story about a fox.";

/// Returns a request to `/api/chat` at temperature 0 with additional fields.
fn ask(more: Value) -> Value {
    let mut body = json!({
        "model": "default",
        "messages": [{"role": "user", "content": PROMPT}],
        "options": {"temperature": 0, "num_predict": 40},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns the lines of a stream.
fn lines(reply: &Reply) -> Vec<Value> {
    assert!(reply.head.contains("application/x-ndjson"), "{}", reply.head);
    reply.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the answer of OpenAI's API to the same request.
fn want(server: &Server) -> String {
    let body = json!({"messages": [{"role": "user", "content": PROMPT}], "temperature": 0,
                      "max_tokens": 40});
    let answer = server.chat(&body).is(200).json();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_string()
}

#[test]
fn chat_and_generate_answer_as_openais_api() {
    let server = Server::start(&[]);
    let want = want(&server);
    for model in ["default", "default:latest"] {
        let body = ask(json!({"stream": false, "model": model}));
        let answer = server.post("/api/chat", &body).is(200).json();
        assert_eq!(answer["message"], json!({"role": "assistant", "content": want}));
        assert_eq!((&answer["done"], &answer["done_reason"]), (&json!(true), &json!("length")));
        assert_eq!(answer["eval_count"], 40);
        let nanoseconds = |field: &str| answer[field].as_u64().expect("nanoseconds");
        let parts = nanoseconds("prompt_eval_duration") + nanoseconds("eval_duration");
        assert!(parts > 0 && parts <= nanoseconds("total_duration"), "{answer}");
    }
    // Streaming is the default.
    let parts = lines(&server.post("/api/chat", &ask(json!({}))).is(200));
    let text: String = parts.iter().map(|p| p["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, want);
    let (last, parts) = parts.split_last().unwrap();
    assert!(parts.len() > 10 && parts.iter().all(|part| part["done"] == false));
    assert_eq!((&last["done"], &last["eval_count"]), (&json!(true), &json!(40)));

    let body = json!({"model": "default", "prompt": PROMPT, "stream": false,
                      "options": {"temperature": 0, "num_predict": 40}});
    let answer = server.post("/api/generate", &body).is(200).json();
    assert_eq!(answer["response"], want);
    let body = json!({"model": "default", "prompt": PROMPT,
                      "options": {"temperature": 0, "num_predict": 40}});
    let parts = lines(&server.post("/api/generate", &body).is(200));
    let text: String = parts.iter().map(|p| p["response"].as_str().unwrap()).collect();
    assert_eq!(text, want);
    let raw = json!({"model": "default", "prompt": "Once upon a time", "raw": true, "stream": false,
                     "options": {"temperature": 0, "num_predict": 12}});
    let answer = server.post("/api/generate", &raw).is(200).json();
    let body = json!({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12});
    let plain = server.post("/v1/completions", &body).is(200).json();
    assert_eq!(answer["response"], plain["choices"][0]["text"]);
}

#[test]
fn options_are_honored() {
    let server = Server::start(&[]);
    let want = want(&server);
    let chat = |more: Value| {
        let mut body = ask(json!({"stream": false}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/api/chat", &body).is(200).json()
    };
    let stopped = chat(json!({"options": {"temperature": 0, "stop": [". "]}}));
    assert_eq!(stopped["message"]["content"], want.split(". ").next().unwrap());
    assert_eq!(stopped["done_reason"], "stop");
    let seeded = |seed: u64| {
        let options = json!({"temperature": 1.5, "seed": seed, "num_predict": 20});
        chat(json!({"options": options}))["message"]["content"].clone()
    };
    assert_eq!(seeded(3), seeded(3));
    assert_ne!(seeded(3), seeded(4));
    // `num_ctx` bounds prompt and output together.
    let short = chat(json!({"options": {"temperature": 0, "num_ctx": 20}}));
    let count = |field: &str| short[field].as_u64().unwrap();
    assert_eq!(
        (count("prompt_eval_count") + count("eval_count"), &short["done_reason"]),
        (20, &json!("length"))
    );
    let scored = chat(json!({"logprobs": true, "top_logprobs": 2}));
    let tokens = scored["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 40);
    assert!(tokens.iter().all(|t| t["top_logprobs"].as_array().unwrap().len() == 2));
}

#[test]
fn formats_and_tools_are_enforced() {
    let server = Server::start(&[]);
    let schema = json!({"type": "object", "properties": {"name": {"enum": ["Pip", "Mia"]}},
                        "required": ["name"], "additionalProperties": false});
    let body = ask(json!({"stream": false, "format": schema}));
    let answer = server.post("/api/chat", &body).is(200).json();
    let text = answer["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).expect("JSON");
    assert!(value["name"] == "Pip" || value["name"] == "Mia", "{value}");
    let body = ask(json!({"stream": false, "format": "json", "options": {"num_predict": 400}}));
    let answer = server.post("/api/chat", &body).is(200).json();
    let text = answer["message"]["content"].as_str().unwrap();
    if answer["done_reason"] == "stop" {
        assert!(serde_json::from_str::<Value>(text).expect("JSON").is_object(), "{text}");
    }

    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
                            "required": ["city"], "additionalProperties": false});
    let function = json!({"name": "weather", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    let more = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false,
                      "options": {"temperature": 0, "num_predict": 400}});
    let mut body = ask(more);
    let parts = lines(&server.post("/api/chat", &body).is(200));
    let calls: Vec<&Value> = parts
        .iter()
        .filter_map(|part| part["message"]["tool_calls"].as_array())
        .flatten()
        .collect();
    assert_eq!(calls.len(), 1, "{parts:?}");
    assert_eq!(calls[0]["function"]["name"], "weather");
    let city = &calls[0]["function"]["arguments"]["city"];
    assert!(city == "Oslo" || city == "Rome", "arguments are an object: {calls:?}");
    body["stream"] = false.into();
    let answer = server.post("/api/chat", &body).is(200).json();
    let message = &answer["message"];
    assert_eq!(&message["tool_calls"][0]["function"], &calls[0]["function"]);
    // The next turn has the call and its result.
    let result = json!({"role": "tool", "tool_name": "weather", "content": "rain"});
    body["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
    body["tool_choice"] = "none".into();
    server.post("/api/chat", &body).is(200);
}

#[test]
fn errors_are_a_text_and_name_the_field() {
    let server = Server::start(&[]);
    let error = |path: &str, body: &Value, status: u16, part: &str| {
        let reply = server.post(path, body).is(status).json();
        let error = reply["error"].as_str().unwrap_or_else(|| panic!("no text: {reply}"));
        assert!(error.contains(part), "no {part:?} in {error:?}");
    };
    error("/api/chat", &ask(json!({"model": "llama3"})), 404, "llama3");
    error("/api/chat", &ask(json!({"messages": [{"role": "robot"}]})), 400, "messages[0].role");
    let image = json!([{"role": "user", "content": "?", "images": ["aGVsbG8="]}]);
    error("/api/chat", &ask(json!({"messages": image})), 400, "messages[0].images");
    error("/api/chat", &ask(json!({"format": "yaml"})), 400, "format");
    error("/api/chat", &ask(json!({"think": true})), 400, "think");
    error("/api/chat", &ask(json!({"keep_alive": "soon"})), 400, "keep_alive");
    for (option, value) in [
        ("repeat_last_n", json!(64)),
        ("tfs_z", json!(0.5)),
        ("num_ctx", json!(3)),
        ("temperature", json!("hot")),
    ] {
        let mut body = ask(json!({"stream": false}));
        body["options"][option] = value;
        error("/api/chat", &body, 400, option);
    }
    let generate = |more: Value| {
        let mut body = json!({"model": "default", "prompt": PROMPT, "stream": false});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    error("/api/generate", &generate(json!({"images": ["aGVsbG8="]})), 400, "images");
    error("/api/generate", &generate(json!({"template": "{{ .Prompt }}"})), 400, "template");
    error("/api/generate", &generate(json!({"context": [1, 2]})), 400, "context");
    error("/api/generate", &generate(json!({"system": "Be short.", "raw": true})), 400, "system");
    error("/api/create", &json!({"model": "x"}), 501, "/api/create");
    error("/api/nothing", &json!({}), 404, "/api/nothing");
}

#[test]
fn models_are_described_and_texts_embedded() {
    let server = Server::start(&["--served-model-name", "tales"]);
    let tags = server.get("/api/tags").is(200).json();
    let card = &tags["models"][0];
    assert_eq!((&card["name"], &card["model"]), (&json!("tales"), &json!("tales")));
    assert_eq!(card["digest"].as_str().unwrap().len(), 64);
    assert!(card["size"].as_u64().unwrap() > 1_000_000, "{card}");
    let ps = server.get("/api/ps").is(200).json();
    assert_eq!(ps["models"][0]["context_length"], 512);
    assert_eq!(ps["models"][0]["digest"], card["digest"]);
    let show = server.post("/api/show", &json!({"model": "tales:latest"})).is(200).json();
    assert_eq!(show["capabilities"], json!(["completion", "insert", "tools"]));
    assert!(show["template"].as_str().unwrap().contains("messages"), "{show}");
    let family = show["details"]["family"].as_str().unwrap();
    assert_eq!(show["model_info"][format!("{family}.context_length")], 512);
    server.post("/api/show", &json!({"model": "other"})).is(404);
    assert!(server.get("/api/version").is(200).json()["version"].is_string());
    let loaded = server.post("/api/generate", &json!({"model": "tales"})).is(200).json();
    assert_eq!((&loaded["done"], &loaded["done_reason"]), (&json!(true), &json!("load")));

    // The only model of a server stays, whatever clients say.
    let unload = json!({"model": "tales", "keep_alive": 0});
    let refused = server.post("/api/generate", &unload).is(400).json();
    assert!(refused["error"].as_str().unwrap().contains("one model"), "{refused}");
    let brief = json!({"model": "tales", "input": "a", "keep_alive": "1ms"});
    server.post("/api/embed", &brief).is(200);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(server.get("/health").status, 200);

    let texts = json!({"input": ["a fox", "an owl"]});
    let want = server.post("/v1/embeddings", &texts).is(200).json();
    let mut body = json!({"model": "tales", "input": ["a fox", "an owl"]});
    let got = server.post("/api/embed", &body).is(200).json();
    for index in 0..2 {
        assert_eq!(got["embeddings"][index], want["data"][index]["embedding"]);
    }
    assert_eq!(got["prompt_eval_count"], want["usage"]["prompt_tokens"]);
    let old = server.post("/api/embeddings", &json!({"model": "tales", "prompt": "a fox"}));
    assert_eq!(old.is(200).json()["embedding"], want["data"][0]["embedding"]);
    body["input"] = "fox ".repeat(4000).into();
    server.post("/api/embed", &body).is(200);
    body["truncate"] = false.into();
    server.post("/api/embed", &body).is(400);
    let pooled = server.post("/pooling", &texts).is(200).json();
    assert_eq!(pooled["data"][0]["data"], want["data"][0]["embedding"]);
    assert_eq!(server.get("/load").is(200).json(), json!({"server_load": 0}));
}
