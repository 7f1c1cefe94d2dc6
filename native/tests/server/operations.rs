//! Operations of a server: log lines, error texts, ids, defaults.

use crate::common::run;
use crate::common::server::{Reply, Server, ask};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn each_answer_has_a_line_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    fs::write(&file, "first # Ann\nsecond\n").expect("written");
    let server = Server::logging(&["--api-key-file", file.to_str().expect("UTF-8")]);
    let body = ask("Tell me a story.", json!({"max_tokens": 9, "stream": true})).to_string();
    let headers = format!("{JSON}authorization: Bearer first\r\nx-request-id: mine-1\r\n");
    let reply = server.send("POST", "/v1/chat/completions", &headers, &body).is(200);
    for name in ["x-request-id: mine-1", "\r\nrequest-id: mine-1"] {
        assert!(reply.head.contains(name), "{}", reply.head);
    }
    let text = json!({"prompt": "Once", "max_tokens": 400, "ignore_eos": true, "stream": true});
    let headers = format!("{JSON}x-api-key: second\r\n");
    let mut cut = server.open("POST", "/v1/completions", &headers, &text.to_string());
    cut.read_exact(&mut [0; 64]).expect("it begins");
    drop(cut);
    thread::sleep(Duration::from_millis(500));
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" answered ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    for part in ["id=\"mine-1\"", "key=\"Ann\"", " tokens=9 ", "reason=\"length\"", "milliseconds="]
    {
        assert!(lines[0].contains(part), "no {part} in {}", lines[0]);
    }
    for part in ["key=\"2\"", "reason=\"cut off\""] {
        assert!(lines[1].contains(part), "no {part} in {}", lines[1]);
    }
}

/// The log has no probes and no empty fields, and the time of a stream is the whole one.
#[test]
fn the_log_is_quiet_and_a_stream_has_its_whole_time() {
    let server = Server::logging(&["--context", "2048"]);
    for path in ["/health", "/metrics", "/health"] {
        server.get(path).is(200);
    }
    let body = json!({"prompt": "Once", "max_tokens": 1500, "ignore_eos": true, "stream": true});
    let begin = Instant::now();
    let mut stream = server.open("POST", "/v1/completions", JSON, &body.to_string());
    stream.read_to_string(&mut String::new()).expect("a stream");
    let seen = begin.elapsed().as_millis() as u64;
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    // Probes that fail are of interest: the server was starting.
    let probe = |line: &&str| line.contains("/health") || line.contains("/metrics");
    let probes: Vec<&str> = log.lines().filter(probe).collect();
    assert!(probes.iter().all(|line| line.contains("status=503")), "{log}");
    assert!(log.contains(" unloaded") && !log.contains("=\"\""), "{log}");

    let line = |word: &str| {
        log.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{log}"))
    };
    let number = |line: &str, name: &str| -> Option<u64> {
        let (_, value) = line.split_once(&format!(" {name}="))?;
        value.split(' ').next()?.parse().ok()
    };
    let (request, answered) = (line("path=\"/v1/completions\""), line(" answered "));
    let head = number(request, "head_milliseconds").expect("the head's time");
    assert_eq!(number(request, "milliseconds"), None, "{request}");
    let whole = number(answered, "milliseconds").expect("the whole time");
    assert!(whole >= head && whole * 2 >= seen, "{whole} of {seen}: {log}");
    assert!(head * 2 < whole, "the answer takes longer than its head: {log}");
}

#[test]
fn a_stream_that_shutdown_cuts_off_ends_with_an_error() {
    let server = Server::slow(&["--drain", "1"]);
    let more = json!({"max_tokens": 100_000, "ignore_eos": true, "stream": true});
    let (chat, mut message) = (ask("Hi", more.clone()), ask("Hi", more));
    message["max_tokens"] = 1500.into();
    let mut chat = server.open("POST", "/v1/chat/completions", JSON, &chat.to_string());
    let mut message = server.open("POST", "/v1/messages", JSON, &message.to_string());
    chat.read_exact(&mut [0; 64]).expect("it begins");
    server.terminate();
    let mut text = String::new();
    chat.read_to_string(&mut text).expect("the stream ends");
    assert!(text.contains("\"code\":\"unavailable\"") && text.contains("[DONE]"), "{text}");
    let mut text = String::new();
    message.read_to_string(&mut text).expect("the stream ends");
    let reply = Reply::all(&text).pop().expect("a response");
    assert!(reply.body.contains("event: error"), "{}", reply.body);
}

#[test]
fn overflows_have_the_words_that_clients_look_for() {
    let server = Server::start(&["-c", "64"]);
    for text in ["word ".repeat(100), "word ".repeat(10_000)] {
        let error = server.chat(&ask(&text, json!({}))).is(400).json()["error"].clone();
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["type"], "invalid_request_error");
        let message = error["message"].as_str().expect("text");
        let words = "This model's maximum context length is 64 tokens. However, your messages";
        assert!(
            message.starts_with(words) && message.contains("Please reduce the length"),
            "{message}"
        );
        let error =
            server.post("/v1/messages", &ask(&text, json!({"max_tokens": 9}))).is(400).json();
        let message = error["error"]["message"].as_str().expect("text");
        assert!(message.starts_with("prompt is too long: "), "{message}");
        assert!(message.ends_with(" tokens > 64 maximum"), "{message}");
    }
}

