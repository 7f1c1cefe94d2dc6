//! Several models in one server: loading on demand, a memory limit, states, and the local store.

use crate::common::hub::{Hub, State};
use crate::common::model::write_with;
use crate::common::server::{Server, ask, connect_from, wait_until};
use crate::common::{Ran, wf_run};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Chat templates that give different answers.
const TEMPLATES: [(&str, &str); 2] = [
    ("fox", "{% for m in messages %}<|bos|><|user|>{{ m.content }}<|bot|>{% endfor %}"),
    ("owl", "{% for m in messages %}{{ m.content }} Once upon a time{% endfor %}"),
];
/// Memory for one of them next to its KV cache, not for two.
const ONE: &str = "32M";

/// Writes both models to a folder.
fn models() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, template) in TEMPLATES {
        write_with(&folder.path().join(format!("{name}.safetensors")), template, &[]);
    }
    folder
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("UTF-8")
}

fn content(server: &Server, body: &Value) -> String {
    let answer = server.chat(body).is(200).json();
    answer["choices"][0]["message"]["content"].as_str().expect("text").into()
}

/// Returns the names of the models in this state.
fn in_state(server: &Server, state: &str) -> Vec<String> {
    let list = server.get("/v1/models").is(200).json();
    let all = list["data"].as_array().expect("models").iter();
    let there = all.filter(|model| model["status"]["value"] == state);
    there.map(|model| model["id"].as_str().expect("a name").into()).collect()
}

#[test]
fn models_take_turns_under_a_limit_that_holds_one() {
    let folder = models();
    let body = |name: &str, i: usize| {
        let more = json!({"model": name, "max_tokens": 16 + i, "seed": i, "temperature": 0.8});
        ask("Tell me a story about Pip.", more)
    };
    let mut alone = Vec::new();
    for (name, _) in TEMPLATES {
        let file = folder.path().join(format!("{name}.safetensors"));
        let server = Server::start(&["-m", path(&file), "--served-model-name", name]);
        alone.push((0..4).map(|i| content(&server, &body(name, i))).collect::<Vec<_>>());
    }
    assert_ne!(alone[0], alone[1], "the models differ");
    let server = Server::start(&[
        "--models",
        path(folder.path()),
        "--memory-limit",
        ONE,
        "--context",
        "2048",
    ]);
    for turn in 0..4 {
        for ((name, _), alone) in TEMPLATES.into_iter().zip(&alone) {
            assert_eq!(content(&server, &body(name, turn)), alone[turn], "{name} {turn}");
            assert_eq!(in_state(&server, "loaded"), [name], "the limit holds one");
        }
    }
    // All at once: nobody is refused, and nobody gets the other model's answer.
    thread::scope(|scope| {
        for i in 0..8 {
            let (server, alone, body) = (&server, &alone, &body);
            scope.spawn(move || {
                let text = content(server, &body(TEMPLATES[i % 2].0, i / 2));
                assert_eq!(text, alone[i % 2][i / 2]);
            });
        }
    });
    wait_until("the gauges count all engines", || {
        server.get("/metrics").is(200).body.contains("wf_num_requests_running 0\n")
    });
}

