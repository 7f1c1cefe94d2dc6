//! Promises of `docs/security.md` that no test of a topic holds: limits of fields, what needs a key, what logs
//! hold, and what names can reach.

use crate::common::server::{Reply, Server, ask, connect_from};
use crate::common::wf_run;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// A request with a list or text of some size: its path, its field and its body.
type Sized = (&'static str, &'static str, fn(usize) -> Value);

/// A chat request for one token with a field.
fn chat(name: &str, value: Value) -> Value {
    ask("Hi!", json!({name: value, "max_tokens": 1}))
}

/// A completion of one token with a field.
fn completion(name: &str, value: Value) -> Value {
    json!({"prompt": "Hi", "max_tokens": 1, name: value})
}

fn tools(count: usize, length: usize) -> Value {
    let tool = |i: usize| {
        let name = format!("{}{i:03}", "f".repeat(length - 3));
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    };
    let tools: Vec<Value> = (0..count).map(tool).collect();
    let mut body = chat("tools", tools.into());
    body["tool_choice"] = "none".into();
    body
}

/// Each limit of the table, as it stands there: what is as large is accepted, what is larger gets 400.
#[test]
fn fields_have_the_limits_of_the_page() {
    let server = Server::start(&["--context", "2048"]);
    let limits: [(usize, Sized); 17] = [
        (8, (CHAT, "n", |n| chat("n", n.into()))),
        (8, (COMPLETIONS, "best_of", |n| completion("best_of", n.into()))),
        (32, (COMPLETIONS, "prompt", |n| json!({"prompt": vec!["a"; n], "max_tokens": 1}))),
        (2048, ("/v1/embeddings", "input", |n| json!({"input": vec!["a"; n]}))),
        (16, (CHAT, "stop", |n| chat("stop", json!(vec!["xyz"; n])))),
        (4096, (CHAT, "stop", |n| chat("stop", "x".repeat(n).into()))),
        (
            64,
            (CHAT, "stop_token_ids", |n| chat("stop_token_ids", json!((0..n).collect::<Vec<_>>()))),
        ),
        (128, (CHAT, "bad_words", |n| chat("bad_words", json!(vec!["xyz"; n])))),
        (256, (CHAT, "bad_words", |n| chat("bad_words", json!(["x".repeat(n)])))),
        (
            32,
            (CHAT, "dry_sequence_breakers", |n| {
                let breakers: Vec<String> = (0..n).map(|i| format!("b{i}")).collect();
                ask(
                    "Hi!",
                    json!({"dry_sequence_breakers": breakers, "dry_multiplier": 1, "max_tokens": 1}),
                )
            }),
        ),
        (1024, (CHAT, "cache_salt", |n| chat("cache_salt", "s".repeat(n).into()))),
        (
            20,
            (CHAT, "top_logprobs", |n| {
                ask("Hi!", json!({"logprobs": true, "top_logprobs": n, "max_tokens": 1}))
            }),
        ),
        (5, (COMPLETIONS, "logprobs", |n| completion("logprobs", n.into()))),
        (20, (CHAT, "prompt_logprobs", |n| chat("prompt_logprobs", n.into()))),
        (128, (CHAT, "tools", |n| tools(n, 5))),
        (64, (CHAT, "tools", |n| tools(1, n))),
        (256 << 10, ("/tokenize", "", |n| json!({"content": "a ".repeat(n / 2 + n % 2)}))),
    ];
    for (limit, (path, field, body)) in limits {
        let accepted = server.post(path, &body(limit));
        assert_eq!(accepted.status, 200, "{path} {field} {limit}: {}", accepted.body);
        let refused = server.post(path, &body(limit + 1)).is(400);
        let named = refused.body.contains(field);
        assert!(named, "{path} {field} {}: {}", limit + 1, refused.body);
    }
    server.idle();
}

/// A response names 16 ignored fields by 64 characters each.
#[test]
fn ignored_fields_are_named_in_short() {
    let server = Server::start(&[]);
    let mut body = ask("Hi!", json!({"max_tokens": 1}));
    for number in 0..40 {
        body[format!("{number:02}{}", "x".repeat(200))] = 1.into();
    }
    let head = server.chat(&body).is(200).head;
    let names = head.lines().find_map(|line| line.strip_prefix("x-ignored-fields: "));
    let names: Vec<&str> = names.expect("they are named").split(", ").collect();
    assert_eq!(names.len(), 16, "{names:?}");
    assert!(names.iter().all(|name| name.len() == 64), "{names:?}");
}

