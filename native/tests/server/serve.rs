//! The endpoints of `wf-run serve` over real connections.

use crate::common::run;
use crate::common::server::{Server, ask};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn responses_equal_the_command_lines_output() {
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
fn a_seed_gives_the_same_text_alone_and_concurrently() {
    // Sequences and pages for some of them at a time.
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
fn several_outputs_log_probabilities_and_echo() {
    let server = Server::start(&[]);
    let more = json!({"n": 3, "temperature": 1.2, "seed": 7, "max_tokens": 12, "logprobs": true,
                      "top_logprobs": 2});
    let answer = server.chat(&ask("Tell me a story.", more.clone())).is(200).json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    assert_ne!(choices[0]["message"], choices[1]["message"], "each output has its own seed");
    let tokens = choices[2]["logprobs"]["content"].as_array().unwrap();
    let joined: String = tokens.iter().map(|t| t["token"].as_str().unwrap()).collect();
    assert_eq!(choices[2]["message"]["content"], joined);
    assert!(tokens.iter().all(|t| t["top_logprobs"].as_array().unwrap().len() == 2));
    assert!(tokens.iter().all(|t| t["logprob"].as_f64().unwrap() <= 0.0));
    let single = json!({"n": 1, "temperature": 1.2, "seed": 9, "max_tokens": 12});
    let single = server.chat(&ask("Tell me a story.", single)).is(200).json();
    assert_eq!(single["choices"][0]["message"], choices[2]["message"], "seed 7 + 2");

    let body = json!({"prompt": ["Once upon", "The"], "max_tokens": 4, "echo": true, "n": 2,
                      "temperature": 0, "best_of": 3, "ignore_eos": true});
    let answer = server.post("/v1/completions", &body).is(200).json();
    let texts: Vec<_> =
        answer["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[1].starts_with("Once upon") && texts[2].starts_with("The"), "{texts:?}");
    assert_eq!(answer["usage"]["completion_tokens"], 2 * 3 * 4, "all of best_of count");
    let eos = server.get("/tokenizer_info").is(200).json()["eos_token"].clone();
    let text = format!("a fox{}Once", eos.as_str().expect("a name"));
    let ids = server.post("/tokenize", &json!({"content": text})).is(200).json();
    let back = server.post("/detokenize", &json!({"tokens": ids["tokens"]})).is(200).json();
    assert_eq!(back["content"], text, "with the special token");
    let ids = server.post("/tokenize", &json!({"content": "Once upon"})).is(200).json();
    let body = json!({"prompt": ids["tokens"], "max_tokens": 4, "temperature": 0, "logprobs": 1,
                      "ignore_eos": true});
    let answer = server.post("/v1/completions", &body).is(200).json();
    assert_eq!(format!("Once upon{}", answer["choices"][0]["text"].as_str().unwrap()), texts[0]);
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 4);

    // `ar`, because speculative decoding would take fewer passes.
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2,
                        "max_tokens": 5, "decode_mode": "ar"});
    let events = server.chat(&ask("Hello!", stream)).is(200).events();
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(10)));
    let one = server.chat(&ask("Hello!", json!({"max_tokens": 1}))).is(200).json();
    assert_eq!(usage["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
    assert_eq!(usage["timings"]["forward_passes"], 5);
}

#[test]
fn invalid_requests_get_openais_errors() {
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
    chat(json!({"top_k": -2}), 400, "top_k");
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
    chat(json!({"messages": [{"role": "x", "content": "Hi"}]}), 400, "messages[0].role");
    let part = json!([{"type": "text"}]);
    chat(json!({"messages": [{"role": "user", "content": part}]}), 400, "messages[0].content.text");
    chat(json!({"guided_choice": []}), 400, "guided_choice");
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    chat(json!({"messages": [{"role": "user", "content": image}]}), 400, "messages[0].content");
    let long = "word ".repeat(3000);
    chat(json!({"messages": [{"role": "user", "content": long}]}), 400, "messages");
    chat(json!({"tools": [{"type": "function"}]}), 400, "tools[0]");
    chat(
        json!({"tools": [{"type": "web_search", "function": {"name": "f"}}]}),
        400,
        "tools[0].type",
    );
    chat(json!({"tool_choice": "required"}), 400, "tool_choice");
    chat(json!({"tool_choice": "sometimes"}), 400, "tool_choice");
    chat(json!({"response_format": {"type": "xml"}}), 400, "response_format.type");
    let schema = |schema: Value| json!({"type": "json_schema", "json_schema": {"schema": schema}});
    chat(json!({"response_format": schema(json!([]))}), 400, "response_format");
    chat(json!({"response_format": schema(json!({"type": "nothing"}))}), 400, "response_format");
    chat(json!({"guided_regex": "(", "max_tokens": 1}), 400, "guided_regex");
    chat(json!({"guided_regex": "a", "guided_grammar": "start: \"a\""}), 400, "response_format");
    // Fields without an effect are accepted.
    chat_ok(
        &server,
        json!({"tools": null, "response_format": {"type": "text"}, "user": "u",
                            "metadata": {"a": "b"}, "nonsense": [1], "top_k": -1, "model": "default",
                            "max_tokens": 1, "max_completion_tokens": 2}),
    );
    error("/v1/completions", &json!({"prompt": {"a": 1}}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": []}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": [99999]}), 400, "prompt");
    error("/v1/completions", &json!({"max_tokens": 3}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": vec!["a"; 32], "n": 8}), 400, "prompt");
    error("/v1/completions", &json!({"prompt": "a", "suffix": "b ".repeat(99)}), 400, "suffix");
    error("/v1/completions", &json!({"prompt": "a", "best_of": 2, "n": 3}), 400, "best_of");
    error("/detokenize", &json!({"tokens": [99999]}), 400, "tokens");
    server.idle();
}

#[test]
fn wrong_bodies_paths_and_methods_get_openais_errors() {
    let server = Server::start(&["--max-body", "20000"]);
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
fn keys_are_required_for_requests_and_public_addresses() {
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
    assert_eq!(server.get("/nowhere").status, 401, "unknown paths are not revealed without a key");
    assert_eq!(server.get("/version").status, 200);
    let page = server.get("/").is(200);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    for part in ["page/style.css", "page/chat.js"] {
        assert!(page.body.contains(part), "{}", page.body);
        server.get(&format!("/{part}")).is(200);
    }
    let url = format!("http://{}", server.address);
    run(&["health", &url]).ends(0, &[]);
    let nobody = "no server listens at http://127.0.0.1:1; start one with `wf-run serve`";
    run(&["health", "http://127.0.0.1:1"]).ends(1, &[nobody]);
    run(&["serve", "--host", "0.0.0.0"]).ends(2, &["--api-key-file", "--insecure"]);
    std::fs::write(&file, "\n \n").expect("written");
    run(&["serve", "--api-key-file", file.to_str().unwrap()]).ends(2, &["has no key"]);
    let taken = server.address.split(':').nth(1).unwrap();
    run(&["serve", "--port", taken]).ends(1, &["cannot listen on", taken]);
    run(&["serve", "--port", "0", "--model", "/no/such"]).ends(1, &["/no/such"]);
}

#[test]
fn disconnected_clients_are_cancelled_without_side_effects() {
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
fn a_full_queue_answers_429() {
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
    let server = Server::start(&["--context", "2048"]);
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

#[test]
#[cfg(unix)]
fn a_second_sigterm_ends_the_server_at_once() {
    let server = Server::slow(&[]);
    let body = ask("Tell me a story.", json!({"ignore_eos": true, "stream": true}));
    let mut stream = server.open("POST", "/v1/chat/completions", "", &body.to_string());
    stream.read_exact(&mut [0; 300]).expect("an answer begins");
    let mut early = server.connect();
    server.terminate();
    let begin = Instant::now();
    // New connections receive 503, and so do open ones that send their first request now.
    while server.get("/health").status != 503 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the first signal has arrived");
    }
    server.chat(&ask("Hi!", json!({}))).is(503);
    write!(early, "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer:?}");
    server.terminate();
    server.ended().ends(0, &["a second signal"]);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

/// Guards against DNS rebinding.
#[test]
fn without_keys_only_allowed_hosts_are_answered() {
    let status = |server: &Server, host: &str| {
        let mut stream = server.connect();
        write!(stream, "GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).expect("a status")
    };
    let server = Server::start(&["--allowed-host", "models.example.org"]);
    for ours in ["localhost", "127.0.0.1:30000", "[::1]:1", "models.example.org"] {
        assert_eq!(status(&server, ours), 200, "{ours}");
    }
    assert_eq!(status(&server, "evil.example.org:30000"), 403);
    let keyed = Server::start(&["--api-key", "k"]);
    assert_eq!(status(&keyed, "evil.example.org"), 401);
}

#[test]
fn log_probabilities_have_text_offsets() {
    let server = Server::start(&[]);
    let ask = |more: Value| {
        let mut body = json!({"prompt": "The z\u{fc}rich fox \u{1f98a} was", "max_tokens": 8,
            "temperature": 0, "logprobs": 0, "echo": true, "ignore_eos": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body).is(200)
    };
    let lists = |choice: &Value| {
        let list = |name: &str| choice["logprobs"][name].as_array().cloned().unwrap_or_default();
        (list("tokens"), list("text_offset"))
    };
    let whole = ask(json!({})).json()["choices"][0].clone();
    let (tokens, offsets) = lists(&whole);
    let text: Vec<char> = whole["text"].as_str().unwrap().chars().collect();
    let mut compared = 0;
    for (token, offset) in tokens.iter().zip(&offsets) {
        // Skip tokens that hold only a part of a character.
        let token: Vec<char> = token.as_str().unwrap().chars().collect();
        if !token.contains(&char::REPLACEMENT_CHARACTER) {
            let place = offset.as_u64().unwrap() as usize;
            assert!(text[place..].starts_with(&token), "{token:?} at {place}");
            compared += 1;
        }
    }
    assert!(compared > 10 && compared < tokens.len(), "{whole}");
    let streamed = ask(json!({"stream": true})).chunks();
    let streamed: Vec<Value> =
        streamed.iter().flat_map(|chunk| lists(&chunk["choices"][0]).1).collect();
    assert_eq!(streamed, offsets);
}

#[test]
fn the_prefix_cache_is_separate_for_each_tenant_and_salt() {
    let server = Server::start(&["--api-key", "one", "--api-key", "two"]);
    let long = "Tell me a story about a fox, an owl, a frog and a bear who bake a cake. ".repeat(4);
    let cached = |key: &str, more: Value| {
        let body = ask(&long, json!({"max_tokens": 5}));
        let mut body = body.as_object().unwrap().clone();
        body.extend(more.as_object().unwrap().clone());
        let headers = format!("authorization: Bearer {key}\r\n");
        let body = Value::from(body).to_string();
        let answer = server.send("POST", "/v1/chat/completions", &headers, &body).is(200).json();
        let usage = &answer["usage"];
        let known = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert_eq!(answer["timings"]["cached_tokens"], known);
        let timings = &answer["timings"];
        let computed = usage["prompt_tokens"].as_u64().unwrap() - known;
        let wait = timings["first_token_seconds"].as_f64().unwrap();
        let rate = timings["prefill_tokens_per_second"].as_f64().unwrap();
        assert!((rate * wait - computed as f64).abs() < 1e-6 * computed as f64, "{timings}");
        // All complete pages except the last token's.
        assert!(known == 0 || known == (usage["prompt_tokens"].as_u64().unwrap() - 1) / 32 * 32);
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap().to_string();
        (known, text)
    };
    let (first, want) = cached("one", json!({}));
    assert_eq!(first, 0);
    let (again, text) = cached("one", json!({}));
    assert!(again >= 64 && text == want, "{again}: {text}");
    assert_eq!(cached("two", json!({})), (0, want.clone()));
    assert_eq!(cached("one", json!({"cache_salt": "mine"})), (0, want.clone()));
    assert_eq!(cached("one", json!({"cache_salt": "mine"})), (again, want.clone()));
    // Block diffusion shares prefixes as well.
    let blocks = |salt: &str| json!({"decode_mode": "iterative", "cache_salt": salt});
    let (none, want) = cached("one", blocks("other"));
    let (known, text) = cached("one", blocks(""));
    assert!(none == 0 && known >= 64 && text == want, "{none} {known} {text}");
}

#[test]
fn prompt_scores_equal_output_scores() {
    let server = Server::start(&[]);
    let complete = |body: Value| server.post("/v1/completions", &body).is(200).json();
    let ids =
        |text: &str| server.post("/tokenize", &json!({"prompt": text})).json()["tokens"].clone();
    let begin = ids("Once upon a time there was a");
    let said =
        complete(json!({"prompt": begin, "max_tokens": 40, "logprobs": 2, "temperature": 0}));
    let said = &said["choices"][0];
    let list = |choice: &Value, key: &str| choice["logprobs"][key].as_array().unwrap().clone();
    let whole = ids(&format!("Once upon a time there was a{}", said["text"].as_str().unwrap()));
    let (start, end) = (begin.as_array().unwrap().len(), whole.as_array().unwrap().len());
    assert_eq!(end, start + 40, "the output tokenizes to the generated tokens");

    // Twice: cached prefixes must not lose scores.
    for _ in 0..2 {
        let body = json!({"prompt": whole, "max_tokens": 0, "echo": true, "logprobs": 2});
        let scored = &complete(body)["choices"][0];
        for key in ["tokens", "token_logprobs", "top_logprobs"] {
            assert_eq!(list(scored, key)[start..], list(said, key), "{key}");
        }
        assert_eq!(list(scored, "token_logprobs")[0], Value::Null);
        assert_eq!(list(scored, "top_logprobs")[0], Value::Null);
    }
    let body = json!({"prompt": whole, "max_tokens": 3, "echo": true, "logprobs": 2, "seed": 1});
    let want = &complete(body.clone())["choices"][0];
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = server.post("/v1/completions", &streamed).is(200).events();
    let (mut text, mut logprobs) = (String::new(), Vec::new());
    for event in &events[..events.len() - 1] {
        let choice = &serde_json::from_str::<Value>(event).unwrap()["choices"][0];
        text += choice["text"].as_str().unwrap();
        if !choice["logprobs"].is_null() {
            logprobs.extend(list(choice, "token_logprobs"));
        }
    }
    assert_eq!(
        (text, logprobs),
        (want["text"].as_str().unwrap().into(), list(want, "token_logprobs"))
    );

    let body = json!({"prompt": "a b", "echo": true, "logprobs": 1, "decode_mode": "greedy"});
    let error = server.post("/v1/completions", &body).is(400).json();
    assert_eq!(error["error"]["param"], "echo");
}

#[test]
fn embeddings_have_length_one_and_depend_on_the_text_alone() {
    let server = Server::start(&["--kv-tokens", "512"]);
    let fox = "The fox runs through the forest.";
    let embed = |body: Value| server.post("/v1/embeddings", &body);
    let vectors = |body: Value| -> Vec<Vec<f64>> {
        let answer = embed(body).is(200).json();
        let data = answer["data"].as_array().unwrap();
        data.iter().map(|d| serde_json::from_value(d["embedding"].clone()).unwrap()).collect()
    };
    let texts = [fox, "The fox ran into the forest.", "What is 3 + 4?"];
    let all = vectors(json!({"input": texts}));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    assert!(all.iter().all(|v| (dot(v, v) - 1.0).abs() < 1e-5));
    assert!(
        dot(&all[0], &all[1]) > dot(&all[0], &all[2]) + 0.1,
        "similar texts have similar embeddings"
    );
    // Alone, as token ids, and among many others.
    let ids = server.post("/tokenize", &json!({"prompt": fox})).json()["tokens"].clone();
    assert_eq!(vectors(json!({"input": ids})), all[..1]);
    let many: Vec<&str> = texts.iter().copied().cycle().take(300).collect();
    let crowd = vectors(json!({"input": many}));
    assert_eq!(crowd.len(), 300);
    assert!(crowd.iter().zip(all.iter().cycle()).all(|(got, want)| got == want));
    assert_ne!(vectors(json!({"input": fox, "pooling": "last"})), all[..1]);

    let wrong = |body: Value, param: &str| {
        assert_eq!(embed(body).is(400).json()["error"]["param"], param);
    };
    wrong(json!({"input": []}), "input");
    wrong(json!({"input": [""]}), "input");
    wrong(json!({"input": fox, "dimensions": 7}), "dimensions");
    wrong(json!({"input": fox, "encoding_format": "hex"}), "encoding_format");
    wrong(json!({"input": "word ".repeat(3000)}), "input");
}