#[test]
fn models_are_listed_loaded_and_unloaded() {
    let folder = models();
    let server = Server::start(&["--models", path(folder.path()), "--keep-alive", "-1"]);
    assert_eq!(in_state(&server, "unloaded"), ["fox", "owl"]);
    let error = server.chat(&ask("Hi", json!({"model": "cat"}))).is(404).json();
    let text = error["error"]["message"].as_str().expect("text");
    assert!(text.contains("`cat` does not exist") && text.contains("`fox`, `owl`"), "{text}");
    assert_eq!(error["error"]["code"], "model_not_found");
    let error = server.chat(&ask("Hi", json!({}))).is(400).json();
    assert_eq!(error["error"]["param"], "model");
    let body =
        json!({"model": "cat", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]});
    let error = server.post("/v1/messages", &body).is(404).json();
    assert_eq!(error["error"]["type"], "not_found_error", "in that API's words");
    server.get("/v1/loads").is(503);
    server.post("/v1/models/load", &json!({"model": "fox"})).is(200);
    assert_eq!(in_state(&server, "loaded"), ["fox"]);
    assert_eq!(server.get("/server_info").is(200).json()["model"], "fox", "the only one");
    server.post("/models/load", &json!({"model": "owl"})).is(200);
    assert_eq!(in_state(&server, "loaded"), ["fox", "owl"], "there is memory for both");
    server.get("/server_info").is(400);
    assert_eq!(server.get("/server_info?model=owl").is(200).json()["model"], "owl");
    let tokens = server.post("/tokenize", &json!({"model": "owl", "prompt": "a fox"})).is(200);
    assert_eq!(tokens.json()["max_model_len"], 512);
    server.post("/tokenize", &json!({"model": "cat", "prompt": "a fox"})).is(404);
    server.post("/v1/models/unload", &json!({"model": "fox"})).is(200);
    assert_eq!(in_state(&server, "loaded"), ["owl"]);
    server.post("/v1/models/unload", &json!({"model": "cat"})).is(404);
    // A model that comes later is found.
    thread::sleep(Duration::from_millis(1100));
    fs::copy(folder.path().join("fox.safetensors"), folder.path().join("elk.safetensors"))
        .expect("copied");
    assert!(!content(&server, &ask("Hi", json!({"model": "elk", "max_tokens": 4}))).is_empty());
    server.terminate();
    server.ended().ends(0, &[]);
}

#[test]
fn models_without_requests_leave_memory() {
    let folder = models();
    let server = Server::start(&["--models", path(folder.path()), "--keep-alive", "300ms"]);
    content(&server, &ask("Hi", json!({"model": "fox", "max_tokens": 4})));
    wait_until("it is unloaded", || in_state(&server, "loaded").is_empty());
    server.post("/models/load", &json!({"model": "owl", "keep_alive": -1})).is(200);
    thread::sleep(Duration::from_millis(900));
    assert_eq!(in_state(&server, "loaded"), ["owl"], "it was asked to stay");
}

#[test]
fn a_stream_tells_that_its_model_is_loading() {
    let folder = models();
    let args = ["--models", path(folder.path()), "--memory-limit", ONE];
    let server = Server::slow(&args);
    let headers = "content-type: application/json\r\n";
    let long =
        ask("Hi", json!({"model": "fox", "max_tokens": 400, "ignore_eos": true, "stream": true}));
    let mut first =
        BufReader::new(server.open("POST", "/v1/chat/completions", headers, &long.to_string()));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        first.read_line(&mut line).expect("a line");
    }
    // The limit holds one model, so the other one waits until this answer has ended.
    let body =
        ask("Hi", json!({"model": "owl", "max_tokens": 4, "ignore_eos": true, "stream": true}));
    let reply = server.chat(&body).is(200);
    assert!(reply.head.contains("text/event-stream"), "{}", reply.head);
    assert!(reply.body.starts_with(": the model owl "), "{}", reply.body);
    assert_eq!(reply.chunks().last().expect("chunks")["choices"][0]["finish_reason"], "length");
    let broken = folder.path().join("broken.gguf");
    fs::write(&broken, "GGUF").expect("written");
    thread::sleep(Duration::from_millis(1100));
    let error = server.chat(&ask("Hi", json!({"model": "broken"}))).is(500).json();
    assert_eq!(error["error"]["code"], "model_load_failed");
    let body = ask("Hi", json!({"model": "broken", "stream": true}));
    let events = server.chat(&body).is(200).events();
    assert!(events[0].contains("model_load_failed"), "{events:?}");
    let model = server.get("/v1/models/broken").is(200).json();
    assert_eq!(model["status"]["failed"], true, "{model}");
}

#[test]
fn a_configuration_lists_models() {
    let folder = models();
    let (fox, file) = (folder.path().join("fox.safetensors"), folder.path().join("wf.yaml"));
    let text = format!(
        "models:\n  - name: a\n    model_path: {}\n    aliases: [gpt-4o]\n    context: 512\n  - name: b\n    \
         preload: true\n",
        path(&fox)
    );
    fs::write(&file, text).expect("written");
    let server = Server::start(&["--config", path(&file)]);
    wait_until("b is loaded", || in_state(&server, "loaded") == ["b"]);
    content(&server, &ask("Hi", json!({"model": "gpt-4o", "max_tokens": 4})));
    let model = server.get("/v1/models/gpt-4o").is(200).json();
    assert_eq!((&model["id"], &model["max_model_len"]), (&json!("a"), &json!(512)));
    fs::write(&file, "models:\n  - name: a\n    size: 1\n").expect("written");
    crate::common::run(&["serve", "--config", path(&file)])
        .ends(2, &["line 3", "unknown key `size`"]);
    let args = ["serve", "--models", path(folder.path()), "-m", path(&fox)];
    crate::common::run(&args).ends(2, &["--models"]);
    crate::common::run(&["serve", "--models", "/nowhere"])
        .ends(2, &["cannot read the folder /nowhere"]);
}