#[test]
fn ids_have_the_form_of_their_api() {
    let server = Server::start(&[]);
    let chat = server.chat(&ask("Hi", json!({"max_tokens": 2}))).is(200).json();
    let print = chat["system_fingerprint"].as_str().expect("text").to_string();
    assert!(print.starts_with("fp_") && print.len() == 13, "{print}");
    let stream = server.chat(&ask("Hi", json!({"max_tokens": 2, "stream": true}))).is(200);
    assert!(stream.chunks().iter().all(|chunk| chunk["system_fingerprint"] == print.as_str()));
    let id = |path: &str, body: Value| server.post(path, &body).is(200).json();
    let response = id("/v1/responses", json!({"input": "Hi", "max_output_tokens": 2}));
    assert!(response["id"].as_str().expect("text").starts_with("resp_"), "{response}");
    assert!(response["output"][0]["id"].as_str().expect("text").starts_with("msg_"), "{response}");
    let message = id("/v1/messages", ask("Hi", json!({"max_tokens": 2})));
    assert!(message["id"].as_str().expect("text").starts_with("msg_"), "{message}");
    let tool = json!([{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {}, "additionalProperties": false}}}]);
    let more = json!({"tools": tool, "tool_choice": "required", "max_tokens": 60});
    let call = server.chat(&ask("Hi", more)).is(200).json();
    let call =
        call["choices"][0]["message"]["tool_calls"][0]["id"].as_str().expect("a call").to_string();
    assert!(call.starts_with("call_"), "{call}");
    let tool = json!([{"name": "f", "input_schema": {"type": "object", "properties": {},
        "additionalProperties": false}}]);
    let more = json!({"tools": tool, "tool_choice": {"type": "any"}, "max_tokens": 60});
    let call = id("/v1/messages", ask("Hi", more));
    let content = call["content"].as_array().expect("blocks");
    let used = content.iter().find(|block| block["type"] == "tool_use").expect("a call");
    assert!(used["id"].as_str().expect("text").starts_with("toolu_"), "{used}");
}

#[test]
fn sampling_has_defaults() {
    let body = |temperature: Option<f32>| {
        let mut body = ask("Tell me a story.", json!({"max_tokens": 24}));
        match temperature {
            Some(temperature) => body["temperature"] = json!(temperature),
            None => drop(body.as_object_mut().expect("an object").remove("temperature")),
        }
        body
    };
    let server = Server::start(&["--temperature", "0", "--generation-config=false"]);
    let text = |temperature| {
        server.chat(&body(temperature)).is(200).json()["choices"][0]["message"]["content"].clone()
    };
    let greedy = text(Some(0.0));
    // Random texts would differ.
    assert!((0..3).all(|_| text(None) == greedy));
    for (flag, value) in [("--temperature", "-1"), ("--top-p", "2"), ("--repetition-penalty", "0")]
    {
        run(&["serve", flag, value]).ends(2, &[&flag[2..5]]);
    }
}

/// Pages name fields of the server that it has.
#[test]
fn pages_name_fields_that_the_server_has() {
    let server = Server::start(&[]);
    let known = server.get("/openapi.json").is(200).body;
    let page = include_str!("../../../python/README.md");
    let (_, fields) = page.split_once("the names of the server's fields: ").expect("a list");
    let (fields, _) = fields.split_once(". ").expect("its end");
    let fields: Vec<&str> = fields.split('`').skip(1).step_by(2).collect();
    assert!(fields.len() > 12, "{fields:?}");
    for field in fields {
        assert!(known.contains(&format!("\"{field}\":")), "python/README.md: {field}");
    }
}

#[test]
fn localhost_is_an_address() {
    let server = Server::start(&["--host", "localhost"]);
    let port = server.address.rsplit_once(':').expect("a port").1;
    for address in ["127.0.0.1", "[::1]"] {
        let Ok(mut stream) = TcpStream::connect(format!("{address}:{port}")) else {
            // Machines without IPv6.
            assert_eq!(address, "[::1]");
            continue;
        };
        let get = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(get.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    run(&["serve", "--host", "example.org"]).ends(2, &["or localhost"]);
}

#[test]
fn the_default_context_is_the_models_own() {
    let server = Server::start(&["--synthetic", "tiny-hybrid"]);
    let context = server.get("/server_info").is(200).json()["context"].as_u64();
    assert!(context > Some(4096), "{context:?}: of 262144, as far as memory allows");
}

#[test]
fn ps_shows_the_size_of_a_model_without_files() {
    let server = Server::start(&[]);
    let shown = crate::common::run(&["ps", &server.address]).ends(0, &[]).stdout;
    assert!(shown.contains("default  loaded") && shown.contains(" MiB"), "{shown}");
}
