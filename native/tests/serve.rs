//! `wf-run serve` over real connections.

mod common;

use common::run;
use common::server::{Server, ask};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn answers_are_those_of_the_command_line() {
    let server = Server::start(&[]);
    let prompt = "Tell me a story about a fox.";
    let want = run(&["generate", prompt, "-n", "60", "-t", "1"]).ends(0, &[]).stdout;
    for mode in ["ar", "verify", "auto"] {
        let body = ask(prompt, json!({"max_tokens": 60, "decode_mode": mode}));
        let answer = server.chat(&body).is(200).json();
        assert_eq!(answer["choices"][0]["message"]["content"], want.trim_end(), "{mode}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        assert_eq!(answer["usage"]["completion_tokens"], 60);
        assert_eq!(answer["usage"]["total_tokens"], 71);
    }
    for mode in ["greedy", "iterative", "adaptive"] {
        let args = ["generate", prompt, "-n", "60", "-t", "1", "--decode-mode", mode];
        let want = run(&args).ends(0, &[]).stdout;
        let body = ask(prompt, json!({"max_tokens": 60, "decode_mode": mode, "stream": true}));
        let reply = server.chat(&body).is(200);
        assert!(reply.head.contains("text/event-stream"), "{}", reply.head);
        assert_eq!(reply.streamed(), want.trim_end(), "{mode}");
    }
    let stopped = server.chat(&ask(prompt, json!({"stop": [". "]}))).is(200).json();
    let first = want.split(". ").next().unwrap();
    assert_eq!(stopped["choices"][0]["message"]["content"], first);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_seed_gives_the_same_text_alone_and_in_a_crowd() {
    // Rows and pages for some of them at a time.
    let server = Server::start(&["--max-sequences", "6", "--kv-tokens", "1024"]);
    let body = |i: usize| {
        let modes = ["ar", "verify", "iterative", "adaptive", "greedy"];
        let more = json!({
            "temperature": 0.9, "seed": i, "max_tokens": 30 + i % 20, "stream": i.is_multiple_of(2),
            "decode_mode": modes[i % modes.len()],
        });
        ask(&format!("Tell me a story about {}.", ["a fox", "Mia", "a lost hat"][i % 3]), more)
    };
    let text = |i: usize| {
        let reply = server.chat(&body(i)).is(200);
        match i % 2 {
            0 => reply.streamed(),
            _ => reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_string(),
        }
    };
    let alone: Vec<String> = (0..24).map(text).collect();
    let crowd: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..24).map(|i| scope.spawn(move || text(i))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    assert_eq!(alone, crowd);
    server.idle();
}

#[test]
fn several_answers_log_probabilities_and_echo() {
    let server = Server::start(&[]);
    let more = json!({"n": 3, "temperature": 1.2, "seed": 7, "max_tokens": 12, "logprobs": true,
                      "top_logprobs": 2});
    let answer = server.chat(&ask("Tell me a story.", more.clone())).is(200).json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    assert_ne!(choices[0]["message"], choices[1]["message"], "each has a seed of its own");
    let tokens = choices[2]["logprobs"]["content"].as_array().unwrap();
    let joined: String = tokens.iter().map(|t| t["token"].as_str().unwrap()).collect();
    assert_eq!(choices[2]["message"]["content"], joined);
    assert!(tokens.iter().all(|t| t["top_logprobs"].as_array().unwrap().len() == 2));
    assert!(tokens.iter().all(|t| t["logprob"].as_f64().unwrap() <= 0.0));
    let single = json!({"n": 1, "temperature": 1.2, "seed": 9, "max_tokens": 12});
    let single = server.chat(&ask("Tell me a story.", single)).is(200).json();
    assert_eq!(single["choices"][0]["message"], choices[2]["message"], "seed 7 + 2");

    let body = json!({"prompt": ["Once upon", "The"], "max_tokens": 4, "echo": true, "n": 2,
                      "temperature": 0, "best_of": 3});
    let answer = server.post("/v1/completions", &body).is(200).json();
    let texts: Vec<_> =
        answer["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[1].starts_with("Once upon") && texts[2].starts_with("The"), "{texts:?}");
    assert_eq!(answer["usage"]["completion_tokens"], 2 * 3 * 4, "all of best_of count");
    let ids = server.post("/tokenize", &json!({"content": "Once upon"})).is(200).json();
    let body = json!({"prompt": ids["tokens"], "max_tokens": 4, "temperature": 0, "logprobs": 1});
    let answer = server.post("/v1/completions", &body).is(200).json();
    assert_eq!(format!("Once upon{}", answer["choices"][0]["text"].as_str().unwrap()), texts[0]);
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 4);

    let stream = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2,
                        "max_tokens": 5});
    let events = server.chat(&ask("Hello!", stream)).is(200).events();
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(10)));
    assert!(usage["timings"]["forward_passes"].as_u64() >= Some(5));
}