/// Runs with the store in `home`, which this hub fills.
fn with_store(hub: &Hub, home: &Path, args: &[&str]) -> Ran {
    let mut command = wf_run(args);
    hub.environment(&mut command, home).output().expect("wf-run starts").into()
}

/// A server of the store lists its models under all their names, with size and time before they are loaded,
/// and `fox`, which stays where it is, under the name that it gets.
fn short_names_are_listed(hub: &Hub, home: &Path, fox: &Path) {
    let run = |args: &[&str]| with_store(hub, home, args);
    let added = run(&["add", path(fox), "--name", "fox"]).ends(0, &[]).stdout;
    assert!(added.starts_with("fox is /") && added.ends_with("fox.safetensors\n"), "{added}");
    let listed = run(&["list"]).ends(0, &[]).stdout;
    assert!(listed.lines().any(|line| line.starts_with("fox   /")), "{listed}");
    let told = run(&["run", "fox", "Tell me a story.", "-n", "8"]).ends(0, &[]).stdout;
    let args = ["generate", "-m", path(fox), "Tell me a story.", "-n", "8"];
    assert_eq!(told, run(&args).ends(0, &[]).stdout);
    run(&["add", path(home), "--name", "x"]).ends(1, &["is not a model"]);
    run(&["add", "/no/such", "--name", "x"]).ends(1, &["cannot find /no/such"]);
    run(&["add", path(fox), "--name", "a/b"]).ends(1, &["is not a name"]);
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1", "--models", "store"]);
    hub.environment(&mut command, home);
    let server = Server::of(command);
    let url = format!("http://{}", server.address);
    let names = |list: &Value, key: &str| -> Vec<String> {
        let cards = list.as_array().expect("a list").iter();
        cards.map(|card| card[key].as_str().expect("a text").into()).collect()
    };
    let all = ["fox", "org/tiny", "tiny"];
    let models = server.get("/v1/models").is(200).json();
    assert_eq!(names(&models["data"], "id"), all, "{models}");
    let tags = server.get("/api/tags").is(200).json();
    assert_eq!(names(&tags["models"], "name"), all, "{tags}");
    for card in tags["models"].as_array().expect("a list") {
        assert!(card["size"].as_u64() > Some(1000), "{card}");
        let year: u32 = card["modified_at"].as_str().expect("a time")[..4].parse().expect("a year");
        assert!(year > 2020, "{card}");
    }
    assert_eq!(tags["models"][1]["digest"], tags["models"][2]["digest"]);
    let shown = run(&["ps", "--all", &url]).ends(0, &[]).stdout;
    assert!(shown.contains("tiny  org/tiny  unloaded"), "{shown}");
    content(&server, &ask("Tell me a story.", json!({"model": "tiny", "max_tokens": 4})));
    let loaded = server.get("/api/ps").is(200).json();
    assert_eq!(names(&loaded["models"], "name"), all[1..], "{loaded}");
    assert_eq!(loaded["models"][0]["size"], tags["models"][1]["size"], "{loaded}");
    let shown = run(&["ps", &url]).ends(0, &[]).stdout;
    assert!(shown.contains("tiny  org/tiny  loaded"), "{shown}");
    let shown: Value = serde_json::from_str(&run(&["ps", &url, "--json"]).stdout).expect("JSON");
    assert_eq!(shown[0]["names"], json!(["tiny"]), "{shown}");
    // Another name that comes first changes nothing for a model that is loaded.
    content(&server, &ask("Tell me a story.", json!({"model": "fox", "max_tokens": 4})));
    run(&["add", path(fox), "--name", "a-fox"]).ends(0, &[]);
    // The store is read again a second after the last time.
    thread::sleep(Duration::from_millis(1100));
    content(&server, &ask("Tell me a story.", json!({"model": "a-fox", "max_tokens": 4})));
    let loaded = server.get("/api/ps").is(200).json();
    let foxes = names(&loaded["models"], "name");
    let foxes: Vec<_> = foxes.iter().filter(|name| name.contains("fox")).collect();
    assert_eq!(foxes, ["fox", "a-fox"], "{loaded}");
    content(&server, &ask("Tell me a story.", json!({"model": "fox", "max_tokens": 4})));
    drop(server);
    run(&["rm", "fox"]).ends(0, &[]);
    assert!(fox.exists());
}