/// Nothing but what the page names is answered without a key, whatever the document of the API lists.
#[test]
fn all_other_paths_need_a_key() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("index.html"), "a page").expect("written");
    let demo = folder.path().to_str().expect("UTF-8");
    let server = Server::start(&["--api-key", "k", "--demo", demo]);
    let open = ["/health", "/version", "/openapi.json", "/docs", "/", "/demo/"];
    for path in open {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let document = server.get("/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    let mut count = 0;
    for (path, methods) in paths {
        for method in methods.as_object().expect("methods").keys() {
            let path = path.replace("{id}", "x");
            let method = method.to_uppercase();
            let status =
                server.send(&method, &path, "content-type: application/json\r\n", "{}").status;
            let expected = if open.contains(&path.as_str()) { 200 } else { 401 };
            assert_eq!(status, expected, "{method} {path}");
            count += usize::from(expected == 401);
        }
    }
    assert!(count > 30, "{count}");
}

/// At any level, neither prompts nor answers nor keys stand in the log; ids of requests are short.
#[test]
fn logs_hold_no_prompts_and_no_answers() {
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1", "--api-key", "keyword"]);
    command.env("WF_LOG", "wf_run=trace,wrinklefree=trace,debug");
    let server = Server::of(command);
    let (json, key) = ("content-type: application/json\r\n", "authorization: Bearer keyword\r\n");
    let id = format!("x-request-id: {}\r\n", "i".repeat(129));
    let headers = format!("{json}{key}{id}");
    let message = json!([{"role": "user", "content": "Say Xylophone"}]);
    let said = json!({"max_tokens": 8, "guided_choice": ["Zanzibar"], "messages": message});
    let answer = server.send("POST", CHAT, &headers, &said.to_string()).is(200);
    assert!(answer.body.contains("Zanzibar") && !answer.head.contains("iiii"), "{}", answer.head);
    for (path, body) in [
        (COMPLETIONS, json!({"prompt": "Xylophone", "max_tokens": 2, "echo": true}).to_string()),
        ("/v1/responses", json!({"input": "Xylophone", "max_output_tokens": 16}).to_string()),
        ("/v1/embeddings", json!({"input": "Xylophone"}).to_string()),
        ("/tokenize", json!({"content": "Xylophone"}).to_string()),
        (CHAT, json!({"messages": "Xylophone"}).to_string()),
        (CHAT, "{\"messages\": [Xylophone".into()),
        (CHAT, json!({"messages": message, "guided_regex": "(Xylophone"}).to_string()),
    ] {
        server.send("POST", path, &headers, &body);
    }
    server.send("POST", CHAT, &format!("{json}authorization: Bearer Xylophone\r\n"), "{}").is(401);
    server.terminate();
    let log = server.ended().ends(0, &[" request"]).stderr;
    for secret in ["Xylophone", "Zanzibar", "keyword", &"i".repeat(129)] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret}: {line:?}");
    }
}

/// A name in a request is a name in the list, never a path and never an id of the hub.
#[test]
fn names_of_models_reach_no_files_and_no_hub() {
    let folder = tempfile::tempdir().expect("a folder");
    let models = folder.path().join("models");
    fs::create_dir(&models).expect("made");
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    for file in [models.join("fox.safetensors"), folder.path().join("owl.safetensors")] {
        crate::common::model::write_with(&file, template, &[]);
    }
    let args = ["serve", "--port", "0", "-t", "1", "--models", models.to_str().expect("UTF-8")];
    let hub = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut command = wf_run(&args);
    command.env("HF_ENDPOINT", format!("http://{}", hub.local_addr().expect("bound")));
    let server = Server::of(command);
    let outside = folder.path().join("owl.safetensors");
    let inside = models.join("fox.safetensors");
    for name in [
        "../owl",
        "../owl.safetensors",
        "..",
        ".",
        "/",
        "./fox.safetensors",
        outside.to_str().expect("UTF-8"),
        inside.to_str().expect("UTF-8"),
        "org/name",
        "hf.co/org/name",
        "store/org/name",
        "https://example.org/model",
        "fox\0",
        "FOX/../fox",
    ] {
        for (path, body) in [
            (CHAT, ask("Hi", json!({"model": name, "max_tokens": 1}))),
            ("/models/load", json!({"model": name})),
            ("/api/generate", json!({"model": name, "prompt": "Hi", "stream": false})),
            ("/api/show", json!({"model": name})),
        ] {
            let reply = server.post(path, &body);
            assert_eq!(reply.status, 404, "{path} {name}: {}", reply.body);
        }
    }
    hub.set_nonblocking(true).expect("set");
    assert!(hub.accept().is_err(), "the hub was not asked");
    server.chat(&ask("Hi", json!({"model": "fox", "max_tokens": 1}))).is(200);
}