#[test]
fn wrong_requests_get_openais_errors() {
    let server = Server::start(&["--max-body", "20000"]);
    let error = |path: &str, body: &Value, status: u16, param: &str| {
        let reply = server.post(path, body).is(status).json();
        let error = &reply["error"];
        assert_eq!(error["param"].as_str().unwrap_or_default(), param, "{reply}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{reply}");
        assert!(error["type"].is_string() && error["code"].is_string(), "{reply}");
    };
    let chat = |more: Value, status: u16, param: &str| {
        error("/v1/chat/completions", &ask("Hi!", more), status, param);
    };
    chat(json!({"temperature": "hot"}), 400, "temperature");
    chat(json!({"temperature": -1}), 400, "temperature");
    chat(json!({"top_p": 2}), 400, "top_p");
    chat(json!({"n": 0}), 400, "n");
    chat(json!({"n": 99}), 400, "n");
    chat(json!({"max_tokens": 0}), 400, "max_tokens");
    chat(json!({"max_tokens": -5}), 400, "max_tokens");
    chat(json!({"stop": [1]}), 400, "stop");
    chat(json!({"stop": ""}), 400, "stop");
    chat(json!({"stop": vec!["x"; 17]}), 400, "stop");
    chat(json!({"logit_bias": {"x": 1}}), 400, "logit_bias");
    chat(json!({"logit_bias": {"99999": 1}}), 400, "logit_bias");
    chat(json!({"top_logprobs": 2}), 400, "top_logprobs");
    chat(json!({"logprobs": true, "top_logprobs": 21}), 400, "top_logprobs");
    chat(json!({"decode_mode": "fast"}), 400, "decode_mode");
    chat(json!({"decode_mode": "iterative", "threshold": 3}), 400, "decode_mode");
    chat(json!({"decode_mode": "greedy", "block_size": 1_000_000}), 400, "decode_mode");
    chat(json!({"model": "gpt-4"}), 404, "model");
    chat(json!({"messages": []}), 400, "messages");
    chat(json!({"messages": [{"content": "x"}]}), 400, "messages[0]");
    chat(json!({"messages": [{"role": "user", "content": 3}]}), 400, "messages[0].content");
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    chat(json!({"messages": [{"role": "user", "content": image}]}), 400, "messages[0].content");
    let long = "word ".repeat(3000);
    chat(json!({"messages": [{"role": "user", "content": long}]}), 400, "messages");
    chat(json!({"tools": [{"type": "function"}]}), 400, "tools");
    chat(json!({"response_format": {"type": "json_object"}}), 400, "response_format");
    // What changes nothing is taken.
    chat_ok(
        &server,
        json!({"tools": [], "response_format": {"type": "text"}, "user": "u",
                            "metadata": {"a": "b"}, "nonsense": [1], "model": "default",
                            "max_tokens": 1, "max_completion_tokens": 2}),
    );
    error("/v1/completions", &json!({"prompt": {"a": 1}}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": []}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": [99999]}), 400, "prompt");
    error("/v1/completions", &json!({"max_tokens": 3}), 400, ".");
    error("/v1/completions", &json!({"prompt": "a", "suffix": "b"}), 400, "suffix");
    error("/v1/completions", &json!({"prompt": "a", "best_of": 2, "n": 3}), 400, "best_of");
    error("/v1/completions", &json!({"prompt": "a", "echo": true, "logprobs": 1}), 400, "echo");
    error("/detokenize", &json!({"tokens": [99999]}), 400, "tokens");
    let raw = |body: &str| server.send("POST", "/v1/completions", "", body);
    assert_eq!(raw("{").is(400).json()["error"]["code"], "invalid_json");
    assert_eq!(raw("[]").is(400).json()["error"]["code"], "invalid_json");
    assert_eq!(raw(&" ".repeat(20001)).is(413).json()["error"]["code"], "body_too_large");
    assert_eq!(server.get("/v1/nothing").is(404).json()["error"]["code"], "not_found");
    for (method, path) in [("GET", "/v1/completions"), ("POST", "/health"), ("POST", "/")] {
        let error = server.send(method, path, "", "").is(405).json();
        assert_eq!(error["error"]["code"], "method_not_allowed");
    }
    server.get("/v1/models/other").is(404);
    server.idle();
}