#[test]
fn the_store_is_filled_listed_served_and_emptied() {
    let folder = models();
    let bytes = fs::read(folder.path().join("fox.safetensors")).expect("there");
    let files = [("model.safetensors".to_string(), bytes)].into();
    let state = State { repos: [("org/tiny".to_string(), files)].into(), ..State::default() };
    let (hub, home) = (Hub::start(state), tempfile::tempdir().expect("a folder"));
    let run = |args: &[&str]| with_store(&hub, home.path(), args);
    run(&["list"]).ends(0, &["has no models", "wf-run pull"]);
    let pulled = run(&["pull", "org/tiny", "--name", "tiny"]).ends(0, &[]).stdout;
    assert!(pulled.starts_with("org/tiny as tiny: "), "{pulled}");
    let listed = run(&["ls"]).ends(0, &[]).stdout;
    assert!(listed.contains("tiny  org/tiny  "), "{listed}");
    let listed: Value = serde_json::from_str(&run(&["list", "--json"]).stdout).expect("JSON");
    assert_eq!((&listed[0]["id"], &listed[0]["names"]), (&json!("org/tiny"), &json!(["tiny"])));
    let direct = ["run", "tiny", "Tell me a story.", "-n", "8"];
    let told = run(&direct).ends(0, &[]).stdout;
    assert_eq!(told, run(&["generate", "-m", "org/tiny", "Tell me a story.", "-n", "8"]).stdout);
    run(&["run", "tny"]).ends(1, &["no file or directory tny", "did you mean `tiny`?"]);
    run(&["inspect", "org/tinny"]).ends(1, &["org/tinny"]);
    run(&["rm", "tini"]).ends(1, &["has no model tini; did you mean `tiny`?"]);
    let cache = home.path().join("hub");
    let server = Server::start(&["--models", path(&cache)]);
    let text =
        content(&server, &ask("Tell me a story.", json!({"model": "org/tiny", "max_tokens": 8})));
    assert_eq!(text, told.trim_end());
    let url = format!("http://{}", server.address);
    let shown = run(&["ps", &url]).ends(0, &[]).stdout;
    assert!(shown.contains("-     org/tiny  loaded  512"), "{shown}");
    let shown = run(&["ps", &url, "-o", "json"]).ends(0, &[]).stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert!(shown[0]["id"] == "org/tiny" && shown[0]["commit"].is_string(), "{shown}");
    run(&["health", &url]).ends(0, &[]);
    drop(server);
    short_names_are_listed(&hub, home.path(), &folder.path().join("fox.safetensors"));
    run(&["rm", "tiny"]).ends(0, &[]);
    run(&["rm", "tiny"]).ends(1, &["has no model tiny"]);
    assert!(!cache.join("models--org--tiny").exists());
    run(&["generate", "-m", "tiny", "Hi"]).ends(1, &["no name of the store"]);
    run(&["pull", "tiny"]).ends(1, &["is no hub id"]);
    run(&["pull", "org/tiny", "--name", "a/b"]).ends(1, &["is not a name"]);
}

/// Starts a server of the store in `home`, which this hub fills.
fn store_server(hub: &Hub, home: &Path, args: &[&str]) -> Server {
    let mut command = wf_run(&[&["serve", "--port", "0", "-t", "1"], args].concat());
    hub.environment(&mut command, home).env("WF_LOG", "warn");
    Server::of(command)
}