/// The time of an answer ends it while it is computed and while it is read slowly.
#[test]
fn the_time_of_an_answer_ends_it() {
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1", "--request-timeout", "2"]);
    command.args(["--context", "4096", "--context-shift"]).env("WF_ISA", "scalar");
    let server = Server::of(command);
    let endless = json!({"ignore_eos": true, "max_tokens": 100_000, "n": 8});
    let begin = Instant::now();
    server.chat(&ask("Tell me a story.", endless.clone())).is(504);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let mut stream = endless;
    stream["stream"] = true.into();
    let body = ask("Tell me a story.", stream).to_string();
    let mut slow = server.open("POST", CHAT, "content-type: application/json\r\n", &body);
    let (begin, mut bytes) = (Instant::now(), [0; 4096]);
    while let Ok(1..) = slow.read(&mut bytes) {
        assert!(begin.elapsed() < Duration::from_secs(40), "the answer is read to its end");
        sleep(Duration::from_millis(10));
    }
    server.idle();
}

/// Issue: 112 continuations of 160 bytes of four stored responses took 2.1 GiB.
#[test]
#[cfg(target_os = "linux")]
fn continuations_of_large_responses_take_little_memory() {
    let server = Server::start(&["--context", "2048"]);
    let filler = "x".repeat(1_900_000);
    let store = || {
        let body = json!({"input": "Hi", "metadata": {"a": filler}, "max_output_tokens": 16});
        let id = server.post("/v1/responses", &body).is(200).json()["id"].clone();
        id.as_str().expect("an id").to_string()
    };
    let ids: Vec<String> = (0..4).map(|_| store()).collect();
    let idle = server.resident_mib();
    let open = |number: usize| {
        let body = json!({"input": "And?", "previous_response_id": ids[number % 4],
            "max_output_tokens": 16});
        server.open(
            "POST",
            "/v1/responses",
            "content-type: application/json\r\n",
            &body.to_string(),
        )
    };
    let streams: Vec<TcpStream> = (0..112).map(open).collect();
    let mut peak = idle;
    for mut stream in streams {
        peak = peak.max(server.resident_mib());
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let status = Reply::all(&text).first().map(|reply| reply.status);
        assert!(matches!(status, Some(200 | 404 | 429)), "{status:?}");
    }
    println!("{:.0} MiB more", peak - idle);
    assert!(peak - idle < 100.0, "{:.0} MiB more", peak - idle);
}

/// Issue: an answer without an end that nobody read took 2 MiB a second.
#[test]
#[cfg(target_os = "linux")]
fn unread_answers_take_bounded_memory() {
    let server = Server::start(&["--context", "512", "--context-shift", "--kv-tokens", "8192"]);
    let more = json!({"stream": true, "n": 8, "max_tokens": 10_000_000, "ignore_eos": true,
        "logprobs": true, "top_logprobs": 5});
    server.chat(&ask("Hi", json!({"n": 8, "max_tokens": 1500, "ignore_eos": true}))).is(200);
    let idle = server.resident_mib();
    let body = ask("Hi", more).to_string();
    let stream = server.open("POST", CHAT, "content-type: application/json\r\n", &body);
    let (begin, mut peak) = (Instant::now(), idle);
    while begin.elapsed() < Duration::from_secs(12) {
        peak = peak.max(server.resident_mib());
        sleep(Duration::from_millis(100));
    }
    println!("{:.0} MiB more", peak - idle);
    assert!(peak - idle < 80.0, "{:.0} MiB more", peak - idle);
    drop(stream);
    server.idle();
}