fn chat_ok(server: &Server, more: Value) {
    let answer = server.chat(&ask("Hi!", more)).is(200).json();
    assert_eq!(answer["usage"]["completion_tokens"], 2, "{answer}");
}

#[test]
fn a_key_is_asked_for_and_public_addresses_need_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("keys");
    std::fs::write(&file, "first\n\nsecond\n").expect("written");
    let server = Server::start(&["--api-key", "third", "--api-key-file", file.to_str().unwrap()]);
    let models = |headers: &str| server.send("GET", "/v1/models", headers, "").status;
    assert_eq!(models(""), 401);
    assert_eq!(models("authorization: Bearer wrong\r\n"), 401);
    assert_eq!(models("authorization: Bearer second\r\n"), 200);
    assert_eq!(models("x-api-key: third\r\n"), 200);
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/nowhere").status, 401, "nothing is learned without a key");
    assert_eq!(server.get("/version").status, 200);
    let page = server.get("/").is(200);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    for part in ["page/style.css", "page/chat.js"] {
        assert!(page.body.contains(part), "{}", page.body);
        server.get(&format!("/{part}")).is(200);
    }
    let url = format!("http://{}", server.address);
    run(&["health", &url]).ends(0, &[]);
    run(&["health", "http://127.0.0.1:1"]).ends(1, &["http://127.0.0.1:1/health is not well"]);
    run(&["serve", "--host", "0.0.0.0"]).ends(2, &["--api-key-file", "--insecure"]);
    std::fs::write(&file, "\n \n").expect("written");
    run(&["serve", "--api-key-file", file.to_str().unwrap()]).ends(2, &["has no key"]);
    let taken = server.address.split(':').nth(1).unwrap();
    run(&["serve", "--port", taken]).ends(2, &["cannot listen on", taken]);
    run(&["serve", "--port", "0", "--model", "/no/such"]).ends(1, &["/no/such"]);
}

#[test]
fn who_leaves_is_cancelled_and_hurts_nobody() {
    let server = Server::slow(&["--max-sequences", "4"]);
    let endless = ask("Tell me a story.", json!({"ignore_eos": true, "stream": true}));
    let patient = ask("Tell me a story.", json!({"max_tokens": 100, "ignore_eos": true}));
    let want = server.chat(&patient).is(200).json()["choices"][0].clone();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| server.chat(&patient).is(200).json()["choices"][0].clone());
        for _ in 0..20 {
            let body = endless.to_string();
            let mut stream = server.open("POST", "/v1/chat/completions", "", &body);
            stream.read_exact(&mut [0; 300]).expect("an answer begins");
        }
        assert_eq!(other.join().expect("an answer"), want);
    });
    server.idle();
    let metrics = server.get("/metrics").is(200).body;
    assert!(metrics.contains("wf_requests_finished_total{reason=\"cancelled\"} 20"), "{metrics}");
    assert!(metrics.contains("vllm:num_requests_running 0"), "{metrics}");
}

#[test]
fn who_comes_too_late_is_told_to_wait() {
    let server = Server::slow(&["--max-sequences", "1", "--max-waiting", "2"]);
    let endless = ask("Tell me a story.", json!({"ignore_eos": true, "stream": true}));
    let body = endless.to_string();
    let mut streams: Vec<_> =
        (0..3).map(|_| server.open("POST", "/v1/chat/completions", "", &body)).collect();
    streams[0].read_exact(&mut [0; 300]).expect("the first answer begins");
    let begin = Instant::now();
    loop {
        let load = server.get("/v1/loads").json();
        if load["num_waiting_reqs"] == 2 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "two wait: {load}");
    }
    let refused = server.chat(&endless).is(429);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    streams.clear();
    server.idle();
    server.chat(&ask("Hi!", json!({"max_tokens": 2}))).is(200);
}

#[test]
#[cfg(unix)]
fn sigterm_lets_running_requests_finish() {
    let server = Server::start(&[]);
    let body = ask(
        "Tell me a story.",
        json!({"ignore_eos": true, "stream": true,
                                              "max_tokens": 1500}),
    );
    let mut stream = server.open("POST", "/v1/chat/completions", "", &body.to_string());
    stream.read_exact(&mut [0; 300]).expect("an answer begins");
    server.terminate();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest");
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"), "cut off");
    let address = server.address.clone();
    server.ended().ends(0, &[]);
    assert!(TcpStream::connect(address).is_err());
}