#[test]
fn clients_pull_and_delete_models_where_that_is_allowed() {
    let folder = models();
    let bytes = fs::read(folder.path().join("fox.safetensors")).expect("there");
    let size = bytes.len();
    let files = [("model.safetensors".to_string(), bytes)].into();
    let state = State { repos: [("org/tiny".to_string(), files)].into(), ..State::default() };
    let (hub, home) = (Hub::start(state), tempfile::tempdir().expect("a folder"));
    let closed = store_server(&hub, home.path(), &["--models", "store"]);
    let error = closed.post("/api/pull", &json!({"model": "org/tiny"})).is(403).json();
    assert!(error["error"].as_str().expect("text").contains("--manage-models"), "{error}");
    closed.send("DELETE", "/api/delete", "", "{\"model\": \"org/tiny\"}").is(403);
    drop(closed);

    let server = store_server(&hub, home.path(), &["--models", "store", "--manage-models"]);
    let reply = server.post("/api/pull", &json!({"model": "hf.co/org/tiny:latest"})).is(200);
    assert!(reply.head.contains("application/x-ndjson"), "{}", reply.head);
    let lines: Vec<Value> =
        reply.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0], json!({"status": "pulling manifest"}));
    assert_eq!(lines[lines.len() - 1], json!({"status": "success"}));
    let progress: Vec<&Value> = lines.iter().filter(|line| line["digest"].is_string()).collect();
    assert_eq!(progress[0]["status"], "pulling model.safetensors");
    assert!(progress.iter().all(|line| line["total"] == size), "{lines:?}");
    assert_eq!(progress[progress.len() - 1]["completed"], size);
    assert_eq!(in_state(&server, "unloaded"), ["org/tiny"], "it is there at once");
    content(&server, &ask("Hi", json!({"model": "org/tiny", "max_tokens": 2})));
    let again = server.post("/api/pull", &json!({"name": "org/tiny", "stream": false})).is(200);
    assert_eq!(again.json(), json!({"status": "success"}));

    for (body, status, part) in [
        (json!({"model": "llama3.2"}), 400, "is no hub id"),
        (json!({"model": "org/tiny", "insecure": true}), 400, "insecure"),
        (json!({"model": "org/none", "stream": false}), 502, "org/none"),
    ] {
        let error = server.post("/api/pull", &body).is(status).json();
        assert!(error["error"].as_str().expect("text").contains(part), "{error}");
    }
    let reply = server.post("/api/pull", &json!({"model": "org/none"})).is(200);
    assert!(reply.body.lines().last().expect("a line").contains("\"error\""), "{}", reply.body);

    let delete =
        |name: &str| server.send("DELETE", "/api/delete", "", &json!({"model": name}).to_string());
    delete("org/other").is(404);
    assert_eq!(delete("org/tiny:latest").is(200).body, "");
    assert!(!home.path().join("hub/models--org--tiny").exists(), "its files are gone");
    assert_eq!(server.get("/api/tags").is(200).json(), json!({"models": []}));
    delete("org/tiny").is(404);
    crate::common::run(&["serve", "--manage-models"]).ends(2, &["--models store"]);
}

/// A client that leaves ends its download, so the next one begins at once.
#[test]
fn a_download_ends_with_its_client() {
    let files = [("model.safetensors".to_string(), vec![0; 16 << 20])].into();
    let state = State { repos: [("org/big".to_string(), files)].into(), ..State::default() };
    let (hub, home) = (Hub::start(state), tempfile::tempdir().expect("a folder"));
    hub.change(|state| state.pause = Some(Duration::from_secs(1)));
    let server = store_server(&hub, home.path(), &["--models", "store", "--manage-models"]);
    let body = json!({"model": "org/big"});
    let first = server.open("POST", "/api/pull", "", &body.to_string());
    let mut lines = BufReader::new(&first).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("pulling model.safetensors")));
    server.post("/api/pull", &body).is(429);
    drop(first);
    wait_until("the download ended", || {
        let other = server.post("/api/pull", &json!({"model": "org/none", "stream": false}));
        other.status == 502
    });
}