/// Issue: half a million control tokens in a message, or one and a long text, took 50 times the body.
#[test]
#[cfg(target_os = "linux")]
fn control_tokens_take_little_memory() {
    let server = Server::start(&[]);
    server.chat(&ask("Hi <|bos|>", json!({"max_tokens": 2}))).is(200);
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.child.id()));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
    };
    for text in ["<|bos|>,".repeat(500_000), format!("<|bos|>{}", "word ".repeat(800_000))] {
        fs::write(format!("/proc/{}/clear_refs", server.child.id()), "5").expect("reset");
        let before = peak();
        server.chat(&ask(&text, json!({}))).is(400);
        let more = peak() - before;
        println!("{more} MiB more");
        assert!(more <= 48, "{more} MiB for {} bytes", text.len());
    }
}

/// A client saves 64 files; those that it has can be replaced.
#[test]
fn saved_slots_have_a_quota() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&["--slot-save-path", folder.path().to_str().expect("UTF-8")]);
    let text = "Once upon a time there was a fox. ".repeat(8);
    server.post(COMPLETIONS, &json!({"prompt": text, "max_tokens": 2})).is(200);
    let save = |name: &str| server.post("/slots/0?action=save", &json!({"filename": name}));
    save("a0").is(200);
    for number in 1..64 {
        fs::write(folder.path().join(format!("a{number}")), "x").expect("written");
    }
    let refused = save("new");
    assert!(
        (400..600).contains(&refused.status) && refused.body.contains("64 files"),
        "{}",
        refused.body
    );
    assert!(!folder.path().join("new").exists());
    save("a0").is(200);
    save("a63").is(200);
}

/// A client that sends the head of a request or a body in pieces, and then nothing, is dropped after 30 s.
#[test]
fn slow_clients_are_dropped() {
    let server = Server::start(&[]);
    let begin = Instant::now();
    let open = |text: &str| {
        let mut stream = connect_from("127.0.0.1", &server.address);
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    };
    let body =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{\"pr";
    let streams = [open("GET /v1/models HTTP/1.1\r\nhos"), open(body)];
    for mut stream in streams {
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let time = begin.elapsed();
        assert!((25..40).contains(&time.as_secs()), "{time:?}: {text}");
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }
}

/// A client of HTTP/1.0 that closes its half while its answer is computed cannot be told from one that has
/// gone: its request ends.
#[test]
fn closed_halves_without_an_interim_response_end_the_request() {
    let server = Server::slow(&[]);
    let endless = json!({"max_tokens": 2000, "ignore_eos": true, "n": 8});
    let body = ask("Tell me a story.", endless).to_string();
    let mut stream = server.connect();
    let head = format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("half-closed");
    let (begin, mut text) = (Instant::now(), String::new());
    let _ = stream.read_to_string(&mut text);
    let time = begin.elapsed();
    assert!(text.is_empty() && (1..6).contains(&time.as_secs()), "{time:?}: {text}");
    server.idle();
    let metrics = server.get("/metrics").is(200).body;
    assert!(metrics.contains("wf_requests_finished_total{reason=\"cancelled\"} 8"), "{metrics}");
}

/// Requests of every kind leave no file in the folders that a program usually writes to.
#[test]
#[cfg(unix)]
fn a_server_writes_no_files() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1"]);
    command.current_dir(folders[0].path()).env("HOME", folders[1].path());
    for name in ["TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env(name, folders[2].path());
    }
    let server = Server::of(command);
    let regex = json!({"guided_regex": "[a-z]+", "max_tokens": 3});
    server.chat(&ask("Hi", regex)).is(200);
    server.post("/v1/responses", &json!({"input": "Hi", "max_output_tokens": 16})).is(200);
    server.post("/v1/embeddings", &json!({"input": "Hi"})).is(200);
    server.post("/slots/0?action=save", &json!({"filename": "a"})).is(501);
    for folder in &folders {
        assert_eq!(crate::common::names(folder.path()), [""; 0]);
    }
    server.terminate();
    server.ended().ends(0, &[]);
    for folder in &folders {
        assert_eq!(crate::common::names(folder.path()), [""; 0]);
    }
}