/// A hub that says nothing: clients that leave their downloads do not keep the next one from beginning.
#[test]
fn a_silent_hub_keeps_no_permit() {
    let (hub, home) = (Hub::start(State::default()), tempfile::tempdir().expect("a folder"));
    hub.change(|state| state.scripts = vec![("GET /api/".into(), Vec::new())]);
    let server = store_server(&hub, home.path(), &["--models", "store", "--manage-models"]);
    for name in ["org/a", "org/b"] {
        let body = json!({"model": name}).to_string();
        let begin = Instant::now();
        loop {
            let mut stream = server.open("POST", "/api/pull", "", &body);
            let mut head = [0; 12];
            stream.read_exact(&mut head).expect("an answer");
            if head.ends_with(b"200") {
                server.post("/api/pull", &json!({"model": "org/c"})).is(429);
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(15), "the one before has left");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reads the beginning of a stream and leaves the rest unread.
fn slow_reader(server: &Server, model: &str) -> BufReader<TcpStream> {
    let more = json!({"model": model, "max_tokens": 1000, "n": 4, "logprobs": true,
        "top_logprobs": 20, "ignore_eos": true, "stream": true});
    let body = ask("Hi", more).to_string();
    let headers = "content-type: application/json\r\n";
    let mut stream = BufReader::new(server.open("POST", "/v1/chat/completions", headers, &body));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        stream.read_line(&mut line).expect("a line");
    }
    stream
}

/// Each endpoint that loads or unloads, with all ways to say so: none waits for itself.
#[test]
fn handlers_do_not_wait_for_themselves() {
    let folder = models();
    let server = Server::start(&["--models", path(folder.path()), "--keep-alive", "-1"]);
    let unloads = [
        ("/api/generate", json!({"model": "fox", "keep_alive": 0})),
        ("/api/generate", json!({"model": "fox", "keep_alive": "0s", "prompt": ""})),
        ("/api/chat", json!({"model": "fox", "keep_alive": 0, "messages": []})),
        ("/models/unload", json!({"model": "fox"})),
        ("/v1/models/unload", json!({"model": "fox"})),
    ];
    for (endpoint, body) in &unloads {
        server.post("/models/load", &json!({"model": "fox"})).is(200);
        let begin = Instant::now();
        server.post(endpoint, body).is(200);
        assert!(begin.elapsed() < Duration::from_secs(10), "{endpoint}: {:?}", begin.elapsed());
        assert!(in_state(&server, "loaded").is_empty(), "{endpoint} {body}");
    }
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let endpoints = [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 2})),
        ("/v1/completions", json!({"prompt": "Hi", "max_tokens": 2})),
        ("/v1/responses", json!({"input": "Hi", "max_output_tokens": 16})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 2})),
        ("/v1/messages/count_tokens", json!({"messages": messages})),
        ("/v1/embeddings", json!({"input": "Hi"})),
        ("/completion", json!({"prompt": "Hi", "n_predict": 2})),
        ("/embedding", json!({"content": "Hi"})),
        ("/tokenize", json!({"content": "Hi"})),
        ("/detokenize", json!({"tokens": [5]})),
        ("/apply-template", json!({"messages": messages})),
        ("/slots/0?action=erase", json!({})),
        ("/api/chat", json!({"messages": messages, "stream": false, "keep_alive": 0})),
        ("/api/generate", json!({"prompt": "Hi", "stream": false, "keep_alive": 0})),
        ("/api/embed", json!({"input": "Hi", "keep_alive": 0})),
        ("/api/embeddings", json!({"prompt": "Hi"})),
        ("/api/show", json!({})),
        ("/v1/responses/input_tokens", json!({"input": "Hi"})),
        ("/pooling", json!({"input": "Hi"})),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 2})),
    ];
    let document = server.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{id}", "0");
        let all = endpoints.iter().chain(&unloads).map(|(endpoint, _)| *endpoint);
        let tested =
            all.map(|endpoint| endpoint.split('?').next()).any(|tested| tested == Some(&path))
                || ["/models/load", "/v1/models/load", "/api/pull"].contains(&path.as_str());
        assert!(methods.get("post").is_none() || tested, "{path} is in no list of this test");
    }
    for (endpoint, body) in endpoints {
        let mut body = body;
        body["model"] = "fox".into();
        let begin = Instant::now();
        let status = server.post(endpoint, &body).status;
        assert!([200, 400, 501].contains(&status), "{endpoint}: {status}");
        server.post("/models/unload", &json!({"model": "fox"})).is(200);
        assert!(begin.elapsed() < Duration::from_secs(20), "{endpoint}: {:?}", begin.elapsed());
    }
}

/// Clients that read slowly keep no engine: others get their model when the answers are computed.
#[test]
fn slow_readers_keep_no_model_in_memory() {
    let folder = models();
    let args = ["--models", path(folder.path()), "--memory-limit", ONE, "--context", "2048"];
    let server = Server::start(&args);
    let readers = [slow_reader(&server, "fox"), slow_reader(&server, "fox")];
    let begin = Instant::now();
    content(&server, &ask("Hi", json!({"model": "owl", "max_tokens": 4})));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_eq!(in_state(&server, "loaded"), ["owl"]);
    drop(readers);
}

/// A body that is wrong whatever the model gets its status, also if its model is not in memory.
#[test]
fn bad_streams_of_models_that_load_get_their_status() {
    let folder = models();
    let server = Server::start(&["--models", path(folder.path())]);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let bad = [
        ("/v1/chat/completions", json!({"messages": messages, "temperature": "hot"})),
        ("/v1/chat/completions", json!({"messages": messages, "n": 99})),
        ("/v1/chat/completions", json!({"messages": 1})),
        ("/v1/completions", json!({"prompt": "Hi", "logprobs": 99})),
        ("/v1/responses", json!({"input": "Hi", "text": {"format": {"type": "x"}}})),
        ("/v1/messages", json!({"messages": messages})),
    ];
    for (endpoint, mut body) in bad {
        body["model"] = "fox".into();
        body["stream"] = true.into();
        let reply = server.post(endpoint, &body);
        assert_eq!(reply.status, 400, "{endpoint} {body}: {}", reply.body);
    }
    assert!(in_state(&server, "loaded").is_empty(), "nothing was loaded for them");
}

/// Sends a chat request from this address.
#[cfg(target_os = "linux")]
fn ask_from(from: &str, server: &Server, more: Value) -> TcpStream {
    let (body, mut stream) = (ask("Hi", more).to_string(), connect_from(from, &server.address));
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("sent");
    stream
}

/// One client uses the memory and waits for four other models: another client's model is next.
#[test]
#[cfg(target_os = "linux")]
fn loads_have_a_share_for_each_client() {
    let folder = models();
    for number in 0..4 {
        let copy = folder.path().join(format!("cat{number}.safetensors"));
        fs::copy(folder.path().join("fox.safetensors"), copy).expect("copied");
    }
    let server = Server::slow(&["--models", path(folder.path()), "--memory-limit", ONE]);
    let long = json!({"model": "fox", "max_tokens": 1900, "ignore_eos": true, "stream": true});
    let mut first = ask_from("127.0.0.2", &server, long);
    first.read_exact(&mut [0; 600]).expect("it begins");
    let order = Mutex::new(Vec::new());
    let answered = |mut stream: TcpStream, name| {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        order.lock().expect("no panic").push(name);
    };
    let wait = |from, model: String| {
        let stream = ask_from(from, &server, json!({"model": model, "max_tokens": 40}));
        thread::sleep(Duration::from_millis(100));
        stream
    };
    let cats: Vec<TcpStream> = (0..4).map(|i| wait("127.0.0.2", format!("cat{i}"))).collect();
    let owl = wait("127.0.0.1", "owl".into());
    let loaded = in_state(&server, "loaded");
    assert!(loaded.is_empty(), "the others wait for the end of the stream: {loaded:?}");
    drop(first);
    thread::scope(|scope| {
        scope.spawn(|| answered(owl, "owl"));
        for cat in cats {
            scope.spawn(|| answered(cat, "cat"));
        }
    });
    let order = order.into_inner().expect("no panic");
    let place = order.iter().position(|name| *name == "owl").expect("answered");
    assert!(place <= 1, "{order:?}");
}

/// Errors of files name no folders of the server, and a broken file is not read for each request.
#[test]
fn load_errors_tell_no_folders() {
    let folder = models();
    fs::write(folder.path().join("broken.gguf"), "GGUF").expect("written");
    let server = Server::start(&["--models", path(folder.path())]);
    for _ in 0..3 {
        let error = server.chat(&ask("Hi", json!({"model": "broken"}))).is(500);
        assert!(!error.body.contains(path(folder.path())), "{}", error.body);
        assert!(error.body.contains("broken"), "{}", error.body);
    }
    for list in ["/v1/models", "/v1/models/broken", "/api/tags"] {
        let body = server.get(list).is(200).body;
        assert!(!body.contains(path(folder.path())), "{body}");
    }
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    assert_eq!(log.matches("loading failed").count(), 1, "{log}");
}
